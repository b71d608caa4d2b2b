"""Four daemons in network namespaces of their own, each behind a link that can be cut, and what can happen to them.

A namespace is held by a process that sleeps; the namespace that this runs in has a router's end of each link.
"""
import os
import signal
import subprocess
import sys
import time
import urllib.request

PORT, AGENT = 8000, 9474
PATIENCE_S = 900  # of a router of Python's that loads for the first time, beside other tests on two cores


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def await_true(what, test):
    until = time.monotonic() + PATIENCE_S
    while not test():
        if time.monotonic() > until:
            sys.exit(f"{what} never came")
        time.sleep(0.05)


class Daemon:
    """One daemon, its namespace and its link. `faults`: when it could not answer, as pairs of times."""

    def __init__(self, number, build, scratch, model, extra=()):
        self.name = ["one", "two", "three", "four"][number]
        self.address = f"10.0.{number}.1"
        self.link = f"link{number}"
        self.log_path = f"{scratch}/{self.name}.log"
        self.log = open(self.log_path, "ab")
        self.process = None
        self.faults = []
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.command = [
            "nsenter", f"--net=/proc/{self.holder.pid}/ns/net", f"{build}/daemon/sluiced", "--model", model, "--device", "cpu",
            "--cpu-threads", "1", "--socket", f"{scratch}/{self.name}.sock", "--http", f"{self.address}:{PORT}",
            "--metrics", f"{self.address}:9464", "--agent-check", f"{self.address}:{AGENT}",
            "--api-key-file", f"{scratch}/keys", "--trusted-keys", "proxy", "--drain-timeout", "60s", *extra]
        self.make_link(number)

    def make_link(self, number):
        inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        own = os.readlink("/proc/self/ns/net")
        await_true("a namespace", lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "up0", "netns", str(self.holder.pid))
        run("ip", "addr", "add", f"10.0.{number}.254/24", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        for line in (["addr", "add", f"{self.address}/24", "dev", "up0"], ["link", "set", "up0", "up"], ["link", "set", "lo", "up"],
                     ["route", "add", "default", "via", f"10.0.{number}.254"]):
            run(*inside, "ip", *line)

    # ---- what happens to it ----

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=self.log, stdout=self.log)

    def await_ready(self):
        await_true(f"daemon {self.name}", lambda: self.status("/readyz") == 200)
        if self.faults and self.faults[-1][1] == float("inf"):
            self.end_fault()

    def kill(self):
        self.faults.append((time.monotonic(), float("inf")))
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.faults.append((time.monotonic(), float("inf")))
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        self.end_fault()

    def cut(self):
        self.faults.append((time.monotonic(), float("inf")))
        run("ip", "link", "set", self.link, "down")

    def mend(self):
        run("ip", "link", "set", self.link, "up")
        self.end_fault()

    def end_fault(self):
        self.faults[-1] = (self.faults[-1][0], time.monotonic())

    def ask_to_end(self):
        self.process.terminate()

    def end(self):
        """Its exit code once it has ended by itself."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None

    def was_faulty(self, begin, end):
        return any(begin <= until and since <= end for since, until in self.faults)

    # ---- what it says ----

    def get(self, path, port):
        with urllib.request.urlopen(f"http://{self.address}:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()

    def status(self, path):
        try:
            return self.get(path, PORT)[0]
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def figure(self, name):
        for line in self.get("/metrics", 9464)[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def work(self):
        return self.figure("sluice_prompt_tokens_total") + self.figure("sluice_generation_tokens_total")

    def finished(self):
        """Users whose requests came to their end here, as the log has them."""
        users = []
        with open(self.log_path) as log:
            for line in log:
                if "job=generate" in line and (" stop=" in line or " length=" in line):
                    users.append(line.split("user=")[1].split()[0].split("/")[-1])
        return users

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        subprocess.run(["ip", "link", "del", self.link], check=False)  # its namespace's end takes it away some time later
        self.holder.kill()
        self.holder.wait()
        self.log.close()


class Fleet:
    def __init__(self, build, scratch, extra=(), count=4, model="deploy/demo-model"):
        run("ip", "link", "set", "lo", "up")
        with open(f"{scratch}/keys", "w") as keys:
            keys.write("proxy secret-of-the-proxy\nclient secret-of-the-client\n")
        self.key = "secret-of-the-proxy"  # it may say who asks
        self.client_key = "secret-of-the-client"  # whose requests share a cache
        self.daemons = [Daemon(i, build, scratch, model, extra) for i in range(count)]

    def start(self):
        for daemon in self.daemons:
            daemon.start()
        for daemon in self.daemons:
            daemon.await_ready()

    def close(self):
        for daemon in self.daemons:
            daemon.close()
