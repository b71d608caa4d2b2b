#!/usr/bin/env bash
# deploy/scale/slurm.sh by a real slurmctld, slurmd and munged of Debian's, in a root of their own: tests/scale/slurm.sh [BUILD]. Four
# jobs start four daemons (CPU device, demo model), which answer; one is asked to end and ends in peace, as all do in the end.
# Needs root, mmdebstrap and namespaces, and the network for packages; else 77, SKIPPED with the reason. Exit 1 if a check fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
skip() {
    echo "SKIPPED slurm: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "not root"
command -v mmdebstrap > /dev/null || skip "mmdebstrap is not installed"
unshare --mount --pid --fork --net --uts true 2> /dev/null || skip "namespaces cannot be made here"
cache=$build/scale/slurm.tar
if [ ! -s "$cache" ]; then
    mkdir -p "$build/scale"
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --format=tar --variant=minbase --include=slurmctld,slurmd,slurm-client,munge,iproute2,hostname,curl \
        "$suite" "$cache.new" > "$cache.log" 2>&1 || skip "Slurm could not be had: $(tail -1 "$cache.log")"
    mv "$cache.new" "$cache"
fi
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
tar -xf "$cache" -C "$root" --exclude='./dev/*'

# The daemon with its libraries, the model, the script.
mkdir -p "$root/sluice/lib" "$root/sluice/home"
cp "$build/daemon/sluiced" "$build/gpu/sluice-cpu.so" "$root/sluice/"
ldd "$build/daemon/sluiced" | sed -nE 's/.* => (\/[^ ]+).*/\1/p' | grep -vE '/(libc|libm|libpthread)\.' | xargs -I{} cp -L {} "$root/sluice/lib/"
printf '#!/bin/sh\nLD_LIBRARY_PATH=/sluice/lib exec /sluice/sluiced "$@"\n' > "$root/sluice/start"
chmod +x "$root/sluice/start"
cp -r deploy/demo-model deploy/scale/slurm.sh "$root/sluice/"
cp tests/scale/slurm_inside.sh "$root/sluice/"
mkdir -p "$root/dev" "$root/proc" "$root/run/munge"
code=0
unshare --mount --pid --fork --net --uts --ipc bash -c '
    mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount -t sysfs sysfs "$1/sys" && hostname head && ip link set lo up &&
        ip link add br0 type bridge && ip addr add 10.9.9.1/24 dev br0 && ip link set br0 up && exec chroot "$1" /sluice/slurm_inside.sh
' - "$root" || code=$?
exit $code
