"""Random schemas, expressions and grammars, asked of a daemon whose model has random weights, at temperatures 0 to 2.

    constrained_random.py SOCKET [FIRST..LAST]

Of each seed one of the three is made (as tests/constrain/ makes them) and asked over HTTP, at times as a stream, with a
sampler biased to what closes. Every answer that ends by itself is valid, by jsonschema and re; every other says length.
At least 80 of 100 end by themselves; the share is printed. Between them are answers far too long for their deadlines,
which end by these. Ten thousand: a range of seeds, by hand.
"""
import collections
import concurrent.futures
import json
import random
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/constrain")
import random_patterns  # noqa: E402
import random_schemas  # noqa: E402
import unix_http  # noqa: E402

try:
    import jsonschema
except ImportError:
    print("SKIPPED: no jsonschema for python3")
    sys.exit(77)

PATH = sys.argv[1]
FIRST, LAST = map(int, (sys.argv[2] if len(sys.argv) > 2 else "1..200").split(".."))
TEMPERATURES = [0, 0.25, 0.5, 1, 1.5, 2]


def post(path, body):
    return unix_http.post(PATH, path, body)


def whole(body):
    status, text = post("/v1/completions", body)
    choice = json.loads(text)["choices"][0] if status == 200 else None
    return (status, text) if not choice else (choice["finish_reason"], choice["text"])


def streamed(body):
    status, text = post("/v1/completions", dict(body, stream=True))
    answer, finish = "", None
    for choice in unix_http.choices(text):
        answer += choice["text"]
        finish = choice["finish_reason"] or finish
    return (status, text) if status != 200 else (finish, answer)


def made(seed):
    """What is asked for, and what judges it."""
    if seed % 2 == 0:
        schema = random_schemas.Maker(seed).whole()
        check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        return {"json": schema}, lambda text: check.is_valid(json.loads(text))
    pattern, grammar, expression = random_patterns.Maker(seed).whole()
    return ({"regex": pattern} if seed % 4 == 1 else {"grammar": grammar}), re.compile(expression).fullmatch


def one(seed):
    draw = random.Random(seed)
    if seed % 25 == 0:
        finish, text = whole({"prompt": "late", "max_tokens": 1000, "deadline_ms": 5 * draw.randrange(1, 9),
                              "structured_outputs": {"regex": "[a-z]{1000}"}})
        assert finish == 504 or (finish == "deadline" and re.fullmatch("[a-z]{0,999}", text)), (finish, text)
    wanted, valid = made(seed)
    body = {"prompt": "".join(draw.choice("abc ") for _ in range(1 + seed % 9)), "max_tokens": 300, "seed": seed,
            "temperature": TEMPERATURES[seed % len(TEMPERATURES)], "structured_outputs": wanted, "logit_bias": BIAS}
    if draw.random() < 0.2:
        body.update(presence_penalty=0.5, top_k=20)
    finish, text = (streamed if draw.random() < 0.3 else whole)(body)
    if finish == "stop":
        assert valid(text), (seed, wanted, text)
        return "ended"
    if finish == "length":
        return "cut"
    error = json.loads(text)["error"]
    assert finish == 400 and error["param"] == "structured_outputs", (seed, finish, text)
    assert error["code"] in ("unsupported", "bad_value"), (seed, text)
    return "refused"


BIAS = {"256": 6}  # the end
for character in "\"}]":
    status, answer = post("/tokenize", {"prompt": character})
    assert status == 200, answer
    BIAS[str(json.loads(answer)["tokens"][-1])] = 5 if character == '"' else 3
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    counts = collections.Counter(pool.map(one, range(FIRST, LAST + 1)))
share = 100 * counts["ended"] / max(1, counts["ended"] + counts["cut"])
print(f"{counts['ended']} of {counts['ended'] + counts['cut']} answers ended by themselves ({share:.1f} %) and are valid, "
      f"{counts['cut']} say length, {counts['refused']} constraints were refused")
assert share >= 80
