#!/usr/bin/env bash
# All GPU tests in one command: tests/gpu/run.sh [BUILD]   (default .build/cuda; a carried build will do)
# Kernels against plain doubles, the runtime's semantics, the engine on the reference checkpoints with its
# mutations, then what is served (serve.py; layouts.py and several.py where there are several GPUs), how it is operated
# (operate.py) and what compute-sanitizer says (sanitize.py): within 8 minutes on one GPU. Builds first where the build
# folder is missing. A line for each; exit 1 if one fails. Programs that find no GPU say so and count as failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${1:-.build/cuda}
if [ ! -d "$build" ]; then
    cmake --preset cuda -G Ninja && cmake --build --preset cuda --parallel "$(nproc)" || exit 1
fi
cublas=$(find /usr/local/cuda*/ -name 'libcublasLt.so.13' 2> /dev/null | head -1)
export LD_LIBRARY_PATH=$PWD/.offline/lib:$PWD/.carry/lib:${cublas:+$(dirname "$cublas"):}${LD_LIBRARY_PATH:-}
export PATH=$PWD/.offline/sanitizer/nvidia/cu13/compute-sanitizer:$PATH

failed=0
passed=0
run() {
    local output
    output=$("$@" 2>&1)
    local status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %s: %s\n' "$(basename "$1")" "$(tail -1 <<< "$output")"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s, status %d\n%s\n' "$*" $status "$(grep -v ':P:' <<< "$output" | tail -20)"
    fi
}
for test in $(find "$build/tests" -type f -name 'test_*_cuda*' -perm -u+x | sort); do
    run timeout 120 "$test"
done
run timeout 300 python3 tests/gpu/serve.py "$build"
if [ "$(nvidia-smi -L 2> /dev/null | grep -c UUID)" -gt 1 ]; then
    run timeout 600 python3 tests/gpu/layouts.py "$build"
    run timeout 600 python3 tests/gpu/several.py "$build"
fi
# What these print are figures beside their limits, of interest where all is well, too.
tell() {
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}
tell timeout 300 python3 tests/gpu/operate.py "$build" profile notify ready memory tenant fault
# An idle daemon minds no company.
sanitized=$(mktemp)
timeout 360 python3 tests/gpu/sanitize.py "$build" > "$sanitized" 2>&1 &
tell timeout 120 python3 tests/gpu/operate.py "$build" idle
tell wait $!
cat "$sanitized"
rm "$sanitized"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
