#!/usr/bin/env bash
# Clients that people bring, against a daemon of BUILD with the demo model, over TCP with a key:
#     tests/http/clients.sh BUILD [lm_eval|aiperf|guidellm]...
# Without names all of them. Each has a Python environment of its own in BUILD/clients, made once, from the package index that
# pip knows: lm_eval and aiperf take 1 GiB each, guidellm 7 (torch). Prints each check; exit 1 if one fails; 77, with the reasons,
# where a client cannot be installed and no check failed. INSTALL_S: seconds that an installation may take (300).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?tests/http/clients.sh BUILD [CLIENT...]}" && pwd)
shift
[ $# -gt 0 ] || set -- lm_eval aiperf guidellm
model=$here/../../deploy/demo-model
environments=$build/clients
mkdir -p "$environments"
scratch=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    rm -rf "$scratch"
}
trap cleanup EXIT

skipped=0
# shellcheck source=tests/check.sh
. "$here/../check.sh"

# ---- their environments

skip() { # CLIENT WHY
    echo "SKIPPED $1: $2"
}

install() { # CLIENT GIB PACKAGE: false where it cannot be had
    local name=$1 gib=$2 package=$3 log=$environments/$1.log
    [ ! -e "$environments/$name/done" ] || return 0
    if ! python3 -c '' 2> /dev/null; then
        skip "$name" "no python3 here"
        return 1
    fi
    if [ "$(df --output=avail -k "$environments" | tail -1)" -lt $((gib * 1048576)) ]; then
        skip "$name" "less than $gib GiB are free"
        return 1
    fi
    rm -rf "${environments:?}/$name"
    if ! python3 -m venv "$environments/$name" > "$log" 2>&1; then
        skip "$name" "no python3-venv here ($log)"
        return 1
    fi
    if ! timeout "${INSTALL_S:-300}" "$environments/$name/bin/pip" install --quiet --disable-pip-version-check "$package" >> "$log" 2>&1; then
        skip "$name" "$package cannot be installed ($log)"
        rm -rf "${environments:?}/$name"
        return 1
    fi
    touch "$environments/$name/done"
}

# ---- the daemon

# What these tools look for in Hugging Face's hub lies in a cache of our own, and nothing is fetched from there.
make_scene() {
    local commit=0123456789012345678901234567890123456789 cached=$scratch/hub/hub/models--sluice--demo
    mkdir -p "$cached/refs" "$cached/snapshots"
    cp -r "$model" "$cached/snapshots/$commit"
    printf %s "$commit" > "$cached/refs/main"
    printf 'web %s\n' "$key" > "$scratch/keys"
    printf '%s\n' '417+385=|802|801' '12+30=|42|24' 'sort 83012=|01238|83012' 'max 12,845,77=|845|77' > "$scratch/questions"
    awk -F'|' '{ printf "{\"question\":\"%s\",\"answer\":\"%s\",\"choices\":[\"%s\",\"%s\"],\"gold\":0}\n", $1, $2, $2, $3 }' \
        "$scratch/questions" > "$scratch/items.jsonl"
    awk -F'|' '{ printf "{\"text\":\"%s\"}\n", $1 }' "$scratch/questions" > "$scratch/texts.jsonl"
    for _ in 1 2 3 4; do
        awk -F'|' '{ printf "{\"prompt\":\"%s\",\"output_tokens_count\":4}\n", $1 }' "$scratch/questions"
    done > "$scratch/prompts.jsonl"
}

start_daemon() {
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || return 1
    url=http://127.0.0.1:$port
    "$build/daemon/sluiced" --model "$model" --device cpu --socket "$scratch/s" --http "127.0.0.1:$port" --api-key-file "$scratch/keys" \
        > "$scratch/log" 2>&1 &
    daemon=$!
    for _ in $(seq 300); do
        ! python3 -c "import urllib.request as r; r.urlopen('$url/health')" 2> /dev/null || return 0
        kill -0 "$daemon" 2> /dev/null || break
        sleep 0.1
    done
    cat "$scratch/log"
    return 1
}

# ---- clients

# Answers are asked for, and the likelier of two by the log-probabilities of an echoed prompt; tokens come from the daemon.
lm_eval() {
    local task
    mkdir -p "$scratch/tasks"
    for task in ask choose; do
        {
            printf 'task: demo_%s\ndataset_path: json\ndataset_kwargs: {data_files: {test: %s/items.jsonl}}\n' "$task" "$scratch"
            printf 'test_split: test\ndoc_to_text: "{{question}}"\ntarget_delimiter: ""\n'
        } > "$scratch/tasks/$task.yaml"
    done
    printf '%s\n' 'output_type: generate_until' 'doc_to_target: answer' 'metric_list: [{metric: exact_match}]' \
        'generation_kwargs: {until: ["\n"], max_gen_toks: 16, temperature: 0}' >> "$scratch/tasks/ask.yaml"
    printf '%s\n' 'output_type: multiple_choice' 'doc_to_choice: choices' 'doc_to_target: gold' \
        'metric_list: [{metric: acc}]' >> "$scratch/tasks/choose.yaml"
    (cd "$scratch" && timeout 120 "$environments/lm_eval/bin/lm_eval" run --model local-completions --model_args \
        "model=demo-model,base_url=$url/v1/completions,tokenizer_backend=remote,num_concurrent=2,max_length=256,auth_token=$key" \
        --include_path "$scratch/tasks" --tasks demo_ask,demo_choose --output_path "$scratch/lm_eval") || return 1
    python3 - "$scratch/lm_eval" << 'END'
import json, pathlib, sys
[path] = pathlib.Path(sys.argv[1]).rglob("results_*.json")
results = json.loads(path.read_text())["results"]
print(results)
sys.exit(results["demo_ask"]["exact_match,none"] != 1 or results["demo_choose"]["acc,none"] != 1)
END
}

aiperf() {
    (cd "$scratch" && timeout 120 "$environments/aiperf/bin/aiperf" profile --model demo-model --url "$url" --api-key "$key" \
        --endpoint-type completions --streaming --use-server-token-count --tokenizer sluice/demo --input-file "$scratch/texts.jsonl" \
        --custom-dataset-type single_turn --request-count 8 --concurrency 2 --ui none --artifact-dir "$scratch/aiperf") || return 1
    python3 - "$scratch/aiperf/profile_export_aiperf.json" << 'END'
import json, sys
seen = json.load(open(sys.argv[1]))
print(seen["request_count"], seen["error_summary"], seen["time_to_first_token"], seen["total_output_tokens"])
sys.exit(seen["request_count"]["avg"] != 8 or bool(seen["error_summary"]) or seen["time_to_first_token"]["count"] != 8
         or seen["total_output_tokens"]["avg"] < 8)
END
}

# It asks for usage in each event, and for exact lengths.
guidellm() {
    (cd "$scratch" && timeout 120 "$environments/guidellm/bin/guidellm" run --disable-progress \
        --backend "kind=openai_http,target=$url,api_key=$key,request_format=/v1/completions" --profile kind=concurrent,streams=2 \
        --constraint kind=max_requests,count=8 --data "kind=json_file,path=$scratch/prompts.jsonl" \
        --tokenizer kind=huggingface_auto,model="$model" --output "kind=json,path=$scratch/guidellm.json") || return 1
    python3 - "$scratch/guidellm.json" << 'END'
import json, sys
metrics = json.load(open(sys.argv[1]))["benchmarks"][0]["metrics"]
print(metrics["request_totals"])
sys.exit(metrics["request_totals"]["successful"] != 8 or metrics["request_totals"]["errored"] != 0)
END
}

key=the-key-of-the-test
for client in "$@"; do
    case $client in
        lm_eval | aiperf | guidellm) ;;
        *) echo "no such client: $client"; exit 2 ;;
    esac
done
for client in "$@"; do # beside each other: they wait for the index
    case $client in
        lm_eval) install lm_eval 2 'lm-eval[api]>=0.4.13,<0.5' & ;;
        aiperf) install aiperf 2 'aiperf>=0.13,<0.14' & ;;
        guidellm) install guidellm 12 'guidellm>=0.8.1,<0.9' & ;;
    esac
done
wait
installed=()
for client in "$@"; do
    if [ -e "$environments/$client/done" ]; then
        installed+=("$client")
    else
        skipped=1
    fi
done
if [ ${#installed[@]} -gt 0 ]; then
    make_scene
    start_daemon || { echo "FAILED  the daemon is not ready"; exit 1; }
    export OPENAI_API_KEY=$key HF_HOME=$scratch/hub HF_HUB_OFFLINE=1 HOME=$scratch TOKENIZERS_PARALLELISM=false
    for client in "${installed[@]}"; do
        check "$client against the demo model" "$client"
    done
fi
[ $failed -eq 0 ] || exit 1
[ $skipped -eq 0 ] || exit 77
