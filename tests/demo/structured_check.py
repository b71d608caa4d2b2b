"""Held-out questions of fields and tools over HTTP: structured_check.py SOCKET COUNT SEED [FAR]

Fields by a schema (kept to it, and free), a call of a tool (auto and required, whole and streamed), and what is said of its
result; and FAR calls among thousands of tokens of other tools. At least 99 % of each are exact.
"""
import collections
import concurrent.futures
import json
import pathlib
import random
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/http"), str(TOP / "deploy/demo-model")]
sys.dont_write_bytecode = True
import structured
import unix_http

SOCKET, COUNT, SEED = sys.argv[1], int(sys.argv[2]), sys.argv[3]
FAR = int(sys.argv[4]) if len(sys.argv) > 4 else 0


def drawn(task, count):
    rng = random.Random(f"{SEED} {task}")
    return [structured.request(task, rng) for _ in range(count)]


def questions():
    """(What is told of it, the body, the right answer.)"""
    for item in drawn("extract", COUNT):
        yield "fields by a schema", item["request"], item["answer"]
        free = {key: value for key, value in item["request"].items() if key != "response_format"}
        yield "fields, free", free, item["answer"]
    for item in drawn("call", COUNT):
        yield "a call", item["request"], item["answer"]
        yield "a call, streamed", {**item["request"], "stream": True}, item["answer"]
        yield "a call, required", {**item["request"], "tool_choice": "required"}, item["answer"]
    for item in drawn("result", COUNT):
        yield "what a tool returned", item["request"], item["answer"]
    for item in drawn("far", FAR):
        yield "a call, of tools described at length", item["request"], item["answer"]


def answer_of(body):
    """Its text, or its only call."""
    status, text = unix_http.post(SOCKET, "/v1/chat/completions", body)
    assert status == 200, text
    if not body.get("stream"):
        message = json.loads(text)["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        return {"name": calls[0]["name"], "arguments": calls[0]["arguments"]} if len(calls) == 1 else message["content"]
    call = {"name": "", "arguments": ""}
    for choice in unix_http.choices(text):
        for part in choice["delta"].get("tool_calls") or []:
            for key in call:
                call[key] += part["function"].get(key) or ""
    return call


def one(question):
    what, body, right = question
    return what, answer_of(body), right, body["messages"]


asked, wrong = collections.Counter(), collections.Counter()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for what, answer, right, messages in pool.map(one, list(questions())):
        asked[what] += 1
        if answer != right:
            wrong[what] += 1
            print(messages[-1]["content"], "answered", answer, "instead of", right)
for what, count in asked.items():
    print(f"{what}: {count - wrong[what]} of {count} exact")
sys.exit(any(wrong[what] > 0.01 * count for what, count in asked.items()))
