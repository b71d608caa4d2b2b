#!/usr/bin/env bash
# Names, web pages and users of a trusted key over TCP, as bytes on the wire: access.sh SLUICED SLUICE. What is decided is
# tested in memory (access_test.c). Prints what is wrong; exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

expect() { # NAME PATTERN COMMAND...: what the command prints holds the pattern, and no line of a bare "!PATTERN"
    local name=$1 pattern=$2 seen
    shift 2
    seen=$("$@" 2>&1 | tr -d '\r')
    grep -qE -- "${pattern#!}" <<< "$seen"
    if [ $? -eq "$([[ $pattern = !* ]] && echo 0 || echo 1)" ]; then
        failed=$((failed + 1))
        printf '%s: %s\n  instead of %s\n' "$name" "$seen" "$pattern"
    fi
}
printf 'web first\nother second\n' > "$scratch/keys"
for port in $(shuf -i 20000-32000 -n 5); do # one that nobody has
    cat > "$scratch/config" << END
model = synthetic:null
device = cpu
served-model-name = rule
served-model-name = org/rule
http = 127.0.0.1:$port
http = unix:$scratch/http.sock
api-key-file = $scratch/keys
trusted-keys = web
http-names = llm.example.com
cors-origins = https://app.example.com
cors-origins = http://localhost:3000
END
    "$sluiced" --config "$scratch/config" --socket "$SLUICE_SOCKET" 2> "$scratch/log" &
    daemon=$!
    listens && break
done
ask() { curl -sS --max-time 20 -i --noproxy '*' "${@:2}" "http://127.0.0.1:$port$1"; }
key=(-H 'Authorization: Bearer first')
json=(-H 'Content-Type: application/json')
page=(-H 'Origin: https://app.example.com')

expect 'a name of ours' '^HTTP/1.1 200 ' ask /v1/models "${key[@]}" -H 'Host: llm.example.com'
expect 'another name' '^HTTP/1.1 421 ' ask /v1/models "${key[@]}" -H 'Host: evil.example.com'
expect 'both listeners and both names' '"id":"org/rule"' curl -sS --unix-socket "$scratch/http.sock" http://x/v1/models/org/rule

preflight=(-X OPTIONS -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: authorization, x-stainless-os')
expect 'a preflight' '^HTTP/1.1 204 No Content$' ask /v1/completions "${preflight[@]}" "${page[@]}"
expect 'its origin' '^Access-Control-Allow-Origin: https://app.example.com$' ask /v1/completions "${preflight[@]}" "${page[@]}"
expect 'its headers' '^Access-Control-Allow-Headers: authorization, x-stainless-os$' ask /v1/completions "${preflight[@]}" "${page[@]}"
expect 'a 204 has no length' '!^Content-Length|^Transfer-Encoding|^Content-Type' ask /v1/completions "${preflight[@]}" "${page[@]}"
expect 'and what follows on the connection is answered' '"id":"rule"' curl -sS --max-time 20 --noproxy '*' "${preflight[@]}" "${page[@]}" \
    "http://127.0.0.1:$port/v1/models" --next -sS "${key[@]}" "http://127.0.0.1:$port/v1/models"
expect 'a preflight of a stranger' '^HTTP/1.1 403 ' ask /v1/completions "${preflight[@]}" -H 'Origin: https://evil.example.com'
expect 'an answer to a page' '^Access-Control-Allow-Origin: https://app.example.com$' ask /v1/models "${key[@]}" "${page[@]}"
expect 'a refusal of a page' '^Access-Control-Allow-Origin: https://app.example.com$' ask /v1/models "${page[@]}"
expect 'an answer to a stranger' '!^Access-Control' ask /v1/models "${key[@]}" -H 'Origin: https://evil.example.com'
expect 'a stream' '^Access-Control-Allow-Origin: https://app.example.com$' ask /v1/completions "${key[@]}" "${page[@]}" "${json[@]}" \
    -d '{"prompt": "A", "max_tokens": 2, "stream": true}'

complete=(/v1/completions "${json[@]}" -d '{"prompt": "A", "max_tokens": 3}')
expect 'a user of a trusted key' '^HTTP/1.1 200 ' ask "${complete[@]}" "${key[@]}" -H 'X-Sluice-User: ann'
expect 'a user of another key' '^HTTP/1.1 403 ' ask "${complete[@]}" -H 'Authorization: Bearer second' -H 'X-Sluice-User: ann'
expect 'a user that is named twice' '^HTTP/1.1 400 ' ask "${complete[@]}" "${key[@]}" -H 'X-Sluice-User: ann' -H 'x-sluice-user: bob'
expect 'figures by user' '^sluice_user_generation_tokens_total[{]user="key/web/ann"[}] 3$' ask /metrics "${key[@]}"
for _ in $(seq 100); do
    grep -q 'user=key/web/ann job=generate' "$scratch/log" && break
    sleep 0.1
done
expect 'a line of the log' 'user=key/web/ann job=generate' cat "$scratch/log"

# Lists may change while it runs; a key that nobody has cannot be trusted.
sed -i 's/^http-names.*/http-names = new.example.com/' "$scratch/config"
kill -HUP "$daemon"
for _ in $(seq 100); do
    ask /v1/models "${key[@]}" -H 'Host: new.example.com' | grep -q ' 200 ' && break
    sleep 0.1
done
expect 'a new name' '^HTTP/1.1 200 ' ask /v1/models "${key[@]}" -H 'Host: new.example.com'
expect 'the old one' '^HTTP/1.1 421 ' ask /v1/models "${key[@]}" -H 'Host: llm.example.com'
sed -i 's/^trusted-keys.*/trusted-keys = nobody/' "$scratch/config"
kill -HUP "$daemon"
for _ in $(seq 100); do
    grep -q 'has no key of nobody' "$scratch/log" && break
    sleep 0.1
done
expect 'a key that nobody has' 'trusted-keys: .* has no key of nobody; the daemon goes on' cat "$scratch/log"

kill "$daemon"
wait "$daemon" || failed=$((failed + 1))
daemon=
[ "$failed" -eq 0 ] || tail -20 "$scratch/log"
[ "$failed" -eq 0 ]
