#!/usr/bin/env bash
# Constrained answers of models on the CPU device, trained and with random weights, on one device and on several:
# judged by Python's jsonschema and re; then of random schemas, expressions and grammars, one for each seed: all of
# what was promised are tests/http/constrained.sh .build/release 2 1..10000. Skipped without python3 or jsonschema.
#     tests/http/constrained.sh [BUILD] [ROUNDS] [SEEDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
rounds=${2:-2}
seeds=${3:-1..300}
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
python3 tests/http/random_model.py "$folder/model"
model=$folder/model
daemon_start --http "unix:$folder/http.sock"
python3 tests/http/constrained_random.py "$folder/http.sock" "$seeds"
daemon_stop
