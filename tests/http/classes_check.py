"""Checkpoints with a head of classes: classes_check.py make FOLDER, small ones of random weights, a folder each;
classes_check.py ask SOCKET NAME, to a daemon that serves one of them, against classes.json, which transformers said:
classes_check.py reference FOLDER > classes.json (needs it and PyTorch). Prints each check; exit 1 if one fails.
"""
import json
import math
import os
import pathlib
import random
import struct
import sys

import unix_http

BEGIN, END = 256, 257
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 32, 4, 2, 8, 48, 2
TEXTS = ["what a day", "no", "caf\u00e9 \U0001f600 and a longer text of several words, that ends here.", "417+385=802"]
QUERY = "what is 417+385=802?"

GEMMA = {"head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM, "sliding_window": 8,
         "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh"}
SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"
# class, model_type, classes, what else config.json says, the tokenizer's template: "begin" puts a token before each text.
MODELS = {
    "llama": ("Llama", "llama", 1, {}, "begin"),
    "mistral": ("Mistral", "mistral", 5, {"problem_type": "multi_label_classification", "sliding_window": None}, "begin"),
    "qwen2": ("Qwen2", "qwen2", 3, {"id2label": {"0": "bad", "1": "so \"so\"", "2": "good"}}, None),
    "qwen3": ("Qwen3", "qwen3", 1, {"head_dim": HEAD_DIM, "sentence_transformers": {"activation_fn": IDENTITY}}, None),
    "gemma": ("Gemma", "gemma", 2, {"head_dim": HEAD_DIM, "hidden_act": "gelu"}, "begin"),
    "gemma2": ("Gemma2", "gemma2", 2, {**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, "begin"),
    "gemma3": ("Gemma3Text", "gemma3_text", 1, {**GEMMA, "problem_type": "regression",
                                               "sbert_ce_default_activation_function": SIGMOID}, "begin"),
}
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:600])
    failed += not holds


# ---- checkpoints

def byte_names():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def piece(kind, name):
    return {kind: {"id": name, "type_id": 0}}


def tokenizer(template):
    text = lambda name: piece("Sequence", name)
    begin, end = piece("SpecialToken", "<s>"), piece("SpecialToken", "</s>")
    pairs = {"begin": [begin, text("A"), begin, text("B")], "apart": [begin, text("A"), end, text("B")]}
    made = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [{"id": at, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for at, mark in ((BEGIN, "<s>"), (END, "</s>"))],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {name: byte for byte, name in enumerate(byte_names())}, "merges": []}}
    made["decoder"].update(add_prefix_space=True, trim_offsets=True, use_regex=True)
    if template:
        made["post_processor"] = {
            "type": "TemplateProcessing", "single": [begin, text("A")], "pair": pairs[template],
            "special_tokens": {mark: {"id": mark, "ids": [at], "tokens": [mark]} for at, mark in ((BEGIN, "<s>"), (END, "</s>"))}}
    return made


def shapes(family, labels):
    """Names and shapes of all tensors."""
    gemma = family.startswith("gemma")
    yield "model.embed_tokens.weight", (260, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm",
                     *(("pre_feedforward_layernorm", "post_feedforward_layernorm") if gemma and family != "gemma" else ())):
            yield f"{at}{name}.weight", (HIDDEN,)
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{at}self_attn.{name}_proj.weight", (rows * HEAD_DIM, HIDDEN)
            if family == "qwen2":
                yield f"{at}self_attn.{name}_proj.bias", (rows * HEAD_DIM,)
            if family in ("qwen3", "gemma3_text") and name != "v":
                yield f"{at}self_attn.{name}_norm.weight", (HEAD_DIM,)
        yield f"{at}self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{at}mlp.gate_proj.weight", (INNER, HIDDEN)
        yield f"{at}mlp.up_proj.weight", (INNER, HIDDEN)
        yield f"{at}mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "score.weight", (labels, HIDDEN)


def write_weights(path, family, labels, wide):
    """float32, or bfloat16 where it is not wide: the upper halves."""
    draw, header, data = random.Random(family), {}, bytearray()
    for name, shape in shapes(family, labels):
        count = math.prod(shape)
        center = 1.0 if "norm" in name and not family.startswith("gemma") else 0.0
        deviation = 1.0 if name == "score.weight" or "embed" in name else 0.3
        raw = struct.pack(f"<{count}f", *(draw.gauss(center, deviation) for _ in range(count)))
        if not wide:
            raw = b"".join(raw[at + 2 : at + 4] for at in range(0, len(raw), 4))
        header[name] = {"dtype": "F32" if wide else "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_one(folder, family, labels, architecture, more, template, wide):
    os.makedirs(folder)
    config = {"architectures": [architecture], "model_type": family, "vocab_size": 260, "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": family.startswith("gemma"), "bos_token_id": BEGIN, "eos_token_id": END,
              "dtype": "float32" if wide else "bfloat16"}
    if "id2label" not in more and labels != 2:
        config["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
    config.update({key: value for key, value in more.items() if value is not None})
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer(template)),
                        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})):
        pathlib.Path(folder, name).write_text(json.dumps(value))
    write_weights(f"{folder}/model.safetensors", family, labels, wide)


def make(folder):
    for name, (stem, family, labels, more, template) in MODELS.items():
        make_one(f"{folder}/{name}", family, labels, f"{stem}ForSequenceClassification", more, template, name != "mistral")
    wrong = {"problem": {"problem_type": "ranking"}, "labels": {"id2label": {"0": "a", "2": "b"}},
             "activation": {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}}
    for name, more in wrong.items():
        make_one(f"{folder}/{name}", "llama", 2, "LlamaForSequenceClassification", more, "begin", True)
    make_one(f"{folder}/shape", "llama", 3, "LlamaForSequenceClassification", {"id2label": {"0": "a", "1": "b"}}, "begin", True)
    make_one(f"{folder}/apart", "llama", 1, "LlamaForSequenceClassification", {}, "apart", True)


def reference(folder):
    import torch
    import transformers
    told = {}
    for name in MODELS:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(f"{folder}/{name}", dtype=torch.float32).eval()
        own = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/{name}/tokenizer.json")
        with torch.no_grad():
            values = lambda ids: [round(x, 6) for x in model(input_ids=torch.tensor([ids])).logits[0].tolist()]
            told[name] = {"texts": [values(own(text).input_ids) for text in TEXTS],
                          "pairs": [values(own(QUERY, text).input_ids) for text in TEXTS]}
    print("{" + ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in told.items()) + "}")


# ---- a daemon

def post(path, body):
    status, text = unix_http.post(sys.argv[2], path, body)
    return status, json.loads(text)


def near(left, right, off=2e-4):
    return len(left) == len(right) and all(abs(a - b) < off for a, b in zip(left, right))


def sigmoid(values):
    return [1 / (1 + math.exp(-x)) for x in values]


def softmax(values):
    parts = [math.exp(x - max(values)) for x in values]
    return [part / sum(parts) for part in parts]


def ask_classes(values, more):
    labels = len(values[0])
    names = [more.get("id2label", {}).get(str(i), f"LABEL_{i}") for i in range(labels)]
    function = {"regression": list, "multi_label_classification": sigmoid}.get(
        more.get("problem_type"), sigmoid if labels == 1 else softmax)
    for path in ("/classify", "/v1/classify"):
        status, answer = post(path, {"input": TEXTS})
        check(f"{path}: probabilities are those of transformers' values", status == 200 and answer["object"] == "list"
              and all(near(item["probs"], function(row)) for item, row in zip(answer["data"], values, strict=True)), answer)
    check("labels are the likeliest, by their names", all(
        item["label"] == names[row.index(max(row))] and item["num_classes"] == labels and item["index"] == at
        for at, (item, row) in enumerate(zip(answer["data"], values))), answer)
    check("tokens are counted", answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] >= sum(map(len, TEXTS)), answer)
    answer = post("/classify", {"input": TEXTS[0], "use_activation": False})[1]
    check("without a function they are the head's", near(answer["data"][0]["probs"], values[0]), answer)
    tokens = post("/tokenize", {"prompt": TEXTS[0]})[1]["tokens"]
    answer = post("/classify", {"input": [tokens, tokens[:3]], "use_activation": False})[1]
    check("tokens are as good as a text", near(answer["data"][0]["probs"], values[0]), answer)


def ask_pairs(values, more):
    scores = values if more.get("sentence_transformers") else [sigmoid([x])[0] for x in values]
    status, answer = post("/v1/score", {"text_1": QUERY, "text_2": TEXTS})
    check("scores are those of transformers' values", status == 200 and near([d["score"] for d in answer["data"]], scores), answer)
    answer = post("/score", {"text_1": [QUERY] * len(TEXTS), "text_2": TEXTS, "use_activation": False})[1]
    check("without a function they are the head's", near([d["score"] for d in answer["data"]], values), answer)
    results = post("/rerank", {"query": QUERY, "documents": TEXTS})[1]["results"]
    check("documents are ranked by them", near([r["relevance_score"] for r in results], sorted(scores, reverse=True))
          and near([r["relevance_score"] for r in results], [scores[r["index"]] for r in results]), results)
    status, answer = post("/score", {"text_1": QUERY, "text_2": TEXTS, "instruction": "find it"})
    check("an instruction has no place", status == 400 and "no template" in answer["error"]["message"], answer)


def ask(name):
    told = json.loads(pathlib.Path(__file__).with_name("classes.json").read_text())[name]
    _, _, labels, more, _ = MODELS[name]
    ask_classes(told["texts"], more)
    if labels == 1:
        ask_pairs([row[0] for row in told["pairs"]], more)
    else:
        status, answer = post("/rerank", {"query": QUERY, "documents": TEXTS})
        check("no pair is scored by several classes", status == 400 and f"{labels} classes" in answer["error"]["message"], answer)
    refusal = "none for tokens"
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/completions", {"prompt": "a", "max_tokens": 0, "echo": True, "logprobs": 1}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                       ("/v1/responses", {"input": "a"}),
                       ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})):
        status, answer = post(path, body)
        check(f"{path} is refused", status == 400 and refusal in json.dumps(answer), answer)
    status, answer = post("/v1/embeddings", {"input": "a text"})
    check("rows are given", status == 200 and len(answer["data"][0]["embedding"]) == HIDDEN, answer)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    elif sys.argv[1] == "reference":
        reference(sys.argv[2])
    else:
        ask(sys.argv[3])
    sys.exit(failed > 0)
