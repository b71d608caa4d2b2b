#!/usr/bin/env bash
# Checkpoints with a head of classes over HTTP: their classes, scores and rankings against what transformers said of the same
# weights (classes_check.py, classes.json), on one device and on several. Skipped without python3.
#     tests/http/classes.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
python3 -c '' 2> /dev/null || { echo "SKIPPED: no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/demo/daemon.sh
source tests/demo/daemon.sh
checkpoints=$folder/checkpoints
python3 tests/http/classes_check.py make "$checkpoints"
run() {
    name=$1
    # shellcheck disable=SC2034
    model=$checkpoints/$name
    shift
    echo "== $name $*"
    daemon_start --http "unix:$folder/http.sock" "$@"
    python3 tests/http/classes_check.py ask "$folder/http.sock" "$name"
    if "$sluice" generate --prompt a > "$folder/said" 2>&1; then
        echo "FAILED  sluice generate is answered"; exit 1
    fi
    grep -qF 'none for tokens' "$folder/said" || { cat "$folder/said"; echo "FAILED  sluice generate is refused otherwise"; exit 1; }
    daemon_stop
}
for name in llama mistral qwen2 qwen3 gemma gemma2 gemma3; do
    run "$name"
done
run llama --cpu-devices 2 --tp 2
run qwen2 --cpu-devices 2 --pp 2 --step-tokens 16
run gemma3 --cpu-devices 4 --tp 2 --pp 2 --prefix-cache no

# What cannot be, by name; and what --check tells of a head.
says() {
    said=$1
    status=$2
    shift 2
    code=0
    "$build/daemon/sluiced" --check --device cpu "$@" > "$folder/log" 2>&1 || code=1
    if [ "$code" != "$status" ] || ! grep -qF -- "$said" "$folder/log"; then
        cat "$folder/log"; echo "FAILED  it does not say \"$said\""; exit 1
    fi
    echo "ok      $said"
}
says 'config.json: problem_type: "ranking" is not supported' 1 --model "$checkpoints/problem"
says 'config.json: id2label: 1 has no name' 1 --model "$checkpoints/labels"
says 'sentence_transformers.activation_fn: "torch.nn.modules.activation.Tanh" is not supported' 1 --model "$checkpoints/activation"
says 'score.weight' 1 --model "$checkpoints/shape"
says 'scores       NO: the tokenizer'"'"'s template for a pair' 0 --model "$checkpoints/apart"
says 'classes      3, by the checkpoint'"'"'s own head: nothing is generated' 0 --model "$checkpoints/qwen2"
says 'scores       NO: the model'"'"'s head has 3 classes' 0 --model "$checkpoints/qwen2"
says 'scores       yes, by that head, of both texts without a template' 0 --model "$checkpoints/llama"
says 'score-tokens: the model has a head that scores, and no tokens' 1 --model "$checkpoints/llama" --score-tokens n,y
