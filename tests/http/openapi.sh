#!/usr/bin/env bash
# /openapi.json against what is served, by schemathesis: tests/http/openapi.sh BUILD
# What the description takes and what it does not, at its bounds and at random, is sent to a daemon with a model of random weights and a
# program: no answer is a 500 or another than described, what the description does not take is refused, and paths that want a key give
# nothing without it. What it takes may be refused (400), with a reason: a context that is exceeded, a regular expression that is none.
# EXAMPLES: how many at random for each path (5); SEED: another run. 77, with the reason, where schemathesis cannot be had.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?tests/http/openapi.sh BUILD}" && pwd) || exit 2
environment=$("$here/../python/environment.sh" "$build" clients) || { echo "SKIPPED openapi: $environment"; exit 77; }

scratch=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    rm -rf "$scratch"
}
trap cleanup EXIT
cd "$scratch" || exit 1 # it leaves files where it is started
key=the-key-of-the-test
printf 'web %s\n' "$key" > keys
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit 1
url=http://127.0.0.1:$port
"$build/daemon/sluiced" --model synthetic:tiny --chat-template "$here/templates/tools.jinja" --context-max 512 \
    --score-tokens n,y --score-template "$here/templates/pair.jinja" \
    --program "$build/gpu/programs/affine-cpu.so" --device cpu --socket "$scratch/s" --http "127.0.0.1:$port" --api-key-file keys > log 2>&1 &
daemon=$!
for _ in $(seq 300); do
    ! python3 -c "import urllib.request as r; r.urlopen('$url/readyz')" 2> /dev/null || break
    kill -0 "$daemon" 2> /dev/null || { cat log; exit 1; }
    sleep 0.1
done

printf '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 504]\n' > schemathesis.toml # 504: a deadline of 1 ms has passed
code=0
HOME=$scratch timeout 400 "$environment/bin/schemathesis" run "$url/openapi.json" --header "Authorization: Bearer $key" \
    --phases coverage,fuzzing --max-examples "${EXAMPLES:-5}" --seed "${SEED:-1}" --request-timeout 60 --no-color \
    --checks all --exclude-checks positive_data_acceptance --continue-on-failure --warnings off | tee said || code=1
cases=$(sed -nE 's/^ *([0-9]+) generated.*/\1/p' said)
[ "${cases:-0}" -ge 1000 ] || { echo "FAILED  ${cases:-0} requests were made, no thousand"; code=1; }
kill "$daemon"
wait "$daemon" || { echo "FAILED  the daemon's end"; tail -5 log; code=1; }
daemon=
exit $code
