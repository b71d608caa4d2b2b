#!/usr/bin/env bash
# Constrained answers of models on the CPU device, trained and with random weights, on one device and on several:
# judged by Python's jsonschema and re. Skipped without python3 or jsonschema.
#     tests/http/constrained.sh [BUILD] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
rounds=${2:-2}
python3 -c 'import jsonschema' 2> /dev/null || { echo "SKIPPED: no jsonschema for python3"; exit 77; }
# shellcheck source=tests/demo/daemon.sh
source tests/demo/daemon.sh
run() {
    model=$1
    shift
    daemon_start --http "unix:$folder/http.sock" "$@"
    python3 tests/http/constrained_check.py "$folder/http.sock" "$sluice" "$rounds"
    daemon_stop
}
run deploy/demo-model
run synthetic:tiny --steps-in-flight 1
run synthetic:tiny --cpu-devices 2 --tp 2
run synthetic:tiny --cpu-devices 2 --pp 2
