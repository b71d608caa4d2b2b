#!/usr/bin/env bash
# Two minutes with Sluice: installs what is missing, builds, starts the daemon with the demo model on the
# CPU device, asks it questions of all its tasks at once, and prints its answers beside the right ones.
# The questions were never trained on (deploy/demo-model/README.md). Exit 0 if all answers are right,
# 2 when packages are missing and it is not run by root.
set -euo pipefail
cd "$(dirname "$0")/.."

model=deploy/demo-model
build=.build/release
deploy/deps.sh
cmake --preset release -G Ninja > /dev/null
cmake --build --preset release --parallel "$(nproc)" --target sluiced sluice sluice_cpu

scratch=$(mktemp -d)
socket=$scratch/sluice.sock
export SLUICE_SOCKET=$socket
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

echo
echo "== sluiced --model $model --device cpu"
"$build/daemon/sluiced" --model "$model" --device cpu --socket "$socket" --log-level notice &
daemon=$!
for _ in $(seq 100); do
    "$build/client/sluice" health > /dev/null 2>&1 && break
    kill -0 "$daemon" || exit 1
    sleep 0.1
done

echo
echo "== sluice generate --file $model/questions.jsonl --json"
"$build/client/sluice" generate --file $model/questions.jsonl --json > "$scratch/results"

# One answer per line, in the order of the questions; the model ends each by its own token, which has no text.
sed -E 's/.*"text":"([^"]*)".*/\1/' "$scratch/results" > "$scratch/texts"
right=0
total=0
printf '\n%-26s %-12s %-12s\n' question answer 'right answer'
while IFS=$'\t' read -r question answer <&3 && read -r text <&4; do
    total=$((total + 1))
    mark='  <- wrong'
    if [ "$text" = "$answer" ]; then
        right=$((right + 1))
        mark=
    fi
    printf '%-26s %-12s %-12s%s\n' "$question" "$text" "$answer" "$mark"
done 3< "$model/answers.txt" 4< "$scratch/texts"
printf '\n%d of %d right\n' "$right" "$total"

echo
echo "== sluice chat"
chat=$(tail -3 $model/answers.txt | cut -f1 | sed 's/=$//' | tee "$scratch/said" | "$build/client/sluice" chat)
paste -d'\n' <(sed 's/^/> /' "$scratch/said") - <<< "$chat"
[ "$chat" = "$(tail -3 $model/answers.txt | cut -f2)" ] || right=-1

echo
echo "== sluice stats"
"$build/client/sluice" stats

echo
echo "== stopping the daemon (SIGTERM: it finishes what it has, then ends)"
kill "$daemon"
wait "$daemon"
daemon=
cat << END

Go on by hand:
  $build/daemon/sluiced --model $model --device cpu --socket /tmp/sluice.sock &
  $build/client/sluice generate --socket /tmp/sluice.sock --prompt '417+385='
  $build/client/sluice chat --socket /tmp/sluice.sock
  $build/client/sluice stats --socket /tmp/sluice.sock
END
[ "$right" -eq "$total" ]
