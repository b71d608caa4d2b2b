#!/usr/bin/env bash
# The container image: built of the packages, loaded, started, asked and stopped.
#     tests/service/container.sh [PACKAGES]    (root; mmdebstrap, the network; podman or docker for the start)
# Prints each check; exit 1 if one fails, 77 and a line that starts with SKIPPED where something cannot be run.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

skip() {
    echo "SKIPPED container $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "image: it needs root"
command -v mmdebstrap > /dev/null || skip "image: mmdebstrap is not installed"

packages=${1:-.build/packages}
[ $# -gt 0 ] || deploy/packages.sh deb > /dev/null 2>&1
scratch=$(mktemp -d)
tool= name=sluice-test-$$
finish() {
    [ -z "$tool" ] || {
        $tool rm -f "$name" > /dev/null 2>&1
        $tool rmi -f "$image" > /dev/null 2>&1
    }
    rm -rf "$scratch"
}
trap finish EXIT
deploy/container.sh "$packages" "$scratch/image.tar" > "$scratch/log" 2>&1 || {
    grep -qiE 'could not resolve|failed to fetch|unable to fetch|connection|temporary failure' "$scratch/log" &&
        skip "image: Debian's packages cannot be had: $(tail -1 "$scratch/log")"
    cat "$scratch/log"
    exit 1
}

# shellcheck source=tests/check.sh
. tests/check.sh
tar -xf "$scratch/image.tar" -C "$scratch"
version=$(dpkg-deb -f "$packages"/sluiced_*.deb Version)
image=localhost/sluice:$version
layer=$(echo "$scratch"/*/layer.tar)
config=$(sed -E 's/.*"Config": "([0-9a-f]+)\.json".*/\1/' "$scratch/manifest.json")
check "the configuration is what its name says" is "$(sha256sum < "$scratch/$config.json" | cut -d' ' -f1)" "$config"
check "the layer is what the configuration says" grep -q "sha256:$(sha256sum < "$layer" | cut -d' ' -f1)" "$scratch/$config.json"
tar -tf "$layer" > "$scratch/files"
holds() { grep -qx "$1" "$scratch/files"; }
holds_not() { ! grep -E "$1" "$scratch/files"; }
check "it holds the daemon" holds ./usr/bin/sluiced
check "and a folder for its socket" holds ./run/sluice/
check "and nothing of the machine that built it" holds_not '^\./etc/(resolv.conf|hostname)$|^\./ours'
check "and no package but Debian's and ours" is "$(tar -xOf "$layer" ./var/lib/dpkg/status | grep -c '^Package: .*sluice')" 3

# What can start a container here: not every kernel and every account may do what a tool does unasked.
run() { # OPTIONS...
    # shellcheck disable=SC2086
    $tool run $limits --network=none "$@"
}
why="neither podman nor docker is installed"
for one in podman 'podman --runtime=/usr/sbin/runc' docker; do
    command -v "${one%% *}" > /dev/null || continue
    for limits in '' '--ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000'; do
        tool=$one
        why=$($tool load -q -i "$scratch/image.tar" 2>&1 > /dev/null && run --rm --entrypoint=/bin/true "$image" 2>&1) && break 2
        tool=
    done
done
if [ -z "$tool" ]; then
    [ $failed -eq 0 ] || exit 1
    skip "start: $(tail -1 <<< "$why")"
fi
start() { run -d --name "$name" "$image" --model /usr/share/sluice/demo-model --device cpu; }
inside() { $tool exec "$name" "$@"; }
ready() {
    for _ in $(seq 100); do
        inside sluice health > /dev/null 2>&1 && return
        sleep 0.2
    done
    $tool logs "$name"
    return 1
}
check "it starts in ${tool%% *}" start
check "and is ready" ready
check "it answers" is "$(inside sluice generate --prompt '417+385=')" 802
check "it runs as its own user" is "$(inside id -un)" sluice
check "it ends when it is asked to" $tool stop -t 30 "$name"
check "with exit code 0" is "$($tool inspect -f '{{.State.ExitCode}}' "$name")" 0
exit $failed
