#!/usr/bin/env bash
# Every figure of the table of speeds on one GPU, in one command of twenty minutes:
#     tests/bench/gpu.sh [--checks] [--only ROW,ROW...] [--seconds S] [--seeds N] [BUILD] [LIMITS]
# (--only families, or a shape's name: each family beside the 8B of the same run. --only latency: under load, for S
# seconds, 60, with each of N seeds, 3, at each rate: that takes the most of the time. --only jobs: programs on lanes.
# --only experts: mixtures of experts, and a layer of theirs alone.)
# BUILD is a build of the cuda preset (.build/cuda, made where it is missing); LIMITS a program that prints
# "name value unit" lines of what the GPU can do at best (hbm_read and cublasLt_bf16_8B_layer_M4096_flops are used);
# without it the read rate that bench_kernels measures is the limit. --checks ends with tests/gpu/run.sh.
# Exits with 1 where a figure misses its gate.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

checks=0
only=
latency=()
while [ $# -gt 0 ]; do
    case $1 in
    --checks) checks=1 ;;
    --only) only=$2 && shift ;;
    --seconds | --seeds) latency+=("$1" "$2") && shift ;;
    *) break ;;
    esac
    shift
done
build=${1:-.build/cuda}
limits=${2:-}
if [ ! -d "$build" ]; then
    cmake --preset cuda -G Ninja && cmake --build --preset cuda --parallel "$(nproc)" || exit 1
fi
cublas=$(find /usr/local/cuda*/ -name 'libcublasLt.so.13' 2> /dev/null | head -1)
export LD_LIBRARY_PATH=$PWD/.offline/lib:$PWD/.carry/lib:${cublas:+$(dirname "$cublas"):}${LD_LIBRARY_PATH:-}

status=0
timeout 2400 python3 tests/bench/gpu.py "$build" --only "$only" ${latency[@]+"${latency[@]}"} ${limits:+--limits "$limits"} || status=1
if [ $checks -eq 1 ]; then
    tests/gpu/run.sh "$build" || status=1
fi
exit $status
