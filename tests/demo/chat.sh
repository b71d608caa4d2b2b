#!/usr/bin/env bash
# The demo model in a chat: `sluice chat` with held-out questions of all its tasks, without the '=' that its prompts
# end with, one conversation each line of which is a turn. Every answer is right.
#     tests/demo/chat.sh [BUILD]          BUILD is .build/release when not given
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/release}
source tests/demo/daemon.sh
"$build/tests/demo/demo_tasks" print 7 10 > "$folder/tasks"
daemon_start
awk -F'\t' '{ sub(/=$/, "", $2); print $2 }' "$folder/tasks" | "$sluice" chat > "$folder/answers"
diff <(cut -f3 "$folder/tasks") "$folder/answers" || { echo "wrong answers" >&2; exit 1; }
[ "$(wc -l < "$folder/answers")" -eq 40 ]
echo "40 of 40 right in a chat"
daemon_stop
