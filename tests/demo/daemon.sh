# shellcheck shell=bash disable=SC2154
# What the scripts here share; sourced with the build folder in $build. Starts sluiced with the demo
# model on the CPU device: daemon_start [OPTION...]; it ends with the script.
folder=$(mktemp -d)
daemon=
export SLUICE_SOCKET=$folder/sluice.sock
sluice=$build/client/sluice
model=deploy/demo-model

daemon_stop() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2> /dev/null || true
    wait "$daemon" || { cat "$folder/log" >&2; return 1; }
    daemon=
}
finish() {
    status=$?
    daemon_stop || status=1
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT

daemon_start() {
    "$build/daemon/sluiced" --model "$model" --device cpu --socket "$SLUICE_SOCKET" --log-level notice "$@" \
        > "$folder/log" 2>&1 &
    daemon=$!
    for _ in $(seq 300); do
        "$sluice" health > /dev/null 2>&1 && return 0
        kill -0 "$daemon" 2> /dev/null || break
        sleep 0.1
    done
    cat "$folder/log" >&2
    return 1
}

# Lines of demo_tasks as a batch file.
batch() { awk -F'\t' '{ printf "{\"prompt\": \"%s\", \"max_tokens\": 16}\n", $2 }'; }
# The texts of the client's JSON lines; the tasks' answers have nothing that JSON escapes.
texts() { sed -E 's/.*"text":"([^"]*)".*/\1/'; }
