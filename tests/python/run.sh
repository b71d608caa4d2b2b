#!/usr/bin/env bash
# One suite of the Python client (client/python/), with a daemon of BUILD where it wants one:
#     tests/python/run.sh BUILD wire|peer|daemon|pages [TEST...]
# 77, with the reason, without Python 3.11 or newer.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
BUILD=$(cd "${1:?tests/python/run.sh BUILD SUITE [TEST...]}" && pwd) || exit 2
export BUILD
shift
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { echo "SKIPPED python_$1: no Python 3.11 here"; exit 77; }
exec timeout "${LIMIT_S:-270}" python3 "$here/suite.py" "$@"
