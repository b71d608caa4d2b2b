#!/usr/bin/env bash
# Answers that fit, by the clients that people use (answers_check.py says which), against a daemon of BUILD over TCP with a key, whose
# model has random weights, and against one with the demo model, whose answers are known (demo: demo_check.py), and the examples of
# daemon/http/CLIENTS.md (pages):
#     tests/http/answers.sh BUILD [CLIENT|demo|pages...]
# The checks of the openai package run with 2.x and with its newest. Prints each check; exit 1 if one fails; 77, with the reason, where
# the packages cannot be had (tests/python/environment.sh).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?tests/http/answers.sh BUILD [CLIENT...]}" && pwd)
shift
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

environment=$("$here/../python/environment.sh" "$build" clients) || skip "$environment"
python() { HOME=$scratch timeout 240 "${with:-$environment}/bin/python" "$@"; }
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
    wait "$daemon" || { cat "$scratch/log"; failed=1; }
    daemon=
}

key=the-key-of-the-test
printf 'web %s\n' "$key" > "$scratch/keys"
all=($(python "$here/answers_check.py") demo pages)
for name in "$@"; do
    [[ " ${all[*]} " == *" $name "* ]] || { echo "no such client: $name; there are ${all[*]}"; exit 2; }
done
[ $# -gt 0 ] || set -- "${all[@]}"
failed=0 code=0
newest() { # PROGRAM NAME...: the same by openai's newest package
    local newest program=$1
    shift
    if newest=$("$here/../python/environment.sh" "$build" newest); then
        with=$newest python "$here/$program" "$url" "$key" "$@" || failed=1
    else
        echo "SKIPPED $*, newest: $newest"
        code=77
    fi
}
random=()
for name in "$@"; do
    case $name in demo | pages) ;; *) random+=("$name") ;; esac
done
if [ ${#random[@]} -gt 0 ]; then
    start_daemon --model synthetic:tiny --served-model-name tiny --chat-template "$here/templates/tools.jinja" || exit 1
    for name in "${random[@]}"; do
        python "$here/answers_check.py" "$url" "$key" "$name" || failed=1
        case $name in openai | responses) newest answers_check.py "$name" ;; esac
    done
    stop_daemon
fi
if [[ " $* " =~ " demo "|" pages " ]]; then
    start_daemon --model "$here/../../deploy/demo-model" || exit 1
    if [[ " $* " == *" demo "* ]]; then
        python "$here/demo_check.py" "$url" "$key" $(python "$here/demo_check.py") || failed=1
        newest demo_check.py openai responses
    fi
    [[ " $* " != *" pages "* ]] || python "$here/pages_check.py" "$url" "$key" || failed=1
    stop_daemon
fi
[ $failed -eq 0 ] || exit 1
exit $code
