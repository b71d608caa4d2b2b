#!/usr/bin/env bash
# The openai package, 2.x and the newest, against a daemon of BUILD, over TCP and over a Unix socket: tests/http/openai.sh BUILD
# Exit 77, and SKIPPED with the reason, where one cannot be had (tests/python/environment.sh).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-$here/../../.build/dev}" && pwd) || exit 2

code=0
for name in clients newest; do
    if environment=$("$here/../python/environment.sh" "$build" $name); then
        timeout 120 "$environment/bin/python" "$here/openai_check.py" "$build" || exit 1
    else
        echo "SKIPPED openai, $name: $environment"
        code=77
    fi
done
exit $code
