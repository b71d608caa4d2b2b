#!/usr/bin/env bash
# The event loop waits while streams do: turns.sh SLUICED SLUICE. Eight streams of 100 tokens over HTTP make a few turns for
# each step, whose end is news; a loop that looked at them again and again would make thousands. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

figure() { "$sluice" stats --prometheus | sed -n "s/^sluice_$1 //p"; }
stream() {
    curl -sS -N --max-time 300 --unix-socket "$scratch/http" http://localhost/v1/completions -H 'Content-Type: application/json' \
        -d '{"prompt": [1, 2, 3, 4], "max_tokens": 100, "ignore_eos": true, "stream": true}' | grep -c '^data: {'
}

start --model synthetic:tiny
turns=$(figure turns_total) steps=$(figure steps_total)
streams=()
for i in $(seq 8); do
    stream > "$scratch/$i" &
    streams+=($!)
done
wait "${streams[@]}"
turns=$(($(figure turns_total) - turns)) steps=$(($(figure steps_total) - steps))
check "eight streams had events" "$(cat "$scratch"/[1-8] | awk '$1 > 0' | wc -l)" 8
check "steps were made" "$((steps >= 100))" 1
check "$turns turns for $steps steps" "$((turns <= 8 * steps + 100))" 1
stop
exit $((failed > 0))
