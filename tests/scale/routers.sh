#!/usr/bin/env bash
# Every router of scale.sh at once, each before four daemons of its own, and the manifests: tests/scale/routers.sh [BUILD] [--requests N]
# (1,000 if not said). Each tells what held; what is not to be had is SKIPPED. Exit 1 if a claim does not hold, 77 if nothing was run.
set -uo pipefail
cd "$(dirname "$0")/../.."

build=.build/dev
if [ $# -ge 1 ] && [[ $1 != --* ]]; then
    build=$1
    shift
fi
mkdir -p "$build/scale"
names=(haproxy sglang sglang-cache litellm ray manifests)
started=()
for name in "${names[@]}"; do
    if [ "$name" = manifests ]; then command=(tests/scale/manifests.sh "$build"); else command=(tests/scale/scale.sh "$name" "$build" "$@"); fi
    "${command[@]}" > "$build/scale/$name.log" 2>&1 &
    started+=($!)
done
worst=77
for number in "${!names[@]}"; do
    code=0
    wait "${started[$number]}" || code=$?
    echo "---- ${names[$number]}"
    cat "$build/scale/${names[$number]}.log"
    if [ $code -ne 0 ] && [ $code -ne 77 ]; then worst=1; elif [ $code -eq 0 ] && [ $worst -eq 77 ]; then worst=0; fi
done
exit $worst
