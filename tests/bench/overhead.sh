#!/usr/bin/env bash
# What a request costs when the model computes nothing, against Redis' PING:
#     tests/bench/overhead.sh [BUILD]          BUILD is .build/release when not given
#
# 50 connections with one request each, 32 tokens in and one out, every answer checked by the rule of
# synthetic:null, beside `redis-benchmark -t ping_inline -c 50 -P 1`. Servers and clients share the same
# two cores and Unix sockets; five runs of each, in turn. Prints each run, both medians, and as last line
# the ratio of the medians of requests per second. Fails below 0.5. The daemon runs with --log-requests
# no: Redis does not log its commands either. Needs redis-server and redis-benchmark:
# exit 2 without.
#
# REQUESTS (200000) and RUNS (5) may be set in the environment, and CORES (the first two allowed).
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
requests=${REQUESTS:-200000}
runs=${RUNS:-5}
for tool in redis-server redis-benchmark taskset; do
    command -v "$tool" > /dev/null || { echo "overhead.sh: $tool is missing" >&2; exit 2; }
done

# The first two cores of a list such as 0-3,8.
first_two() {
    tr ',' '\n' <<< "$1" | awk -F- '{ for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }' |
        head -n 2 | paste -sd,
}
cores=${CORES:-$(first_two "$(taskset -cp $$ | sed 's/.*: //')")}

folder=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait
    rm -rf "$folder"
}
trap cleanup EXIT

taskset -c "$cores" redis-server --port 0 --unixsocket "$folder/redis" --save "" --appendonly no \
    > "$folder/redis.log" 2>&1 &
pids+=($!)
taskset -c "$cores" "$build/daemon/sluiced" --model synthetic:null --device cpu --socket "$folder/sluice" \
    --log-requests no > "$folder/sluiced.log" 2>&1 &
pids+=($!)

# Both are there when they answer.
for _ in $(seq 100); do
    if [ -S "$folder/redis" ] && "$build/client/sluice" health --socket "$folder/sluice" > "$folder/health" 2>&1
    then
        break
    fi
    sleep 0.1
done
grep -q '^status *ok' "$folder/health" || { cat "$folder/health" "$folder/sluiced.log" >&2; exit 1; }

run_redis() {
    taskset -c "$cores" redis-benchmark -s "$folder/redis" -t ping_inline -c 50 -P 1 -n "$1" -q |
        tr '\r' '\n' | sed -n 's/^PING_INLINE: \([0-9.]*\) requests per second.*/\1/p' | tail -n 1
}
run_sluice() {
    taskset -c "$cores" "$build/tests/bench/bench_overhead" "$folder/sluice" 50 "$1" |
        sed -n 's/^\([0-9]*\) requests per second.*/\1/p'
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

run_redis 20000 > /dev/null
run_sluice 20000 > /dev/null
for run in $(seq "$runs"); do
    redis=$(run_redis "$requests")
    sluice=$(run_sluice "$requests")
    echo "$redis" >> "$folder/redis.runs"
    echo "$sluice" >> "$folder/sluice.runs"
    echo "run $run: redis $redis, sluice $sluice requests per second"
done
redis=$(median "$folder/redis.runs")
sluice=$(median "$folder/sluice.runs")
echo "medians: redis $redis, sluice $sluice requests per second; cores $cores, $requests requests per run"
awk -v s="$sluice" -v r="$redis" 'BEGIN { printf "ratio %.2f\n", s / r; exit s / r < 0.5 }'
