#!/usr/bin/env bash
# Adapters of the demo model over HTTP, on one device and on several: named as models, alone and all at once, with
# prefix caches of their own; some that come and go while others are asked, and by turns in one place, behind a sleep, too
# (adapters_check.py). Skipped without python3.
#     tests/http/adapters.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
python3 -c '' 2> /dev/null || { echo "SKIPPED: no python3"; exit 77; }
# shellcheck source=tests/demo/daemon.sh
source tests/demo/daemon.sh
# shellcheck disable=SC2034
model=deploy/demo-model
export SLUICE=$sluice
python3 tests/http/adapters_check.py make "$folder/nothing" "$folder/noise"
asleep() {
    for _ in $(seq 300); do
        [ "$("$sluice" model | sed -n 's/^state *//p')" != asleep ] || return 0
        sleep 0.1
    done
    return 1
}
run() {
    daemon_start --http "unix:$folder/http.sock" --adapter "nothing=$folder/nothing" --adapter "noise=$folder/noise" "$@"
    python3 tests/http/adapters_check.py ask "$folder/http.sock" "$folder/answers"
    daemon_stop
    daemon_start --http "unix:$folder/http.sock" --adapter "noise=$folder/noise" --adapters-max 2 --adapter-rank-max 8 "$@"
    python3 tests/http/adapters_check.py change "$folder/http.sock" "$folder/answers" "$folder/nothing" "$folder/noise"
    daemon_stop
    daemon_start --http "unix:$folder/http.sock" --adapter-dir "$folder" --adapters-max 1 --adapter-rank-max 8 "$@"
    python3 tests/http/adapters_check.py ask "$folder/http.sock" "$folder/answers"
    "$sluice" sleep > /dev/null # what asks wakes it, and adapters come again
    asleep || { echo "FAILED: the model with adapters does not sleep"; exit 1; }
    python3 tests/http/adapters_check.py ask "$folder/http.sock" "$folder/answers"
    daemon_stop
}
run
run --cpu-devices 2 --tp 2
run --cpu-devices 2 --pp 2
