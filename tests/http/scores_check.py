"""Pairs of texts, scored: scores_check.py make MODEL FOLDER, checkpoints that are MODEL and say how they score;
scores_check.py ask SOCKET, to a daemon that serves one. What a score should be is told by /v1/completions, which scores the
same prompt with the one token and with the other behind it. Prints each check; exit 1 if one fails.
"""
import concurrent.futures
import http.client
import json
import math
import os
import random
import socket
import sys

NO, YES = "n", "y"  # one token in every vocabulary of bytes and more
TEMPLATE = """{%- set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("find it") -%}
<Instruct>: {{ told }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}
{% if add_generation_prompt %}<Answer>: {% endif %}"""
QUERY = "what is 417+385=802?"
WORDS = "max reverse 90,673,9 of the 417+385= sum abc and no yes 31 + 944".split()
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:500])
    failed += not holds


def prompt_of(query, document, instruction="find it"):
    return f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}\n<Answer>: "


# ---- checkpoints

def checkpoint(model, folder, config=None, files=None):
    os.makedirs(folder)
    files = dict(files or {})
    if config:
        with open(f"{model}/config.json") as file:
            files["config.json"] = json.dumps({**json.load(file), **config})
    for name in os.listdir(model):
        if name not in files:
            os.symlink(os.path.abspath(f"{model}/{name}"), f"{folder}/{name}")
    for name, text in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)


def id_of(model, word):
    with open(f"{model}/tokenizer.json") as file:
        return json.load(file)["model"]["vocab"][word]


def make(model, folder):
    template = {"chat_template.jinja": TEMPLATE}
    types = ("sentence_transformers.base.modules.transformer.Transformer",
             "sentence_transformers.cross_encoder.modules.logit_score.LogitScore")
    modules = [{"idx": i, "name": str(i), "path": path, "type": types[i]} for i, path in enumerate(("", "1_LogitScore"))]
    logit = {"true_token_id": id_of(model, YES), "false_token_id": id_of(model, NO)}
    module = {**template, "modules.json": json.dumps(modules), "1_LogitScore/config.json": json.dumps(logit)}
    checkpoint(model, f"{folder}/config", {"classifier_from_token": [NO, YES]}, template)
    checkpoint(model, f"{folder}/module", None, module)
    checkpoint(model, f"{folder}/one", None, {**module, "1_LogitScore/config.json": json.dumps({**logit, "false_token_id": None})})
    checkpoint(model, f"{folder}/five", {"classifier_from_token": list("ABCDE")}, template)
    checkpoint(model, f"{folder}/long", {"classifier_from_token": ["zq#", YES]}, template)
    checkpoint(model, f"{folder}/talks", {"classifier_from_token": [NO, YES]})


# ---- a daemon

def post(path, body):
    connection = http.client.HTTPConnection("localhost", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(sys.argv[2])
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def tokens_of(text):
    return post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]


def logprob_behind(tokens, token):
    body = {"prompt": tokens + [token], "max_tokens": 0, "prompt_logprobs": 0}
    choice = post("/v1/completions", body)[1]["choices"][0]
    return choice["prompt_logprobs"][-1][str(token)]["logprob"]


def log_odds(prompt):
    tokens = tokens_of(prompt)
    return logprob_behind(tokens, tokens_of(YES)[0]) - logprob_behind(tokens, tokens_of(NO)[0])


def near(left, right):
    return len(left) == len(right) and all(abs(a - b) < 2e-4 for a, b in zip(left, right))


def ask():
    draw = random.Random(5)
    documents = [" ".join(draw.choices(WORDS, k=draw.choice((1, 3, 8, 15)))) for _ in range(8)] + ["", "caf\u00e9 \U0001f600"]
    odds = [log_odds(prompt_of(QUERY, document)) for document in documents]
    check("scores differ", max(odds) - min(odds) > 0.01, odds)

    status, answer = post("/score", {"text_1": QUERY, "text_2": documents, "use_activation": False})
    check("log-odds are those of the two tokens", status == 200 and near([d["score"] for d in answer["data"]], odds),
          (answer, odds))
    count = sum(len(tokens_of(prompt_of(QUERY, document))) for document in documents)
    check("all prompts are counted", answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == count,
          (answer["usage"], count))
    probabilities = [1 / (1 + math.exp(-x)) for x in odds]
    for body in ({"text_1": QUERY, "text_2": documents}, {"text_1": [QUERY] * len(documents), "text_2": documents}):
        answer = post("/v1/score", body)[1]
        check("scores are probabilities", near([d["score"] for d in answer["data"]], probabilities), answer)
    told = post("/score", {"text_1": QUERY, "text_2": documents[0], "instruction": "find no"})[1]["data"][0]["score"]
    other = 1 / (1 + math.exp(-log_odds(prompt_of(QUERY, documents[0], "find no"))))
    check("an instruction is part of the prompt", near([told], [other]) and abs(told - probabilities[0]) > 1e-6, (told, other))

    status, answer = post("/v1/rerank", {"query": QUERY, "documents": documents})
    results = answer["results"]
    check("all documents are ranked", sorted(r["index"] for r in results) == list(range(len(documents))), answer)
    check("by their scores", [r["relevance_score"] for r in results] == sorted((r["relevance_score"] for r in results), reverse=True)
          and near([r["relevance_score"] for r in results], [probabilities[r["index"]] for r in results]), answer)
    check("with their texts", all(r["document"]["text"] == documents[r["index"]] for r in results), answer)
    best = post("/rerank", {"query": QUERY, "documents": documents, "top_n": 3, "return_documents": False})[1]["results"]
    check("the best three alone", [r["index"] for r in best] == [r["index"] for r in results[:3]]
          and all("document" not in r for r in best), best)

    def one(number):
        own = documents[number % 3:] + documents[:number % 3]
        answer = post("/rerank", {"query": QUERY, "documents": own, "priority": -(number % 3), "cache": number % 2 == 0})[1]
        return near([r["relevance_score"] for r in answer["results"]], sorted(probabilities, reverse=True))

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        check("sixty at a time are as right", all(threads.map(one, range(60))))
    status, answer = post("/rerank", {"query": QUERY, "documents": ["a " * 100000]})
    check("a document that is too long is refused", status == 400 and "tokens" in answer["error"]["message"], answer)


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    ask()
sys.exit(failed > 0)
