#!/usr/bin/env bash
# sluiced with the demo model holds at most 64 MiB of resident memory: when ready, while it answers
# 1,024 requests at a time, and after.
#     tests/demo/memory.sh [BUILD]          BUILD is .build/release when not given
# Exit 1 above that, 77 under a sanitizer.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
if nm -D "$build/daemon/sluiced" | grep -E '__(asan|tsan|ubsan)_' > /dev/null; then
    echo "SKIPPED demo_memory: a sanitizer's memory is not ours"
    exit 77
fi
source tests/demo/daemon.sh
daemon_start
"$build/tests/demo/demo_tasks" print 4 256 | batch > "$folder/batch"
"$sluice" generate --file "$folder/batch" --no-stream > /dev/null
awk '/^(VmHWM|VmRSS)/ { printf "%s %.1f MiB\n", $1, $2 / 1024; most = $2 > most ? $2 : most }
    END { exit most == 0 || most > 64 * 1024 }' "/proc/$daemon/status"
