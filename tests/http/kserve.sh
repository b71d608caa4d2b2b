#!/usr/bin/env bash
# Triton's client against a daemon with programs, over TCP: tests/http/kserve.sh BUILD PROGRAM...
# Its own Python environment is made in BUILD/kserve, once, from the package index that pip knows. Exit 77,
# and SKIPPED with the reason, where there is no Python or nothing can be installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

build=$1
environment=$build/kserve
skip() {
    echo "SKIPPED kserve: $*"
    exit 77
}

if ! "$environment/bin/python" -c 'import tritonclient.http, aiohttp, numpy' 2> /dev/null; then
    python3 -c '' 2> /dev/null || skip "no python3 here"
    rm -rf "$environment"
    python3 -m venv "$environment" > "$build/kserve.log" 2>&1 || skip "no python3-venv here ($build/kserve.log)"
    timeout 200 "$environment/bin/pip" install --quiet --disable-pip-version-check 'tritonclient[http]>=2.40,<3' numpy \
        >> "$build/kserve.log" 2>&1 || skip "tritonclient cannot be installed ($build/kserve.log)"
fi
exec timeout 240 "$environment/bin/python" "$here/kserve_check.py" "$@"
