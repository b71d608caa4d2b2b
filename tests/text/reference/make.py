#!/usr/bin/env python3
"""Makes tests/text/data/: small tokenizers in the styles of published ones, trained here, and what the
`tokenizers` package gives for each on 20,000 strings. Run once, by hand; the results are committed.

    pip install tokenizers && python3 tests/text/reference/make.py          # writes the data
    python3 tests/text/reference/make.py gemma phi3                         # of these styles alone
    python3 tests/text/reference/make.py show STYLE INDEX                   # the right ids of one string
    python3 tests/text/reference/make.py decoders                           # decoders of known parts in many orders
"""
import json
import pathlib
import struct
import sys
import zlib
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from strings import LATER_SPECIAL, Strings

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
STRINGS, SEQUENCES, VOCAB = 20000, 2000, 1500
LATER_STRINGS, LATER_LONG, LATER_SEQUENCES, SMALL = 2500, 25, 250, 900  # of the later styles, and their tokens
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Of tokenizers with 200,000 tokens (Phi-4-mini): words by their case, with what is contracted behind.
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
BEHIND = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CASES = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{BEHIND}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{BEHIND}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(pre, alphabet, seed, size=VOCAB):
    """Merges learned from generated text; vocab in the order in which they were learned."""
    strings = Strings(seed)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False,
                                  limit_alphabet=max(len(alphabet), 400))
    # A file with a NUL in a token is none that we take.
    tokenizer.train_from_iterator((strings.next().replace("\0", "") for _ in range(30000)), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return [t for t, _ in sorted(model["vocab"].items(), key=lambda x: x[1])], model["merges"]


def added(first, texts, known=(), **flags):
    """Ids from `first` on, but for texts that the model knows already."""
    out = []
    for text in texts:
        if text in known:
            number = known.index(text)
        else:
            number, first = first, first + 1
        token = {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True}
        token.update(flags.get(text.strip("<|/>[]"), {}))
        out.append(token)
    return out


def document(tokens, merges, extra, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}
    model.update(parts.pop("model", {}))
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": extra, "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    whole.update(parts)
    return whole


def template(before, after, ids):
    def special(text):
        return {"SpecialToken": {"id": text, "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [special(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [special(t) for t in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in before + after}}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def bytes_alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def trained_bytes(pattern, seed, size=VOCAB):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return train(pre, bytes_alphabet(), seed, size)


def strings_of(merges):
    return [" ".join(m) for m in merges]


def gpt2():
    tokens, merges = trained_bytes(GPT2, 1)
    return document(tokens + ["<|endoftext|>"], strings_of(merges), added(len(tokens), ["<|endoftext|>"]),
                    pre_tokenizer=byte_level(), post_processor=byte_level(True), decoder=byte_level(True))


def llama3():
    tokens, merges = trained_bytes(LLAMA3, 2)
    special = ["<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"]
    # Words that no merges lead to: with ignore_merges they are found all the same.
    tokens += ["Ġrequest;", "zzzz", "ĠÐ¿ÑĢÐ¸"]
    extra = added(len(tokens), special)
    ids = {t["content"]: t["id"] for t in extra}
    return document(tokens, strings_of(merges), extra, model={"ignore_merges": True},
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [split(LLAMA3), byte_level(False, False)]},
                    post_processor={"type": "Sequence",
                                    "processors": [byte_level(True), template(["<|begin_of_text|>"], [], ids)]},
                    decoder=byte_level())


def qwen2():
    tokens, merges = trained_bytes(QWEN2, 3)
    texts = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "word", "Éclair", "<l>", "<r>"]
    extra = added(len(tokens), texts, tokens, tool_call={"special": False}, word={"single_word": True, "special": False},
                  Éclair={"normalized": True, "special": False}, l={"lstrip": True}, r={"rstrip": True, "normalized": True})
    return document(tokens, merges, extra, normalizer={"type": "NFC"},
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [split(QWEN2), byte_level(False, False)]},
                    post_processor=byte_level(), decoder=byte_level())


def trained_spaces(seed, first=("<unk>", "<s>", "</s>"), size=VOCAB):
    head = [*first] + ["<0x%02X>" % b for b in range(256)]
    tokens, merges = train(pre_tokenizers.Metaspace(), [], seed, size)
    return head + [t for t in tokens if t not in head], merges


SPACE_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def llama2():
    tokens, merges = trained_spaces(4)
    extra = added(0, ["<unk>", "<s>", "</s>"], unk={"normalized": False})
    return document(tokens, strings_of(merges), extra,
                    model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "▁"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                    post_processor=template(["<s>"], [], {"<s>": 1}), decoder=SPACE_DECODER)


def mistral():
    tokens, merges = trained_spaces(5)
    extra = added(0, ["<unk>", "<s>", "</s>"]) + added(len(tokens), ["[INST]", "[/INST]"], tokens, INST={"normalized": True})
    return document(tokens, merges, extra, model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
                    post_processor=template(["<s>"], ["</s>"], {"<s>": 1, "</s>": 2}), decoder=SPACE_DECODER)


def mixed():
    """No model's, but what the five leave out: digits, several splits, no byte fallback, <unk> not fused."""
    tokens, merges = train(pre_tokenizers.Metaspace(), [], 6)
    tokens = ["<unk>"] + [t for t in tokens if t != "<unk>"]
    return document(tokens, merges, added(0, ["<unk>"]), model={"unk_token": "<unk>"},
                    normalizer={"type": "NFC"},
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [
                        {"type": "Digits", "individual_digits": True}, split("[,;:.!?]", "MergedWithPrevious"),
                        split("[(\\[{<]+", "MergedWithNext"), split("\\p{Han}+", "Contiguous"),
                        split("\\p{Lu}\\p{Ll}*", "Isolated", True), split("\\t", "Removed"),
                        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]},
                    decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True})


def runs(text, most):
    """A token for each run of a text, and how each is merged: the longest come first, as they are published."""
    return [text * i for i in range(2, most + 1)], [[text * i, text * (n - i)] for n in range(2, most + 1) for i in range(1, n)]


def gemma():
    """A text is one piece: spaces are replaced before anything could be cut at them. Runs of line ends and of
    spaces are tokens, of added ones too."""
    lines, line_merges = runs("\n", 14)
    spaces, space_merges = runs("▁", 14)
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[@BOS@]", "<unused0>", "<unused1>", "<unused12>",
             "<start_of_turn>", "<end_of_turn>"]
    tags = ["<table>", "<h1>", "</h1>"]
    tokens, merges = trained_spaces(7, [*first, "\n", *lines, *spaces, *tags], 1200)
    extra = added(0, first, tokens) + added(0, ["\n", *lines, *spaces, *tags], tokens)
    for token in extra[len(first):]:
        token["special"] = False
    return document(tokens, line_merges + space_merges + [m for m in merges if m not in space_merges], extra,
                    model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                    pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                   "invert": False},
                    post_processor=template(["<bos>"], [], {"<bos>": tokens.index("<bos>")}),
                    decoder={"type": "Sequence", "decoders": SPACE_DECODER["decoders"][:3]})


def phi3():
    """Llama 2's, with tokens that take the white space behind them."""
    tokens, merges = trained_spaces(8, size=SMALL)
    behind = {"rstrip": True}
    texts = ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>", "<|tag|>"]
    extra = added(0, ["<unk>", "<s>", "</s>"], **{"s": {"rstrip": False}})
    extra[2].update(rstrip=True, special=False)
    extra += added(len(tokens), texts, endoftext={}, assistant=behind, system=behind, user=behind, end=behind,
                   tag={"rstrip": True, "lstrip": True, "single_word": True})
    return document(tokens, strings_of(merges), extra,
                    model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "▁"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                    post_processor=template([], [], {}), decoder=SPACE_DECODER)


def kept(pattern):
    """What the pattern finds is kept and all else left out, of which there is nothing."""
    return {"type": "Sequence", "pretokenizers": [split(pattern, "Removed", True), byte_level(False, False)]}


def phi4():
    tokens, merges = trained_bytes(LLAMA3, 9, SMALL)
    round_about = {"lstrip": True, "rstrip": True}
    extra = added(len(tokens), ["<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>", "<|dummy_0|>"],
                  endoftext=round_about, im_start=round_about, im_sep=round_about, im_end=round_about)
    return document(tokens, merges, extra, pre_tokenizer=kept(LLAMA3), post_processor=byte_level(), decoder=byte_level())


def phi4mini():
    tokens, merges = trained_bytes(CASES, 10, SMALL)
    extra = added(len(tokens), ["<|endoftext|>", "<|tool|>", "<|/tool|>", "<|user|>"], tool={"rstrip": True, "special": False})
    return document(tokens, merges, extra, pre_tokenizer=kept(CASES), post_processor=byte_level(), decoder=byte_level())


def olmo2():
    tokens, merges = trained_bytes(LLAMA3, 11, SMALL)
    extra = added(len(tokens), ["<|endoftext|>", "|||IP_ADDRESS|||", "<|im_start|>", "<|im_end|>"],
                  **{"IP_ADDRESS": {"special": False, "normalized": True}})
    return document(tokens, merges, extra, normalizer={"type": "NFC"}, pre_tokenizer=kept(LLAMA3), decoder=byte_level())


def starcoder2():
    """Granite's, too: each digit stands alone, the rest is cut as by GPT-2."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokens, merges = train(pre, bytes_alphabet(), 12, SMALL)
    extra = added(len(tokens), ["<|endoftext|>", "<fim_prefix>", "<|start_of_role|>", "<|end_of_role|>", "<file_sep>"])
    return document(tokens, strings_of(merges), extra, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, byte_level()]}, decoder=byte_level(True))


def smollm3():
    tokens, merges = trained_bytes(LLAMA3, 13, SMALL)
    plain = {"special": False}
    extra = added(len(tokens), ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"],
                  think=plain, tool_call=plain)
    return document(tokens, merges, extra, model={"ignore_merges": True}, pre_tokenizer={
        "type": "Sequence", "pretokenizers": [split(LLAMA3), byte_level(False, False)]},
        post_processor={"type": "Sequence", "processors": [byte_level(True)]}, decoder=byte_level())


def glm4():
    tokens, merges = trained_bytes(LLAMA3, 14, SMALL)
    texts = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
             "<|observation|>", "<|begin_of_image|>"]
    extra = added(len(tokens), texts)
    ids = {t["content"]: t["id"] for t in extra}
    return document(tokens, merges, extra, model={"ignore_merges": True}, pre_tokenizer={
        "type": "Sequence", "pretokenizers": [split(LLAMA3), byte_level(False, False)]},
        post_processor={"type": "Sequence", "processors": [byte_level(True), template(["[gMASK]", "<sop>"], [], ids)]},
        decoder=byte_level())


def harmony():
    """o200k_harmony, as gpt-oss comes with it: what phi4mini cuts, cut by Isolated."""
    tokens, merges = trained_bytes(CASES, 15, SMALL)
    extra = added(len(tokens), ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>",
                                "<|end|>", "<|message|>", "<|call|>"])
    return document(tokens, merges, extra, pre_tokenizer={
        "type": "Sequence", "pretokenizers": [split(CASES), byte_level(False, False)]},
        post_processor=byte_level(True), decoder=byte_level(True))


STYLES = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "mistral": mistral, "mixed": mixed}
LATER = {"gemma": gemma, "phi3": phi3, "phi4": phi4, "phi4mini": phi4mini, "olmo2": olmo2, "starcoder2": starcoder2,
         "smollm3": smollm3, "glm4": glm4, "harmony": harmony}


def test_strings():
    strings = Strings(2024)
    out = []
    while len(out) < STRINGS:
        text = strings.next()
        if len(text.encode()) <= 400:
            out.append(text)
    return out


def later_strings():
    strings, out = Strings(2025, LATER_SPECIAL), []
    while len(out) < LATER_STRINGS - LATER_LONG:
        text = strings.next()
        if len(text.encode()) <= 400:
            out.append(text)
    return out + [strings.long() for _ in range(LATER_LONG)]


def write_strings(name, strings):
    with open(DATA / name, "wb") as out:
        out.write(struct.pack("<I", len(strings)))
        for text in strings:
            out.write(struct.pack("<H", len(text.encode())) + text.encode())


def sequences(bound, count=SEQUENCES):
    """Ids of the generator that the test repeats in C: x = x * 1664525 + 1013904223 mod 2^32."""
    state = 1
    for _ in range(count):
        ids = []
        state = (state * 1664525 + 1013904223) % 2 ** 32
        for _ in range(1 + (state >> 16) % 24):
            state = (state * 1664525 + 1013904223) % 2 ** 32
            # Half of them among the first ids, where bytes and special tokens are.
            ids.append((state >> 9) % (min(bound, 300) if state >> 31 else bound + 2))
        yield ids


def crc_ids(ids):
    return zlib.crc32(struct.pack("<%dI" % len(ids), *ids))


def crc_text(text):
    return zlib.crc32(text.encode())


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def strip(content, start, stop):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}


FALLBACK, FUSE, SPACE = {"type": "ByteFallback"}, {"type": "Fuse"}, replace("▁", " ")
WRITTEN = [[FALLBACK, FUSE, SPACE, strip(" ", 1, 0)], [FALLBACK, SPACE, FUSE, strip(" ", 1, 0)],
           [SPACE, FALLBACK, FUSE], [FUSE, SPACE], [FALLBACK, metaspace("always")], [FUSE, FALLBACK], [],
           [{"type": "Sequence", "decoders": [SPACE, FALLBACK]}, FUSE]]  # as transformers writes them, and the odd ones


def drawn_decoder(random, bytes_first):
    """Known parts in an order that means something: bytes are put together once, and before Fuse."""
    parts = [SPACE, replace(" ", ""), replace("a", "bb"), replace("▁▁", "-"), replace("é", "e"), replace("aba", "x"),
             replace("\ufffd", "?"), strip(" ", 1, 0), strip("▁", 2, 1), strip(" ", 0, 2), strip("e", 1, 1),
             metaspace("first"), metaspace("never"), FALLBACK, FUSE, FUSE]
    out = [byte_level()] if bytes_first else []
    for _ in range(random.randint(1, 5)):
        part = random.choice(parts)
        if part is not FALLBACK or FALLBACK not in out:
            out.append(part)
    if bytes_first and random.random() < 0.5:
        out.insert(0, replace("Ġ", random.choice(["Ġ", "a", "ĠĠ"])))
    return out


def decoded(tokenizer, bound):
    """One sum of all texts; None for those where the reference itself breaks (it strips more than there is)."""
    total, broken = 0, []
    for i, ids in enumerate(sequences(bound, LATER_SEQUENCES)):
        try:
            text = tokenizer.decode(ids, skip_special_tokens=i % 2 == 0)
        except BaseException as panic:  # pyo3's is no Exception
            if "Panic" not in type(panic).__name__:
                raise
            broken.append(i)
            continue
        total = zlib.crc32(text.encode() + b"\n", total)
    return total, broken


def write_decoders():
    random = Random(20)
    with open(DATA / "decoders.jsonl", "w") as out:
        for style, count in (("llama2", 60), ("gpt2", 20)):
            document = json.loads((DATA / (style + ".json")).read_text())
            drawn = [drawn_decoder(random, style == "gpt2") for _ in range(count)]
            for parts in (WRITTEN if style == "llama2" else []) + drawn:
                document["decoder"] = {"type": "Sequence", "decoders": parts}
                tokenizer = Tokenizer.from_str(json.dumps(document))
                total, broken = decoded(tokenizer, max(tokenizer.get_vocab().values()) + 1)
                out.write(json.dumps({"style": style, "decoder": document["decoder"], "sum": total, "broken": broken},
                                     ensure_ascii=False) + "\n")


def main():
    if sys.argv[1:2] == ["decoders"]:
        write_decoders()
        return
    DATA.mkdir(exist_ok=True)
    if sys.argv[1:2] == ["show"]:
        tokenizer = Tokenizer.from_file(str(DATA / (sys.argv[2] + ".json")))
        text = (later_strings if sys.argv[2] in LATER else test_strings)()[int(sys.argv[3])]
        encoding = tokenizer.encode(text)
        print(ascii(text), encoding.ids, encoding.tokens, ascii(tokenizer.decode(encoding.ids, skip_special_tokens=False)), sep="\n")
        return
    first, later = test_strings(), later_strings()
    write_strings("strings.bin", first)
    write_strings("later.bin", later)
    for name in sys.argv[1:] or [*STYLES, *LATER]:
        strings, count = (later, LATER_SEQUENCES) if name in LATER else (first, SEQUENCES)
        make = LATER.get(name) or STYLES[name]
        path = DATA / (name + ".json")
        path.write_text(json.dumps(make(), ensure_ascii=False, separators=(",", ":")) + "\n")
        tokenizer = Tokenizer.from_file(str(path))
        bound = max(tokenizer.get_vocab().values()) + 1
        with open(DATA / (name + ".crc"), "wb") as out:
            for encoding in tokenizer.encode_batch(strings):
                out.write(struct.pack("<II", crc_ids(encoding.ids),
                                      crc_text(tokenizer.decode(encoding.ids, skip_special_tokens=False))))
            for ids in sequences(bound, count):
                out.write(struct.pack("<II", crc_text(tokenizer.decode(ids, skip_special_tokens=False)),
                                      crc_text(tokenizer.decode(ids, skip_special_tokens=True))))


if __name__ == "__main__":
    main()
