#!/usr/bin/env bash
# What a scrape of /metrics costs the daemon, in instructions of all its threads, counted by valgrind: tests/scale/scrape.sh [BUILD].
# A picker asks every 50 ms: 20 a second must stay below a hundredth of a core that does 2,500 million a second, so
# 1.25 million each. Nothing is timed. Exit 1 if it is more; 77, SKIPPED, without valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
most=1250000
command -v valgrind > /dev/null || { echo "SKIPPED scrape: valgrind is not installed"; exit 77; }
scratch=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true; rm -rf "$scratch"' EXIT

scrapes() { # COUNT: what the process has executed when it ends after so many
    valgrind --tool=callgrind --callgrind-out-file="$scratch/out" "$build/daemon/sluiced" --model synthetic:null --device cpu \
        --cpu-threads 1 --socket "$scratch/sock" --http "unix:$scratch/http" --metrics-vllm yes 2> "$scratch/log" &
    daemon=$!
    for _ in $(seq 600); do
        curl -s --unix-socket "$scratch/http" http://localhost/readyz 2> /dev/null | grep -q '"ready":true' && break
        sleep 0.1
    done
    curl -sf --unix-socket "$scratch/http" "http://localhost/metrics?[1-$1]" > "$scratch/page"
    [ "$(grep -c '^vllm:num_requests_waiting' "$scratch/page")" -eq "$1" ] || { echo "not all pages came"; exit 1; }
    kill "$daemon"
    wait "$daemon"
    daemon=
    sed -nE 's/.*Collected : ([0-9]+).*/\1/p' "$scratch/log"
}
few=$(scrapes 10)
many=$(scrapes 210)
each=$(((many - few) / 200))
echo "$each instructions a scrape of $(($(wc -c < "$scratch/page") / 210)) bytes, at most $most"
[ "$each" -gt 0 ] && [ "$each" -le $most ]
