#!/usr/bin/env bash
# Every gauge of replicas and devices that a daemon has is on the dashboard, every series of users, and every kind of a device's memory:
#     tests/service/dashboard.sh SLUICED SLUICE
set -euo pipefail
sluiced=$(realpath "$1")
sluice=$(realpath "$2")
cd "$(dirname "$0")/../.."
. tests/check.sh

scratch=$(mktemp -d)
trap 'kill "$daemon" 2> /dev/null || true; wait; rm -rf "$scratch"' EXIT
export SLUICE_SOCKET=$scratch/sluice.sock
"$sluiced" --model synthetic:null --device cpu --socket "$SLUICE_SOCKET" 2> "$scratch/daemon.log" &
daemon=$!
for _ in $(seq 300); do
    "$sluice" health > /dev/null 2>&1 && break
    sleep 0.1
done
"$sluice" stats --prometheus > "$scratch/figures"

shown() { # REGEX: what of it the dashboard has
    grep '"expr"' deploy/grafana.json | grep -oE "$1" | sort -u
}
all() { # LEAST: the names in the file `there`, that many or more, are those that the dashboard has
    local unseen
    [ "$(wc -l < "$scratch/there")" -ge "$1" ] || { echo "only these were found: $(cat "$scratch/there")"; return 1; }
    unseen=$(comm -13 "$scratch/shown" "$scratch/there")
    [ -z "$unseen" ] || { echo "not on the dashboard: $unseen"; return 1; }
}

sed -nE 's/^# TYPE (sluice_(replica|gpu)_[a-z_]*) gauge$/\1/p' "$scratch/figures" | sort -u > "$scratch/there"
shown 'sluice_[a-z0-9_]*' > "$scratch/shown"
check "gauges of replicas and devices are on the dashboard" all 8

sed -nE 's/^# TYPE (sluice_user_[a-z_]*) counter$/\1/p' "$scratch/figures" | sort -u > "$scratch/there"
check "what is counted by user is on the dashboard" all 4

sed -nE 's/^sluice_gpu_memory_bytes\{.*kind="([a-z_]*)".*/\1/p' "$scratch/figures" | sort -u > "$scratch/there"
shown 'sluice_gpu_memory_bytes\{[^}]*\}' | grep -o 'kind=[^}]*' | grep -oE '[a-z_]+' | sort -u > "$scratch/shown"
check "kinds of a device's memory are on the dashboard" all 4
exit $failed
