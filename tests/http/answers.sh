#!/usr/bin/env bash
# Answers that fit, by the clients that people use (answers_check.py says which), against a daemon of BUILD over TCP with a key, whose
# model has random weights, and the examples of daemon/http/CLIENTS.md (pages) against one with the demo model:
#     tests/http/answers.sh BUILD [CLIENT|pages...]
# Their Python environment is made in BUILD/clients/answers, once, from the package index that pip knows (1 GiB). Prints each check;
# exit 1 if one fails; 77, with the reason, where they cannot be installed. INSTALL_S: seconds that it may take (300).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?tests/http/answers.sh BUILD [CLIENT...]}" && pwd)
shift
environment=$build/clients/answers
log=$build/clients/answers.log
mkdir -p "$build/clients"
scratch=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    rm -rf "$scratch"
}
trap cleanup EXIT
skip() {
    echo "SKIPPED answers: $*"
    exit 77
}

if [ ! -e "$environment/done" ]; then
    python3 -c '' 2> /dev/null || skip "no python3 here"
    rm -rf "$environment"
    python3 -m venv "$environment" > "$log" 2>&1 || skip "no python3-venv here ($log)"
    timeout "${INSTALL_S:-300}" "$environment/bin/pip" install --quiet --disable-pip-version-check 'openai>=2,<3' 'anthropic>=0.70,<3' \
        'langchain-openai>=1,<2' 'instructor>=1.11,<2' 'llm>=0.27,<0.40' 'litellm>=1.80,<2' 'openai-agents>=0.6,<1' 'pydantic-ai-slim[openai]>=1.20,<3' >> "$log" 2>&1 || skip "they cannot be installed ($log)"
    touch "$environment/done"
fi

python() { HOME=$scratch timeout 240 "$environment/bin/python" "$@"; }
start_daemon() { # OPTION...
    local port
    port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || return 1
    url=http://127.0.0.1:$port
    "$build/daemon/sluiced" --device cpu --socket "$scratch/s" --http "127.0.0.1:$port" --api-key-file "$scratch/keys" "$@" \
        > "$scratch/log" 2>&1 &
    daemon=$!
    for _ in $(seq 300); do
        python -c "import urllib.request as r; r.urlopen('$url/health')" 2> /dev/null && return 0
        kill -0 "$daemon" 2> /dev/null || break
        sleep 0.1
    done
    cat "$scratch/log"
    return 1
}
stop_daemon() {
    kill "$daemon"
    wait "$daemon"
    daemon=
}

key=the-key-of-the-test
printf 'web %s\n' "$key" > "$scratch/keys"
clients=()
for client in "$@"; do
    [ "$client" = pages ] || clients+=("$client")
done
failed=0
if [ $# -eq 0 ] || [ ${#clients[@]} -gt 0 ]; then
    start_daemon --model synthetic:tiny --served-model-name tiny --chat-template "$here/templates/tools.jinja" || exit 1
    python "$here/answers_check.py" "$url" "$key" "${clients[@]}" || failed=1
    stop_daemon
fi
if [ $# -ne ${#clients[@]} ] || [ $# -eq 0 ]; then
    start_daemon --model "$here/../../deploy/demo-model" || exit 1
    python "$here/pages_check.py" "$url" "$key" || failed=1
    stop_daemon
fi
exit $failed
