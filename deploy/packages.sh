#!/usr/bin/env bash
# Builds the Debian packages into .build/packages: deploy/packages.sh [PRESET]
# With preset deb: sluiced, sluice, libsluice0, libsluice-dev; with deb-cuda also sluice-cuda. When none is given, deb-cuda
# where nvcc is found, else deb. Lists what it made; exit 0, or that of the step which failed.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=deb
! command -v nvcc > /dev/null || preset=deb-cuda
preset=${1:-$preset}
cmake --preset "$preset" -G Ninja > /dev/null
targets=(sluiced sluice sluice_cpu sluice_programs libsluice sluice_pages)
if [ "$preset" = deb-cuda ]; then
    targets+=(sluice_cuda)
fi
cmake --build --preset "$preset" --parallel "$(nproc)" --target "${targets[@]}"
rm -rf .build/packages
cpack --config ".build/$preset/CPackConfig.cmake" -B .build/packages
rm -rf .build/packages/_CPack_Packages
ls -l .build/packages
