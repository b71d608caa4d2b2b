#!/usr/bin/env bash
# single_threaded.sh PROGRAM...: none of them can start a thread, so that ThreadSanitizer has nothing to see there.
# Names those that can; exit 1 if any, 77 without nm.
set -euo pipefail
command -v nm > /dev/null || { echo "SKIPPED single_threaded: nm is not installed"; exit 77; }
status=0
for program in "$@"; do
    if nm -D --undefined-only "$program" | grep -E ' (pthread_create|thrd_create|uv_thread_create(_ex)?|uv_queue_work)(@|$)'; then
        echo "$program can start threads: it must be built for ThreadSanitizer, too"
        status=1
    fi
done
[ $# -gt 0 ] && exit $status
