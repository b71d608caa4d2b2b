"""The program of lines.c, asked in batches: suite.py, random_schemas.py and maskbench.py."""
import json
import subprocess


def text(value):
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def ask(program, lines, style="1"):
    """One answer for each line."""
    done = subprocess.run([program, style], input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8", check=True)
    answers = done.stdout.split("\n")[:-1]
    if len(answers) != len(lines):
        raise SystemExit(f"{len(lines)} lines, {len(answers)} answers: {done.stderr[-400:]}")
    return answers
