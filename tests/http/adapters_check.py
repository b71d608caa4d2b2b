"""Adapters of the demo model: adapters_check.py make NOTHING NOISE, two directories in PEFT's layout, of which one adds
zeros and the other noise; adapters_check.py ask SOCKET ANSWERS, to a daemon that serves them by these names. The
answers of the first daemon are kept in ANSWERS, and are those of all others. adapters_check.py change SOCKET ANSWERS
NOTHING NOISE, to one with a place more: they come and go by one name. Prints each check; exit 1 if one fails.
"""
import concurrent.futures
import http.client
import json
import os
import random
import socket
import struct
import subprocess
import sys

BASE = "demo-model"
NAMES = (BASE, "nothing", "noise")
MODULES = {"self_attn.q_proj": (256, 256), "self_attn.v_proj": (128, 256), "mlp.down_proj": (256, 256)}
RANK = 8
QUESTIONS = ["417+385=", "reverse abc=", "31+944=", "max 90,673,9="]
LONG = "the same words again and again, so that whole blocks of the prompt are kept. " * 2
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:500])
    failed += not holds


def make(directory, deviation):
    draw = random.Random(1)
    header, data = {}, b""
    for layer in range(4):
        for module, (rows, columns) in MODULES.items():
            for which, shape, by in (("A", (RANK, columns), 0.1), ("B", (rows, RANK), deviation)):
                values = [draw.gauss(0, 1) * by for _ in range(shape[0] * shape[1])]
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{which}.weight"
                header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + 4 * len(values)])
                data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    os.makedirs(directory)
    with open(os.path.join(directory, "adapter_model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(directory, "adapter_config.json"), "w") as out:
        json.dump(dict(peft_type="LORA", r=RANK, lora_alpha=16, bias="none"), out)


class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(path)


def post(where, **body):
    connection = Unix("localhost")
    connection.request("POST", where, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read().decode()


def ask(model, prompt, most=16):
    status, answer = post("/v1/completions", model=model, prompt=prompt, max_tokens=most, temperature=0)
    return status, json.loads(answer)


def text_of(model, prompt):
    status, answer = ask(model, prompt)
    check(f"{model} answers by its name", status == 200 and answer["model"] == model, answer)
    return answer["choices"][0]["text"]


def cached(model):
    return ask(model, LONG, 1)[1]["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)


def answers_check(kept):
    alone = {f"{model} {prompt}": text_of(model, prompt) for model in NAMES for prompt in QUESTIONS}
    for prompt in QUESTIONS:
        base, nothing, noise = (alone[f"{model} {prompt}"] for model in NAMES)
        check(f"{prompt} zeros change nothing, noise does", base == nothing != noise, (base, nothing, noise))
    check("the model itself is right", alone[f"{BASE} 417+385="].startswith("802"), alone)
    with concurrent.futures.ThreadPoolExecutor(len(alone)) as pool:
        together = dict(pool.map(lambda key: (key, ask(*key.split(" ", 1))[1]["choices"][0]["text"]), alone))
    check("all at once they answer as alone", together == alone, (together, alone))
    if not os.path.exists(kept):
        with open(kept, "w") as out:
            json.dump(alone, out)
    with open(kept) as file:
        check("as on one device", json.load(file) == alone, alone)


def command_check():
    """The command and the native protocol name them as HTTP does, each line of a file its own."""
    lines = [(model, prompt) for prompt in QUESTIONS for model in NAMES]
    asked = "".join(json.dumps(dict(model=model, prompt=prompt, max_tokens=16)) + "\n" for model, prompt in lines)
    done = subprocess.run([os.environ["SLUICE"], "generate", "--json", "--file", "-"], input=asked, capture_output=True, text=True)
    results = sorted(map(json.loads, done.stdout.splitlines()), key=lambda result: result["index"])
    seen = [result.get("text") for result in results]
    check("the command names them likewise", seen == [text_at(*line) for line in lines], (seen, done.stderr))
    load = ["bench", "--model", "noise", "--num-prompts", "3", "--random-input-len", "8", "--random-output-len", "4"]
    done = subprocess.run([os.environ["SLUICE"], *load], capture_output=True, text=True)
    check("and loads it", done.returncode == 0, done.stderr)
    done = subprocess.run([os.environ["SLUICE"], "generate", "--model", "nobody", "1+1="], capture_output=True, text=True)
    check("and none that is not there", done.returncode and "no model nobody" in done.stderr, done.stderr)


def change_check(kept, nothing, noise):
    """One name, now of noise, now of zeros, while others go on asking; what is cached of one is not the other's."""
    with open(kept) as file:
        alone = json.load(file)
    stop = []

    def go_on():
        seen = set()
        while not stop:
            seen.add(text_at("noise", QUESTIONS[0]))
        return seen

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        beside = pool.submit(go_on)
        for turn, (directory, name) in enumerate(((noise, "noise"), (nothing, BASE)) * 2):
            status, answer = post("/v1/load_lora_adapter", lora_name="later", lora_path=directory)
            check(f"load {turn}", status == 200, answer)
            if turn == 0:
                status, answer = post("/v1/load_lora_adapter", lora_name="more", lora_path=noise)
                check("no place is left", status == 400 and "adapters-max" in answer, answer)
            for prompt in QUESTIONS * 2:
                check(f"{prompt} later is {name}", text_at("later", prompt) == alone[f"{name} {prompt}"])
            cached("later")
            status, answer = post("/v1/unload_lora_adapter", lora_name="later")
            check(f"unload {turn}", status == 200, answer)
            check("it is not there", ask("later", "1+1=")[0] == 404)
        stop.append(True)
        check("who asks beside it has the same answers", beside.result() == {alone[f"noise {QUESTIONS[0]}"]})
    status, answer = post("/v1/load_lora_adapter", lora_name="later", lora_path="/nowhere")
    check("what is not there is said so", status == 400 and "/nowhere" in answer, answer)


def text_at(model, prompt):
    return ask(model, prompt)[1]["choices"][0]["text"]


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2], 0.0)
        make(sys.argv[3], 0.5)
        return 0
    if sys.argv[1] == "change":
        change_check(*sys.argv[3:])
        return failed > 0
    answers_check(sys.argv[3])
    for model in NAMES:
        first, second = cached(model), cached(model)
        check(f"{model} finds what is its own, and nothing else", first == 0 and second >= 64, (first, second))
    command_check()
    status, answer = ask("nobody", "1+1=")
    check("who is not there is not found", status == 404 and answer["error"]["param"] == "model", answer)
    return failed > 0


path = sys.argv[2]
sys.exit(main())
