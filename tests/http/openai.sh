#!/usr/bin/env bash
# The openai package against a daemon of BUILD, over TCP and over a Unix socket: tests/http/openai.sh BUILD
# Its own Python environment is made in BUILD/openai, once, from the package index that pip knows. Exit 77,
# and SKIPPED with the reason, where there is no Python or nothing can be installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

build=${1:-$here/../../.build/dev}
environment=$build/openai
skip() {
    echo "SKIPPED openai: $*"
    exit 77
}

if ! "$environment/bin/python" -c 'import openai' 2> /dev/null; then
    python3 -c '' 2> /dev/null || skip "no python3 here"
    rm -rf "$environment"
    python3 -m venv "$environment" > "$build/openai.log" 2>&1 || skip "no python3-venv here ($build/openai.log)"
    timeout 200 "$environment/bin/pip" install --quiet --disable-pip-version-check 'openai>=1.50,<3' \
        >> "$build/openai.log" 2>&1 || skip "openai cannot be installed ($build/openai.log)"
fi
exec timeout 240 "$environment/bin/python" "$here/openai_check.py" "$build"
