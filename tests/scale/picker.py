"""What llm-d's endpoint picker, which does not run here, does with daemons' figures: picker.py BUILD SCRATCH, as scale.sh starts it. Its
contract is replayed as the inference extension publishes it (proposal 003, model server protocol) and as llm-d's metrics-data-source and
core-metrics-extractor (v0.8) read it: GET without a key, all of the page or nothing, five series by vLLM's names. Exit 1 if a claim
does not hold."""
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

SLOTS, REQUESTS, TOKENS = 4, 120, 200
PATIENCE_S = 120
HEAD = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)")
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
QUEUE, RUNNING, USAGE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"
CACHE, ADAPTERS = "vllm:cache_config_info", "vllm:lora_requests_info"


def parse(page):
    """Families by name, as the picker's parser takes them: a line that is none, a family told twice, or a series told twice, and nothing
    of the page counts."""
    types, families, helped = {}, {}, set()
    for line in page.splitlines():
        if line.startswith("#"):
            what, name, rest = HEAD.fullmatch(line).groups()
            known = helped if what == "HELP" else types
            if name in known:
                raise ValueError(f"{what} of {name} twice")
            if what == "HELP":
                helped.add(name)
                continue
            if rest not in ("counter", "gauge", "histogram", "summary", "untyped"):
                raise ValueError(line)
            types[name], families[name] = rest, {}
            last = name
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        if name not in [last] + ([last + end for end in ("_bucket", "_sum", "_count")] if types[last] == "histogram" else []):
            raise ValueError(f"{name} under {last}")
        series = name, tuple(LABEL.findall(labels or ""))
        if series in families[last]:
            raise ValueError(f"{series} twice")
        families[last][series] = float(value)
    return types, families


def extract(page):
    """What the picker knows of a pod: by the newest of a family's series, gauges' values, and numbers and names in labels."""
    types, families = parse(page)
    got = {}
    for key, name in (("queue", QUEUE), ("running", RUNNING), ("usage", USAGE)):
        if types[name] not in ("gauge", "counter"):
            raise ValueError(f"{name} is a {types[name]}")  # it would be read as 0
        got[key], = families[name].values()
    for name, keys in ((CACHE, ("block_size", "num_gpu_blocks")), (ADAPTERS, ("max_lora",))):
        ((_, labels), value), = families[name].items()
        if types[name] != "gauge" or not value > -1:
            raise ValueError(f"{name} is not taken")
        got.update({key: int(dict(labels)[key]) for key in keys})
    for key in ("running_lora_adapters", "waiting_lora_adapters"):
        got[key] = [part.strip() for part in dict(labels)[key].split(",") if part.strip()]
    return got


def score(pods):
    """queue-scorer and kv-cache-utilization-scorer with equal weights: the fewer waiting, the emptier, the better."""
    queues = [pod["queue"] for pod in pods]
    low, high = min(queues), max(queues)
    return [(1.0 if low == high else (high - pod["queue"]) / (high - low)) + 1 - pod["usage"] for pod in pods]


class Daemon:
    answered = 0

    def __init__(self, build, scratch, number):
        self.api, self.figures = f"127.0.0.1:{8000 + number}", f"127.0.0.1:{9464 + number}"
        self.log = open(f"{scratch}/{number}.log", "w")
        self.process = subprocess.Popen(
            [f"{build}/daemon/sluiced", "--model", "deploy/demo-model", "--device", "cpu", "--cpu-threads", "1", "--socket",
             f"{scratch}/{number}.sock", "--http", self.api, "--metrics", self.figures, "--metrics-vllm", "yes", "--api-key-file",
             f"{scratch}/keys", "--sequences-max", str(SLOTS), "--block-tokens", "16"], stderr=self.log)

    def get(self, address, path):
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def ask(self):
        body = {"prompt": ["1="] * REQUESTS, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0, "model": "demo-model"}
        request = urllib.request.Request(f"http://{self.api}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            self.answered = len(json.load(answer)["choices"])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Check:
    failed = 0

    def that(self, holds, what):
        print(f"{'ok     ' if holds else 'FAILED '} {what}", flush=True)
        self.failed += not holds


def soon(test):
    until = time.monotonic() + PATIENCE_S
    while not test():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def contract(check, busy, other):
    check.that(soon(lambda: all(pod.get(pod.figures, "/readyz")[0] == 200 for pod in (busy, other))), "two pods are ready")
    check.that(busy.get(busy.figures, "/metrics")[0] == 200, "figures without a key, at their own listener")
    check.that(busy.get(busy.api, "/metrics")[0] != 200, "and not at the pool's port")
    idle = extract(busy.get(busy.figures, "/metrics")[1])
    check.that(idle["queue"] == idle["running"] == 0 and 0 <= idle["usage"] <= 1, f"an idle pod: {idle}")
    check.that(idle["block_size"] == 16 and idle["num_gpu_blocks"] > 0, "its cache's shape are whole numbers")
    check.that(idle["max_lora"] == 0 and idle["running_lora_adapters"] == idle["waiting_lora_adapters"] == [], "it has no adapters")

    asking = threading.Thread(target=busy.ask)
    asking.start()
    seen = []
    while asking.is_alive():
        seen.append([extract(pod.get(pod.figures, "/metrics")[1]) for pod in (busy, other)])
        time.sleep(0.05)
    asking.join()
    full = [pods for pods in seen if pods[0]["running"] == SLOTS and pods[0]["queue"] > 0]
    check.that(busy.answered == REQUESTS, f"{busy.answered} answers")
    check.that(full, f"{len(full)} of {len(seen)} scrapes show all {SLOTS} places taken and a queue")
    # A place is taken again while the last step of who had it is read.
    check.that(all(pods[0]["running"] + pods[0]["queue"] <= REQUESTS and pods[0]["running"] <= 2 * SLOTS and 0 <= pods[0]["usage"] <= 1
                   for pods in seen), "never more than there are")
    check.that(any(pods[0]["usage"] > 0 for pods in full), "and blocks in use")
    check.that(all(score(pods)[1] > score(pods)[0] for pods in full), "the other pod is chosen then")
    check.that(soon(lambda: extract(busy.get(busy.figures, "/metrics")[1])["queue"] == 0), "and nothing waits in the end")


def main():
    build, scratch = sys.argv[1:3]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open(f"{scratch}/keys", "w") as keys:
        keys.write("gateway secret\n")
    check = Check()
    pods = [Daemon(build, scratch, number) for number in (0, 1)]
    try:
        contract(check, *pods)
    finally:
        for pod in pods:
            pod.close()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
