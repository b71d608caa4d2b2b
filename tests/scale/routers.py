"""The programs that stand in front: how each is configured and started. `port` is where it takes requests, `tries_503` whether it
sends what was told "not now" elsewhere, `affinity` whether it keeps conversations together by X-Session."""
import os
import re
import shutil
import subprocess
import sys


class Router:
    port = 8000
    options = []  # of the daemons
    headers = {}
    affinity = False
    named = False  # answers say by X-Served-By who gave them
    users = False  # X-Sluice-User reaches the daemons
    key = None  # of clients; None: the daemons'
    model = "demo-model"

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
    options = ["--drain-grace", "2s", "--busy-status", "503", "--ttft-target", "60s"]
    affinity = named = users = True

    @staticmethod
    def missing(environment):
        return None if shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin") else "haproxy is not installed (deploy/deps.sh all)"

    def start(self):
        text = open("deploy/scale/haproxy.cfg").read()
        for daemon, address in zip(self.fleet.daemons, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]):
            text = re.sub(rf"(server {daemon.name}) {re.escape(address)}:", rf"\1 {daemon.address}:", text)
        text = text.replace("    http-request del-header X-Sluice-User\n", "")
        with open(f"{self.scratch}/haproxy.cfg", "w") as config:
            config.write(text)
        self.spawn(["haproxy", "-db", "-f", config.name], env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})


ROUTERS = {"haproxy": HAProxy}
