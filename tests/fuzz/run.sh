#!/usr/bin/env bash
# Fuzzes every target with libFuzzer: tests/fuzz/run.sh [--grow] [SECONDS]
#
# SECONDS is for each target, 6 when not given, as in CI (600 before a release); as many
# run at a time as there are processors. With --grow what was found beyond corpus/ is added to it, as
# far as it reaches code that nothing there does. TARGETS in the environment names those to run.
# Exit 0 when all held, 1 when one did not (its input is named, and kept under .build/fuzz/found), 77 when
# there is no clang with libFuzzer: then each target is named as skipped.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

grow=
if [ "${1:-}" = --grow ]; then
    grow=1
    shift
fi
seconds=${1:-6}
case $seconds in
'' | *[!0-9]* | 0)
    echo "usage: tests/fuzz/run.sh [--grow] [SECONDS]" >&2
    exit 2
    ;;
esac
read -ra targets <<< "${TARGETS:-$(cd tests/fuzz/corpus && echo *)}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *data, long size); int LLVMFuzzerTestOneInput(const char *data, long size) { return !data && size; }' > "$scratch/probe.c"
if ! clang -fsanitize=fuzzer,address -o "$scratch/probe" "$scratch/probe.c" 2> /dev/null; then
    printf 'SKIPPED: fuzz_%s, for want of clang with libFuzzer\n' "${targets[@]}"
    exit 77
fi

cmake --preset fuzz -G Ninja > /dev/null || exit 1
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]/#/fuzz_}" > "$scratch/build" 2>&1 || {
    cat "$scratch/build" >&2
    exit 1
}

build=$PWD/.build/fuzz
mkdir -p "$build/found"
# At most 40 of a run: any build replays each of them at every length.
grow_corpus() { # TARGET
    local known=tests/fuzz/corpus/$1 merged=$scratch/$1 name added=0
    cp -r "$known" "$merged"
    "$build/tests/fuzz/fuzz_$1" -set_cover_merge=1 -max_len=512 "$merged" "$build/corpus/$1"
    for name in "$merged"/*; do
        if [ $added -lt 40 ] && [ ! -e "$known/${name##*/}" ]; then
            cp "$name" "$known/"
            added=$((added + 1))
        fi
    done
}
fuzz() { # TARGET
    local new=$build/corpus/$1 log=$build/found/$1.log
    mkdir -p "$new"
    if ! "$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
        -artifact_prefix="$build/found/$1-" "$new" "tests/fuzz/corpus/$1" > "$log" 2>&1; then
        echo "FAILED: fuzz_$1"
        grep -E 'does not hold|ERROR|SUMMARY|Test unit written' "$log"
        return 1
    fi
    echo "fuzz_$1: $(awk '/number_of_executed_units/ { print $2 }' "$log") inputs, $(find "$new" -type f | wc -l) kept"
    [ -z "$grow" ] || grow_corpus "$1" >> "$log" 2>&1
}
export -f fuzz grow_corpus
export build scratch seconds grow
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I TARGET bash -c 'fuzz TARGET' || exit 1
