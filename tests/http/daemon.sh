# Sourced by scripts of one daemon at a time, whose arguments are SLUICED SLUICE: its socket, its log and what it leaves lie in
# $scratch, which goes with the daemon at the end. `failed` counts what was wrong.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

sluiced=$1 sluice=$2
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # as in curl.sh
scratch=$(mktemp -d)
export SLUICE_SOCKET=$scratch/sluice.sock
daemon=
failed=0
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

check() { # NAME GOT WANTED
    [ "$2" = "$3" ] && return
    failed=$((failed + 1))
    printf '%s: %s\n  instead of %s\n' "$1" "$2" "$3"
}
listens() { # it answers; not: it has ended, or does not within 20 s
    for _ in $(seq 200); do
        "$sluice" health > /dev/null 2>&1 && return 0
        kill -0 "$daemon" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}
start() { # OPTIONS...: on the CPU device, with HTTP at $scratch/http
    "$sluiced" "$@" --device cpu --http "unix:$scratch/http" 2> "$scratch/log" &
    daemon=$!
    listens && return
    cat "$scratch/log"
    exit 1
}
stop() {
    kill "$daemon"
    wait "$daemon"
    check "the exit code" $? 0
    daemon=
}
