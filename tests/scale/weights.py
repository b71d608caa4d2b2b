"""That the percents which daemons tell HAProxy's agent check move the work: one daemon is given a queue of its own, by its address and
not through HAProxy, until its agent has said that little may come. Counted is what each gets then, and once the queue is gone."""
import asyncio
import time

from fleet import PATIENCE_S
from load import TOKENS, Request

LITTLE = 20  # percent: what is waited for
AT_ONCE = 16
LONG = 240  # tokens: nearly all that the demo model takes
MOST = 3000  # sequences of the queue: a user has half of queue-sequences, 8,192
BATCH = 50


class Queue:
    """Requests of our own at one daemon: more and more until it has little of its weight, however fast it is; none once it is let go."""

    def __init__(self, load, daemon, router):
        self.load, self.daemon, self.router = load, daemon, router
        self.tasks, self.held = [], asyncio.create_task(self.hold())

    async def one(self):
        request = Request(0, self.load.rng, [["1="] * BATCH])
        request.user, request.stream, request.tokens = "queue", True, LONG
        reader, writer = await asyncio.open_connection(self.daemon.address, 8000)
        try:
            body = request.body(self.load.model, False)
            writer.write(self.load.head(request, body) + body)
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()

    async def hold(self):
        while True:
            self.tasks = [task for task in self.tasks if not task.done()]
            if len(self.tasks) * BATCH < MOST and self.router.weights()[self.daemon.name] > LITTLE / 2:
                self.tasks.append(asyncio.create_task(self.one()))
            await asyncio.sleep(0.1)

    async def let_go(self):
        self.held.cancel()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(self.held, *self.tasks, return_exceptions=True)


async def soon(test):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if test():
            return True
        await asyncio.sleep(0.1)
    return False


async def parts(load, count, sessions):
    """How many of so many requests each daemon answered, by the name that HAProxy gives it. All end well, or nothing is told."""

    def make(number):
        request = Request(number, load.rng, load.prompts, cancels=False)
        request.tokens = TOKENS[number // AT_ONCE % len(TOKENS)]
        request.session = f"{number}-of-weights" if sessions else None
        return request

    outcomes = await load.run_together(count, AT_ONCE, make)
    if any(o.kind != "good" for o in outcomes):
        return {}
    return {name: sum(o.daemon == name for o in outcomes) for name in ("one", "two", "three", "four")}


async def weighted(check, fleet, router, load, count):
    each = count / len(fleet.daemons)
    check.that(await soon(lambda: set(router.weights().values()) == {100}), f"idle daemons have all of their weights: {router.weights()}")
    got = await parts(load, count, False)
    check.that(got and all(abs(part / each - 1) <= 0.1 for part in got.values()), f"{count} requests go evenly: {got}")

    queue = Queue(load, fleet.daemons[0], router)
    check.that(await soon(lambda: router.weights()["one"] <= LITTLE), f"one with a queue has little of its weight: {router.weights()}")
    for sessions in (False, True):
        told = router.weights()
        got = await parts(load, count, sessions)
        told = {name: max(told[name], weight) for name, weight in router.weights().items()}
        # Who has none under way gets one, whatever its weight: of each 16 at once one at least. Conversations go by a hash.
        least = each * 3 / 4 if sessions else each
        check.that(got and got["one"] <= each / 2 and min(got["two"], got["three"], got["four"]) >= least,
                   f"{count} {'conversations' if sessions else 'requests'} go by the weights {told}: {got}")
    await queue.let_go()

    check.that(await soon(lambda: set(router.weights().values()) == {100}), f"once it is gone all have their weights again: {router.weights()}")
    got = await parts(load, count, False)
    check.that(got and all(abs(part / each - 1) <= 0.1 for part in got.values()), f"{count} requests go evenly again: {got}")
