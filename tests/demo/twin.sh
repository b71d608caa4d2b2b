#!/usr/bin/env bash
# deploy/demo-model/tasks.py and demo_tasks agree on which prompts are held out and on the answers:
#     tests/demo/twin.sh DEMO_TASKS
# Skipped (77) without python3.
set -euo pipefail
cd "$(dirname "$0")/../.."

tasks=$1
python3 -c '' 2> /dev/null || { echo "SKIPPED demo_tasks_twin: no python3 here"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
python3 deploy/demo-model/tasks.py --count 1000 --seed 5 | "$tasks" check
"$tasks" print 5 1000 | python3 -c '
import sys
sys.path.insert(0, "deploy/demo-model")
import tasks

solved = {
    "add": lambda p: str(sum(map(int, p[:-1].split("+")))),
    "reverse": lambda p: p[len("reverse "):-1][::-1],
    "sort": lambda p: "".join(sorted(p[len("sort "):-1])),
    "max": lambda p: str(max(map(int, p[len("max "):-1].split(",")))),
}
seen = set()
for line in sys.stdin:
    task, prompt, answer = line.rstrip("\n").split("\t")
    if tasks.split(prompt) != "test" or solved[task](prompt) != answer or prompt in seen:
        sys.exit("not so: " + line)
    seen.add(prompt)
print(len(seen), "lines, 0 wrong")
sys.exit(len(seen) != 4000)
'
