#!/usr/bin/env bash
# What an idle daemon does: voluntary context switches of all its threads over a minute.
#     tests/bench/idle.sh [BUILD]          BUILD is .build/release when not given
#
# Twice: by hand, and with a service manager's watchdog of WATCHDOG seconds (4), which systemd has fed
# at half that time. Each after a request, so that nothing is new. At most 2 switches per watchdog
# period; without a watchdog 2 in all. SECONDS_IDLE (60) may be set in the environment.
# Exit 1 above that.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
idle=${SECONDS_IDLE:-60}
watchdog=${WATCHDOG:-4}
folder=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2> /dev/null; wait; rm -rf "$folder"' EXIT
export SLUICE_SOCKET=$folder/socket
bad=0

switches() { cat "/proc/$daemon/task"/*/status | awk '/^voluntary/ { sum += $2 } END { print sum }'; }

# measure ALLOWED WHAT ENVIRONMENT...
measure() {
    local allowed=$1 what=$2 before after
    shift 2
    env "$@" "$build/daemon/sluiced" --model synthetic:null --device cpu --socket "$SLUICE_SOCKET" \
        --log-level warning &
    daemon=$!
    for _ in $(seq 100); do
        "$build/client/sluice" health > /dev/null 2>&1 && break
        sleep 0.1
    done
    "$build/client/sluice" generate --tokens 1,2,3 --max-tokens 4 > /dev/null
    sleep 10 # memory that the request took is given back
    before=$(switches)
    sleep "$idle"
    after=$(switches)
    echo "$what: $((after - before)) voluntary context switches in $idle s, at most $allowed allowed"
    [ $((after - before)) -le "$allowed" ] || bad=1
    kill "$daemon"
    wait "$daemon"
    daemon=
}
measure 2 "no watchdog"
measure $((2 * idle / watchdog)) "watchdog of $watchdog s" \
    "WATCHDOG_USEC=$((watchdog * 1000000))" NOTIFY_SOCKET="$folder/notify"
exit $bad
