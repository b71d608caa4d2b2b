"""Answers that must be something, over HTTP and by the native client, judged by jsonschema, re and ast.

    constrained_check.py SOCKET SLUICE [ROUNDS]

Every answer that ends by itself is valid, whole and streamed; what is cut says length. Refusals name the field and what
of the schema is not kept. A neighbour without a constraint answers what it answers alone.
"""
import ast
import concurrent.futures
import json
import random
import re
import subprocess
import sys
import tempfile

import unix_http

try:
    import jsonschema
except ImportError:
    print("SKIPPED: no jsonschema for python3")
    sys.exit(77)

PATH, SLUICE = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 2

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer",
     "minimum": 0, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["a", "b", "ü"]}, "maxItems": 3}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "number"}]}, "minItems": 1,
     "maxItems": 4},
    {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "minimum": -9, "maximum": 9},
     "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"],
     "additionalProperties": False}}, "$ref": "#/$defs/node"},
    {"type": "string", "format": "date"},
    {"const": {"a": [1, "é", None]}},
]
PATTERNS = ["[a-f]{2,6}(-[0-9]+)?", "(yes|no|π+)!", r"\d{3}-\d{2}"]
# Each with what judges it: a regular expression, or Python's own reader of sums.
GRAMMARS = [('root ::= greeting ", " name ("!" | "?"){1,3}\ngreeting ::= "hello" | "hé"\nname ::= [A-Z] [a-z]{0,5}',
             "(hello|hé), [A-Z][a-z]{0,5}[!?]{1,3}"),
            ('root ::= sum\nsum ::= term (" + " term){0,2} # short\nterm ::= [1-9] [0-9]? | "(" sum ")"', None)]
CHOICES = [["alpha", "beta", "alphabet"], ["é", "e"]]


def post(body):
    return unix_http.post(PATH, "/v1/completions", body)


def ask(body):
    status, text = post(body)
    assert status == 200, text
    return [(c["text"], c["finish_reason"]) for c in json.loads(text)["choices"]]


def stream(body):
    status, text = post(dict(body, stream=True, n=1))
    assert status == 200, text
    whole, finish = "", None
    for choice in unix_http.choices(text):
        whole += choice["text"]
        finish = choice["finish_reason"] or finish
    return [(whole, finish)]


def judge(kind, wanted, text):
    if kind == "schema":
        jsonschema.validate(json.loads(text), wanted, format_checker=jsonschema.FormatChecker())
    elif kind == "object":
        assert isinstance(json.loads(text), dict), text
    elif kind == "pattern":
        assert re.fullmatch(wanted, text), (wanted, text)
    elif kind == "grammar" and wanted[1] is None:
        ast.parse(text, mode="eval")
        assert re.fullmatch("[0-9()+ ]+", text), text
    elif kind == "grammar":
        assert re.fullmatch(wanted[1], text), (wanted, text)
    else:
        assert text in wanted, (wanted, text)


FIELD = {"schema": lambda w: {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": w}}},
         "object": lambda w: {"response_format": {"type": "json_object"}},
         "pattern": lambda w: {"structured_outputs": {"regex": w}},
         "grammar": lambda w: {"structured_outputs": {"grammar": w[0]}},
         "choice": lambda w: {"guided_choice": w}}


def one(job):
    kind, wanted, seed = job
    draw = random.Random(seed)
    body = {"prompt": "417+385=", "max_tokens": 150, "seed": seed, "temperature": draw.choice([0, .5, 1, 1.5, 2]),
            "n": draw.choice([1, 1, 3]), **FIELD[kind](wanted)}
    if draw.random() < .3:
        body.update(presence_penalty=.5, top_k=5, logit_bias={"34": 2})
    ended = cut = 0
    for text, finish in stream(body) if draw.random() < .4 else ask(body):
        if finish == "stop":
            judge(kind, wanted, text)
            ended += 1
        else:
            assert finish == "length", finish
            cut += 1
    return ended, cut


def refusals():
    strings = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    for field, body in {
        "response_format": {"response_format": {"type": "json_schema", "json_schema": {"schema": strings}}},
        "guided_regex": {"guided_regex": "(a"},
        "guided_grammar": {"guided_grammar": "root ::= a"},
        "grammar": {"grammar": 'start: "a"'},
        "stop": {"guided_regex": "a", "stop": "b"},
        "min_tokens": {"guided_regex": "a", "min_tokens": 2},
        "ignore_eos": {"guided_regex": "a", "ignore_eos": True},
        "guided_choice": {"response_format": {"type": "json_object"}, "guided_choice": ["a"]},
    }.items():
        status, text = post({"prompt": "x", "max_tokens": 4, **body})
        error = json.loads(text)["error"]
        assert status == 400 and error["param"] == field, (field, status, text)
    status, text = post({"prompt": "x", "grammar": 'start: "a"'})
    assert "line 1" in text and "Lark" in text, text
    status, text = post({"prompt": "x", "grammar": 'root ::= root "a" | "b"'})
    assert status == 400 and "leads to itself" in text, text
    status, text = post({"prompt": "x", "guided_json": {"properties": {"a": strings}}})
    assert "#/properties/a" in text and "uniqueItems" in text, text


def native():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, tempfile.NamedTemporaryFile("w") as grammar:
        json.dump(SCHEMAS[0], file)
        file.flush()
        grammar.write(GRAMMARS[0][0])
        grammar.flush()
        for kind, wanted, options in [("schema", SCHEMAS[0], ["--json-schema", file.name]),
                                      ("object", None, ["--json-object"]),
                                      ("pattern", PATTERNS[0], ["--regex", PATTERNS[0]]),
                                      ("grammar", GRAMMARS[0], ["--grammar", grammar.name]),
                                      ("choice", CHOICES[0], ["--choice", "alpha", "--choice", "beta", "--choice", "alphabet"])]:
            for prompt in (["--prompt", "2+2="], ["--tokens", "1,2,3"]):
                run = subprocess.run([SLUICE, "generate", *prompt, "--max-tokens", "200", "--json", *options],
                                     capture_output=True, text=True, timeout=60)
                assert run.returncode == 0, run.stderr
                line = json.loads(run.stdout)
                if line["finish_reason"] == "stop":
                    judge(kind, wanted, line["text"])
    run = subprocess.run([SLUICE, "generate", "x", "--regex", "a", "--json-object"], capture_output=True, text=True)
    assert run.returncode != 0 and "--regex" in run.stderr, run.stderr


alone = {"prompt": "reverse stream=", "max_tokens": 40, "temperature": 1, "seed": 9, "logprobs": 3}
before = json.loads(post(alone)[1])["choices"]
jobs = [(kind, wanted, seed) for kind, all_of in (("schema", SCHEMAS), ("object", [None]), ("pattern", PATTERNS), ("grammar", GRAMMARS),
                                                  ("choice", CHOICES)) for wanted in all_of for seed in range(ROUNDS)]
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    results = [pool.submit(one, job) for job in jobs]
    beside = [pool.submit(post, alone) for _ in range(4)]
    ended, cut = (sum(part) for part in zip(*(r.result() for r in results)))
    for result in beside:
        assert json.loads(result.result()[1])["choices"] == before, "a neighbour's answer is another"
refusals()
native()
print(f"{ended} answers ended by themselves and are valid, {cut} were cut")
assert ended > cut
