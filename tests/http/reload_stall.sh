#!/usr/bin/env bash
# New versions of a model that hang: reload_stall.sh SLUICED_STALL SLUICE MODULES. On a filesystem that does not answer, and on
# a device that does not, a reload has failed after reload-stall; the version before it serves on, sleeps and wakes, no other is
# loaded while one hangs, and a stop leaves it. What goes on after all is taken down. What is waited for has no end but the
# test's. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"
modules=$3

native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
field() { "$sluice" model "$1" | sed -n "s/^$2  *//p"; }
soon() { "$@" --module-dir "$modules" --reload-stall 500ms; }
becomes() { # WANTED COMMAND...: what it prints, sooner or later
    local wanted=$1
    shift
    until [ "$("$@")" = "$wanted" ]; do
        kill -0 "$daemon" || exit 1
        sleep 0.05
    done
}
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
"$sluice" sleep demo > /dev/null
becomes asleep field demo state
check "its model sleeps" "$("$sluice" stats --prometheus | sed -n 's/^sluice_model_memory_bytes{model="demo",kind="weights"} //p') $(field demo reload)" "0 failed"
check "and wakes" "$(native) $(field demo state)" "$one awake"
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

# Devices that one which hangs may have are not given back: what is in host memory stays registered (pinned) until it has ended.
soon start --model demo=deploy/demo-model --model tiny=synthetic:tiny --host-memory 1GiB --release-device yes
becomes device field demo weights
until [ "$("$sluice" stats --prometheus | grep -c -E '^sluice_model_memory_bytes\{model="(demo|tiny)",kind="kept_pinned"\} [1-9]')" = 2 ]; do
    kill -0 "$daemon" || exit 1
    sleep 0.05
done
touch "$scratch/two/stalled"
"$sluice" reload demo "$scratch/two" > /dev/null 2>&1
"$sluice" sleep demo > /dev/null
"$sluice" sleep tiny > /dev/null
becomes asleep field demo state
becomes asleep field tiny state
check "devices of one that hangs" "$(field demo weights) $(field tiny weights)" "pinned pinned"
rm "$scratch/two/stalled"
becomes mapped field demo weights
becomes mapped field tiny weights
check "they wake" "$(native) $(native --model tiny)" "$one $tiny"
stop

# A kernel that never ends, behind those of the start: of some reload's loading.
SLUICE_EMU_FAULT=launch:1000:hang start --model demo=deploy/demo-model --module-dir "$modules" --reload-stall 2s
held() { "$sluice" stats --prometheus | grep -F "sluice_$1{" | grep -F 'kind="weights"' | sed 's/.* //'; }
own=$(held memory_bytes)
while "$sluice" reload demo > /dev/null 2>&1; do
    kill -0 "$daemon" || exit 1
done
hangs "a device that hangs" "it came no further for 2 s while it was loaded"
for figure in memory_bytes gpu_memory_bytes; do
    check "what the version that hangs holds is in $figure" "$(held "$figure")" $((2 * own))
done
check "its model is not put to sleep" "$("$sluice" sleep demo 2>&1 | grep -c 'bad_state: demo does not sleep: a version of it that was refused hangs on its devices')" 1
check "and answers" "$(native) $(field demo state)" "$one awake"
stops "a device that hangs"
[ $failed = 0 ]
