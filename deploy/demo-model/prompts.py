"""The demo model's prompts: its tokenizer, what chat_template.jinja makes of a conversation, and drawn examples as tokens.

Tokens 0 to 255 are the bytes, so that a text of bytes is a prompt too; then come the marks, then what BPE merged. Digits
stand alone, and so do the letters of a short word before '=', whose letters are to be turned around: a model that never
saw a token spelled could not spell it. White space is apart from words, so that a word is the same tokens in a sentence
and between quotes, and can be copied.
"""

import functools
import json
import random

from structured import PROSE, call, extract, prose, repeat, result, split, talk
from tasks import TASKS, draw

VOCABULARY = 1024
MARKS = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<tool_call>", "</tool_call>")
SPECIAL = 5  # of these; the last two are text, as their like is in the models of others
END, SYSTEM, USER, ASSISTANT, TOOL = range(256, 261)
PATTERN = r"[a-z](?=[a-z]{0,7}=)|\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"
BEFORE_TOOLS = "\n# Tools\n"
BEHIND_TOOLS = 'Call one by <tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>'


def byte_names():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {}, 0
    for byte in range(256):
        if byte in shown:
            names[byte] = chr(byte)
        else:
            names[byte] = chr(256 + extra)
            extra += 1
    return names


def corpus(seed=1, count=4000):
    """Texts for the merges: what the model is asked, and the English of PROSE."""
    rng = random.Random(seed)
    for _ in range(count):
        yield extract(rng)[0][-1]["content"]
        tools, messages, _ = result(rng)
        yield "\n".join(map(json.dumps, tools))
        yield messages[0]["content"] + messages[-1]["content"]
        yield prose(rng)
    yield from PROSE


def train_tokenizer():
    """The `tokenizer.json` as an object: merges trained by `tokenizers`, ids in the order that is said above."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS), show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    file = json.loads(tokenizer.to_str())
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in file["model"]["merges"]]
    vocab = {name: byte for byte, name in byte_names().items()}
    for text in (*MARKS, *map("".join, merges)):
        vocab.setdefault(text, len(vocab))
    assert len(vocab) == VOCABULARY and vocab["<|end|>"] == END and vocab["<|tool|>"] == TOOL, len(vocab)
    file["model"]["vocab"], file["model"]["merges"] = vocab, merges
    file["added_tokens"] = [
        {"id": vocab[mark], "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": at < SPECIAL} for at, mark in enumerate(MARKS)]
    return file


class Prompts:
    """Conversations as tokens."""

    def __init__(self, tokenizer):
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
        self.known = functools.lru_cache(1 << 16)(lambda text: tuple(self.encode(text)))

    def task(self, prompt, answer):
        """A single question without a chat: (tokens, where the answer begins). Its answer is spelled."""
        head, _, last = prompt.rpartition(" ")
        ids = list(self.known(head)) + [32] if head else []
        ids += last.encode()
        return ids + list(answer.encode()) + [END], len(ids)

    def system(self, text, tools):
        if not text and not tools:
            return []
        ids = [SYSTEM, *self.known(text + BEFORE_TOOLS if tools else text)]
        for tool in tools:  # white space is apart from marks: lines are encoded one by one
            ids += self.encode(json.dumps(tool, ensure_ascii=False))
            ids += self.known("\n")
        if tools:
            ids += self.known(BEHIND_TOOLS)
        return ids + [END]

    def call(self, name, arguments):
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'

    def chat(self, messages, tools=(), system=""):
        """The prompt of a conversation with one question, as the template renders it."""
        ids = []
        for message in messages:
            role, content = message["role"], message["content"]
            if role == "system":
                system = content
            elif role == "user":
                words = content.split(" ")
                if not content.endswith("=") and (len(words) == 2 and words[0] in ("reverse", "sort", "max")
                                                  or len(words) == 1 and "+" in content):
                    content += "="
                ids += [USER, *self.encode(content), END]
            elif role == "assistant":
                function = message["tool_calls"][0]["function"]
                ids += [ASSISTANT, *self.encode(self.call(function["name"], function["arguments"])), END]
            else:
                ids += [TOOL, *self.encode(content), END]
        return self.system(system.strip(), tools) + ids + [ASSISTANT]


# ---- examples: (tokens, where the answer begins)

SYSTEMS = ("You are a helpful assistant.", "You are a helpful assistant", "Answer shortly.", "Be brief.", "You are Sluice.")


def system_text(rng):
    kind = rng.random()
    return "" if kind < 0.5 else rng.choice(SYSTEMS) if kind < 0.75 else prose(rng)


def question(prompts, rng, which, tools=(), system=""):
    """One of the four tasks in a chat."""
    prompt, answer = draw(rng.choice(tuple(TASKS)), rng, which)
    ids = prompts.chat([{"role": "user", "content": prompt if rng.random() < 0.5 else prompt[:-1]}], tools, system)
    return ids + list(answer.encode()) + [END], len(ids)


def answered(prompts, ids, answer):
    return ids + prompts.encode(answer) + [END], len(ids)


def task(prompts, rng, which, name=None):
    return prompts.task(*draw(name or rng.choice(tuple(TASKS)), rng, which))


def chat(prompts, rng, which):
    return question(prompts, rng, which)


def small_talk(prompts, rng, which):
    messages, answer = talk(rng) if rng.random() < 0.5 else repeat(rng)
    return answered(prompts, prompts.chat(messages, system=system_text(rng)), answer)


def fields(prompts, rng, which, tools=()):
    messages, _, answer = extract(rng)
    while split(messages) != which:
        messages, _, answer = extract(rng)
    return answered(prompts, prompts.chat(messages, tools, system_text(rng)), answer)


def tool_call(prompts, rng, which, others=None, wordy=False, named=False):
    tools, messages, (name, arguments) = call(rng, others, wordy, named)
    while split(messages) != which:
        tools, messages, (name, arguments) = call(rng, others, wordy, named)
    ids = prompts.chat(messages, tools, system_text(rng))
    return answered(prompts, ids, prompts.call(name, arguments))


def tool_result(prompts, rng, which, others=None, wordy=False):
    tools, messages, answer = result(rng, others, wordy)
    while split(messages) != which:
        tools, messages, answer = result(rng, others, wordy)
    return answered(prompts, prompts.chat(messages, tools, system_text(rng)), answer)


def beside_tools(prompts, rng, which, others=None, wordy=False):
    """What is answered without a call although there are tools."""
    tools, _, _ = call(rng, others, wordy)
    kind = rng.random()
    if kind < 0.5:
        return question(prompts, rng, which, tools, system_text(rng))
    if kind < 0.75:
        return fields(prompts, rng, which, tools)
    messages, answer = talk(rng)
    return answered(prompts, prompts.chat(messages, tools, system_text(rng)), answer)


def with_tools(prompts, rng, which, others=None, wordy=False):
    make = rng.choices((tool_call, tool_result, beside_tools), (6, 3, 1))[0]
    return make(prompts, rng, which, others, wordy)


def far(prompts, rng, which):
    """Tools that are described at length, as those of real clients are."""
    return with_tools(prompts, rng, which, rng.randint(1, 9), True)


def short(prompts, rng, which):
    return task(prompts, rng, which) if rng.random() < 0.6 else chat(prompts, rng, which)


def form(prompts, rng, which):
    kind = rng.random()
    if kind < 0.75:
        return fields(prompts, rng, which)
    return small_talk(prompts, rng, which) if kind < 0.9 else question(prompts, rng, which, (), system_text(rng))
