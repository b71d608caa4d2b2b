#!/usr/bin/env bash
# What eight bits cost the demo model: of each way of keeping its weights, keys and values, how far
# the log-probabilities of right answers' digits are from the plain model's, and how many of
# PROMPTS (200) held-out prompts a task it answers exactly. On the CPU device.
#     [PROMPTS=N] [SEED=N] tests/demo/formats.sh [BUILD]          BUILD is .build/release when not given
# Exit 1 where one is off by more than 0.001 in the mean, or answers 2 % less than the plain model.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
prompts=${PROMPTS:-200}
seed=${SEED:-$(date +%j)}
source tests/demo/daemon.sh
"$build/tests/demo/demo_tasks" print "$seed" "$prompts" > "$folder/tasks"
grep -v '^reverse' "$folder/tasks" > "$folder/digits" # a digit is a token, and letters may be parts of one
awk -F'\t' '{ printf "{\"prompt\": \"%s%s\"}\n", $2, $3 }' "$folder/digits" > "$folder/whole"
batch < "$folder/tasks" > "$folder/batch"

# The log-probabilities of the answers' digits, one a line.
numbers() {
    grep -o '"logprobs":\[[^]]*\]' | sed -E 's/.*\[(.*)\]/\1/' | paste "$folder/digits" - | awk -F'\t' '
        { count = split($4, value, ","); for (i = count - length($3) + 1; i <= count; i++) print value[i] }'
}

bad=0
measure() {
    local name=$1
    shift
    daemon_start "$@"
    "$sluice" score --file "$folder/whole" --json | numbers > "$folder/scores"
    "$sluice" generate --file "$folder/batch" --json | texts > "$folder/texts"
    daemon_stop
    [ -f "$folder/plain" ] || cp "$folder/scores" "$folder/plain"
    right=$(paste "$folder/tasks" "$folder/texts" | awk -F'\t' '$3 == $4 { n++ } END { print n + 0 }')
    plain_right=${plain_right:-$right}
    paste "$folder/plain" "$folder/scores" | awk -v name="$name" -v right="$right" \
        -v plain="$plain_right" -v all="$(wc -l < "$folder/tasks")" '
        { off = $1 - $2; off = off < 0 ? -off : off; sum += off; worst = off > worst ? off : worst }
        END {
            printf "%-34s mean %.1e, worst %.1e, %d of %d exact\n", name, sum / NR, worst, right, all
            exit NF != 2 || NR < all || sum / NR > 0.001 || right < plain - 0.02 * all
        }' || bad=1
}

echo "seed $seed, $prompts held-out prompts a task"
measure "bf16"
measure "--quantize fp8" --quantize fp8
measure "--kv-dtype fp8" --kv-dtype fp8
measure "--quantize fp8 --kv-dtype fp8" --quantize fp8 --kv-dtype fp8
exit "$bad"
