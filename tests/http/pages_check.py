"""The examples of daemon/http/CLIENTS.md against a daemon with the demo model: pages_check.py URL KEY
Each prints what stands behind its `#`. Open WebUI is not here: what it asks for is asked."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parents[2] / "daemon/http/CLIENTS.md"
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:2000])
    failed += not holds


def run_block(name, language, block, url, key):
    block = block.replace("http://127.0.0.1:8000", url).replace("the-key-of-the-page", key)
    expected = re.findall(r"  # (.*)$", block, re.M)
    command = [sys.executable, "-c", block] if language == "python" else ["bash", "-euo", "pipefail", "-c", block]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": folder, "LLM_USER_PATH": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    check(f"the page's example: {name}", said.returncode == 0 and expected and said.stdout.splitlines() == expected, (said, expected))


def open_webui(url, key):
    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url + path, data, head), timeout=60) as answer:
            return answer.headers["Content-Type"], answer.read().decode()
    kind, said = ask("/v1/models")
    [model] = json.loads(said)["data"]
    check("open webui: models", model["id"] == "demo-model" and model["object"] == "model", said)
    body = {"model": model["id"], "messages": [{"role": "user", "content": "417+385="}], "stream": True, "temperature": 0}
    kind, said = ask("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    check("open webui: a stream", text == "802" and kind.startswith("text/event-stream") and "data: [DONE]" in said
          and events[-1]["usage"]["completion_tokens"] > 0, said)
    kind, said = ask("/v1/chat/completions", {**body, "stream": False, "max_completion_tokens": 20})
    check("open webui: a title", json.loads(said)["choices"][0]["message"]["content"] == "802", said)


if __name__ == "__main__":
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    blocks = [(section.splitlines()[0], *found) for section in sections
              for found in re.findall(r"^```(python|sh)\n(.*?)^```", section, re.M | re.S)]
    check("the page has its clients", [block[0] for block in blocks] == ["openai", "LangChain", "LiteLLM", "llm"], blocks)
    for block in blocks:
        run_block(*block, *sys.argv[1:3])
    open_webui(*sys.argv[1:3])
    sys.exit(failed > 0)
