#!/usr/bin/env bash
# Soak on the CPU device: several clients at once, with random loads, priorities, cancels, deadlines and
# disconnects, over the native protocol and over HTTP, for as long as is said:
#     tests/soak.sh [SECONDS] [BUILD] [SEED]        (180, .build/dev, and a seed from the clock, which is printed)
# Rounds of about 15 s. Between them nothing runs, and the daemon's counts must equal those of the clients: sequences
# accepted, done, failed, cancelled, past their deadline. At the end its resident memory may be at most 2 MiB above
# the first minute's, both with nothing running; under load it is what the load happens to need, and only told.
# Beside the model stands a second, which sleeps whenever nobody asks for it and when it is told to. Weights of
# both stay in host memory. At times the options are read again, amid all of that.
# Among them attackers: conversations whose template is expensive, floods of long conversations, a reader of all
# positions' embeddings that does not read for seconds, and a flood at the highest priority.
# Exit 1 when one of these does not hold, 77 under a sanitizer: its memory is not ours.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-180} build=${2:-.build/dev} seed=${3:-$(date +%s)}
sluice=$build/client/sluice
if nm -D "$build/daemon/sluiced" | grep -qE '__(asan|tsan|ubsan)_'; then
    echo "SKIPPED soak: a sanitizer's memory is not ours"
    exit 77
fi
folder=$(mktemp -d /tmp/sluice-soak-XXXXXX)
export SLUICE_SOCKET=$folder/native
http=$folder/http
finish() {
    local clients
    clients=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$clients" ] || kill $clients 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

# The demo model with a context in which a request is surely not over when its client goes, and with a template that
# compares lists nested as deep as its asker says.
mkdir "$folder/model"
cp deploy/demo-model/*.json deploy/demo-model/model.safetensors "$folder/model/"
sed -i -E 's/("max_position_embeddings": )[0-9]+/\14096/' "$folder/model/config.json"
cat > "$folder/template" << 'END'
{%- for message in messages -%}{{ message.content }}{%- endfor -%}{%- if depth is defined -%}
{%- set n = namespace(a=[1], b=[1]) -%}{%- for i in range(depth) -%}{%- set n.a = [n.a, n.a] -%}
{%- set n.b = [n.b, n.b] -%}{%- endfor -%}{%- if n.a < n.b -%}x{%- endif -%}{%- endif -%}
END
template=$(tr -d '\n' < "$folder/template")
sed -i "0,/{/s##{\"chat_template\": \"${template//&/\\&}\",#" "$folder/model/tokenizer_config.json"
"$build/daemon/sluiced" --model "first=$folder/model" --model second=synthetic:tiny --model-option second:sleep-after=600ms --host-memory 64MiB --device cpu --socket "$SLUICE_SOCKET" --http "unix:$http" \
    --queue-sequences 128 --sequences-max 24 --results-max 4MiB --kv-idle-release 500ms --cache-idle-release 500ms --log-level warning 2> "$folder/log" &
daemon=$!
until "$sluice" health > /dev/null 2>&1; do
    kill -0 $daemon || { cat "$folder/log"; exit 1; }
    sleep 0.1
done

# ---- clients: each prints the ends of what it asked for as lines "NAME NUMBER", and what was accepted of it

between() { echo $(($1 + RANDOM % ($2 - $1 + 1))); } # LEAST MOST
one_of() { shift $((RANDOM % $#)) && echo "$1"; }
wrong() { echo "$*" >> "$folder/wrong"; }

# A run of `sluice bench`; what was refused as busy was not accepted, and that may have been all of it.
bench() { # NAME [OPTION...]
    local name=$1 json=$folder/$1.json
    shift
    rm -f "$json"
    "$sluice" bench --seed "$RANDOM" --duration "$(between 1 3)" --request-rate "$(between 5 60)" \
        --burstiness "$(one_of 0.3 1 1 inf)" --random-input-len "$(one_of 8 32 100)" --random-output-len "$(one_of 4 16 60)" \
        --random-range-ratio 0.9 --ignore-eos --connections "$(between 1 8)" --json "$json" --save-detailed "$@" \
        > "$folder/$name.text" 2>&1 || [ -s "$json" ] || {
        # Drawn so that nothing comes in that time: nothing was asked.
        grep -q 'no request arrives in that time' "$folder/$name.text" || wrong "bench $*: $(tail -1 "$folder/$name.text")"
        return
    }
    {
        grep -oE '"(completed|failed|cancelled)":[0-9]+' "$json" | tr -d '"' | tr ':' ' '
        grep -o '"errors":\[[^]]*' "$json" | cut -d'[' -f2 | tr ',' '\n' | tr -d '"'
    } | awk 'NF == 2 { n[$1] = $2 } NF == 1 { n[$1 == "busy" || $1 == "deadline" ? $1 : "error"]++ }
        END {
            print "accepted", n["completed"] + n["cancelled"] + n["failed"] - n["busy"]
            print "done", n["completed"]; print "cancelled", n["cancelled"] + 0
            print "deadline", n["deadline"] + 0; print "error", n["error"] + 0
        }'
}
native_client() { bench "$1" --cancel-rate "0.$(between 0 6)" --priority-mix=-8:1,-2:2,0:4,3:2,7:1; }
http_client() { bench "$1" --openai "unix:$http" --vocabulary 256 --priority-mix=0:4,3:1; }

# A file of prompts, some with a deadline that passes while they wait or run; scores and embeddings at times.
file_client() { # NAME
    local lines=$folder/$1.jsonl results=$folder/$1.out command=generate
    for _ in $(seq "$(between 20 80)"); do
        printf '{"tokens":[%d,%d,%d],"priority":%d,"deadline_ms":%d,"max_tokens":%d,"n":%d}\n' $((RANDOM % 256)) \
            $((RANDOM % 256)) $((RANDOM % 256)) "$(between -8 7)" "$(one_of 0 0 5 20 80 300)" "$(between 1 120)" "$(one_of 1 1 1 3)"
    done > "$lines"
    if [ "$(between 0 3)" -eq 0 ]; then
        command=$(one_of score embed)
        sed -i -E 's/,"deadline_ms.*/}/' "$lines"
    fi
    "$sluice" "$command" --file "$lines" --json > "$results" 2> "$folder/$1.text" || [ $? -eq 5 ] ||
        wrong "$command: $(tail -1 "$folder/$1.text")"
    sed -E 's/.*"n":([0-9]+).*/\1/; s/^\{.*/1/' "$lines" | awk '{ n += $1 } END { print "accepted", n }'
    grep -oE '"finish_reason":"[a-z]+"' "$results" | cut -d'"' -f4 |
        sed -E 's/^(stop|length)$/done/; s/$/ 1/'
}

# The second model, and at times an admin that puts it to sleep; then it is left alone for long enough.
second_client() { # NAME
    local lines=$folder/$1.jsonl prompts status
    for _ in $(seq "$(between 1 20)"); do
        printf '{"tokens":[%d,2,3],"max_tokens":%d}\n' $((RANDOM % 256)) "$(between 1 40)"
    done > "$lines"
    [ "$(between 0 1)" -eq 0 ] || "$sluice" sleep second > "$folder/$1.text" || wrong "sleep: $(tail -1 "$folder/$1.text")"
    if [ "$(between 0 1)" -eq 0 ]; then
        "$sluice" generate --model second --file "$lines" --ignore-eos --json > "$folder/$1.out" 2> "$folder/$1.text" ||
            wrong "generate: $(tail -1 "$folder/$1.text")"
    else
        prompts=$(grep -o '\[[^]]*\]' "$lines" | paste -sd,)
        status=$(curl -s -o "$folder/$1.json" -w '%{http_code}' --unix-socket "$http" http://localhost/v1/completions \
            -H 'Content-Type: application/json' \
            -d "{\"model\":\"second\",\"prompt\":[$prompts],\"max_tokens\":40,\"ignore_eos\":true}") || true
        [ "$status" != 429 ] || return 0 # busy: nothing was accepted
        [ "$status" = 200 ] || wrong "the second model over HTTP: $status $(cat "$folder/$1.json")"
        grep -oE '"finish_reason":"[a-z]+"' "$folder/$1.json" > "$folder/$1.out"
    fi
    printf 'accepted %d\ndone %d\n' "$(wc -l < "$lines")" "$(grep -cE '"finish_reason":"(stop|length)"' "$folder/$1.out")"
    sleep "$(one_of 0 0.1 0.7 1)"
}

# A request that would go on for long: once its first tokens have come the client is gone, or is interrupted and cancels.
fleeing_client() { # NAME
    local output=$folder/$1.out n=1 signal=KILL client status=0
    : > "$output"
    if [ "$(between 0 2)" -eq 0 ]; then
        curl -sN --unix-socket "$http" http://localhost/v1/completions -H 'Content-Type: application/json' \
            -d '{"prompt":[1,2,3],"max_tokens":4000,"stream":true,"ignore_eos":true}' > "$output" &
    else
        n=$(one_of 1 1 4) signal=$(one_of KILL INT)
        "$sluice" generate --tokens 1,2,3 --max-tokens 4000 --ignore-eos --n "$n" --priority "$(between -8 7)" \
            > "$output" 2> "$folder/$1.text" &
    fi
    client=$!
    while [ ! -s "$output" ] && kill -0 $client 2> /dev/null; do
        sleep 0.02
    done
    sleep "0.$(between 0 3)"
    kill -$signal $client 2> /dev/null || true
    wait $client 2> /dev/null || status=$?
    case $status in
    130 | 137) printf 'accepted %d\ncancelled %d\n' "$n" "$n" ;;
    4) ;; # busy
    0) grep -q '"error"' "$output" || printf 'accepted %d\ndone %d\n' "$n" "$n" ;;
    *) wrong "a client that was to go ended with $status: $(tail -1 "$folder/$1.text")" ;;
    esac
}

# ---- attackers: as many requests as are said, each

# A conversation over HTTP; what it came to is a line of the client's. What was refused was not accepted.
chat() { # BODY-FILE
    local status
    status=$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$http" http://localhost/v1/chat/completions \
        -H 'Content-Type: application/json' --data-binary "@$1")
    case $status in
    200) printf 'accepted 1\ndone 1\n' ;;
    400 | 413 | 429 | 503 | 504) ;;
    *) wrong "a conversation was answered with $status" ;;
    esac
}
chats() { # NAME COUNT: of the body that stands there, four at a time
    local pids=()
    for _ in $(seq "$2"); do
        chat "$folder/$1.body" &
        pids+=($!)
        [ ${#pids[@]} -lt 4 ] || { wait "${pids[@]}" && pids=(); }
    done
    wait "${pids[@]}"
}

# Lists of 2^DEPTH elements, by sharing: to compare them is counted, and given up.
expensive_attacker() { # NAME
    printf '{"messages":[{"role":"user","content":"12+30="}],"max_tokens":2,"chat_template_kwargs":{"depth":%d}}' \
        "$(one_of 2 8 12 "${SOAK_DEPTH:-60}")" > "$folder/$1.body"
    chats "$1" 12
}

# More messages than the context holds, at times.
chat_attacker() { # NAME
    {
        printf '{"max_tokens":2,"messages":['
        for _ in $(seq "$(one_of 300 2000 20000)"); do
            printf '{"role":"user","content":"1"},'
        done
        printf '{"role":"user","content":"="}]}'
    } > "$folder/$1.body"
    chats "$1" 24
}

# All positions' embeddings, which take far more room than there is (results-max), and nobody reads for a while.
slow_attacker() { # NAME
    local lines=$folder/$1.jsonl
    for _ in $(seq 40); do
        echo "{\"tokens\":[$(seq -s, 1 255)]}"
    done > "$lines"
    { "$sluice" embed --pooling all --file "$lines" 2> "$folder/$1.text" || wrong "embed: $(tail -1 "$folder/$1.text")"; } |
        { sleep 3 && wc -l > "$folder/$1.rows"; }
    [ "$(cat "$folder/$1.rows")" -eq $((40 * 255)) ] || wrong "embed: $(cat "$folder/$1.rows") rows"
    printf 'accepted 40\ndone 40\n'
}

# The highest priority, and more of it than runs at a time.
priority_attacker() { # NAME
    local lines=$folder/$1.jsonl
    for _ in $(seq 100); do
        printf '{"tokens":[%d,2,3],"priority":7,"max_tokens":40}\n' $((RANDOM % 256))
    done > "$lines"
    "$sluice" generate --file "$lines" --ignore-eos --json > "$folder/$1.out" 2> "$folder/$1.text" ||
        wrong "generate: $(tail -1 "$folder/$1.text")"
    printf 'accepted 100\ndone %d\n' "$(grep -cE '"finish_reason":"(stop|length)"' "$folder/$1.out")"
}

# Looks on, costs connections, and at times has the options read again.
onlooker() {
    [ "$(between 0 7)" -gt 0 ] || kill -HUP $daemon
    "$sluice" stats --requests --json > /dev/null || wrong "no stats"
    curl -sf --unix-socket "$http" http://localhost/metrics > /dev/null || wrong "no metrics"
    sleep "0.$(between 1 9)"
}

again_and_again() { # CLIENT NUMBER: until the round is over
    RANDOM=$(((seed + 100 * round + $2) % 32768))
    while [ $SECONDS -lt $round_end ]; do
        "$1" "$1$2"
    done > "$folder/count.$2"
}

# ---- rounds

resident() { awk '/^VmRSS/ { print $2 }' "/proc/$daemon/status"; }
ends() { # of lines "NAME NUMBER"
    awk '{ n[$1] += $2 } END { printf "accepted %d = done %d + error %d + cancelled %d + deadline %d", n["accepted"],
        n["done"], n["error"], n["cancelled"], n["deadline"] }'
}
add_up() { # whether the parts are the whole
    awk '{ exit $2 != $5 + $8 + $11 + $14 }' <<< "$1"
}
daemons_ends() {
    "$sluice" stats --json | grep -oE '"(sequences|finished_[a-z]+)_total":[0-9]+' |
        sed -E 's/"sequences_total"/accepted/; s/"finished_(stop|length)_total"/done/; s/"finished_([a-z]+)_total"/\1/; s/:/ /' | ends
}
is_idle() {
    "$sluice" stats --json | grep -q '"requests":0,"waiting":0,.*"kv_blocks_used":0,.*"live_sequences":0'
}
fail() {
    echo "FAILED  $*"
    cat "$folder/log"
    exit 1
}

echo "soak of $seconds s, seed $seed"
: > "$folder/wrong"
: > "$folder/counts"
round=0 first_idle=0 first_peak=0 last_peak=0
while [ $SECONDS -lt "$seconds" ]; do
    round=$((round + 1)) round_end=$((SECONDS + 14)) peak=0 clients=() number=0
    for client in native_client native_client http_client second_client file_client file_client fleeing_client fleeing_client onlooker \
        expensive_attacker chat_attacker slow_attacker priority_attacker; do
        number=$((number + 1))
        again_and_again $client $number &
        clients+=($!)
    done
    while [ $SECONDS -lt $round_end ]; do
        now=$(resident)
        peak=$((now > peak ? now : peak))
        sleep 0.2
    done
    wait "${clients[@]}"
    cat "$folder"/count.* >> "$folder/counts"
    for _ in $(seq 100); do
        ! is_idle || break
        sleep 0.1
    done
    is_idle || fail "work is left when all clients have gone"
    sleep 1.5 # past kv-idle-release and cache-idle-release
    idle=$(resident) told=$(ends < "$folder/counts") has=$(daemons_ends)
    printf 'at %4d s: resident %d KiB idle, %d at most; %s\n' $SECONDS "$idle" "$peak" "$has"
    add_up "$has" || fail "the daemon's ends are not what it accepted"
    [ "$told" = "$has" ] || fail "the clients say $told"
    [ ! -s "$folder/wrong" ] || fail "$(cat "$folder/wrong")"
    if [ $((round_end - 14)) -lt 60 ]; then
        first_idle=$idle first_peak=$((peak > first_peak ? peak : first_peak))
    fi
    last_peak=$peak
done

"$sluice" stats --json | grep -qE '"name":"second"[^}]*"sleeps":[1-9][0-9]*,"wakes":[1-9]' || fail "the second model did not sleep and wake"
grep -qE 'done [1-9].* cancelled [1-9].* deadline [1-9]' <<< "$has" || fail "some kind of end did not happen"
"$sluice" stats --json | grep -oE '"(connections_total|refused_busy_total|preemptions_total|results_waited_total|owed_total|kv_(grown|shrunk)_total)":[0-9]+' |
    tr -d '"' | paste -sd' '
kill $daemon
wait $daemon || fail "the daemon ended with $?"
[ ! -s "$folder/log" ] || fail "it had something to say"
printf 'resident after the first minute and at the end: idle %d and %d KiB, under load at most %d and %d KiB\n' \
    "$first_idle" "$idle" "$first_peak" "$last_peak"
[ "$idle" -le $((first_idle + 2048)) ] || { echo "FAILED  it has grown by more than 2 MiB"; exit 1; }
echo "all holds"
