#!/usr/bin/env bash
# Every router of scale.sh, each before four daemons of its own, one for every two cores at a time, and the manifests:
# tests/scale/routers.sh [BUILD] [--requests N] (1,000 if not said). Each tells what held; what is not to be had is SKIPPED. Exit 1 if a claim does not hold, 77 if nothing was run.
set -uo pipefail
cd "$(dirname "$0")/../.."

build=.build/dev
if [ $# -ge 1 ] && [[ $1 != --* ]]; then
    build=$1
    shift
fi
mkdir -p "$build/scale"
names=(manifests haproxy sglang sglang-cache litellm ray)
run() { # NAME [OPTION...]
    local name=$1 code=0
    shift
    if [ "$name" = manifests ]; then tests/scale/manifests.sh "$build"; else tests/scale/scale.sh "$name" "$build" "$@"; fi || code=$?
    echo $code > "$build/scale/$name.code"
}
for name in "${names[@]}"; do
    while [ "$(jobs -pr | wc -l)" -ge $((($(nproc) + 1) / 2)) ]; do wait -n; done
    run "$name" "$@" > "$build/scale/$name.log" 2>&1 &
done
wait
worst=77
for name in "${names[@]}"; do
    code=$(cat "$build/scale/$name.code")
    echo "---- $name"
    cat "$build/scale/$name.log"
    if [ "$code" -ne 0 ] && [ "$code" -ne 77 ]; then worst=1; elif [ "$code" -eq 0 ] && [ $worst -eq 77 ]; then worst=0; fi
done
exit $worst
