#!/usr/bin/env python3
"""CPU time of the daemon per non-streamed HTTP completion beside that of a native request.

    tests/bench/http_cost.py [BUILD] [REQUESTS]      BUILD: .build/release

synthetic:null, 32-token prompts, one token each, one request at a time; both kinds in turn, five runs each.
Prints the medians and, last, `ratio X.XX`: HTTP over native.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

build = sys.argv[1] if len(sys.argv) > 1 else ".build/release"
count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
folder = tempfile.mkdtemp()
native, web = os.path.join(folder, "sluice.sock"), os.path.join(folder, "http.sock")
daemon = subprocess.Popen(
    [os.path.join(build, "daemon/sluiced"), "--model", "synthetic:null", "--device", "cpu", "--socket", native,
     "--http", "unix:" + web, "--log-requests", "no", "--log-level", "warning"])
sluice = os.path.join(build, "client/sluice")
while subprocess.run([sluice, "health", "--socket", native], capture_output=True).returncode:
    time.sleep(0.05)


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(web)


def cpu_ticks():
    with open(f"/proc/{daemon.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


tokens = list(range(1, 33))
lines = os.path.join(folder, "batch.jsonl")
with open(lines, "w") as file:
    for _ in range(count):
        file.write(json.dumps({"tokens": tokens, "max_tokens": 1}) + "\n")
connection = Connection("localhost")
body = json.dumps({"prompt": tokens, "max_tokens": 1})


def run_http():
    for _ in range(count):
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()


def frame(kind, number, head, payload=b""):
    head = head.encode()
    head += b" " * (-len(head) % 8)
    return (0x45434c53).to_bytes(4, "little") + bytes([1, kind, 0, 0]) + number.to_bytes(8, "little") + \
        len(head).to_bytes(4, "little") + len(payload).to_bytes(4, "little") + head + payload


def read_frame(stream):
    header = stream.read(24)
    size = int.from_bytes(header[16:20], "little") + int.from_bytes(header[20:24], "little")
    stream.read(size)
    return header[5]


plain = socket.socket(socket.AF_UNIX)
plain.connect(native)
stream = plain.makefile("rb")
plain.sendall(frame(1, 0, '{"versions":[1,1],"client":"bench"}'))
read_frame(stream)
packed = b"".join(t.to_bytes(4, "little") for t in tokens)
number = 0


def run_native():
    global number
    for _ in range(count):
        number += 1
        plain.sendall(frame(3, number, '{"job":"generate","lengths":[32],"max_tokens":1,"stream":false}', packed))
        while (kind := read_frame(stream)) != 6:
            assert kind in (4, 5), kind


figures = {"native": [], "http": []}
for run in range(6):
    for name, what in (("native", run_native), ("http", run_http)):
        before = cpu_ticks()
        what()
        if run:
            figures[name].append((cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / count * 1e6)
daemon.terminate()
daemon.wait(30)
medians = {name: statistics.median(values) for name, values in figures.items()}
for name, value in medians.items():
    print(f"{name}: {value:.0f} us of CPU per request (median of {len(figures[name])} runs of {count})")
print(f"ratio {medians['http'] / medians['native']:.2f}")
