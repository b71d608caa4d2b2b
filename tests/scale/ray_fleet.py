"""The daemons that Ray's replicas have started: found by their processes, asked by their Unix sockets. Nothing lies between a
replica and its daemon that could be cut off."""
import glob
import http.client
import os
import signal
import socket
import subprocess
import sys
import time

from fleet import await_true

PORT = 8100


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.path)


class Replica:
    """One daemon of Ray's. Its folder lies in its command line."""

    def __init__(self, pid, command):
        self.pid = pid
        self.http = command[command.index("--http") + 1].removeprefix("unix:")
        self.faults = []

    def figure(self, name):
        connection = Connection(self.http)
        try:
            connection.request("GET", "/metrics")
            for line in connection.getresponse().read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        finally:
            connection.close()
        raise KeyError(name)

    def work(self):
        return self.figure("sluice_prompt_tokens_total") + self.figure("sluice_generation_tokens_total")


def replicas(program, scratch):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{entry}/cmdline").read().split("\0")
            if command[0] == program and any(scratch in part for part in command):
                found.append(Replica(int(entry), command))
        except OSError:
            continue
    return found


class RayFleet:
    def __init__(self, build, scratch, log):
        self.program, self.scratch = os.path.realpath(f"{build}/daemon/sluiced"), scratch
        self.faults = []
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        environment = {**os.environ, "SERVE_DAEMON": self.program, "SLUICE_MODEL": os.path.realpath("deploy/demo-model"), "SERVE_GPUS": "0",
                       "SERVE_REPLICAS": "4", "SERVE_OPTIONS": "--device cpu --cpu-threads 1", "TMPDIR": scratch,
                       "RAY_USAGE_STATS_ENABLED": "0", "RAY_gcs_server_request_timeout_seconds": "120",
                       "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"}
        self.driver = subprocess.Popen([sys.executable, "tests/scale/ray_driver.py", str(PORT), scratch], env=environment,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def hear(self, word):
        """What the driver says once it is done, or sys.exit: 77 where it says why nothing was run."""
        for line in self.driver.stdout:
            if line.strip() == word:
                return
            if line.startswith("SKIPPED "):
                print(line, end="", flush=True)
                sys.exit(77)
        sys.exit("Ray's driver has ended")

    def upgrade(self):
        self.driver.stdin.write("upgrade\n")
        self.driver.stdin.flush()
        self.hear("upgraded")

    @property
    def daemons(self):
        return replicas(self.program, self.scratch)

    def await_four(self, without=()):
        await_true("four daemons", lambda: len([d for d in self.daemons if d.pid not in without and os.path.exists(d.http)]) == 4)

    def strike(self, daemon, number):
        self.faults.append((time.monotonic(), float("inf")))
        os.kill(daemon.pid, number)

    def recovered(self):
        self.faults[-1] = (self.faults[-1][0], time.monotonic())

    def was_faulty(self, begin, end):
        return any(begin <= until and since <= end for since, until in self.faults)

    def finished(self):
        """How many requests came to their end, on daemons that are gone, too: they write where their replicas do."""
        logs = glob.glob(f"{self.scratch}/ray/session_latest/logs/worker-*.err")
        return sum("job=generate" in line and (" stop=" in line or " length=" in line) for path in logs for line in open(path, errors="replace"))

    def close(self):
        self.driver.stdin.close()
        try:
            self.driver.wait(60)
        except subprocess.TimeoutExpired:
            self.driver.kill()
        for daemon in self.daemons:
            os.kill(daemon.pid, signal.SIGKILL)
