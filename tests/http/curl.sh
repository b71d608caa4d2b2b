#!/usr/bin/env bash
# curl against a daemon with the demo model and the program affine: curl.sh SLUICED PROGRAM. The README's examples, and what a client
# that is slow, rude or gone makes of the daemon. Prints each check; exit 1 if one fails.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

sluiced=$1
# The leak checker dies while it walks the emulated device's addresses; tests/http/ in memory looks for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
scratch=$(mktemp -d)
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

"$sluiced" --model deploy/demo-model --device cpu --socket "$scratch/sluice.sock" \
    --http "unix:$scratch/http.sock" --metrics "unix:$scratch/metrics.sock" \
    --program "$2" --state-dir "$scratch" --frame-timeout 1s --frame-max 1MiB --log-level warning &
daemon=$!

failed=0
count=0
# expect NAME PATTERN COMMAND...: what the command prints holds the pattern (a glob).
expect() {
    local name=$1 pattern=$2 seen
    shift 2
    seen=$("$@" 2>&1)
    count=$((count + 1))
    # shellcheck disable=SC2053
    if [[ $seen != $pattern ]]; then
        failed=$((failed + 1))
        printf '%s: %s\n  instead of %s\n' "$name" "$seen" "$pattern"
    fi
}
ask() {
    curl -sS --max-time 20 --unix-socket "$scratch/http.sock" "$@"
}
json=(-H 'Content-Type: application/json')

for _ in $(seq 100); do
    ask http://localhost/health 2> /dev/null | grep -q '"ready":true' && break
    sleep 0.1
done

# The READMEs' own lines that call curl --unix-socket, with this daemon's sockets in the place of theirs.
examples() {
    sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ba' -e '}' README.md daemon/http/README.md | grep -E '^curl .*--unix-socket ' |
        sed -e "s|--unix-socket /tmp/http.sock http://localhost/metrics|--unix-socket $scratch/metrics.sock http://localhost/metrics|" \
            -e "s|/tmp/http.sock|$scratch/http.sock|" -e 's/^curl/curl -sSf --max-time 20/'
}
readarray -t lines < <(examples)
for line in "${lines[@]}"; do
    case $line in
    */metrics) expect "$line" '*sluice_time_to_first_token_seconds_bucket*' bash -c "$line" ;;
    *'"stream": true'*) expect "$line" '*data: *data: \[DONE\]*' bash -c "$line" ;;
    */v2/*) expect "$line" '*"data":\[2,5,NaN\]*' bash -c "$line" ;;
    *) expect "$line" '*"text":"802"*' bash -c "$line" ;;
    esac
done
expect 'examples of the READMEs' 7 echo "${#lines[@]}"

expect completion '*"text":"802"*' \
    ask http://localhost/v1/completions "${json[@]}" -d '{"prompt": "417+385=", "max_tokens": 16}'
expect stream '*data: *"finish_reason":"stop"*data: \[DONE\]*' \
    ask -N http://localhost/v1/completions "${json[@]}" -d '{"prompt": "reverse stream=", "stream": true}'
expect models '*"id":"demo-model"*' ask http://localhost/v1/models
expect tokenize '*"tokens":\[52,49,55\]*' \
    ask http://localhost/tokenize "${json[@]}" -d '{"prompt": "417"}'
expect metrics '*sluice_time_to_first_token_seconds_bucket*' \
    curl -sS --max-time 20 --unix-socket "$scratch/metrics.sock" http://localhost/metrics

expect 'n results count their prompt once' '*"prompt_tokens":100,"completion_tokens":16,*' ask http://localhost/v1/completions \
    "${json[@]}" -d "{\"prompt\": \"$(printf '%0100d' 0)\", \"n\": 8, \"max_tokens\": 2, \"ignore_eos\": true}"
expect 'and read it once' '*sluice_prompt_tokens_shared_total 672*' \
    curl -sS --max-time 20 --unix-socket "$scratch/metrics.sock" http://localhost/metrics

status=(-o /dev/null -w '%{http_code}')
expect 'metrics are apart' 404 ask "${status[@]}" http://localhost/metrics
expect 'a chat' '*"content":"802"*' ask http://localhost/v1/chat/completions "${json[@]}" \
    -d '{"messages": [{"role": "user", "content": "417+385"}]}'
expect 'another type' 415 ask "${status[@]}" http://localhost/v1/completions -d '{"prompt": "1"}'
expect 'another method' 405 ask "${status[@]}" http://localhost/v1/completions
expect 'request id' '*x-request-id: mine*' ask -D - -o /dev/null -H 'x-request-id: mine' http://localhost/version
expect 'a large head' 431 ask "${status[@]}" -H "x-long: $(head -c 60000 /dev/zero | tr '\0' a)" http://localhost/version
head -c 10000000 /dev/zero | tr '\0' '[' > "$scratch/large"
expect 'a large body' 413 ask "${status[@]}" http://localhost/v1/completions "${json[@]}" --data-binary @"$scratch/large"
expect 'a large body in pieces' 413 ask "${status[@]}" http://localhost/v1/completions "${json[@]}" \
    -H 'Transfer-Encoding: chunked' --data-binary @"$scratch/large"
head -c 900000 "$scratch/large" > "$scratch/deep"
expect 'a deep body' 400 ask "${status[@]}" http://localhost/v1/completions "${json[@]}" --data-binary @"$scratch/deep"
# A byte at a time is cut off by the time that a body may take in all.
expect 'a slow body' 408 \
    ask --limit-rate 100 "${status[@]}" http://localhost/v1/completions "${json[@]}" --data-binary @"$scratch/deep"
# Gone in the midst of a stream: nothing of it is left.
timeout 0.2 curl -sSN --unix-socket "$scratch/http.sock" http://localhost/v1/completions "${json[@]}" \
    -d '{"prompt": "1+1=", "stream": true, "ignore_eos": true, "max_tokens": 240, "n": 64}' > /dev/null 2>&1
left() {
    for _ in $(seq 50); do
        curl -sS --max-time 20 --unix-socket "$scratch/metrics.sock" http://localhost/metrics |
            grep -cx 'sluice_requests 0' > /dev/null && echo none && return
        sleep 0.1
    done
}
expect gone none left

kill "$daemon"
wait "$daemon" || failed=$((failed + 1))
daemon=

# A synthetic model takes numbers, texts and chats.
"$sluiced" --model synthetic:tiny --device cpu --socket "$scratch/sluice.sock" --http "unix:$scratch/http.sock" --log-level warning &
daemon=$!
for _ in $(seq 100); do
    ask http://localhost/health 2> /dev/null | grep -q '"ready":true' && break
    sleep 0.1
done
for prompt in '[1, 2, 300]' '"a text"'; do
    expect "a synthetic model continues $prompt" '*"completion_tokens":4,*' ask http://localhost/v1/completions "${json[@]}" \
        -d "{\"prompt\": $prompt, \"max_tokens\": 4, \"ignore_eos\": true}"
done
expect 'a synthetic model chats' '*"content":"?*"*"completion_tokens":4,*' ask http://localhost/v1/chat/completions "${json[@]}" \
    -d '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "ignore_eos": true, "temperature": 0}'
kill "$daemon"
wait "$daemon" || failed=$((failed + 1))
daemon=
echo "$count checks, $failed failed"
[ "$failed" -eq 0 ]
