"""Four daemons behind a router, and what happens to them: scale.py ROUTER BUILD SCRATCH [--requests N] [--sessions N] [--seed N].
Runs in a network namespace of its own (scale.sh makes it). Exit 1 if a claim does not hold, 77 where the router is not there."""
import argparse
import asyncio
import collections
import concurrent.futures
import json
import math
import os
import random
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from fleet import Fleet, await_true  # noqa: E402
from load import TOKENS, Load, Request, path_of, prompt_of, text_of  # noqa: E402
from routers import ROUTERS  # noqa: E402
from weights import weighted  # noqa: E402

WORKERS = 16
PROMPTS = [f"{a}+{b}=" for a, b in ((2, 89), (417, 385), (31, 7), (808, 5), (64, 99), (120, 240))] + ["reverse stream=", "reverse huc="]


class Check:
    def __init__(self):
        self.failed = 0

    def that(self, holds, what):
        print(f"{'ok     ' if holds else 'FAILED '} {what}", flush=True)
        self.failed += not holds


def ask(address, port, key, body, headers=None):
    request = urllib.request.Request(f"http://{address}:{port}{path_of('messages' in body)}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **(headers or {})})
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def learn(address, port, key, chat):
    """What a daemon answers when nothing stands between: greedy, so always the same."""
    answers = {}
    for prompt in PROMPTS:
        for tokens in TOKENS:
            body = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, **prompt_of(prompt, chat)}
            answers[prompt, tokens] = text_of(ask(address, port, key, body)["choices"][0])
    return answers


def await_router(router, key):
    def answers():
        try:
            body = {"model": router.model, "max_tokens": 2, **prompt_of(f"{random.random()}=", router.chat)}  # new each time
            return bool(ask("127.0.0.1", router.port, key, body)["choices"])
        except (OSError, KeyError, ValueError):
            if router.process.poll() is not None:
                sys.exit("the router has ended")
            return False

    def all_had_one():
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as together:  # some routers fill one daemon first
            told = list(together.map(lambda _: answers(), range(WORKERS)))
        return all(told) and all(daemon.figure("sluice_requests_total") > was for daemon, was in zip(router.fleet.daemons, before))

    before = [daemon.figure("sluice_requests_total") for daemon in router.fleet.daemons]
    await_true("an answer through the router", answers)
    await_true("an answer of each daemon through the router", all_had_one)


def count_kinds(outcomes):
    return dict(collections.Counter(outcome.kind for outcome in outcomes))


def show_bad(outcomes, allowed=()):
    for outcome in [o for o in outcomes if o.kind not in ("good", "cancelled") and o not in allowed][:5]:
        request = outcome.request
        print(f"    {request.user} stream={request.stream} by {outcome.daemon}: {outcome.kind} after "
              f"{outcome.end - outcome.begin:.2f} s: {outcome.detail}")


async def idle(fleet):
    """Nothing is left of what was cancelled or has ended."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if all(daemon.figure("sluice_requests") == 0 for daemon in fleet.daemons):
            return True
        await asyncio.sleep(0.2)
    return False


# ---- the claims --------------------------------------------------------------------------------


def even(check, work, draws, by_lot):
    """Of n draws between four, one's part is off by sqrt(3 / n) usually: four times that, where it is more than a tenth."""
    each = sum(work) / len(work)
    bound = max(0.1, 4 * math.sqrt(3 / draws)) if by_lot else 0.1
    parts = " ".join(f"{part / each:.3f}" for part in work)
    check.that(all(abs(part / each - 1) <= bound for part in work), f"work of each daemon beside even, within {bound:.2f}: {parts}")


async def spread(check, fleet, load, count, by_lot):
    before = [daemon.work() for daemon in fleet.daemons]

    def make(number):
        request = Request(number, load.rng, load.prompts, cancels=False)
        request.tokens = TOKENS[number // WORKERS % len(TOKENS)]
        return request

    outcomes = await load.run_together(count // WORKERS * WORKERS, WORKERS, make)
    await idle(fleet)
    work = [daemon.work() - was for daemon, was in zip(fleet.daemons, before)]
    show_bad(outcomes)
    check.that(all(o.kind == "good" for o in outcomes), f"{len(outcomes)} requests without a fault: {count_kinds(outcomes)}")
    even(check, work, len(outcomes), by_lot)


async def faults(fleet):
    """Each in turn: killed, asked to end, paused, cut off."""
    one, two, three, four = fleet.daemons
    ended = []
    await asyncio.sleep(0.5)
    one.kill()
    await asyncio.sleep(1)
    one.start()
    await asyncio.to_thread(one.await_ready)
    await asyncio.sleep(1)
    two.ask_to_end()
    ended.append(await asyncio.to_thread(two.end))
    two.start()
    await asyncio.to_thread(two.await_ready)
    await asyncio.sleep(1)
    three.pause()
    await asyncio.sleep(6)
    three.go_on()
    await asyncio.sleep(1)
    four.cut()
    await asyncio.sleep(6)
    four.mend()
    await asyncio.sleep(1)
    return ended


def excused(fleet, outcome):
    """It was on a daemon that was killed, paused or cut off meanwhile: the one that the answer names, or, where it names none, any."""
    if outcome.kind not in ("error", "cut"):
        return False
    where = (outcome.daemon or "") + outcome.detail
    told = [daemon for daemon in fleet.daemons if daemon.name == outcome.daemon or daemon.address + ":" in where]
    return any(daemon.was_faulty(outcome.begin, outcome.end) for daemon in told or fleet.daemons)


async def disturbed(check, fleet, load, count):
    script = asyncio.create_task(faults(fleet))
    outcomes = await load.run(count, WORKERS, busy=script)
    bad = [o for o in outcomes if o.kind not in ("good", "cancelled")]
    lost = [o for o in bad if excused(fleet, o)]
    show_bad(outcomes, lost)
    check.that(len(bad) == len(lost), f"{len(outcomes)} requests while daemons are killed, asked to end, paused and cut off: "
               f"{count_kinds(outcomes)}; {len(lost)} were on those")
    check.that(len(lost) <= 3 * WORKERS, "no more are lost than were under way")
    check.that(script.result() == [0], f"who is asked to end ends: {script.result()}")
    check.that(await idle(fleet), "nothing is left of what was cancelled or cut off")
    return outcomes


async def rolling(fleet):
    ended = []
    for daemon in fleet.daemons:
        daemon.ask_to_end()
        ended.append(await asyncio.to_thread(daemon.end))
        daemon.start()
        await asyncio.to_thread(daemon.await_ready)
        await asyncio.sleep(1.5)  # until the router has seen it
    return ended


async def upgraded(check, fleet, load, count):
    script = asyncio.create_task(rolling(fleet))
    outcomes = await load.run(count, WORKERS, busy=script)
    show_bad(outcomes)
    check.that(all(o.kind in ("good", "cancelled") for o in outcomes),
               f"{len(outcomes)} requests while all four are replaced, one after the other: {count_kinds(outcomes)}")
    check.that(script.result() == [0] * 4, f"each ends well: {script.result()}")


def once(check, fleet, router, outcomes, before):
    """Who was answered was answered by one daemon; twice computed is only what was on a faulty one at first."""
    counts = collections.Counter(user for daemon in fleet.daemons for user in daemon.finished())
    if not router.users:
        good = sum(o.kind == "good" for o in outcomes)
        ended = counts.total() - before
        check.that(good <= ended <= len(outcomes) + 3 * WORKERS,
                   f"{good} answers, {ended} computed to their end for {len(outcomes)} requests: no more than were on faulty daemons at first")
        return
    by_user = {o.request.user: o for o in outcomes}
    twice = [user for user, count in counts.items() if user in by_user and count > 1]
    faulty = [user for user in twice
              if any(daemon.was_faulty(by_user[user].begin, by_user[user].end) for daemon in fleet.daemons)]
    good = [o for o in outcomes if o.kind == "good"]
    check.that(all(counts[o.request.user] >= 1 for o in good) and len(twice) == len(faulty),
               f"{len(good)} answers, each from one daemon; {len(twice)} were computed twice, all of them first on one that was cut off")


class Turn(Request):
    """One of a conversation: its prompt begins with the one before. Who asks is the conversation, for that shares a cache with nobody."""

    def __init__(self, number, session, turn):
        super().__init__(number, random.Random(number), [""], cancels=False)
        self.session, self.user = session, f"c{session}"
        self.prompt = "".join(f"{session:04}{part:03}{session * part:09}"[:16] for part in range(3 * turn))
        self.tokens, self.stream = 4, False


def prompts(daemons):
    """How many tokens of prompts these had in their caches, and how many they computed."""
    return [sum(daemon.figure(f"sluice_prompt_tokens{which}_total") for daemon in daemons) for which in ("_cached", "")]


def rate(now, before):
    cached, computed = (is_now - was for is_now, was in zip(now, before))
    return cached / (cached + computed)


def alone(fleet, turns, chat):
    """The same turns by one daemon: what each is answered, and what part of their tokens its cache had."""
    daemon, answers = fleet.daemons[0], {}
    before = prompts([daemon])
    for turn in turns:
        body = {"max_tokens": turn.tokens, "temperature": 0, "ignore_eos": True, **prompt_of(turn.prompt, chat)}
        answers[turn.prompt, turn.tokens] = text_of(ask(daemon.address, 8000, fleet.key, body, {"X-Sluice-User": "one-" + turn.user})["choices"][0])
    return answers, rate(prompts([daemon]), before)


async def sticky(check, fleet, router, load, sessions):
    order = [session for session in range(sessions) for _ in range(4)]
    random.Random(7).shuffle(order)
    count, turns = collections.Counter(), []
    for number, session in enumerate(order):
        count[session] += 1
        turns.append(Turn(number, session, count[session]))
    answers, best = alone(fleet, turns, router.chat)
    load.expected.update(answers)
    before = prompts(fleet.daemons)
    work = [daemon.work() for daemon in fleet.daemons]
    first = len(load.outcomes) + 1
    outcomes = await load.run_together(len(turns), WORKERS, lambda number: turns[number - first])
    cached = rate(prompts(fleet.daemons), before)
    show_bad(outcomes)
    check.that(all(o.kind == "good" for o in outcomes) and all(daemon.work() > was for daemon, was in zip(fleet.daemons, work)),
               f"{sessions} conversations over all daemons: {count_kinds(outcomes)}")
    check.that(cached >= 0.9 * best, f"{cached:.1%} of prompts' tokens were cached, by one daemon alone {best:.1%}")


async def claims(check, fleet, router, options):
    key = fleet.key if router.key is None else router.key
    load = Load("127.0.0.1", router.port, key, router.model,
                learn(fleet.daemons[0].address, 8000, fleet.key, router.chat), options.seed, router.chat)
    await asyncio.to_thread(await_router, router, key)
    chosen = options.claims.split(",") if options.claims else router.claims
    if "weights" in chosen:
        await weighted(check, fleet, router, load, options.requests // 4 // WORKERS * WORKERS)
    if "spread" in chosen and router.spreads:
        await spread(check, fleet, load, options.requests * 6 // 10, router.by_lot)
    if "sticky" in chosen and router.affinity:
        await sticky(check, fleet, router, load, min(options.sessions, router.sessions_max))
    if "faults" in chosen:
        before = sum(len(daemon.finished()) for daemon in fleet.daemons)
        outcomes = await disturbed(check, fleet, load, options.requests * 2 // 10)
        once(check, fleet, router, outcomes, before)
    if "upgrade" in chosen:
        await upgraded(check, fleet, load, options.requests * 2 // 10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("router", choices=sorted(ROUTERS))
    parser.add_argument("build")
    parser.add_argument("scratch")
    parser.add_argument("--environment", default="")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--claims", default="", help="those of the router, if not said")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kind = ROUTERS[options.router]
    why = kind.missing(options.environment)
    if why:
        print(f"SKIPPED scale {options.router}: {why}")
        return 77
    check = Check()
    fleet = Fleet(options.build, options.scratch, kind.options)
    router = kind(fleet, options.scratch, options.environment)
    try:
        fleet.start()
        router.start()
        asyncio.run(claims(check, fleet, router, options))
    finally:
        router.close()
        fleet.close()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
