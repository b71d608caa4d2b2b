#!/usr/bin/env bash
# What a scrape of /metrics costs the daemon, in instructions of all its threads, counted by valgrind: tests/scale/scrape.sh [BUILD].
# Asked is a daemon that knows 100 users, as many as have lines of their own if not said otherwise, and tells vLLM's names. A picker
# asks every 50 ms: 20 a second must stay below a hundredth of a core that does 2,500 million a second, so 1.25 million each. Nothing
# is timed. Exit 1 if it is more; 77, SKIPPED, without valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
most=1250000
users=100
command -v valgrind > /dev/null || { echo "SKIPPED scrape: valgrind is not installed"; exit 77; }
scratch=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true; rm -rf "$scratch"' EXIT
port=$((20000 + $$ % 10000))
echo "proxy secret" > "$scratch/keys"

scrapes() { # COUNT: what the process has executed when it ends after so many
    valgrind --tool=callgrind --callgrind-out-file="$scratch/out" "$build/daemon/sluiced" --model synthetic:null --device cpu \
        --cpu-threads 1 --socket "$scratch/sock" --http "127.0.0.1:$port" --metrics "unix:$scratch/http" --metrics-vllm yes \
        --api-key-file "$scratch/keys" --trusted-keys proxy 2> "$scratch/log" &
    daemon=$!
    for _ in $(seq 600); do
        curl -s --unix-socket "$scratch/http" http://localhost/readyz 2> /dev/null | grep -q '"ready":true' && break
        sleep 0.1
    done
    for user in $(seq $users); do
        printf 'next\nurl = "http://127.0.0.1:%s/v1/completions"\nheader = "Authorization: Bearer secret"\nheader = "X-Sluice-User: user%s"\n' \
            "$port" "$user"
        printf 'header = "Content-Type: application/json"\ndata = "{\\"prompt\\":[1,2,3],\\"max_tokens\\":1}"\n'
    done > "$scratch/asked"
    curl -s --config "$scratch/asked" > /dev/null
    curl -sf --unix-socket "$scratch/http" "http://localhost/metrics?[1-$1]" > "$scratch/page"
    [ "$(grep -c '^vllm:num_requests_waiting' "$scratch/page")" -eq "$1" ] || { echo "not all pages came"; exit 1; }
    [ "$(grep -c '^sluice_user_requests_total.* 1$' "$scratch/page")" -eq $((users * $1)) ] || { echo "not all users are told"; exit 1; }
    kill "$daemon"
    wait "$daemon"
    daemon=
    sed -nE 's/.*Collected : ([0-9]+).*/\1/p' "$scratch/log"
}
few=$(scrapes 10)
many=$(scrapes 210)
each=$(((many - few) / 200))
part=$((each * 20 / 250000)) # hundredths of a percent of 2,500 million
printf '%d instructions a scrape of %d bytes, at most %d: 20 a second are %d.%02d %% of a core\n' \
    "$each" $(($(wc -c < "$scratch/page") / 210)) $most $((part / 100)) $((part % 100))
[ "$each" -gt 0 ] && [ "$each" -le $most ]
