#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests: deploy/test.sh [PRESET [--brief]]   (dev when not given)
# --brief: of a sanitizer's preset those that tests/brief/PRESET names, as in continuous integration.
# Exit 0 when none failed (skipped ones are named), 2 when packages are missing and it is not run by root.
# Sanitizer presets run without address randomisation: gcc's runtimes die at random where the kernel
# randomises more bits than they know (vm.mmap_rnd_bits above 28).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-dev}
chosen=()
if [ "${2:-}" = --brief ]; then
    chosen=(-R "^($(grep -v '^#' "tests/brief/$preset" | paste -sd '|'))\$")
elif [ $# -gt 1 ]; then
    echo "usage: deploy/test.sh [PRESET [--brief]]" >&2
    exit 2
fi
deploy/deps.sh
cmake --preset "$preset" -G Ninja > /dev/null
targets=() # all, or the programs that those tests start, which are in the lines that CMake wrote for ctest
if [ ${#chosen[@]} -gt 0 ]; then
    mapfile -t targets < <(find ".build/$preset" -name CTestTestfile.cmake -exec cat {} + |
        awk -F'"' -v chosen="${chosen[1]}" -v build="$PWD/.build/$preset/" '/^add_test\(/ {
            name = $1; sub(/^add_test\(\[=\[/, "", name); sub(/\]=\] $/, "", name)
            for (i = 2; name ~ chosen && i <= NF; i += 2)
                if (index($i, build) == 1 && !seen[$i]++) print substr($i, length(build) + 1)
        }')
    targets=(--target sluiced sluice sluice_cpu "${targets[@]}")
fi
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"

# What a test may take at most is for a machine that has nothing else to do, and no sanitizer.
export CK_TIMEOUT_MULTIPLIER=3
run=()
case "$preset" in
asan | ubsan | tsan)
    export CK_TIMEOUT_MULTIPLIER=10
    run=(setarch "$(uname -m)" -R)
    here=$PWD
    # Without the last one gcc 12's leak checker dies on thread-local memory of a module that dlopen() loaded.
    export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:strict_string_checks=1:intercept_tls_get_addr=0"
    # As it is, each process of several threads sleeps for a second at its end: races with it are looked for for a tenth.
    export TSAN_OPTIONS="halt_on_error=0:exitcode=66:atexit_sleep_ms=100:suppressions=$here/tests/tsan.supp"
    export UBSAN_OPTIONS="print_stacktrace=1"
    ;;
esac
status=0 # twice as many as there are processors: most of them wait for a while
"${run[@]}" ctest --preset "$preset" "${chosen[@]}" --parallel $((2 * $(nproc))) --output-on-failure || status=$?
# Of a program that passed, ctest shows nothing of the checks in it that were skipped.
grep -h '^SKIPPED ' ".build/$preset/Testing/Temporary/LastTest.log" | grep -v 'on purpose$' | sort | awk '
    { name = $2; sub(/:$/, "", name); count[name]++; if (!(name in first)) first[name] = $0 }
    END { for (name in count) print count[name] " times " first[name] }' | sort -k3 || true
if [ ${#chosen[@]} -gt 0 ]; then
    count() { ctest --preset "$preset" -N "$@" | awk '/^Total Tests:/ { print $3 }'; }
    echo "SKIPPED for being brief: $(($(count) - $(count "${chosen[@]}"))) tests of $(count) (deploy/test.sh $preset runs all)"
fi
exit $status
