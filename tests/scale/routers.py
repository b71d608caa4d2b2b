"""The programs that stand in front: how each is configured and started. `port` is where it takes requests, `affinity`
whether it keeps conversations together, by a header or by the beginnings of their prompts."""
import csv
import os
import re
import shutil
import socket
import subprocess
import sys


class Router:
    port = 8000
    options = []  # of the daemons
    chat = False  # chats are asked for, not completions
    affinity = False
    sessions_max = 10000  # that it keeps together
    by_lot = False  # evenness is that of draws
    spreads = True
    users = False  # X-Sluice-User reaches the daemons
    key = None  # of clients; None: the daemons'
    model = "demo-model"
    claims = ("spread", "sticky", "faults", "upgrade")

    def __init__(self, fleet, scratch, environment):
        self.fleet, self.scratch, self.environment = fleet, scratch, environment
        self.process = None

    def spawn(self, command, **more):
        self.log = open(f"{self.scratch}/router.log", "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, **more)

    def close(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class HAProxy(Router):
    """By the configuration that is shipped, but for addresses; and the header that names a request's user is let through, so
    that the daemons' logs tell requests apart."""

    # Weights are for daemons that are behind: here that would be this machine's other work.
    options = ["--drain-grace", "2s", "--busy-status", "503", "--ttft-target", "60s", "--block-tokens", "16"]
    affinity = users = True

    def __init__(self, fleet, scratch, environment):
        super().__init__(fleet, scratch, environment)
        self.socket = f"{scratch}/haproxy.sock"

    def weights(self):
        """What HAProxy gives each daemon now, in percent."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.socket)
            asked.sendall(b"show stat\n")
            table = b"".join(iter(lambda: asked.recv(1 << 16), b"")).decode().removeprefix("# ")
        return {row["svname"]: int(row["weight"]) for row in csv.DictReader(table.splitlines())
                if row["pxname"] == "requests" and row["svname"] not in ("FRONTEND", "BACKEND")}

    @staticmethod
    def missing(environment):
        return None if shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin") else "haproxy is not installed (deploy/deps.sh all)"

    def start(self):
        text = open("deploy/scale/haproxy.cfg").read()
        addresses = {daemon.name: daemon.address for daemon in self.fleet.daemons}
        text = re.sub(r" +server (\w+) [\d.]+:(\d+)\n",
                      lambda line: f"    server {line[1]} {addresses[line[1]]}:{line[2]}\n" if line[1] in addresses else "", text)
        text = text.replace("    http-request del-header X-Sluice-User\n", "")
        text = text.replace("global\n", f"global\n    stats socket {self.socket} mode 600 level operator\n")
        with open(f"{self.scratch}/haproxy.cfg", "w") as config:
            config.write(text)
        self.spawn(["haproxy", "-db", "-f", config.name], env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})


class HAProxyWeights(HAProxy):
    """The same, with few places on a daemon, so that a queue is soon made, and a target that only that one misses."""

    options = ["--drain-grace", "2s", "--busy-status", "503", "--ttft-target", "2s", "--sequences-max", "8"]
    claims = ("weights",)


class LiteLLM(Router):
    """LiteLLM's proxy by the configuration that is shipped, but for addresses, and with a Redis where there is one. It checks no health: who fails is left alone for a
    while, and what failed before its first byte is tried elsewhere, but for streams of /v1/completions: so chats are asked for."""

    options = ["--ttft-target", "60s", "--block-tokens", "16"]
    port = 8100
    affinity = by_lot = chat = True
    redis = shutil.which("redis-server")
    sessions_max = Router.sessions_max if redis else 128  # without it remembers 200 things
    key = "sk-of-the-proxy-which-is-long-enough-to-be-taken-5c8e1f"

    @staticmethod
    def missing(environment):
        return None

    def start(self):
        text = open("deploy/scale/litellm.yaml").read()
        for number, daemon in enumerate(self.fleet.daemons):
            text = text.replace(f"http://10.0.0.{number + 1}:", f"http://{daemon.address}:")
        if self.redis:
            text = text.replace("router_settings:\n", "router_settings:\n  redis_host: 127.0.0.1\n  redis_port: 6379\n")
            self.memory = subprocess.Popen([self.redis, "--bind", "127.0.0.1", "--save", "", "--dir", self.scratch], stdout=subprocess.DEVNULL)
        with open(f"{self.scratch}/litellm.yaml", "w") as config:
            config.write(text)
        self.spawn([f"{self.environment}/bin/litellm", "--config", config.name, "--host", "127.0.0.1", "--port", str(self.port)],
                   env={**os.environ, "SLUICE_KEY": self.fleet.client_key, "LITELLM_MASTER_KEY": self.key, "LITELLM_LOG": "ERROR", "NO_PROXY": "*",
                        "LITELLM_LOCAL_MODEL_COST_MAP": "True"})

    def close(self):
        super().close()
        if self.redis and self.process:
            self.memory.kill()
            self.memory.wait()


class SGLang(Router):
    """SGLang's router (sglang-router). It holds the daemons' key, and asks each of them /server_info, /model_info and its health.
    Clients bring the same one, which it asks for, and which then reaches the daemons twice."""

    options = ["--drain-grace", "4s", "--ttft-target", "60s"]
    port = 8100
    policy = "round_robin"

    @property
    def key(self):
        return self.fleet.client_key

    @staticmethod
    def missing(environment):
        return None

    def start(self):
        workers = [f"http://{daemon.address}:8000" for daemon in self.fleet.daemons]
        self.spawn([sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(self.port),
                    "--prometheus-host", "127.0.0.1", "--prometheus-port", "8101", "--worker-urls", *workers,
                    "--policy", self.policy, "--api-key", self.key, "--health-check-endpoint", "/readyz",
                    "--health-check-interval-secs", "1", "--health-check-timeout-secs", "1", "--health-failure-threshold", "2",
                    "--health-success-threshold", "1", "--retry-max-retries", "5", "--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "2",
                    "--log-level", "warn"])


class SGLangCache(SGLang):
    """The same, going by the beginnings of prompts: what has the same goes to the same, evenly or not."""

    options = [*SGLang.options, "--block-tokens", "16"]
    policy = "cache_aware"
    affinity, spreads = True, False


ROUTERS = {"haproxy": HAProxy, "haproxy-weights": HAProxyWeights, "litellm": LiteLLM, "sglang": SGLang, "sglang-cache": SGLangCache}
