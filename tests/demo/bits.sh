#!/usr/bin/env bash
# Through the daemon, a request's answer is the same to the bit alone and among many, with one and two
# compute threads, in steps of few tokens and with so little KV memory that sequences are preempted:
# tokens and log-probabilities, sampled from seeds.
#     tests/demo/bits.sh [BUILD]          BUILD is .build/release when not given; exit 1 at the first difference
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
each=$((${PROMPTS:-1000} < 1000 ? 4 : 16)) # of each task
source tests/demo/daemon.sh
"$build/tests/demo/demo_tasks" print 3 "$each" | awk -F'\t' '{
    printf "{\"prompt\": \"%s\", \"max_tokens\": 150, \"ignore_eos\": true, \"temperature\": 0.9, ", $2
    printf "\"seed\": %d, \"logprobs\": 2}\n", NR
}' > "$folder/batch"

# All but what differs by nature: the times.
plain() { sed -E 's/,"timings":.*//'; }
ask() { "$sluice" generate --file "$1" --json | plain; }

daemon_start --cpu-threads 1
index=0
while IFS= read -r line; do
    echo "$line" > "$folder/one"
    ask "$folder/one" | sed "s/\"index\":0/\"index\":$index/"
    index=$((index + 1))
done < "$folder/batch" > "$folder/alone"
grep -q '"logprobs":\[' "$folder/alone"
[ "$(sort -u "$folder/alone" | wc -l)" -eq $((4 * each)) ]

compare() {
    ask "$folder/batch" > "$folder/got"
    cmp "$folder/alone" "$folder/got" || { echo "other bits: $1" >&2; exit 1; }
    echo "same bits: $1"
}
compare "all together, 1 thread"
daemon_stop
daemon_start --cpu-threads 2
compare "all together, 2 threads"
daemon_stop
daemon_start --cpu-threads 2 --step-tokens 7
compare "all together, steps of 7 tokens"
daemon_stop
daemon_start --cpu-threads 2 --slab-size 1MiB --kv-max 2MiB
compare "all together, preempted"
"$sluice" stats > "$folder/stats"
awk '$1 == "preemptions_total" { print; seen = $2 > 0 } END { exit !seen }' "$folder/stats"
daemon_stop
