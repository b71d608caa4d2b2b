#!/usr/bin/env bash
# The packages on a real systemd: a container is made with mmdebstrap, booted with systemd-nspawn, and
# tests/service/inside.sh runs in it.
#     tests/service/boot.sh [PACKAGES]    (root; the first time also the network, for the container's packages)
# PACKAGES is a folder of packages that were built before; without it they are built.
# Exit 0 when all holds, 77 and a line that starts with SKIPPED where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
    echo "SKIPPED boot test: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "it needs root"
for tool in systemd-nspawn mmdebstrap dpkg-deb; do
    command -v $tool > /dev/null || skip "$tool is not installed"
done
unshare --mount --pid --fork true 2> /dev/null || skip "namespaces cannot be made here"

packages=${1:-.build/packages}
[ $# -gt 0 ] || deploy/packages.sh > /dev/null 2>&1
cache=.build/boot
depends=$(for package in "$packages"/*.deb; do dpkg-deb -f "$package" Depends; done |
    sed 's/([^)]*)//g' | tr ',' '\n' | tr -d ' ' | grep -vE '^(lib)?sluice' | sort -u | paste -sd,)
include=systemd,systemd-sysv,dbus,curl,$depends
base=$cache/base-$(md5sum <<< "$include" | cut -c1-8).tar
mkdir -p "$cache"
if [ ! -s "$base" ]; then
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --format=tar --variant=minbase --include="$include" "$suite" "$base.new" \
        > "$cache/base.log" 2>&1 || skip "the container could not be made: $(tail -1 "$cache/base.log")"
    mv "$base.new" "$base"
fi

root=$(mktemp -d "$PWD/$cache/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
tar -xf "$base" -C "$root" --exclude='./dev/*'

# A later version of the same, for the upgrade.
mkdir -p "$root/test/now" "$root/test/next"
cp "$packages"/*.deb "$root/test/now/"
for package in "$packages"/*.deb; do
    dpkg-deb -R "$package" "$root/test/unpacked"
    sed -i -E 's/^Version: .*/&+next/; s/((libsluice0|sluiced) \(= [^)]*)\)/\1+next)/' "$root/test/unpacked/DEBIAN/control"
    dpkg-deb -b "$root/test/unpacked" "$root/test/next" > /dev/null
    rm -rf "$root/test/unpacked"
done
cp -r deploy/demo-model "$root/test/model"
cp tests/service/inside.sh tests/check.sh "$root/test/"
cat > "$root/etc/systemd/system/boot-test.service" << 'END'
[Unit]
Description=What tests/service/inside.sh checks
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=exec
ExecStart=/bin/bash /test/inside.sh
StandardOutput=append:/test/output
StandardError=append:/test/output
[Install]
WantedBy=multi-user.target
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../boot-test.service "$root/etc/systemd/system/multi-user.target.wants/"

timeout -k 10 400 systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --private-network \
    --boot < /dev/null > "$cache/boot.log" 2>&1 || true
[ -s "$root/test/output" ] || skip "the container did not boot: $(tail -1 "$cache/boot.log")"
cat "$root/test/output"
cp "$root/test/output" "$cache/output"
grep -q '^all holds$' "$root/test/output"
