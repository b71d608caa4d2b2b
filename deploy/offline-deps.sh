#!/usr/bin/env bash
# For a machine that has a GPU and no network: fetches the packages that a build of Sluice needs to run there,
# and unpacks their libraries into .offline/lib, and compute-sanitizer (tests/gpu/sanitizer.py) into .offline/sanitizer.
# Run it where the network is, carry the tree over, then run tests/gpu/run.sh there; it finds them by itself. Debian 12
# and Ubuntu 24.04; needs no root, but apt-get, and pip for compute-sanitizer, which is left out where there is none.
# Exit 0 with the number of libraries; what is there already is not fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libuv1 libcjson1 zlib1g libpcre2-8-0 libutf8proc2 libutf8proc3 libsubunit0)
mkdir -p .offline/packages .offline/lib
for package in "${packages[@]}"; do
    # Names differ between releases: what this one does not have, it does not need.
    apt-cache show "$package" > /dev/null 2>&1 || continue
    ls .offline/packages/"$package"_*.deb > /dev/null 2>&1 ||
        (cd .offline/packages && apt-get download -qq "$package" 2> /dev/null)
done
for package in .offline/packages/*.deb; do
    dpkg-deb -x "$package" .offline/root
done
find .offline/root -name '*.so*' -exec cp -P {} .offline/lib/ \;
if [ ! -d .offline/sanitizer ] && ! python3 -m pip download -q --no-deps --only-binary=:all: -d .offline/packages \
    'nvidia-cuda-sanitizer-api>=13.5'; then
    echo "no compute-sanitizer: pip did not fetch nvidia-cuda-sanitizer-api"
elif [ ! -d .offline/sanitizer ]; then
    rm -rf .offline/unpacked
    python3 -m zipfile -e .offline/packages/nvidia_cuda_sanitizer_api-*.whl .offline/unpacked
    mv .offline/unpacked .offline/sanitizer
    find .offline/sanitizer -path '*/compute-sanitizer/*' ! -name '*.so' -type f -size +8k -exec chmod +x {} +
fi
echo "$(find .offline/lib -name '*.so*' | wc -l) libraries in .offline/lib"
