#!/usr/bin/env bash
# The demo model is right: PROMPTS (1000) prompts a task that were not in its training set, through
# `sluice generate` and sluiced on the CPU device; at least 99 % of each task's answers are exact.
#     [PROMPTS=N] [SEED=N] tests/demo/answers.sh [BUILD]          BUILD is .build/release when not given
# Prints what was wrong; exit 1 below 99 %.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
prompts=${PROMPTS:-1000}
seed=${SEED:-$(date +%j)}
echo "seed $seed, $prompts held-out prompts a task"
source tests/demo/daemon.sh
daemon_start
"$build/tests/demo/demo_tasks" print "$seed" "$prompts" > "$folder/tasks"
batch < "$folder/tasks" > "$folder/batch"
"$sluice" generate --file "$folder/batch" --json > "$folder/results"
texts < "$folder/results" > "$folder/texts"
paste "$folder/tasks" "$folder/texts" | awk -F'\t' -v prompts="$prompts" '
    { count[$1]++; right[$1] += $3 == $4 }
    $3 != $4 { print $2, "answered", $4, "instead of", $3 }
    END {
        for (task in count) {
            printf "%s: %d of %d exact\n", task, right[task], count[task]
            tasks++
            bad += count[task] != prompts || right[task] < 0.99 * prompts
        }
        exit tasks != 4 || bad
    }'
