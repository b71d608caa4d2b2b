#!/usr/bin/env python3
"""The demo model's tasks: prompts with answers that anyone can check.

    tasks.py [--count 1000] [--seed 1]     prints held-out prompts: task, prompt and answer, tab separated

A prompt belongs to the training set, the development set or the test set by a hash of its text alone,
so no test prompt was ever trained on, whatever the seed.
"""

import argparse
import random
import sys

SPLIT_CLASSES = 20  # class 0: test, class 1: development, the others: training


def fnv1a(text):
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def split(prompt):
    return {0: "test", 1: "dev"}.get(fnv1a(prompt) % SPLIT_CLASSES, "train")


def number(rng):
    digits = rng.choice((1, 2, 3, 3))
    return rng.randrange(0 if digits == 1 else 10 ** (digits - 1), 10**digits)


def add(rng):
    a, b = number(rng), number(rng)
    return f"{a}+{b}=", str(a + b)


def reverse(rng):
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 8)))
    return f"reverse {word}=", word[::-1]


def sort(rng):
    digits = "".join(rng.choices("0123456789", k=rng.randint(3, 8)))
    return f"sort {digits}=", "".join(sorted(digits))


def maximum(rng):
    numbers = [number(rng) for _ in range(3)]
    return f"max {numbers[0]},{numbers[1]},{numbers[2]}=", str(max(numbers))


TASKS = {"add": add, "reverse": reverse, "sort": sort, "max": maximum}


def draw(task, rng, which):
    """One (prompt, answer) of the set `which`."""
    while True:
        prompt, answer = TASKS[task](rng)
        if split(prompt) == which:
            return prompt, answer


def distinct(task, seed, which, count):
    rng = random.Random(f"{seed} {task} {which}")
    found = {}
    while len(found) < count:
        prompt, answer = draw(task, rng, which)
        found[prompt] = answer
    return list(found.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="prompts of each task")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.count} held-out prompts a task", file=sys.stderr)
    for task in TASKS:
        for prompt, answer in distinct(task, options.seed, "test", options.count):
            print(task, prompt, answer, sep="\t")


if __name__ == "__main__":
    main()
