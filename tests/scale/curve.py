"""How much 1, 2 and 4 daemons behind HAProxy do: curve.py BUILD SCRATCH [--share 25] [--requests 300], as scale.sh curve starts it. Each
has --share percent of a core where cgroups can be made, so that daemons, HAProxy and who asks do not take each other's time, as
daemons with a GPU each do not; else what the machine has. A figure: nothing is held to it."""
import argparse
import asyncio
import os
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from fleet import Fleet  # noqa: E402
from load import Load  # noqa: E402
from routers import HAProxy  # noqa: E402
from scale import await_router, count_kinds, idle, learn  # noqa: E402

PERIOD_US = 100000
EACH = 16  # requests under way for each daemon


class Share:
    """A group of processes with a part of a core, by version 1 or 2 of cgroups."""

    def __init__(self, name, percent):
        self.folder = None
        quota = PERIOD_US * percent // 100
        for root, settings in (("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}),
                               ("/sys/fs/cgroup", {"cpu.max": f"{quota} {PERIOD_US}"})):
            folder = f"{root}/{name}"
            try:
                os.mkdir(folder)
                for setting, value in settings.items():
                    self.write(folder, setting, value)
                self.folder = folder
                return
            except OSError:
                self.remove(folder)

    @staticmethod
    def write(folder, setting, value):
        with open(f"{folder}/{setting}", "w") as file:
            file.write(str(value))

    @staticmethod
    def remove(folder):
        if os.path.isdir(folder):
            os.rmdir(folder)

    def take(self, pid):
        if self.folder:
            self.write(self.folder, "cgroup.procs", pid)

    def close(self):
        if self.folder:
            self.remove(self.folder)


async def measured(fleet, router, count):
    """Requests and tokens a second, of so many."""
    await asyncio.to_thread(await_router, router, fleet.key)
    load = Load("127.0.0.1", router.port, fleet.key, router.model, learn(fleet.daemons[0].address, 8000, fleet.key, False), 1)
    await idle(fleet)
    before, begin = sum(daemon.work() for daemon in fleet.daemons), time.monotonic()
    outcomes = await load.run(count, EACH * len(fleet.daemons))
    seconds = time.monotonic() - begin
    tokens = sum(daemon.work() for daemon in fleet.daemons) - before
    if any(o.kind not in ("good", "cancelled") for o in outcomes):
        sys.exit(f"not all ended well: {count_kinds(outcomes)}")
    return len(outcomes) / seconds, tokens / seconds


def one_point(options, count):
    scratch = f"{options.scratch}/{count}"
    os.mkdir(scratch)
    shares = [Share(f"sluice-curve-{os.getpid()}-{number}", options.share) for number in range(count)]
    fleet = Fleet(options.build, scratch, HAProxy.options, count)
    router = HAProxy(fleet, scratch, "")
    try:
        fleet.start()
        for share, daemon in zip(shares, fleet.daemons):
            share.take(daemon.process.pid)
        router.start()
        return *asyncio.run(measured(fleet, router, options.requests * count)), all(share.folder for share in shares)
    finally:
        router.close()
        fleet.close()
        for share in shares:
            share.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("scratch")
    parser.add_argument("--share", type=int, default=25)
    parser.add_argument("--requests", type=int, default=300, help="for each daemon")
    options = parser.parse_args()
    why = HAProxy.missing("")
    if why:
        print(f"SKIPPED scale curve: {why}")
        return 77
    first = None
    print("| daemons | requests/s | tokens/s | beside one |\n| --- | --- | --- | --- |")
    for count in (1, 2, 4):
        requests, tokens, shared = one_point(options, count)
        first = first or tokens
        print(f"| {count} | {requests:.1f} | {tokens:.0f} | {tokens / first:.2f} |", flush=True)
    each = f"{options.share} % of a core for each daemon" if shared else "no share of a core for each daemon: cgroups cannot be made here"
    print(f"{os.cpu_count()} cores, {each}, {EACH} requests under way for each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
