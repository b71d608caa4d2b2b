#!/usr/bin/env bash
# exports.sh LIBRARY: what libsluice shows to the world is exactly what sluice.h declares, and its SONAME.
# Exit 1, and the difference, when it is not.
set -euo pipefail
shown=$(nm -D --defined-only "$1" | awk '{ print $3 }' | grep -Ev '^(_init|_fini|__asan_.*|__ubsan_.*|__odr_asan.*)$' | sort)
declared=$(grep -oE '\bsluice_[a-z_]+\(' client/sluice.h | grep -v '_init()' | tr -d '(' | sort -u)
declared=$(for name in $declared; do grep -qE "^SLUICE_API.*\b$name\(" client/sluice.h && echo "$name"; done)
if [ "$shown" != "$declared" ]; then
    diff <(echo "$declared") <(echo "$shown") || true
    echo "exported symbols (>) and sluice.h (<) differ" >&2
    exit 1
fi
readelf -d "$1" | grep -q 'SONAME.*\[libsluice\.so\.0\]'
