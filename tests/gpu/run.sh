#!/usr/bin/env bash
# All GPU tests in one command: tests/gpu/run.sh [BUILD [PART...]]   (default .build/cuda; a carried build will do)
# Parts, all where none is named: programs, serve, several (layouts.py, too), operate, sanitize.
# Kernels against plain doubles, the runtime's semantics, the engine on the reference checkpoints with its
# mutations, then what is served (serve.py, reuse.py; layouts.py and several.py where there are several GPUs), how it is operated
# (operate.py) and what compute-sanitizer says (sanitize.py): within 15 minutes on one GPU. Builds first where the build
# folder is missing. A line for each part, with the figures of those that have some; the end counts what passed, failed
# and was skipped, by name. A program that the build lacks, and what says so itself (exit 77), is SKIPPED. Exit 1 if one
# fails, 77 if none was run.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${1:-.build/cuda}
[ $# -eq 0 ] || shift
parts=${*:-programs serve several operate sanitize}
for part in $parts; do
    case $part in
    programs | serve | several | operate | sanitize) ;;
    *) echo "tests/gpu/run.sh: no part is called $part" >&2 && exit 2 ;;
    esac
done
is_wanted() { [[ " $parts " == *" $1 "* ]]; }
if [ ! -d "$build" ]; then
    cmake --preset cuda -G Ninja && cmake --build --preset cuda --parallel "$(nproc)" || exit 1
fi
cublas=$(find /usr/local/cuda*/ -name 'libcublasLt.so.13' 2> /dev/null | head -1)
export LD_LIBRARY_PATH=$PWD/.offline/lib:$PWD/.carry/lib:${cublas:+$(dirname "$cublas"):}${LD_LIBRARY_PATH:-}
export PATH=$PWD/.offline/sanitizer/nvidia/cu13/compute-sanitizer:$PATH

passed=()
failed=()
skipped=()
# ended NAME STATUS WHAT: what it was, told and counted.
ended() {
    case $2 in
    0) passed+=("$1") && printf 'ok      %s: %s\n' "$1" "$3" ;;
    77) skipped+=("$1") && printf 'SKIPPED %s: %s\n' "$1" "$3" ;;
    124) failed+=("$1") && printf 'FAILED  %s: not through in time\n%s\n' "$1" "$3" ;;
    *) failed+=("$1") && printf 'FAILED  %s: status %d\n%s\n' "$1" "$2" "$3" ;;
    esac
}
# program NAME SECONDS: of Check, its last lines.
program() {
    local path=$build/tests/$1 output status
    if [ ! -x "$path" ]; then
        ended "$1" 77 "the build has no such program"
        return
    fi
    output=$(timeout "$2" "$path" 2>&1)
    status=$?
    case $status in
    0 | 77) ended "$1" $status "$(grep -E '^SKIPPED: |checks were SKIPPED|Checks: ' <<< "$output" | paste -sd ' ')" ;;
    *) ended "$1" $status "$(grep -v ':P:' <<< "$output" | tail -20)" ;;
    esac
}
# script NAME SECONDS PART...: what it prints are figures beside their limits, of interest where all is well, too.
script() {
    local name=$1 seconds=$2 status
    shift 2
    timeout "$seconds" python3 "tests/gpu/$name" "$build" "$@"
    status=$?
    ended "$name${*:+ $*}" $status "see above"
}

programs=(gpu/kernels/test_kernels_cuda gpu/test_gpu_cuda)
for test in stream event pool host capture threads sticky; do
    programs+=("runtime/test_runtime_cuda_$test")
done
# And what is there besides.
while read -r path; do
    [[ " ${programs[*]} " == *" $path "* ]] || programs+=("$path")
done < <(cd "$build/tests" 2> /dev/null && find . -type f -name 'test_*_cuda*' -perm -u+x | sed 's|^\./||' | sort)
for test in "${programs[@]}"; do
    seconds=120
    [[ $test != *invariant* ]] || seconds=420 # each model in sixteen ways, twice
    ! is_wanted programs || program "$test" $seconds
done
gpus=$(nvidia-smi -L 2> /dev/null | grep -c UUID)
# gpu_script PART GPUS NAME SECONDS ARGUMENT...: where there are so many.
gpu_script() {
    local part=$1 needed=$2
    shift 2
    if ! is_wanted "$part"; then
        return
    elif [ "$gpus" -lt "$needed" ]; then
        ended "$1" 77 "there are $gpus GPUs, it needs $needed"
    else
        script "$@"
    fi
}
gpu_script serve 1 serve.py 300
gpu_script serve 1 reuse.py 120
gpu_script several 2 layouts.py 600 cuda
gpu_script several 2 several.py 600
gpu_script operate 1 operate.py 300 profile notify ready memory tenant taken fault
sanitized=$(mktemp)
if is_wanted sanitize && [ "$gpus" -gt 0 ]; then
    (timeout 450 python3 tests/gpu/sanitize.py "$build" 2>&1 | tee "$sanitized" && exit "${PIPESTATUS[0]}") &
fi
gpu_script operate 1 operate.py 120 idle # an idle daemon minds no company
if is_wanted sanitize && [ "$gpus" -gt 0 ]; then
    wait $!
    status=$?
    ended sanitize.py $status "$(grep '^SKIPPED' "$sanitized" || echo 'see above')"
elif is_wanted sanitize; then
    ended sanitize.py 77 "there is no GPU"
fi
rm "$sanitized"

if [ -n "${SLUICE_RECORDS:-}" ]; then
    python3 tests/bench/record.py checks --as "tests/gpu/run.sh ($parts), $SECONDS s" printf '%s\n' \
        "passed: ${passed[*]:-none}" "failed: ${failed[*]:-none}" "skipped: ${skipped[*]:-none}"
fi
printf '\n%d passed, %d failed, %d skipped\n' "${#passed[@]}" "${#failed[@]}" "${#skipped[@]}"
[ ${#failed[@]} -eq 0 ] || printf 'FAILED  %s\n' "${failed[@]}"
[ ${#skipped[@]} -eq 0 ] || printf 'SKIPPED %s\n' "${skipped[@]}"
[ ${#failed[@]} -eq 0 ] || exit 1
[ ${#passed[@]} -gt 0 ] || exit 77
