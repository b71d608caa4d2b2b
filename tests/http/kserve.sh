#!/usr/bin/env bash
# Triton's client against a daemon with programs, over TCP: tests/http/kserve.sh BUILD PROGRAM...
# Exit 77, and SKIPPED with the reason, where it cannot be had (tests/python/environment.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

environment=$("$here/../python/environment.sh" "$1" clients) || { echo "SKIPPED kserve: $environment"; exit 77; }
exec timeout 240 "$environment/bin/python" "$here/kserve_check.py" "$@"
