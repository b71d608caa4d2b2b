#!/usr/bin/env bash
# Installs the packages that Sluice is built and tested with, on Debian 12 and Ubuntu 24.04: deploy/deps.sh [all]
# Lists what is missing first; does nothing when all is there; without root it prints the line to run and exits 2.
# With "all" also what single tests need that are SKIPPED without it, as far as it can be had.
set -euo pipefail

packages=(
    build-essential cmake ninja-build pkg-config git ca-certificates
    libuv1-dev        # event loop
    libcjson-dev      # JSON, behind protocol/base/json.c
    zlib1g-dev        # compressed bodies of /v2, PNG images
    check             # unit tests
    libpcre2-dev      # regular expressions of pre-tokenizers
    libutf8proc-dev   # Unicode normalisation (NFC)
    libcurl4-openssl-dev # the load generator's HTTP side
    libncurses-dev    # sluice top
    util-linux        # setarch, flock
    curl              # tests of HTTP
    tmux              # the test of sluice top
)

further=(
    chromium          # the load generator's report page (Ubuntu has it as a snap alone: SKIPPED there)
    prometheus        # a real scrape, promtool
    mmdebstrap systemd-container # the boot test
    lintian           # the packages
    zsh               # its completions
    podman runc       # the container image's start
    python3-venv      # packages that tests ask for (tests/python/environment.sh)
    man-db            # the manual pages
    nginx haproxy openssl # TLS in front (tests/http/tls.sh)
    redis-server      # what LiteLLM's proxy remembers conversations in (tests/scale/scale.sh)
    iproute2          # four daemons behind HAProxy, in network namespaces (tests/scale/scale.sh)
    valgrind          # what a scrape costs, in instructions (tests/scale/scrape.sh)
    clang libclang-rt-dev # fuzzing (tests/fuzz/run.sh)
)
is_there() { # PACKAGE
    [ "$(dpkg-query -W -f '${Status}' "$1" 2> /dev/null || true)" = "install ok installed" ]
}
get() { apt-get install -y -qq --no-install-recommends "$@"; }

missing=()
for package in "${packages[@]}"; do
    is_there "$package" || missing+=("$package")
done
wanted=()
for package in "${further[@]}"; do
    [ "${1:-}" != all ] || is_there "$package" || wanted+=("$package")
done
if [ ${#missing[@]} -eq 0 ] && [ ${#wanted[@]} -eq 0 ]; then
    exit 0
fi

echo "missing packages: ${missing[*]} ${wanted[*]}"
if [ "$(id -u)" -ne 0 ]; then
    echo "run: sudo apt-get update && sudo apt-get install -y ${missing[*]} ${wanted[*]}"
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
[ ${#missing[@]} -eq 0 ] || get "${missing[@]}"
for package in "${wanted[@]}"; do
    get "$package" || echo "not to be had: $package"
done
