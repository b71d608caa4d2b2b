"""Ray Serve with deploy/scale/ray_serve.py: ray_check.py BUILD SCRATCH [--requests N] [--seed N], as scale.sh starts it. Daemons are
killed and paused, all replicas replaced. Exit 1 if a claim does not hold."""
import argparse
import asyncio
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(__file__))
from load import TOKENS, Load, Request  # noqa: E402
from ray_fleet import PORT, RayFleet  # noqa: E402
from scale import WORKERS, Check, count_kinds, even, learn, show_bad  # noqa: E402


async def faults(fleet):
    """A daemon is killed, then another stands still: Ray replaces both replicas."""
    for number in (signal.SIGKILL, signal.SIGSTOP):
        daemon = fleet.daemons[0]
        await asyncio.sleep(0.5)
        fleet.strike(daemon, number)
        await asyncio.to_thread(fleet.await_four, (daemon.pid,))
        await asyncio.sleep(3)
        fleet.recovered()


async def claims(check, fleet, options):
    load = Load("127.0.0.1", PORT, "", "demo-model", learn("127.0.0.1", PORT, "", False), options.seed)
    before = {daemon.pid: daemon.work() for daemon in fleet.daemons}

    def make(number):
        request = Request(number, load.rng, load.prompts, cancels=False)
        request.tokens = TOKENS[number // WORKERS % len(TOKENS)]
        return request

    outcomes = await load.run_together(options.requests * 6 // 10 // WORKERS * WORKERS, WORKERS, make)
    show_bad(outcomes)
    check.that(all(o.kind == "good" for o in outcomes), f"{len(outcomes)} requests without a fault: {count_kinds(outcomes)}")
    even(check, [daemon.work() - before[daemon.pid] for daemon in fleet.daemons], len(outcomes), by_lot=True)

    before = fleet.finished()
    outcomes = await load.run(options.requests * 2 // 10, WORKERS, asyncio.create_task(faults(fleet)))
    bad = [o for o in outcomes if o.kind not in ("good", "cancelled")]
    lost = [o for o in bad if o.kind in ("error", "cut") and fleet.was_faulty(o.begin, o.end)]
    show_bad(outcomes, lost)
    check.that(len(bad) == len(lost), f"{len(outcomes)} requests while daemons are killed and paused: {count_kinds(outcomes)}; {len(lost)} were on those")
    check.that(len(lost) <= 4 * WORKERS, "no more are lost than were under way there, and came until Ray saw it")
    good, ended = sum(o.kind == "good" for o in outcomes), fleet.finished() - before
    check.that(good <= ended <= len(outcomes), f"{good} answers, {ended} computed to their end for {len(outcomes)} requests: none twice")

    outcomes = await load.run(options.requests * 2 // 10, WORKERS, asyncio.create_task(asyncio.to_thread(fleet.upgrade)))
    show_bad(outcomes)
    check.that(all(o.kind in ("good", "cancelled") for o in outcomes),
               f"{len(outcomes)} requests while all four are replaced: {count_kinds(outcomes)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("scratch")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    check = Check()
    with open(f"{options.scratch}/router.log", "w") as log:
        fleet = RayFleet(options.build, options.scratch, log)
        try:
            fleet.hear("up")
            fleet.await_four()
            asyncio.run(claims(check, fleet, options))
        finally:
            fleet.close()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
