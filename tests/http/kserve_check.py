#!/usr/bin/env python3
"""Triton's client, sync and asyncio, against a running daemon with all programs that come with it, and fixed. tests/http/kserve.sh
runs it in a Python environment that has the package:  kserve_check.py [--device cuda] BUILD_DIR PROGRAM...

`fixed` has no body for CUDA: with --device cuda what asks for it is left out, and so are floods.
Exit 0 if everything holds; prints a line for each thing.
"""
import asyncio
import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import ml_dtypes
import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from kserve_published import Published

device = "cpu"
if sys.argv[1] == "--device":
    device = sys.argv[2]
    del sys.argv[1:3]
build, programs = sys.argv[1], sys.argv[2:]
on_cpu = device == "cpu"
scratch = tempfile.mkdtemp()
NAMES = ["affine", "fixed", "gemm", "layers", "pipeline", "relevance"]
KEY = {"X-Api-Key": "secret"}  # copied for each call: the client adds to what it is given
FRAME_MAX = 1 << 20
published = Published()
failed = 0


def check(name, fine, seen=""):
    global failed
    failed += not fine
    print(("ok    " if fine else "WRONG ") + name + ("" if fine else f": {seen}"[:900]))


def refused(name, text, call):
    try:
        check(name, False, call())
    except InferenceServerException as error:
        check(name, text in str(error), str(error))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(port, *further):
    keys = os.path.join(scratch, "keys")
    with open(keys, "w") as file:
        file.write("me secret\n")
    os.chmod(keys, 0o600)
    arguments = [os.path.join(build, "daemon/sluiced"), "--device", device, "--cpu-threads", "2", "--module-dir",
                 os.path.join(build, "gpu"), "--socket",
                 os.path.join(scratch, "socket"), "--http", f"127.0.0.1:{port}", "--frame-max", str(FRAME_MAX)]
    for program in programs:
        arguments += ["--program", program]
    if further:
        arguments += further
    else:
        arguments += ["--api-key-file", keys]
    daemon = subprocess.Popen(arguments, stdout=open(os.path.join(scratch, "log"), "a"), stderr=subprocess.STDOUT,
                              env={**os.environ, "STATE_DIRECTORY": scratch})
    for _ in range(400):
        try:
            if post(port, "GET", "/v2/health/ready")[0] == 200:
                return daemon
        except OSError:
            pass
        if daemon.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit("the daemon did not start: " + open(os.path.join(scratch, "log")).read())


def post(port, method, path, body=None, headers=KEY):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    body, headers = answer.read(), dict(answer.getheaders())
    published.look(method, path, answer.status, body, headers)
    return answer.status, body, headers


def tensor(array, binary, name="x", kind="FP32"):
    made = triton.InferInput(name, list(array.shape), kind)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def check_protocol(port):
    """What is answered; that it is as it is published, `published` sees of this and of all else that `post` asks."""
    for path in ("/v2", "/v2/", *(f"/v2/models/{name}{version}" for name in NAMES for version in ("", "/versions/1"))):
        check(f"something under {path}", post(port, "GET", path)[0] == 200)
    for version in ("", "/versions/1"):
        check(f"ready {version}", post(port, "GET", f"/v2/models/affine{version}/ready")[0] == 200)
        for more in ({}, {"id": "42"}, {"parameters": {"binary_data_output": True}}):
            status, told, headers = post(port, "POST", f"/v2/models/affine{version}/infer", json.dumps({"inputs": [
                {"name": "x", "shape": [1], "datatype": "FP32", "data": [7]}], **more}))
            head = json.loads(told[:int(headers.get("Inference-Header-Content-Length", len(told)))])
            check(f"an answer {version} {more}", status == 200 and head.get("id") == more.get("id") and head["model_name"] == "affine", told)
    check("an error", post(port, "GET", "/v2/models/nobody")[0] == 404)
    for path in ("/v2/models", "/v2/models/", "/v2/models/affine/", "/v2/models/affine/versions/", "/v2/models//ready",
                 "/v2/models/affine/versions/2", "/v2/models/affine/generate", "/v2/models/a/b/ready"):
        check(f"nothing under {path}", post(port, "GET", path)[0] == 404)


def check_server(client, port):
    check("live and ready", client.is_server_live() and client.is_server_ready())
    told = client.get_server_metadata(headers=dict(KEY))
    check("the server", told["name"] == "sluice" and "binary_tensor_data" in told["extensions"], told)
    check("a program is ready", client.is_model_ready("affine", headers=dict(KEY)))
    check("by its version", client.is_model_ready("affine", "1", headers=dict(KEY)))
    check("no other version", not client.is_model_ready("affine", "2", headers=dict(KEY)))
    check("no other program", not client.is_model_ready("nobody", headers=dict(KEY)))
    told = client.get_model_metadata("affine", headers=dict(KEY))
    check("a ragged program", told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}], told)
    told = client.get_model_metadata("fixed", headers=dict(KEY))
    check("a fixed one has items", told["inputs"][1] == {"name": "big", "datatype": "UINT64", "shape": [-1, 2, 2]}, told)
    told = client.get_model_config("fixed", headers=dict(KEY))
    check("its configuration", told["max_batch_size"] > 1 and told["input"][1]["dims"] == [2, 2], told)
    told = client.get_model_config("affine", headers=dict(KEY))
    check("of a ragged one", told["max_batch_size"] == 0 and told["input"][0]["data_type"] == "TYPE_FP32", told)
    told = client.get_model_repository_index(headers=dict(KEY))
    check("the index", sorted(one["name"] for one in told) == NAMES
          and told[0]["state"] == "READY", told)
    refused("unknown programs", "there is no program nobody", lambda: client.get_model_metadata("nobody", headers=dict(KEY)))
    refused("loading", "from the configuration", lambda: client.load_model("affine", headers=dict(KEY)))
    refused("shared memory", "shared memory", lambda: client.register_system_shared_memory("r", "/k", 64, headers=dict(KEY)))
    check("no key", post(port, "GET", "/v2/models/affine", headers={})[0] == 401)


def check_affine(client):
    x = np.arange(1000, dtype=np.float32) / 7
    want = np.float32(2) * x + np.float32(1)
    for binary_in in (False, True):
        for binary_out in (False, True):
            for coding in (None, "gzip", "deflate"):
                outputs = [triton.InferRequestedOutput("y", binary_data=binary_out)]
                got = client.infer("affine", [tensor(x, binary_in)], outputs=outputs, headers=dict(KEY), request_id="one",
                                   parameters={"a": 2, "b": 1.0}, request_compression_algorithm=coding)
                check(f"affine {binary_in} {binary_out} {coding}",
                      same(got.as_numpy("y"), want) and got.get_response()["id"] == "one", got.get_response())
    got = client.infer("affine", [tensor(x, True)], headers=dict(KEY))
    check("outputs that are not named", same(got.as_numpy("y"), x))
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], dtype=np.float32)
    for binary in (False, True):
        outputs = [triton.InferRequestedOutput("y", binary_data=binary)]
        got = client.infer("affine", [tensor(odd, binary)], outputs=outputs, headers=dict(KEY)).as_numpy("y")
        check(f"what is no number {binary}", np.isnan(got[0]) and got[1:4].tolist() == [np.inf, -np.inf, 0]
              and got[4] == odd[4], got)
    large = np.arange(60000, dtype=np.float32)
    got = client.infer("affine", [tensor(large, True)], headers=dict(KEY),
                       outputs=[triton.InferRequestedOutput("y", binary_data=False)])
    check("an answer of several turns", same(got.as_numpy("y"), large))
    got = client.infer("affine", [tensor(x, True)], headers=dict(KEY), priority=8, timeout=60000000)
    check("priority and timeout", same(got.as_numpy("y"), x))
    refused("priorities above what one may", "priority", lambda: client.infer("affine", [tensor(x, True)], headers=dict(KEY),
                                                                            priority=1))
    refused("no such priority", "priority", lambda: client.infer("affine", [tensor(x, True)], headers=dict(KEY), priority=17))
    refused("sequences", "sequence_id", lambda: client.infer("affine", [tensor(x, True)], headers=dict(KEY), sequence_id=5))
    refused("another dtype", "it must be f32", lambda: client.infer("affine", [tensor(x.astype(np.float64), True, "x",
                                                                                    "FP64")], headers=dict(KEY)))
    refused("another input", "no input z", lambda: client.infer("affine", [tensor(x, True), tensor(x, True, "z")],
                                                               headers=dict(KEY)))
    refused("another output", "no output q", lambda: client.infer("affine", [tensor(x, True)], headers=dict(KEY),
                                                                  outputs=[triton.InferRequestedOutput("q")]))
    refused("classes", "classification", lambda: client.infer("affine", [tensor(x, True)], headers=dict(KEY), outputs=[
        triton.InferRequestedOutput("y", class_count=2)]))
    shared = triton.InferInput("x", [4], "FP32")
    shared.set_shared_memory("region", 16)
    refused("a region", "shared_memory_region", lambda: client.infer("affine", [shared], headers=dict(KEY)))
    refused("too many bytes", "frame-max", lambda: client.infer("affine", [tensor(np.zeros(1 << 19, np.float32), True)],
                                                               headers=dict(KEY)))
    refused("a bomb", "frame-max", lambda: client.infer("affine", [tensor(np.zeros(1 << 22, np.float32), True)],
                                                        headers=dict(KEY), request_compression_algorithm="gzip"))


def applied(x, rounds, a, b):
    """Of whole numbers and halves, in which nothing is rounded."""
    for _ in range(rounds):
        x = a + b * x
    return x


def check_pipeline(client):
    x = np.arange(-40, 40, dtype=np.float32) / 2
    for rounds in (0, 1, 2):
        got = client.infer("pipeline", [tensor(x, True)], headers=dict(KEY), parameters={
            "rounds": rounds, "a": 2, "b": -3}).as_numpy("y")
        check(f"pipeline of {rounds} rounds", same(got, applied(x, rounds, 2, -3)), got)
    refused("rounds beyond its bounds", "rounds", lambda: client.infer("pipeline", [tensor(x, True)], headers=dict(KEY),
                                                                       parameters={"rounds": 5000}))


def matrices():
    """Of small whole numbers: sums below 256 are exact in bf16."""
    rng = np.random.default_rng(3)
    return (rng.integers(-2, 3, (37, 24)).astype(ml_dtypes.bfloat16),
            rng.integers(-2, 3, (24, 50)).astype(ml_dtypes.bfloat16))


def product(a, b):
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16)


def check_gemm(client):
    a, b = matrices()
    inputs = [tensor(a, True, "a", "BF16"), tensor(b, True, "b", "BF16")]
    for parameters in ({}, {"cluster": False}, {"programmatic": False}):
        got = client.infer("gemm", inputs, headers=dict(KEY), parameters=parameters).as_numpy("c")
        check(f"gemm {parameters}", np.array_equal(got, product(a, b)), got)
    refused("matrices that do not go together", "in another place it is 24", lambda: client.infer(
        "gemm", [inputs[0], tensor(a, True, "b", "BF16")], headers=dict(KEY)))


def small_image():
    """Noise in its middle, a plain sky around it."""
    image = np.full((60, 80, 3), 120, dtype=np.uint8)
    image[24:36, 32:48] = np.random.default_rng(4).integers(0, 256, (12, 16, 3))
    return image


def fine_budgets(budgets, rows, columns, total):
    return (budgets.dtype == np.int32 and budgets.shape == (rows, columns) and budgets.sum() == total and
            budgets.min() >= 64 and budgets.max() <= 400)


def check_relevance(client):
    image = small_image()
    told = client.get_model_metadata("relevance", headers=dict(KEY))
    check("sizes that are parameters", told["outputs"][0]["shape"] == [-1, -1], told)
    for binary in (False, True):
        inputs = [tensor(image, binary, "image", "UINT8")]
        got = client.infer("relevance", inputs, headers=dict(KEY))
        budgets, scores = got.as_numpy("budgets"), got.as_numpy("scores")
        check(f"budgets {binary}", fine_budgets(budgets, 5, 5, 4096) and budgets[2, 2] == budgets.max(), budgets)
        check(f"scores {binary}", scores.shape == (5, 5, 3) and scores[2, 2, 0] > 0.8 and scores[0, 0, 0] == 0 and
              (scores[..., 2] == 0.5).all(), scores)
        got = client.infer("relevance", inputs, headers=dict(KEY), parameters={
            "rows": 2, "columns": 9, "total": 2222, "query-edge": 1}).as_numpy("budgets")
        check(f"another grid {binary}", fine_budgets(got, 2, 9, 2222), got)
    for text, parameters in (("less than 64 tokens", {"total": 1599}), ("more than 400 tokens", {"rows": 2}),
                             ("rows is a whole number from 1 to 32", {"rows": 33}), ("rows", {"rows": 0}),
                             ("no parameter", {"row": 2})):
        refused(f"relevance {parameters}", text,
                lambda: client.infer("relevance", inputs, headers=dict(KEY), parameters=parameters))
    for shape in ((31, 80, 3), (60, 80, 4), (60, 80)):
        refused(f"an image {shape}", "image", lambda: client.infer("relevance", [
            tensor(np.zeros(shape, dtype=np.uint8), True, "image", "UINT8")], headers=dict(KEY)))


def chain():
    """Of small whole numbers, exact in bf16."""
    rng = np.random.default_rng(6)
    made = (rng.integers(-1, 2, (7, 12)), rng.integers(-1, 2, (3, 12, 12)), rng.integers(-2, 3, (3, 12)))
    return tuple(one.astype(ml_dtypes.bfloat16) for one in made)


def chained(x, weights, bias):
    for layer in range(3):
        sums = x.astype(np.float32) @ weights[layer].astype(np.float32).T + bias[layer].astype(np.float32)
        x = (sums if layer == 2 else np.maximum(sums, 0)).astype(ml_dtypes.bfloat16)
    return x


def chain_inputs():
    return [tensor(one, True, name, "BF16") for one, name in zip(chain(), ("x", "weights", "bias"))]


def check_layers(client):
    for stages in (1, 2, 3):
        got = client.infer("layers", chain_inputs(), headers=dict(KEY), parameters={"stages": stages}).as_numpy("y")
        check(f"layers in {stages} stages", np.array_equal(got, chained(*chain())), got)
    refused("layers without biases", "bias is missing",
            lambda: client.infer("layers", chain_inputs()[:2], headers=dict(KEY)))


def fixed_items(count):
    """Numbers that go wrong where somebody makes doubles of them, and as many items."""
    random = np.random.default_rng(5)
    whole = np.array([[-(1 << 63), (1 << 63) - 1]] * count, dtype=np.int64)
    whole[:, 0] += np.arange(count)
    return {"flag": ("BOOL", random.integers(0, 2, (count, 3)).astype(bool)),
            "big": ("UINT64", random.integers(1 << 53, (1 << 64) - 1, (count, 2, 2), dtype=np.uint64)),
            "whole": ("INT64", whole),
            "small": ("INT8", random.integers(-128, 127, (count, 2)).astype(np.int8)),
            "wide": ("FP64", random.standard_normal((count, 2)) * 1e-300),
            "narrow": ("FP32", random.standard_normal((count, 2)).astype(np.float32)),
            "half": ("FP16", random.standard_normal((count, 4)).astype(np.float16))}


def check_fixed(client, port):
    for count in (1, 5, 64):
        items = fixed_items(count)
        for binary in (False, True):
            inputs = [tensor(array, binary or kind == "FP16", name, kind) for name, (kind, array) in items.items()]
            outputs = [triton.InferRequestedOutput(name + "_out", binary_data=binary or kind == "FP16")
                       for name, (kind, array) in reversed(items.items())]
            got = client.infer("fixed", inputs, outputs=outputs, headers=dict(KEY))
            for name, (kind, array) in items.items():
                check(f"{count} items, {binary}: {name}", same(got.as_numpy(name + "_out"), array),
                      got.as_numpy(name + "_out"))
    inputs = [tensor(array[:3 if name == "big" else 5], True, name, kind)
              for name, (kind, array) in fixed_items(5).items()]
    refused("items that differ", "has 3 items", lambda: client.infer("fixed", inputs, headers=dict(KEY)))
    outputs = [triton.InferRequestedOutput("half_out", binary_data=False)]
    inputs = [tensor(array, True, name, kind) for name, (kind, array) in fixed_items(1).items()]
    refused("half numbers in JSON", "binary_data", lambda: client.infer("fixed", inputs, outputs=outputs, headers=dict(KEY)))
    many = fixed_items(5000)
    inputs = [tensor(array, True, name, kind) for name, (kind, array) in many.items()]
    refused("too many items", "batch-max", lambda: client.infer("fixed", inputs, headers=dict(KEY)))


def check_raw(port):
    """What no client of Triton's sends."""
    def infer(text, headers=None, path="/v2/models/affine/infer"):
        status, body, _ = post(port, "POST", path, text, {**KEY, **(headers or {})})
        return status, json.loads(body) if body else None
    def body(**members):
        return json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2], **members}]})
    check("no Content-Type", infer(body())[0] == 200, infer(body()))
    check("from a page", infer(body(), {"Origin": "https://evil.example"})[0] == 415)
    check("of another type", infer(body(), {"Content-Type": "text/plain"})[0] == 415)
    check("JSON from a page", infer(body(), {"Origin": "https://x.example", "Content-Type": "application/json"})[0] == 200)
    for name, text, part in [
            ("half a number", body(shape=[3]), "element 2"), ("too many numbers", body(shape=[1]), "element 1"),
            ("nested wrongly", body(data=[[1], [2]]), "element 0"), ("text", body(data=["1", "2"]), "no number"),
            ("too large for its dtype", body().replace("2]}", "4e38]}"), "more than its dtype"),
            ("gigabytes in words", body(shape=[1 << 36]), "fewer elements"),
            ("an overflow", body(shape=[1 << 40, 1 << 40]), "2^53"), ("nothing", body(shape=[0], data=[]), "shape[0]"),
            ("negative", body(shape=[-1]), "shape[0]"), ("BYTES", body(datatype="BYTES"), "BYTES"),
            ("twice", body().replace('"data"', '"data": [1, 2], "data"'), "duplicate"),
            ("bytes that did not come", body(data=None, parameters={"binary_data_size": 8}), "exclude"),
            ("no data", '{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32"}]}', "data is missing"),
            ("an unknown member", '{"inputs": [], "x": 1}', "x is not known"), ("no object", "[]", "no JSON object"),
            ("cut off", body()[:-1], ""), ("half an array", body()[:-4], ""), ("nothing at all", "", "")]:
        status, told = infer(text)
        check(name, status == 400 and part in told["error"], (status, told))
    x = np.array([3, 4], dtype=np.float32).tobytes()
    head = '{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}'
    split = {"Inference-Header-Content-Length": str(len(head))}
    check("bytes", infer(head.encode() + x, split)[1]["outputs"][0]["data"] == [3, 4])
    check("too few bytes", infer(head.encode() + x[:-1], split)[0] == 400)
    check("too many bytes", "belong to no input" in infer(head.encode() + x + b"1", split)[1]["error"])
    check("more JSON than body", infer(head.encode(), {"Inference-Header-Content-Length": "999"})[0] == 400)
    check("a length that is none", infer(head.encode(), {"Inference-Header-Content-Length": "1x"})[0] == 400)
    packed = gzip.compress(body().encode())
    check("gzip", infer(packed, {"Content-Encoding": "gzip"})[0] == 200)
    check("cut gzip", infer(packed[:-9], {"Content-Encoding": "gzip"})[0] == 400)
    check("gzip and more", infer(packed + b"x", {"Content-Encoding": "gzip"})[0] == 400)
    check("a broken sum", infer(packed[:-5] + b"x" + packed[-4:], {"Content-Encoding": "gzip"})[0] == 400)
    exact = body().encode() + b" " * (FRAME_MAX - len(body()))
    check("as much as may be", infer(zlib.compress(exact), {"Content-Encoding": "deflate"})[0] == 200)
    check("a byte more", "frame-max" in infer(zlib.compress(exact + b" "), {"Content-Encoding": "deflate"})[1]["error"])
    check("another coding", infer(packed, {"Content-Encoding": "br"})[0] == 415)
    check("none of it elsewhere", post(port, "POST", "/tokenize", packed, {**KEY, "Content-Type": "application/json",
                                                                      "Content-Encoding": "gzip"})[0] == 415)
    status, told, _ = post(port, "GET", "/v2/models/affine/stats")
    stats = json.loads(told)["model_stats"][0]
    check("statistics", stats["inference_count"] > 10 and stats["inference_stats"]["success"]["ns"] > 0, stats)
    check("of all", len(json.loads(post(port, "GET", "/v2/models/stats")[1])["model_stats"]) == len(programs))


def check_gone(port):
    """Clients that do not wait for what they asked for, at every stage of it."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [50000], "datatype": "FP32", "data": [1] * 50000}]}).encode()
    head = (f"POST /v2/models/affine/infer HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: secret\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    for number in range(60):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall((head + body)[:None if number % 3 else len(head) + len(body) // 2])
            if number % 3 == 2:
                connection.recv(100 * number)
    for _ in range(400):
        told = json.loads(post(port, "GET", "/v2/models/stats")[1])
        answer = post(port, "POST", "/v2/models/affine/infer", body)
        if answer[0] == 200:
            break
        time.sleep(0.05)
    check("clients that went", answer[0] == 200 and told, answer[0])


def flood_client(port, seed, ends):
    """Items of any length, with deadlines of which some pass: each request has one end, and it is right."""
    random = np.random.default_rng(seed)
    for _ in range(40):
        x = random.standard_normal(int(random.integers(1, 1 << int(random.integers(1, 15))))).astype(np.float32)
        timeout, factor = int(random.choice([0, 1, 1000, 60000000])), int(random.integers(-9, 9))
        head = json.dumps({"inputs": [{"name": "x", "shape": list(x.shape), "datatype": "FP32",
                                       "parameters": {"binary_data_size": x.nbytes}}],
                           "parameters": {"a": factor, "timeout": timeout, "binary_data_output": True}})
        status, told, headers = post(port, "POST", "/v2/models/affine/infer", head.encode() + x.tobytes(),
                                     {**KEY, "Inference-Header-Content-Length": str(len(head))})
        if status == 200:
            got = np.frombuffer(told[int(headers["Inference-Header-Content-Length"]):], np.float32)
            ends.append("done" if same(got, np.float32(factor) * x + np.float32(0)) else "wrong")
        else:
            ends.append("late" if status == 504 and timeout in (1, 1000) else f"{status} {told}")


def check_flood(port):
    ends = []
    threads = [threading.Thread(target=flood_client, args=(port, seed, ends)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("a flood", len(ends) == 640 and set(ends) <= {"done", "late"} and ends.count("done") > 300,
          {end: ends.count(end) for end in set(ends)})


async def check_aio(port):
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
        check("aio: live", await client.is_server_live())
        check("aio: a program", (await client.get_model_metadata("affine", headers=dict(KEY)))["name"] == "affine")
        x = np.linspace(-1, 1, 777, dtype=np.float32)
        async def one(number):
            binary, coding = number % 2 == 0, [None, "gzip", "deflate"][number % 3]
            outputs = [triton_aio.InferRequestedOutput("y", binary_data=binary)]
            got = await client.infer("affine", [tensor(x, binary)], outputs=outputs, headers=dict(KEY),
                                     parameters={"a": number}, request_compression_algorithm=coding)
            return same(got.as_numpy("y"), np.float32(number) * x + np.float32(0))
        a, b = matrices()
        got = await client.infer("gemm", [tensor(a, True, "a", "BF16"), tensor(b, True, "b", "BF16")], headers=dict(KEY))
        check("aio: gemm", np.array_equal(got.as_numpy("c"), product(a, b)))
        got = await client.infer("pipeline", [tensor(x, True)], headers=dict(KEY), parameters={"rounds": 0})
        check("aio: pipeline", same(got.as_numpy("y"), x))
        got = await client.infer("relevance", [tensor(small_image(), True, "image", "UINT8")], headers=dict(KEY))
        check("aio: relevance", fine_budgets(got.as_numpy("budgets"), 5, 5, 4096))
        got = await client.infer("layers", chain_inputs(), headers=dict(KEY))
        check("aio: layers", np.array_equal(got.as_numpy("y"), chained(*chain())))
        check("aio: many at once", all(await asyncio.gather(*[one(number) for number in range(48)])))


port = free_port()
daemon = start(port)
try:
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    if on_cpu:
        check_server(client, port)
        check_protocol(port)
        check_fixed(client, port)
    check_affine(client)
    check_gemm(client)
    check_pipeline(client)
    check_relevance(client)
    check_layers(client)
    if on_cpu:
        check_raw(port)
        check_gone(port)
        check_flood(port)
    asyncio.run(check_aio(port))
    check("the daemon is there", client.is_server_ready())
    daemon.terminate()
    check("it ends", daemon.wait(60) == 0)
    daemon = start(port, "--insecure-loopback", "yes")
    text = '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'
    check("no type where no key is needed", post(port, "POST", "/v2/models/affine/infer", text, {})[0] == 415)
    check("but JSON's", post(port, "POST", "/v2/models/affine/infer", text, {"Content-Type": "application/json"})[0] == 200)
    told = dict(published.seen)
    check(f"answers as they are published: {told}", not published.faults and (len(told) == 4 or not on_cpu), " ".join(sorted(set(published.faults))))
    check("and nothing else is", not published.lenient(), published.lenient())
finally:
    daemon.terminate()
    daemon.wait(60)
    shutil.rmtree(scratch, ignore_errors=True)
sys.exit(failed > 0)
