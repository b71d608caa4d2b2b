#!/usr/bin/env bash
# What CUDA bears of systemd's sandbox, without systemd: the daemon under each hardening property of sluiced.service
# alone, then under all that the service has with the CUDA package's drop-in, and beside that.
#     tests/gpu/sandbox.sh [BUILD] [cuda|cpu]      (root, x86-64; .build/cuda and cuda when not given)
# Each time it must become ready and give the same tokens as without any. Prints a table; the drop-in
# (deploy/systemd/cuda.conf) follows it. Exit 1 when something is refused that the service has.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${1:-.build/cuda} device=${2:-cuda}
[ "$(id -u)" -eq 0 ] || { echo "SKIPPED sandbox: it needs root"; exit 77; }
cublas=$(find /usr/local/cuda*/ -name 'libcublasLt.so.13' 2> /dev/null | head -1)

# Neither in a home nor in /tmp: those are taken away.
stage=$(mktemp -d /opt/sluice-sandbox-XXXXXX)
daemon=""
options=()
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    wait 2> /dev/null
    rm -rf "$stage"
}
trap finish EXIT
mkdir "$stage/lib" "$stage/run"
cp "$build/daemon/sluiced" "$build/client/sluice" "$build/gpu/sluice-$device.so" "$stage/"
confine=$stage/confine
cp "$build/tests/gpu/confine" "$confine" 2> /dev/null || cp "$build/tests/confine" "$confine" || exit 1
cp -P .offline/lib/*.so* .carry/lib/*.so* "$stage/lib/" 2> /dev/null
chmod -R a+rX "$stage"
chown 65534:65534 "$stage/run"
export LD_LIBRARY_PATH=$stage/lib:${cublas:+$(dirname "$cublas"):}${LD_LIBRARY_PATH:-}

# What the service has in the end: the drop-in adds to lists, and replaces all else.
setting() { # NAME
    sed -n "s/^$1=//p" deploy/systemd/sluiced.service deploy/systemd/cuda.conf
}
families=$(setting RestrictAddressFamilies | paste -sd' ')
proc=hidepid=invisible
[ "$(setting ProcSubset | tail -1)" != pid ] || proc+=,subset=pid

# The majors of the device files that the drop-in allows, by /proc/devices, as systemd finds them.
majors_of() { # FILE
    sed -nE 's/^DeviceAllow=char-([^ ]+) .*/\1/p' "$1" | while read -r name; do
        awk -v name="$name" '/^Block/ { exit } $2 == name { print $1 }' /proc/devices
    done | sort -u | paste -sd,
}
majors=$(majors_of deploy/systemd/cuda.conf)
prompt=$(seq -s, 1 64) # more rows than our own product kernels take: cuBLASLt is loaded, too

ask() {
    "$stage/sluice" generate --socket "$stage/run/s" --tokens "$prompt" --max-tokens 48 --ignore-eos 2>&1
}
# Starts the daemon under the properties, asks it, ends it: sets `result`.
try() { # [PROPERTY...]
    local start until_ms=15000 now
    rm -f "$stage/run/s"
    start=$(date +%s%3N)
    "$confine" "$@" -- "$stage/sluiced" --model synthetic:tiny --device "$device" --module-dir "$stage" \
        --socket "$stage/run/s" --cache-dir "$stage/run" "${options[@]}" 2> "$stage/log" > /dev/null &
    daemon=$!
    until "$stage/sluice" health --socket "$stage/run/s" > /dev/null 2>&1; do
        now=$(date +%s%3N)
        if ! kill -0 $daemon 2> /dev/null || [ $((now - start)) -gt $until_ms ]; then
            kill -9 $daemon 2> /dev/null
            wait $daemon 2> /dev/null
            result="refused: $(grep -v ' info ' "$stage/log" | tail -1 | cut -d' ' -f2- | cut -c1-150)"
            return 1
        fi
        sleep 0.02
    done
    now=$(date +%s%3N)
    answer=$(ask)
    kill $daemon
    wait $daemon
    result="ready after $((now - start)) ms, answered"
    [ "$answer" = "$expected" ] || { result="answered otherwise: ${answer:0:100}"; return 1; }
}

failed=0
row() { # HAS|BESIDE NAME [PROPERTY...]: what the service has must be borne; what is beside it shows why
    local whose=$1 name=$2
    shift 2
    if ! try "$@" && [ "$whose" = HAS ]; then
        failed=1
    fi
    printf '%-6s  %-58s %s\n' "$whose" "$name" "$result"
}
# A property that does nothing proves nothing: what the probe sees must be what it was given.
probe() { # SEEN PROPERTY...
    local seen=$1
    shift
    "$confine" "$@" -- "$confine" probe | grep -qxF -- "$seen" ||
        { echo "FAILED  $* does not confine"; failed=1; }
}

expected=
answer=
try > /dev/null || true
expected=$answer
if [ -z "$expected" ] || [[ $expected == *sluice:* ]]; then
    echo "FAILED  the daemon does not serve without a sandbox: $result"
    tail -5 "$stage/log"
    exit 1
fi
echo "kernel $(uname -r), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -1), device $device"
echo "device files: $(ls /dev/nvidia* 2> /dev/null | paste -sd' '); majors allowed: $majors"
row BESIDE "nothing"

# ---- one at a time

writable=ReadWritePaths=$stage/run
row HAS "User=" User
row HAS "User=, CapabilityBoundingSet=" User CapabilityBoundingSet
row HAS "NoNewPrivileges=yes" NoNewPrivileges
row HAS "ProtectSystem=strict" "$writable"
row HAS "ProtectHome=yes" ProtectHome
row HAS "PrivateTmp=yes" PrivateTmp
row HAS "PrivateNetwork=yes" PrivateNetwork
row HAS "ProtectHostname=yes" ProtectHostname
row HAS "ProtectProc=invisible" proc=hidepid=invisible
row HAS "ProcSubset=pid" proc=hidepid=invisible,subset=pid
row HAS "ProtectKernelTunables=yes" ProtectKernelTunables
row HAS "ProtectControlGroups=yes" ProtectControlGroups
row HAS "ProtectKernelLogs=yes" ProtectKernelLogs
row HAS "ProtectKernelModules=yes" ProtectKernelModules
row HAS "ProtectClock=yes" ProtectClock
row BESIDE "User=, PrivateDevices=yes" User DeviceAllow= # root would make the files again
row HAS "User=, DevicePolicy=closed, DeviceAllow=" User "DeviceAllow=$majors"
row HAS "MemoryDenyWriteExecute=yes (seccomp)" MemoryDenyWriteExecute
row HAS "MemoryDenyWriteExecute=yes (PR_SET_MDWE)" PR_SET_MDWE
row HAS "LockPersonality=yes" LockPersonality
row HAS "RestrictAddressFamilies=$families" "RestrictAddressFamilies=$families"
row BESIDE "RestrictAddressFamilies=AF_UNIX" RestrictAddressFamilies=AF_UNIX
row HAS "RestrictNamespaces=yes" RestrictNamespaces
row HAS "RestrictRealtime=yes" RestrictRealtime
row HAS "RestrictSUIDSGID=yes" RestrictSUIDSGID
row HAS "SystemCallArchitectures=native" SystemCallArchitectures
row HAS "SystemCallFilter=@system-service ~..." SystemCallFilter
row BESIDE "User=, LimitMEMLOCK=8M" User LimitMEMLOCK=8388608
row BESIDE "User=, LimitMEMLOCK=64K" User LimitMEMLOCK=65536

# ---- together

rest=(User CapabilityBoundingSet NoNewPrivileges "$writable" ProtectHome PrivateTmp PrivateNetwork ProtectHostname
    ProtectKernelTunables ProtectControlGroups ProtectKernelLogs ProtectKernelModules ProtectClock MemoryDenyWriteExecute
    LockPersonality RestrictNamespaces RestrictRealtime RestrictSUIDSGID SystemCallArchitectures SystemCallFilter
    "proc=$proc")
net="RestrictAddressFamilies=$families"
row HAS "all" "${rest[@]}" "$net" "DeviceAllow=$majors"
row HAS "all, and PR_SET_MDWE" "${rest[@]}" "$net" "DeviceAllow=$majors" PR_SET_MDWE
row BESIDE "all, LimitMEMLOCK=64K" "${rest[@]}" "$net" "DeviceAllow=$majors" LimitMEMLOCK=65536
row BESIDE "all, and PrivateDevices=yes" "${rest[@]}" "$net" DeviceAllow=
while read -r major names; do
    row BESIDE "all, without DeviceAllow=char-$names" "${rest[@]}" "$net" \
        "DeviceAllow=$(tr ',' '\n' <<< "$majors" | grep -vx "$major" | paste -sd,)"
done < <(sed -nE 's/^DeviceAllow=char-([^ ]+) .*/\1/p' deploy/systemd/cuda.conf | while read -r name; do
    awk -v name="$name" '/^Block/ { exit } $2 == name { print $1, name }' /proc/devices
done | awk '{ names[$1] = names[$1] (names[$1] ? ", " : "") $2 } END { for (m in names) print m, names[m] }')
if [ "$(nvidia-smi -L 2> /dev/null | wc -l)" -gt 1 ]; then
    options=(--tp 2)
    row BESIDE "tp = 2: nothing"
    for some in AF_UNIX "AF_UNIX AF_INET" "AF_UNIX AF_NETLINK" "AF_UNIX AF_INET AF_NETLINK"; do
        row BESIDE "tp = 2: all, but for $some" "${rest[@]}" "DeviceAllow=$majors" "RestrictAddressFamilies=$some"
    done
    row HAS "tp = 2: all" "${rest[@]}" "$net" "DeviceAllow=$majors"
    options=()
fi

# ---- whether the properties were what they say

for property in User CapabilityBoundingSet NoNewPrivileges ProtectHome PrivateTmp PrivateNetwork ProtectHostname \
    ProtectKernelTunables ProtectKernelLogs ProtectKernelModules ProtectClock MemoryDenyWriteExecute PR_SET_MDWE \
    LockPersonality RestrictNamespaces RestrictRealtime RestrictSUIDSGID SystemCallFilter; do
    probe "$property" "$property"
done
probe ReadWritePaths= "$writable"
probe ProtectProc= proc=hidepid=invisible
probe ProcSubset= proc=hidepid=invisible,subset=pid
probe DeviceAllow= DeviceAllow=
probe RestrictAddressFamilies= RestrictAddressFamilies=AF_UNIX
probe LimitMEMLOCK= LimitMEMLOCK=65536
[ $failed -eq 0 ] && echo "all that the service has is borne"
exit $failed
