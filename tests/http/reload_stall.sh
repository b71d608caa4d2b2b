#!/usr/bin/env bash
# New versions of a model that hang: reload_stall.sh SLUICED_STALL SLUICE MODULES. On a filesystem that does not answer, and on
# a device that does not, a reload has failed after reload-stall; the version before it serves on, no other is loaded while one
# hangs, and a stop leaves it. What goes on after all is taken down. What is waited for has no end but the test's. Exit 1 if a
# check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"
modules=$3

native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
field() { "$sluice" model "$1" | sed -n "s/^$2  *//p"; }
soon() { "$@" --module-dir "$modules" --reload-stall 500ms; }
# Nothing bounds its wait but the stages of the end, each of which says what it has left.
stops() { # WHAT
    stop
    check "a stop does not wait for $1" "$(grep -E -c 'does not end|left at the end|guard' "$scratch/log")" 0
}
hangs() { # WHAT PATTERN
    check "$1: it has failed, for that reason" "$(field demo reload) $(field demo reload_error | grep -c -E "$2")" "failed 1"
    check "$1: another is refused by name" "$("$sluice" reload demo deploy/demo-model 2>&1 | grep -c 'bad_state: a version of demo that was refused hangs: none is loaded before it has ended')" 1
    check "$1: the reason stays" "$(field demo reload) $(field demo reload_error | grep -c -E "$2")" "failed 1"
    check "$1: the old one answers" "$(native)" "$one"
    check "$1: health" "$("$sluice" health --json | grep -c '"status":"ok".*"not_reloaded":\["demo"\]')" 1
}

# No file of it is opened.
cp -r deploy/demo-model "$scratch/two"
touch "$scratch/two/stalled"
soon start --model demo=deploy/demo-model --model tiny=synthetic:tiny
one=$(native) tiny=$(native --model tiny)
check "a reload ends" "$("$sluice" reload demo "$scratch/two" 2>&1 | grep -c 'deadline: it came no further for 0.5 s while it was opened; the version before it stays')" 1
hangs "a filesystem that hangs" "it came no further for 0.5 s while it was opened"
check "of any model" "$("$sluice" reload tiny 2>&1 | grep -c 'a version of demo that was refused hangs')" 1
"$sluice" sleep tiny > /dev/null
check "others sleep and wake" "$(native --model tiny)" "$tiny"
rm "$scratch/two/stalled"
until "$sluice" reload demo "$scratch/two" > /dev/null 2>&1; do
    kill -0 "$daemon" || exit 1
    sleep 0.05
done
check "once it has ended one is loaded" "$(field demo model_version) $(field demo reload) $(field demo reload_error)" "2 none "
check "which answers" "$(native)" "$one"
touch "$scratch/two/stalled"
"$sluice" reload demo "$scratch/two" > /dev/null 2>&1
hangs "a filesystem that hangs again" "it came no further for 0.5 s while it was opened"
stops "a filesystem that hangs"
rm "$scratch/two/stalled"

# A kernel that never ends, behind those of the start: of some reload's loading.
SLUICE_EMU_FAULT=launch:1000:hang start --model demo=deploy/demo-model --module-dir "$modules" --reload-stall 2s
held() { "$sluice" stats --prometheus | grep -F "sluice_$1{" | grep -F 'kind="weights"' | sed 's/.* //'; }
weights=$(held memory_bytes)
while "$sluice" reload demo > /dev/null 2>&1; do
    kill -0 "$daemon" || exit 1
done
hangs "a device that hangs" "it came no further for 2 s while it was loaded"
for figure in memory_bytes gpu_memory_bytes; do
    check "what the version that hangs holds is in $figure" "$(held "$figure")" $((2 * weights))
done
stops "a device that hangs"
[ $failed = 0 ]
