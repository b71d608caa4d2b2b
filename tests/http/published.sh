#!/usr/bin/env bash
# Answers and events of /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings and /v1/models against OpenAI's published
# types (published_check.py), by a daemon of BUILD with a model of random weights: tests/http/published.sh BUILD [DESCRIPTION]
# The types are the openai package's, of 2.x and of its newest. DESCRIPTION: openapi.json of the repository openai/openai-openapi, which is
# checked against, too; when not given, described.json, what described.py keeps of it. 77, with the reason, where a package cannot be had.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?tests/http/published.sh BUILD [DESCRIPTION]}" && pwd) || exit 2
description=${2:-$here/described.json}
scratch=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    rm -rf "$scratch"
}
trap cleanup EXIT
key=the-key-of-the-test
printf 'web %s\n' "$key" > "$scratch/keys"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit 77
url=http://127.0.0.1:$port
"$build/daemon/sluiced" --model synthetic:tiny --served-model-name tiny --chat-template "$here/templates/tools.jinja" --device cpu \
    --socket "$scratch/s" --http "127.0.0.1:$port" --api-key-file "$scratch/keys" > "$scratch/log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
    ! python3 -c "import urllib.request as r; r.urlopen('$url/readyz')" 2> /dev/null || break
    kill -0 "$daemon" 2> /dev/null || { cat "$scratch/log"; exit 1; }
    sleep 0.1
done

code=0
for name in clients newest; do
    with=() # jsonschema is among clients' packages alone
    [ $name != clients ] || with=("$description")
    if environment=$("$here/../python/environment.sh" "$build" $name); then
        timeout 240 "$environment/bin/python" "$here/published_check.py" "$url" "$key" "${with[@]}" || exit 1
    else
        echo "SKIPPED published, $name: $environment"
        code=77
    fi
done
kill "$daemon"
wait "$daemon" || { echo "FAILED  the daemon's end"; tail -5 "$scratch/log"; code=1; }
daemon=
exit $code
