#!/usr/bin/env python3
"""The openai package against a running daemon, over TCP and over a Unix socket. tests/http/openai.sh runs it in a
Python environment that has the package:  openai_check.py BUILD_DIR

Starts sluiced of that build with a copy of the demo model that was given a chat template. Exit 0 if
everything holds; prints a line for each thing.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import openai

try:
    import httpx
except ImportError:
    import httpx2 as httpx  # what later versions of openai stand on

build = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
scratch = tempfile.mkdtemp()
failed = 0
IN_FLIGHT = 2  # steps that the device may already have been given
CONTEXT = 4096
ABORTED = 'sluice_request_success_total{finished_reason="abort"}'


def check(name, fine, seen=""):
    global failed
    failed += not fine
    print(("ok    " if fine else "WRONG ") + name + ("" if fine else f": {seen}"))


def refused(name, kind, call):
    try:
        check(name, False, call())
    except openai.APIStatusError as error:
        check(name, isinstance(error, kind), repr(error))
        return error


def make_model():
    """A copy with another template, and with a context in which an answer is surely not over when its client goes."""
    model = os.path.join(scratch, "demo")
    shutil.copytree(os.path.join(here, "../../deploy/demo-model"), model)
    with open(os.path.join(model, "chat_template.jinja"), "w") as file:
        file.write("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    path = os.path.join(model, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["max_position_embeddings"] = CONTEXT
    with open(path, "w") as file:
        json.dump(config, file)
    return model


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gauge(http, name):
    for line in http.get("/metrics").text.splitlines():
        if line.rpartition(" ")[0] == name:
            return float(line.rpartition(" ")[2])
    return None


def wait_for(what):
    for _ in range(200):
        if what():
            return True
        time.sleep(0.05)
    return False


def run(client, http, where):
    def completion(**more):
        return client.completions.create(model="demo", prompt="417+385=", **more)

    answer = completion()
    check(where + "completion", answer.choices[0].text == "802", answer)
    check(where + "finish reason and usage", answer.choices[0].finish_reason == "stop"
          and answer.usage.prompt_tokens == 8 and answer.usage.completion_tokens == 4, answer)
    answer = completion(logprobs=2, echo=False)
    logprobs = answer.choices[0].logprobs
    check(where + "logprobs", logprobs.tokens == ["8", "0", "2", "<|end|>"] and logprobs.text_offset == [0, 1, 2, 3]
          and len(logprobs.top_logprobs[0]) == 2 and logprobs.token_logprobs[0] < 0, answer)
    check(where + "echo", completion(echo=True).choices[0].text == "417+385=802")
    echoed = client.completions.create(model="demo", prompt=["417+385=802", "reverse abc=", "4"],
                                       echo=True, logprobs=1, max_tokens=1, n=2)
    check(where + "echo with logprobs: choices", len(echoed.choices) == 6 and all(c.text.startswith(
        ("417+385=802", "reverse abc=", "4")[i // 2]) for i, c in enumerate(echoed.choices)), echoed)
    whole = echoed.choices[0].logprobs
    check(where + "echo with logprobs: the prompt's tokens", "".join(whole.tokens[:11]) == "417+385=802"
          and whole.text_offset[:11] == list(range(11)), whole)
    check(where + "echo with logprobs: nothing before the first", all(
        c.logprobs.token_logprobs[0] is None and c.logprobs.top_logprobs[0] is None for c in echoed.choices), echoed)
    check(where + "echo with logprobs: as when they were generated", all(
        abs(a - b) < 1e-3 for a, b in zip(whole.token_logprobs[8:11], logprobs.token_logprobs)), (whole, logprobs))
    check(where + "echo with logprobs: the likeliest", all(
        max(top.values()) >= own and token in top for token, own, top in
        zip(whole.tokens[1:11], whole.token_logprobs[1:11], whole.top_logprobs[1:11])), whole)
    check(where + "echo with logprobs: usage", echoed.usage.prompt_tokens == 20, echoed.usage)
    five = completion(echo=True, logprobs=5, max_tokens=0).choices[0]
    check(where + "echo with five logprobs, of the prompt alone", five.text == "417+385=" and
          five.logprobs.tokens == list("417+385=") and five.logprobs.token_logprobs == whole.token_logprobs[:8] and
          all(5 <= len(tops) <= 6 and max(tops.values()) == max(one.values())
              for tops, one in zip(five.logprobs.top_logprobs[1:], whole.top_logprobs[1:8])), five)
    check(where + "stop", completion(stop=["2"]).choices[0].text == "80")
    check(where + "max_tokens", completion(max_tokens=2).choices[0].finish_reason == "length")
    for prompt, texts in [(["417+385=", "reverse abc="], ["802", "cba"]),
                          ([ord(c) for c in "417+385="], ["802"]),
                          ([[ord(c) for c in "417+385="]], ["802"])]:
        answer = client.completions.create(model="demo", prompt=prompt)
        check(where + "prompt forms", [c.text for c in answer.choices] == texts, answer)
    check(where + "n", len(completion(n=3).choices) == 3)
    check(where + "logit_bias", completion(logit_bias={"57": 100}, max_tokens=3).choices[0].text == "999")
    a, b = (completion(seed=7, temperature=5, extra_body={"ignore_eos": True}, max_tokens=30)
            .choices[0].text for _ in range(2))
    check(where + "seed", a == b, (a, b))
    parts = list(completion(stream=True, stream_options={"include_usage": True}))
    check(where + "stream", "".join(c.choices[0].text for c in parts if c.choices) == "802", parts)
    check(where + "stream usage", parts[-1].usage.completion_tokens == 4, parts[-1])

    messages = [{"role": "user", "content": "reverse stream="}]
    chat = client.chat.completions.create(model="demo", messages=messages, logprobs=True, top_logprobs=1)
    check(where + "chat", chat.choices[0].message.content == "maerts", chat)
    check(where + "chat logprobs", [t.token for t in chat.choices[0].logprobs.content] == list("maerts"), chat)
    parts = list(client.chat.completions.create(model="demo", messages=messages, stream=True))
    check(where + "chat stream", "".join(p.choices[0].delta.content or "" for p in parts) == "maerts", parts)
    check(where + "chat stream role", parts[0].choices[0].delta.role == "assistant", parts[0])

    rows = client.embeddings.create(model="demo", input=["abc", "abd"])
    plain = client.embeddings.create(model="demo", input="abc", encoding_format="float")
    check(where + "embeddings", len(rows.data) == 2 and abs(sum(x * x for x in rows.data[0].embedding) - 1) < 1e-4)
    check(where + "embedding formats agree", max(abs(x - y) for x, y in zip(
        rows.data[0].embedding, plain.data[0].embedding)) < 1e-6)
    check(where + "models", [m.id for m in client.models.list().data] == ["demo"])
    check(where + "model", client.models.retrieve("demo").id == "demo")

    error = refused(where + "wrong model", openai.NotFoundError,
                    lambda: client.completions.create(model="gpt-4", prompt="x"))
    check(where + "model_not_found", error.code == "model_not_found", error)
    error = refused(where + "unknown field", openai.BadRequestError,
                    lambda: completion(extra_body={"no_such_field": 1}))
    check(where + "the field is named", error.param == "no_such_field", error)
    refused(where + "over the context", openai.BadRequestError, lambda: completion(max_tokens=100000))
    refused(where + "tool_choice", openai.BadRequestError, lambda: client.chat.completions.create(
        model="demo", messages=messages, tools=[], tool_choice="required"))

    for name, begin in [("completion", lambda: completion(stream=True, max_tokens=CONTEXT - 8,
                                                          extra_body={"ignore_eos": True})),
                        ("chat", lambda: client.chat.completions.create(
                            model="demo", messages=messages, stream=True, n=3, extra_body={"ignore_eos": True}))]:
        count, seen = 1 if name == "completion" else 3, []
        for _ in range(5):  # where this program is slow, all may have been told before it closes
            before = gauge(http, ABORTED)
            stream = begin()
            next(iter(stream))
            stream.close()
            ended = wait_for(lambda: gauge(http, "sluice_requests") == 0
                             and gauge(http, "sluice_num_requests_running") == 0)
            seen.append((before, gauge(http, ABORTED)))
            if not ended or seen[-1][1] == before + count:
                break
        check(f"{where}a closed {name} stream is cancelled", ended and seen[-1][1] == seen[-1][0] + count, seen)
        steps = gauge(http, "sluice_steps_total")
        time.sleep(0.3)
        later = gauge(http, "sluice_steps_total")
        check(f"{where}nothing runs a step after a closed {name} stream", later <= steps + IN_FLIGHT, (steps, later))


def main():
    port = free_port()
    path = os.path.join(scratch, "http")
    keys = os.path.join(scratch, "keys")
    with open(keys, "w") as file:
        file.write("# who may\nalice secret-of-alice\nbob secret-of-bob\n")
    daemon = subprocess.Popen([
        os.path.join(build, "daemon/sluiced"), "--model", make_model(), "--device", "cpu",
        "--socket", os.path.join(scratch, "s"), "--http", f"unix:{path},127.0.0.1:{port}",
        "--api-key-file", keys, "--log-level", "warning"])
    try:
        local = httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://localhost")

        def healthy():
            try:
                return local.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        check("health", wait_for(healthy))
        run(openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret-of-bob", max_retries=0),
            local, "tcp: ")
        run(openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=local, max_retries=0),
            local, "unix: ")
        wrong = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0)
        refused("wrong key", openai.AuthenticationError, wrong.models.list)
    finally:
        daemon.terminate()
        check("ends cleanly", daemon.wait(10) == 0, daemon.returncode)
        shutil.rmtree(scratch)
    print("all is well" if failed == 0 else f"{failed} WRONG")
    return failed > 0


sys.exit(main())
