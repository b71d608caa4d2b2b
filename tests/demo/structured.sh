#!/usr/bin/env bash
# The demo model's answers that have a form, over HTTP on the CPU device: held-out questions of fields by a schema, of calls of tools
# and of what these return (structured_check.py). Skipped without python3.
#     [PROMPTS=N] [SEED=N] tests/demo/structured.sh [BUILD]          BUILD is .build/release when not given
# Prints what was wrong; exit 1 below 99 %. The questions are the first that the generator draws by its default seed: a few of a
# thousand are answered wrong (deploy/demo-model/README.md), and of a hundred a day's own seed may draw two of those.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
count=$((${PROMPTS:-1000} / 10))
far=$((${PROMPTS:-1000} / 100))
seed=${SEED:-1}
python3 -c 'import pydoc_data.topics' 2> /dev/null || { echo "SKIPPED demo_structured: no python3 here"; exit 77; }
echo "seed $seed, $count held-out questions of each kind"
source tests/demo/daemon.sh
daemon_start --http "unix:$folder/http.sock"
python3 tests/demo/structured_check.py "$folder/http.sock" "$count" "$seed" "$far"
daemon_stop
