#!/usr/bin/env bash
# Decode on the CPU device at batch 8, through sluiced, beside what the same cores can do:
#     tests/bench/cpu.sh [BUILD]          BUILD is .build/release when not given
#
# For each shape: bytes of weights and KV read per second against the machine's read rate, and
# multiply-adds of products and attention per second against a plain vectorised float32 dot product
# (limits.c), measured just before, between and after; the best of RUNS (5) each. A step's time is what
# a sequence takes from its first token to its last, over the tokens between. Passes a shape at 0.60 of
# the first or 0.50 of the second; whichever of the two is nearer binds. The last line of a shape is
# `ratio SHAPE X.XX of ...`. Exit 1 when a shape misses both. SHAPES, TOKENS, RUNS and THREADS may be set in the environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
runs=${RUNS:-5}
threads=${THREADS:-$(nproc)}
folder=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2> /dev/null; wait; rm -rf "$folder"' EXIT
export SLUICE_SOCKET=$folder/socket
bad=0

# Parameters that a decode step multiplies with, and numbers of K and V that each token of context
# keeps and that a sequence multiplies with: by name, hidden, intermediate, layers, heads, KV heads, head
# size, vocabulary. Weights are bf16 and KV is float32 on this device.
parameters() {
    awk -v shape="$1" '$1 == shape {
        print $4 * ($2 * $7 * ($5 + 2 * $6) + $5 * $7 * $2 + 3 * $2 * $3) + $2 * $8,
            2 * $4 * $6 * $7, 2 * $4 * $5 * $7
    }' << 'END'
tiny          256  512  4  4 2  64    512
llama-3.2-1b 2048 8192 16 32 8  64 128256
qwen3-0.6b   1024 3072 28 16 8 128 151936
END
}
limits() { "$build/tests/bench/bench_limits" "$threads" >> "$folder/limits"; }

# measure SHAPE TOKENS
measure() {
    local shape=$1 tokens=$2 count kept used
    read -r count kept used < <(parameters "$shape")
    "$build/daemon/sluiced" --model "synthetic:$shape" --device cpu --cpu-threads "$threads" \
        --socket "$SLUICE_SOCKET" --log-level warning &
    daemon=$!
    until "$build/client/sluice" health > /dev/null 2>&1; do
        kill -0 "$daemon" || exit 1
        sleep 0.2
    done
    for sequence in 1 2 3 4 5 6 7 8; do
        echo "{\"tokens\": [$sequence, 2, 3], \"max_tokens\": $tokens, \"ignore_eos\": true}"
    done > "$folder/batch"
    : > "$folder/limits"
    : > "$folder/steps"
    limits
    for _ in $(seq "$runs"); do
        "$build/client/sluice" generate --file "$folder/batch" --json |
            sed -E 's/.*"first_token_us":([0-9]+),"total_us":([0-9]+).*/\1 \2/' |
            awk -v tokens="$tokens" '{ sum += ($2 - $1) / (tokens - 1) } END { print sum / NR }' \
                >> "$folder/steps"
        limits
    done
    kill "$daemon"
    wait "$daemon"
    daemon=
    awk -v shape="$shape" -v count="$count" -v kept="$kept" -v used="$used" -v tokens="$tokens" \
        -v step="$(sort -g "$folder/steps" | head -n 1)" '
        { read = $1 > read ? $1 : read; dot = $2 > dot ? $2 : dot }
        END {
            context = 3 + tokens / 2
            bytes = (2 * count + 8 * context * 4 * kept) / step / 1e3
            work = 8 * (count + context * used) / step / 1e3
            printf "%s: step %.3f ms; reads %.2f of %.2f GB/s; %.2f of %.2f Gmul-add/s\n", shape,
                step / 1e3, bytes, read, work, dot
            memory = bytes / read
            compute = work / dot
            binds = memory / 0.6 > compute / 0.5
            printf "ratio %s %.2f of %s\n", shape, binds ? memory : compute,
                binds ? "the read rate" : "the dot product"
            exit memory < 0.6 && compute < 0.5
        }' "$folder/limits" || bad=1
}
for shape in ${SHAPES:-tiny qwen3-0.6b llama-3.2-1b}; do
    tokens=${TOKENS:-24}
    [ "$shape" != tiny ] || tokens=${TOKENS:-1000}
    measure "$shape" "$tokens"
done
exit $bad
