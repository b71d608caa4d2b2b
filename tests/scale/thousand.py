"""A thousand GPUs on paper and in virtual time: thousand.py [--servers N] [--seconds S] [--loads 0.9] [--seed N]. Nothing is measured
here; what is assumed stands below, from tests/bench/RESULTS.md where it says so. Prints what deploy/scale/README.md has.

A server computes one step for all its sequences at once: FIRST_MS + EACH_MS for each, up to SLOTS; who comes beyond waits. Prompts
are not modelled: they make a request longer, not balance different. Routers know what this file says they know, nothing else.
"""
import argparse
import heapq
import random

# 8B in BF16 on one H200, by a record that later ones are within 2 % of (RESULTS.md): 273 tokens/s for one sequence, 21,624 for 128,
# 28,764 for 256.
FIRST_MS, EACH_MS, SLOTS = 3.64, 0.0205, 256
TOKENS_MEAN = 250  # of an answer, exponentially distributed, at least 8
SCRAPE_S = 0.05


class Server:
    def __init__(self):
        self.now = self.done = 0.0  # done: tokens that each running sequence was given since the start
        self.running, self.waiting = [], []  # (done at which it ends, began, came, tokens); (came, tokens, owner)

    def advance(self, now):
        if self.running:
            self.done += (now - self.now) * 1000 / (FIRST_MS + EACH_MS * len(self.running))
        self.now = now

    def next_end(self):
        if not self.running:
            return None
        return self.now + max(0.0, self.running[0][0] - self.done) * (FIRST_MS + EACH_MS * len(self.running)) / 1000

    def count(self):
        return len(self.running) + len(self.waiting)


class Least:
    """The fewest, by what one router sent itself and has not seen the end of."""

    def __init__(self, servers, rng):
        self.rng = rng
        self.count = [0] * servers
        self.at = list(range(servers))  # the place in its bucket
        self.buckets = [list(range(servers))]
        self.low = 0

    def move(self, server, step):
        old = self.buckets[self.count[server]]
        last = old.pop()
        if last != server:
            old[self.at[server]] = last
            self.at[last] = self.at[server]
        self.count[server] += step
        while len(self.buckets) <= self.count[server]:
            self.buckets.append([])
        new = self.buckets[self.count[server]]
        self.at[server] = len(new)
        new.append(server)
        self.low = min(self.low, self.count[server])

    def pick(self, _):
        while not self.buckets[self.low]:
            self.low += 1
        server = self.rng.choice(self.buckets[self.low])
        self.move(server, 1)
        return server

    def end(self, server):
        self.move(server, -1)


class Lot:
    def __init__(self, servers, rng):
        self.servers, self.rng = servers, rng

    def pick(self, _):
        return self.rng.randrange(self.servers)

    def end(self, server):
        pass


class Stale:
    """By figures that are up to SCRAPE_S old: the least of all of them, or of two that are drawn."""

    def __init__(self, servers, rng, fleet, drawn):
        self.rng, self.fleet, self.drawn = rng, fleet, drawn
        self.seen, self.seen_at = [0] * servers, -1.0

    def pick(self, now):
        if now - self.seen_at >= SCRAPE_S:
            self.seen, self.seen_at = [server.count() for server in self.fleet], now
            least = min(self.seen)
            self.least = [i for i, count in enumerate(self.seen) if count == least]
        if not self.drawn:
            return self.rng.choice(self.least)
        return min((self.rng.randrange(len(self.seen)) for _ in range(self.drawn)), key=lambda i: self.seen[i])

    def end(self, server):
        pass


def simulate(make, load, servers, seconds, seed):
    rng = random.Random(seed)
    fleet = [Server() for _ in range(servers)]
    routers = make(servers, rng, fleet)
    rate = load * servers * SLOTS * 1000 / (FIRST_MS + EACH_MS * SLOTS) / TOKENS_MEAN  # requests a second
    events, stamps = [], [0] * servers
    waits, paces, most = [], [], 0
    arrival, warm = rng.expovariate(rate), seconds / 2

    def plan(index):
        stamps[index] += 1
        end = fleet[index].next_end()
        if end is not None:
            heapq.heappush(events, (end, index, stamps[index]))

    def begin(server, now, came, tokens, owner):
        heapq.heappush(server.running, (server.done + tokens, now, came, tokens, owner))
        if came > warm:
            waits.append(now - came)

    while True:
        while events and events[0][2] != stamps[events[0][1]]:
            heapq.heappop(events)
        if arrival > seconds and (not events or events[0][0] > seconds):
            break
        if events and events[0][0] <= arrival:
            now, index, _ = heapq.heappop(events)
            server = fleet[index]
            server.advance(now)
            _, began, came, tokens, owner = heapq.heappop(server.running)
            routers[owner].end(index)
            if came > warm:
                paces.append((now - began) * 1000 / tokens)
            if server.waiting:
                begin(server, now, *server.waiting.pop(0))
        else:
            now, owner = arrival, rng.randrange(len(routers))
            arrival = now + rng.expovariate(rate)
            index = routers[owner].pick(now)
            server = fleet[index]
            server.advance(now)
            tokens = max(8, int(rng.expovariate(1 / TOKENS_MEAN)))
            if len(server.running) < SLOTS:
                begin(server, now, now, tokens, owner)
            else:
                server.waiting.append((now, tokens, owner))
            most = max(most, server.count())
        plan(index)
    waits.sort()
    paces.sort()
    return waits[len(waits) * 99 // 100] * 1000, paces[len(paces) // 2], paces[len(paces) * 99 // 100], most


POLICIES = {
    "one router, fewest": lambda n, rng, fleet: [Least(n, rng)],
    "20 routers, fewest of their own": lambda n, rng, fleet: [Least(n, rng) for _ in range(20)],
    "200 routers, fewest of their own": lambda n, rng, fleet: [Least(n, rng) for _ in range(200)],
    "by lot": lambda n, rng, fleet: [Lot(n, rng)],
    "figures of 50 ms ago, the least": lambda n, rng, fleet: [Stale(n, rng, fleet, 0)],
    "figures of 50 ms ago, of two drawn": lambda n, rng, fleet: [Stale(n, rng, fleet, 2)],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--loads", default="0.9")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| who knows what | load | wait for a slot, p99 | time per token, p50 / p99 | most on one |\n| --- | --- | --- | --- | --- |")
    for load in map(float, options.loads.split(",")):
        for name, make in POLICIES.items():
            wait, half, pace, most = simulate(make, load, options.servers, options.seconds, options.seed)
            print(f"| {name} | {load:.0%} | {wait:.0f} ms | {half:.1f} / {pace:.1f} ms | {most} |", flush=True)


if __name__ == "__main__":
    main()
