#!/usr/bin/env bash
# Texts of a model that wakes: wake_texts.sh SLUICED_STALL SLUICE MODULES. Its tokenizer and its template are read again where
# their files are others by now, and only then; what is opened is counted. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"
modules=$3
model=$scratch/model

native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
state() { "$sluice" model demo | sed -n 's/^state  *//p'; }
sleeps() {
    "$sluice" sleep demo > /dev/null
    until [ "$(state)" = asleep ]; do
        kill -0 "$daemon" || exit 1
        sleep 0.05
    done
}
opened() { grep -c -x -E 'tokenizer(_config)?\.json' "$model/opened"; }

cp -r deploy/demo-model "$model"
start --model "demo=$model" --model tiny=synthetic:tiny --module-dir "$modules"
demo=$(native)
touch "$model/opened"
for _ in 1 2 3; do
    sleeps
    check "it wakes" "$(native)" "$demo"
done
check "files of its texts that were opened" "$(opened)" 0
check "others were" "$(("$(grep -c -x config.json "$model/opened")" > 0))" 1
touch "$model/tokenizer.json"
for _ in 1 2 3; do
    sleeps
    check "it wakes with what may be another" "$(native)" "$demo"
done
check "that was read once" "$(grep -c -x tokenizer.json "$model/opened")" 1
sleeps
printf ' ' >> "$model/tokenizer.json"
check "and what is another is seen" "$(native | grep -c 'they differ in tokenizer.json, tokenizer_config.json or .*: restart the daemon')" 1
cp deploy/demo-model/tokenizer.json "$model"
check "its own again" "$(native)" "$demo"

# A version that took over has other files, or the same once more.
cp -r deploy/demo-model "$scratch/two"
touch "$scratch/two/opened"
"$sluice" reload demo "$scratch/two" > /dev/null 2>&1
check "a new version" $? 0
before=$(grep -c -x tokenizer.json "$scratch/two/opened")
for _ in 1 2 3; do
    sleeps
    check "it wakes as that" "$(native)" "$demo"
done
check "its own were read once more" "$(($(grep -c -x tokenizer.json "$scratch/two/opened") - before))" 1

# A daemon that is stopped meanwhile waits for the thread that compares them, and frees them then.
sleeps
touch "$scratch/two/stalled"
"$sluice" generate --tokens 1,2,3,4 > /dev/null 2>&1 &
asks=$!
until [ "$(state)" = waking ]; do
    kill -0 "$daemon" || exit 1
    sleep 0.05
done
kill "$asks"
kill "$daemon"
while [ -S "$SLUICE_SOCKET" ]; do sleep 0.05; done
rm "$scratch/two/stalled"
wait "$daemon"
check "the exit code" $? 0
daemon=
[ $failed = 0 ]
