#!/usr/bin/env bash
# Times tokenizing 1 MiB of mixed text against the Python `tokenizers` package, one thread each, and
# prints the ratio for each style. Exit 1 above 0.5. Needs the release build and that package:
#     PYTHON=venv/bin/python tests/bench/tokenize.sh [BUILD]          BUILD is .build/release when not given
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
"${PYTHON:-python3}" tests/bench/tokenize_peer.py "$build/tests/text/bench_tokenize" tests/text/data "$folder" \
    gpt2 llama3 qwen2 llama2 mistral
