#!/usr/bin/env python3
"""Trains the demo model on generated tasks (tasks.py) and writes it as a Hugging Face directory.

    train.py [--out DIR] [--minutes 4.5] [--seed 1]

Needs PyTorch, transformers, tokenizers and a GPU. Ends with the exact-match rate on 1,000 test prompts
of each task, answered greedily by transformers from the files just written; exits 1 under 99.5 %.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time

import numpy

from tasks import TASKS, distinct, draw

END = 256
VOCAB = 264  # 256 bytes, the end token, and padding to a multiple of 8
LENGTH = 28  # the longest prompt, answer and end token, and one to shift by
POOL_PER_TASK = 1_000_000
BATCH = 4096
PEAK_RATE = 1.5e-3
TEMPLATE = "chat_template.jinja"

CONFIG = dict(
    vocab_size=VOCAB,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=END,
    pad_token_id=None,
)


def examples(work):
    """Token ids and labels (-100 where nothing is to be learnt) of one worker's share of a task."""
    task, seed, count = work
    rng = random.Random(f"{seed} {task} train")
    ids = numpy.full((count, LENGTH), END, numpy.int16)
    labels = numpy.full((count, LENGTH), -100, numpy.int16)
    for row in range(count):
        prompt, answer = draw(task, rng, "train")
        tokens = list((prompt + answer).encode()) + [END]
        ids[row, : len(tokens)] = tokens
        labels[row, len(prompt) : len(tokens)] = tokens[len(prompt) :]
    return ids, labels


def pool(seed):
    workers = os.cpu_count() or 1
    share = POOL_PER_TASK // workers
    work = [(task, f"{seed} {worker}", share) for task in TASKS for worker in range(workers)]
    with multiprocessing.get_context("fork").Pool(workers) as processes:
        parts = processes.map(examples, work, chunksize=1)
    return numpy.concatenate([p[0] for p in parts]), numpy.concatenate([p[1] for p in parts])


def by_length(pairs):
    groups = {}
    for prompt, answer in pairs:
        groups.setdefault(len(prompt), []).append((prompt, answer))
    return groups.values()


def exact(torch, model, pairs, tokenizer=None):
    """Greedy answers beside the right ones; (share that is exact, a few that are not)."""
    right, wrong = 0, []
    for group in by_length(pairs):
        if tokenizer:
            prompts = [tokenizer.encode(p, add_special_tokens=False) for p, _ in group]
        else:
            prompts = [list(p.encode()) for p, _ in group]
        ids = torch.tensor(prompts, device=model.device)
        with torch.no_grad():
            for _ in range(12):
                logits = model(input_ids=ids, use_cache=False).logits[:, -1]
                ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        for row, (prompt, answer) in zip(ids[:, len(prompts[0]) :].tolist(), group):
            said = row[: row.index(END)] if END in row else row
            if END in row and said == list(answer.encode()):
                right += 1
            else:
                wrong.append((prompt, answer, "".join(chr(t) for t in said)))
    return right / len(pairs), wrong[:5]


def train(torch, model, data, options):
    ids, labels = (torch.from_numpy(part).cuda() for part in data)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decay, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
        lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)
    dev = {task: distinct(task, options.seed, "dev", 250) for task in TASKS}
    start = time.monotonic()
    seconds = options.minutes * 60
    step, looked = 0, 0.0
    while True:
        done = (time.monotonic() - start) / seconds
        if done >= 1:
            break
        rate = PEAK_RATE * min(1.0, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.randint(0, ids.shape[0], (BATCH,), device="cuda")
        tokens, wanted = ids[rows].long(), labels[rows].long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().reshape(-1, VOCAB), wanted[:, 1:].reshape(-1), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if time.monotonic() - looked > 20:
            looked = time.monotonic()
            shares = {task: exact(torch, model, dev[task])[0] for task in TASKS}
            print(f"{looked - start:5.0f} s step {step} loss {loss.item():.5f} "
                  + " ".join(f"{t} {s:.1%}" for t, s in shares.items()), flush=True)
    print(f"{step} steps of {BATCH} examples", flush=True)


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


def write_tokenizer(directory):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    vocab = {name: byte for byte, name in byte_names().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    assert tokenizer.token_to_id("<|end|>") == END
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    write_json(directory, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False, "model_max_length": CONFIG["max_position_embeddings"]})


def write_chat_template(directory):
    """The prompts are single questions: a chat is its last one. The file beside this one is the source."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), TEMPLATE)) as file:
        text = file.read()
    with open(os.path.join(directory, TEMPLATE), "w") as file:
        file.write(text)


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def write(torch, model, directory):
    from safetensors.torch import save_file
    os.makedirs(directory, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **CONFIG}
    write_json(directory, "config.json", config)
    write_json(directory, "generation_config.json",
               {"do_sample": False, "eos_token_id": END, "max_new_tokens": 16})
    tensors = {name: tensor.detach().to(torch.bfloat16).cpu().contiguous().clone()
               for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    write_tokenizer(directory)
    write_chat_template(directory)


def check(torch, directory, seed):
    """Exact-match of transformers from the files alone, in float32 and in bfloat16."""
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(directory, "tokenizer.json"))
    shares = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).cuda().eval()
        for task in TASKS:
            share, wrong = exact(torch, model, distinct(task, seed, "test", 1000), tokenizer)
            shares[name, task] = share
            print(f"{name} {task}: {share:.1%} of 1000 exact", wrong, flush=True)
    return all(share >= 0.995 for (name, _), share in shares.items() if name == "float32")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    data = pool(options.seed)  # forks: before anything touches the GPU
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).cuda()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(data[0])} examples", flush=True)
    train(torch, model, data, options)
    write(torch, model, options.out)
    raise SystemExit(0 if check(torch, options.out, options.seed) else 1)


if __name__ == "__main__":
    main()
