#!/usr/bin/env bash
# A container image of the daemon and its client, of Debian's packages and ours alone, without a registry:
#     deploy/container.sh [PACKAGES [IMAGE]]     (root; mmdebstrap; the network for Debian's packages)
# PACKAGES is a folder of packages that were built before; without it they are built. IMAGE is the archive to be written,
# .build/sluice-image.tar if not said, which `podman load` and `docker load` read as sluice:VERSION. Its processes run as
# user sluice; it serves /run/sluice/sluice.sock, and options are arguments, or variables SLUICE_NAME. The GPU's device is
# not in it: cuBLASLt is no package of Debian's. Exit 0, 2 where a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=${1:-.build/packages}
image=${2:-.build/sluice-image.tar}
for tool in mmdebstrap dpkg-deb sha256sum; do
    command -v $tool > /dev/null || { echo "$tool is not installed"; exit 2; }
done
[ $# -gt 0 ] || deploy/packages.sh deb > /dev/null

ours=("$packages"/{sluiced,sluice,libsluice0}_*.deb)
version=$(dpkg-deb -f "${ours[0]}" Version)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
depends=$(for package in "${ours[@]}"; do dpkg-deb -f "$package" Depends; done |
    sed 's/([^)]*)//g' | tr ',' '\n' | tr -d ' ' | grep -vE '^(lib)?sluice|^$' | sort -u | paste -sd,)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/ours" "$scratch/image"
cp "${ours[@]}" "$scratch/ours/"

# The same packages give the same image.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null || stat -c %Y "${ours[0]}")
export SOURCE_DATE_EPOCH
cat > "$scratch/finish" << 'END'
#!/bin/sh
set -e
chroot "$1" sh -c 'dpkg -i /ours/*.deb && rm -r /ours'
echo 'sluice:x:900:900:Sluice inference daemon:/nonexistent:/usr/sbin/nologin' >> "$1/etc/passwd"
echo 'sluice:x:900:' >> "$1/etc/group"
mkdir -p "$1/var/cache/sluice" "$1/models"
rm -f "$1/etc/resolv.conf" "$1/etc/hostname" # of the machine that builds it
chown 900:900 "$1/var/cache/sluice"
END
chmod +x "$scratch/finish"
mmdebstrap --quiet --mode=root --variant=essential --format=tar --include="$depends" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/lib/systemd/system/*' \
    --customize-hook="copy-in $scratch/ours /" --customize-hook="$scratch/finish" \
    "$suite" "$scratch/layer.tar" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }

# mmdebstrap leaves /run empty.
mkdir -p "$scratch/more/run/sluice"
tar -C "$scratch/more" --mtime="@$SOURCE_DATE_EPOCH" --owner=900 --group=900 --numeric-owner --mode=0755 --no-recursion \
    -rf "$scratch/layer.tar" ./run/sluice

layer=$(sha256sum < "$scratch/layer.tar" | cut -d' ' -f1)
case $(dpkg --print-architecture) in
amd64) architecture=amd64 ;;
arm64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac
cat > "$scratch/config.json" << END
{"architecture": "$architecture", "os": "linux", "created": "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)",
 "config": {"User": "sluice", "Entrypoint": ["/usr/bin/sluiced"], "WorkingDir": "/", "StopSignal": "SIGTERM",
  "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "SLUICE_SOCKET=/run/sluice/sluice.sock", "SLUICE_CACHE_DIR=/var/cache/sluice"],
  "ExposedPorts": {"8000/tcp": {}}, "Volumes": {"/models": {}},
  "Labels": {"org.opencontainers.image.title": "sluice", "org.opencontainers.image.version": "$version"}},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]},
 "history": [{"created_by": "deploy/container.sh"}]}
END
config=$(sha256sum < "$scratch/config.json" | cut -d' ' -f1)
mkdir "$scratch/image/$layer"
mv "$scratch/layer.tar" "$scratch/image/$layer/layer.tar"
mv "$scratch/config.json" "$scratch/image/$config.json"
printf '[{"Config": "%s.json", "RepoTags": ["localhost/sluice:%s"], "Layers": ["%s/layer.tar"]}]\n' "$config" "$version" "$layer" \
    > "$scratch/image/manifest.json"
mkdir -p "$(dirname "$image")"
tar -C "$scratch/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$image.new" .
mv "$image.new" "$image"
ls -l "$image"
