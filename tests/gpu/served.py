"""A daemon under test, as the scripts of this folder drive it through its socket and its client.

Needs nothing but Python's own library.
"""

import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench"))
import record

WEIGHTS_8B = 8030261248 * 2  # bytes of synthetic:llama-3.1-8b in 16 bits
failures = []
running = []  # daemons that were started
seen = []  # rows of the part under way, for its record


def check(holds, text):
    """Prints a figure with its limit; what does not hold counts."""
    print(("ok      " if holds else "FAILED  ") + text, flush=True)
    seen.append(record.row_of(text, holds))
    if not holds:
        failures.append(text)


def keep(name, build):
    """What the part showed becomes its record."""
    record.keep(name, list(seen), build)
    seen.clear()


def await_true(what, seconds, every=0.01):
    """The time that it took until what() was true; None when it never was."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if what():
            return time.monotonic() - begin
        time.sleep(every)
    return None


def gpus():
    """How many there are."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except FileNotFoundError:
        return 0
    return listed.stdout.count("UUID")


def below(process_id):
    """Processes that a process has started, and those that these have: their names by id."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                head, _, rest = file.read().rpartition(") ")
        except OSError:
            continue
        parents[int(path.split("/")[2])] = (int(rest.split()[1]), head.partition("(")[2])
    found = {}
    for started, (above, name) in parents.items():
        while above in parents and above != process_id:
            above = parents[above][0]
        if above == process_id:
            found[started] = name
    return found


def sluiced_below(process_id):
    """The daemon, which the tool's own processes stand above."""
    return next((found for found, name in below(process_id).items() if name == "sluiced"), None)


def kill(process):
    """With what it has started: a tool's end is not that of the program under it."""
    for started in below(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(started, 9)
    process.kill()
    process.wait()


def distance(one, other):
    """How far two lists of log-probabilities are apart: on average, at most."""
    off = [abs(a - b) for a, b in zip(one, other, strict=True)]
    return sum(off) / len(off), max(off)


def end_all():
    """Nothing that was started is left behind by a part that failed."""
    while running:
        process = running.pop()
        if process.poll() is None:
            kill(process)


def whole(results, code, complaints=""):
    """The results of a client that ended with this code, in the order of what was asked. Raises where one is an error."""
    wrong = [result.get("error") for result in results if result.get("error") or result.get("finish_reason") == "error"]
    if code or wrong:
        raise RuntimeError(f"the client's exit code is {code}, {len(wrong)} of {len(results)} answers ended in error: "
                           f"{json.dumps(wrong[:1])} {complaints[-300:]}")
    return sorted(results, key=lambda result: result["index"])


class NotReady(RuntimeError):
    """A daemon that was given up."""

    def __init__(self, daemon):
        super().__init__("the daemon is not ready: " + daemon.log()[-1500:] + daemon.out()[-1500:])
        self.daemon = daemon


class Daemon:
    """`sluiced` on a device; options as on the command line, environment beside this process's."""

    def __init__(self, build, model, *options, device="cuda", environment=None, modules=None, wrap=(),
                 patience_s=60):
        self.build, self.patience_s = build, patience_s
        self.folder = tempfile.mkdtemp()
        self.socket = os.path.join(self.folder, "sluice.sock")
        self.client = os.path.join(build, "client/sluice")
        self.log_path, self.out_path = (os.path.join(self.folder, name) for name in ("log", "out"))
        begin = time.monotonic()
        with open(self.log_path, "w") as log, open(self.out_path, "w") as out:
            self.process = subprocess.Popen(
                [*wrap, os.path.join(build, "daemon/sluiced"), "--model", model, "--device", device,
                 "--module-dir", modules or os.path.join(build, "gpu"), "--socket", self.socket,
                 "--queue-sequences", "8192", "--log-requests", "no", *options],
                stdout=out, stderr=log, env={**os.environ, **(environment or {})})
        running.append(self.process)
        while self.ask("health").returncode != 0:
            if self.process.poll() is not None or time.monotonic() - begin > patience_s:
                kill(self.process)
                raise NotReady(self)
            time.sleep(0.01)
        self.ready_s = time.monotonic() - begin

    def ask(self, *args):
        return subprocess.run([self.client, *args, "--socket", self.socket], capture_output=True, text=True)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def out(self):
        with open(self.out_path) as file:
            return file.read()

    def stats(self):
        return json.loads(self.ask("stats", "--json").stdout)

    def begin(self, command, lines):
        """Sends a batch; results() of what is returned waits for its end."""
        fd, path = tempfile.mkstemp(dir=self.folder, suffix=".jsonl")
        with os.fdopen(fd, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        whole = ["--no-stream"] if command == "generate" else []
        with open(path + ".out", "w") as out, open(path + ".err", "w") as err:
            client = subprocess.Popen([self.client, command, "--file", path, "--json", "--socket", self.socket,
                                       *whole], stdout=out, stderr=err)
        return Batch(client, path)

    def run(self, command, lines, timeout_s=120):
        return self.begin(command, lines).results(timeout_s)

    def logprobs(self, prompts):
        """Of the prompts' tokens, one list."""
        results = self.run("score", [{"tokens": tokens} for tokens in prompts])
        return [value for result in results for value in result["logprobs"] if isinstance(value, float)]

    def stop(self, process_id=None):
        """SIGTERM; the exit code."""
        if process_id:
            os.kill(process_id, 15)
        else:
            self.process.terminate()
        return self.process.wait(self.patience_s)


class Batch:
    def __init__(self, client, path):
        self.client, self.path = client, path

    def ended(self):
        return self.client.poll() is not None

    def results(self, timeout_s=120):
        """Of all that was asked, in that order; an answer that ended in error is no result, nor is a client that did."""
        code = self.client.wait(timeout_s)
        with open(self.path + ".out") as file:
            return whole([json.loads(line) for line in file], code, self.errors())

    def errors(self):
        with open(self.path + ".err") as file:
            return file.read()
