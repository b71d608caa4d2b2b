#!/usr/bin/env bash
# Installs the packages that Sluice is built and tested with, on Debian 12 and Ubuntu 24.04. Lists what is
# missing first; does nothing when all is there; without root it prints the line to run and exits 2.
set -euo pipefail

packages=(
    build-essential cmake ninja-build pkg-config git ca-certificates
    libuv1-dev        # event loop
    libcjson-dev      # JSON, behind protocol/base/json.c
    check             # unit tests
    libpcre2-dev      # regular expressions of pre-tokenizers
    libutf8proc-dev   # Unicode normalisation (NFC)
    libmicrohttpd-dev # HTTP
    libcurl4-openssl-dev # the load generator's HTTP side
    libncurses-dev    # sluice top
    util-linux        # setarch, flock
    curl              # tests of HTTP
    tmux              # the test of sluice top
)

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

echo "missing packages: ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
    echo "run: sudo apt-get update && sudo apt-get install -y ${missing[*]}"
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
