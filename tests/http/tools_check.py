"""Calls of tools and thought within a budget, whole and streamed, many at once: tools_check.py SOCKET [ROUNDS]

What is streamed is what is told whole; calls that are not cut off have arguments that their schema asks for; an answer that
is cut says length, and its arguments are the beginning of what they would have been.
"""
import concurrent.futures
import json
import sys

import unix_http

PATH = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
PICK = {"type": "object", "properties": {"colour": {"enum": ["red", "grün"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["colour", "count"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "pick", "parameters": PICK, "strict": True}},
         {"type": "function", "function": {"name": "stop"}}]


def post(body):
    status, text = unix_http.post(PATH, "/v1/chat/completions", body)
    assert status == 200, text
    return text


def whole(body):
    choice = json.loads(post(body))["choices"][0]
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    return message.get("reasoning") or "", message["content"] or "", calls, choice["finish_reason"]


def streamed(body):
    reasoning, content, calls, finish = "", "", [], None
    for choice in unix_http.choices(post(dict(body, stream=True))):
        delta = choice["delta"]
        reasoning += delta.get("reasoning") or ""
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls) and call["function"]["arguments"] == "", call
                calls.append([call["function"]["name"], ""])
            else:
                calls[call["index"]][1] += call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    return reasoning, content, [tuple(call) for call in calls], finish


def judge(name, arguments):
    values = json.loads(arguments)
    assert name in ("pick", "stop"), name
    if name == "pick":
        assert list(values) == ["colour", "count"] and values["colour"] in ("red", "grün") and 1 <= values["count"] <= 9, values
    else:
        assert values == {}, values


def one(seed):
    forced = seed % 3 != 0
    body = {"messages": [{"role": "user", "content": "Pick."}], "tools": TOOLS, "seed": seed, "temperature": 1, "max_tokens": 160,
            "tool_choice": "required" if forced else "auto", "parallel_tool_calls": seed % 2 == 0}
    if seed % 4 == 1:
        body.update(thinking_token_budget=10, chat_template_kwargs={"enable_thinking": True})
    if seed % 5 == 4:
        body["max_tokens"] = 30
    told = whole(body)
    assert told == streamed(body), (body, told)
    reasoning, content, calls, finish = told
    # Ten tokens of at most four bytes, or of one that is no character; the mark that closes it is not told.
    assert "thinking_token_budget" not in body or len(reasoning) <= 40, told
    cut = finish == "length"
    assert finish == ("length" if cut else "tool_calls" if calls else "stop"), told
    assert cut or not forced or calls and not content, told
    assert seed % 2 == 0 or len(calls) <= 1, told
    for name, arguments in calls[:-1] if cut else calls:
        judge(name, arguments)
    return len(calls), cut


with concurrent.futures.ThreadPoolExecutor(12) as pool:
    results = list(pool.map(one, range(ROUNDS * 8)))
calls, cut = (sum(part) for part in zip(*results))
print(f"{calls} calls in {len(results)} answers, {cut} of which were cut")
assert calls > len(results) / 3
