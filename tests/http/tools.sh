#!/usr/bin/env bash
# Calls of tools in each form that is known, of a model with random weights on the CPU device (tools_check.py says what holds of them).
# Skipped without python3.   tests/http/tools.sh [BUILD] [ROUNDS] [FORMS]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
rounds=${2:-2}
forms=${3:-6}
python3 -c '' 2> /dev/null || { echo "SKIPPED: no python3"; exit 77; }
# shellcheck source=tests/demo/daemon.sh
source tests/demo/daemon.sh
# shellcheck disable=SC2034
model=synthetic:tiny
form() { # WHAT A TEMPLATE HAS
    [ "$forms" -gt 0 ] || return 0
    forms=$((forms - 1))
    { printf '{#- %s -#}' "$*"; sed 's/<tool_call>/(/g; s,</tool_call>,),g' tests/http/templates/tools.jinja; } > "$folder/form.jinja"
    daemon_start --http "unix:$folder/http.sock" --chat-template "$folder/form.jinja"
    python3 tests/http/tools_check.py "$folder/http.sock" "$rounds"
    daemon_stop
}
form '<tool_call>'
form '<|start_header_id|>' '"parameters": '
form '[TOOL_CALLS]'
form '[TOOL_CALLS] [ARGS]'
form '<|tool_call|>'
form 'functools['
