"""From what a program asks to a frame's head and payload. Ranges are the daemon's to judge: what it does not
take it refuses by name."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from .errors import SluiceError
from .frames import Type, padded, padding
from .heads import encode
from .options import SAMPLING, Chat, Constraint, Item, Prompt
from .tensors import Spec, Tensor

SHARE = 256 << 10
COMMON = {"priority": 0, "deadline_ms": 0}


@dataclass(slots=True)
class Draft:
    """A request that is not sent yet. `places` says of each sequence which prompt's and which result it is;
    `plan` of each item what its outputs are; `fds` are owned until it is sent."""

    type: Type
    job: str
    head: bytes
    payload: list[bytes | memoryview]
    places: list[tuple[int, int]]
    pooled: bool = True
    plan: list[list[Spec]] = field(default_factory=list)
    outputs_shared: bool = False
    fds: list[int] = field(default_factory=list)


def tokens_payload(tokens: Sequence[int]) -> bytes:
    try:
        return struct.pack(f"<{len(tokens)}i", *tokens)
    except struct.error as error:
        raise SluiceError("bad_value", f"a token is a 32-bit whole number: {error}") from None


def _prompts(prompts: Sequence[Prompt]) -> tuple[str, list[Any], bytes]:
    """The field that has them, its value, and the payload."""
    if not prompts:
        raise SluiceError("empty", "no prompt was given")
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    chats = [prompt.encode() for prompt in prompts if isinstance(prompt, Chat)]
    if texts and len(texts) == len(prompts):
        return "texts", texts, b""
    if chats and len(chats) == len(prompts):
        return "chats", [len(chat) for chat in chats], padded(b"".join(chats))
    if texts or chats:
        raise SluiceError("usage", "the prompts of a request are all texts, all tokens or all conversations")
    tokens = [cast("Sequence[int]", prompt) for prompt in prompts]
    return "lengths", [len(one) for one in tokens], padded(b"".join(map(tokens_payload, tokens)))


def _sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in SAMPLING:
            raise TypeError(f"there is no option {name!r}")
        if value is None:
            continue
        if name == "logit_bias":
            value = {str(token): bias for token, bias in value.items()}
        elif name in ("stop", "stop_token_ids"):
            if isinstance(value, str):
                raise TypeError(f"{name} is a list")
            value = list(value)
        said[name] = value
    return said


def _given(options: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Takes these out of the options: those that differ from what the daemon takes them for."""
    said = {}
    for name, default in defaults.items():
        value = options.pop(name, default)
        if value is not None and value != default:
            said[name] = value
    return said


def _constraint(constraint: Constraint | None) -> dict[str, Any]:
    if constraint is None:
        return {}
    said = {"constraint": constraint.kind}
    if constraint.text is not None:
        said["constraint_text"] = constraint.text
    return said


def _places(prompts: int, n: int, each: Sequence[Mapping[str, Any]] | None) -> list[tuple[int, int]]:
    counts = [n if each is None else each[prompt].get("n", n) for prompt in range(prompts)]
    if any(type(count) is not int or not 1 <= count <= 128 for count in counts):
        raise SluiceError("bad_value", "n is 1 to 128")
    return [(prompt, index) for prompt, count in enumerate(counts) for index in range(count)]


def submit(
    job: str,
    prompts: Sequence[Prompt],
    options: Mapping[str, Any],
    *,
    stream: bool = False,
    partial: bool = False,
    each: Sequence[Mapping[str, Any]] | None = None,
) -> Draft:
    left = dict(options)
    name, value, payload = _prompts(prompts)
    if each is not None and len(each) != len(prompts):
        raise SluiceError("usage", f"{len(prompts)} prompts, and sampling fields for {len(each)}")
    head: dict[str, Any] = {"job": job, **_given(left, COMMON), "stream": stream}
    if left.pop("text", False):
        head["text"] = True
    if partial:
        head["partial"] = True
    head |= _given(left, {"cache": True, "cache_salt": None, "adapter": None, "model": None})
    head[name] = value
    pooling = left.get("pooling", "last")
    if job == "embed":
        head |= {one: left.pop(one) for one in ("pooling", "normalize") if one in left}
    if job == "generate":
        head |= _constraint(left.pop("constraint", None)) | _given(left, {"speculate": True})
    head |= _sampling(left) if job == "generate" else _no_more(left)
    if each is not None:
        head["each"] = [_sampling(fields) for fields in each]
    places = _places(len(prompts), head.get("n", 1), each)
    return Draft(Type.SUBMIT, job, encode(head), [payload], places, pooled=pooling != "all")


def _no_more(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        raise TypeError(f"there is no option {name!r}")
    return {}


# ---- jobs


def _size_of(
    program: Mapping[str, Any], size: str, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]
) -> int:
    for said in program["inputs"]:
        tensor = inputs.get(said["name"])
        for at, dimension in enumerate(said["shape"]):
            if dimension == size and tensor is not None and at < len(tensor.shape):
                return tensor.shape[at]
    defaults = {one["name"]: one.get("default") for one in program.get("parameters", [])}
    value = parameters.get(size, defaults.get(size)) if size in defaults else None
    return value if type(value) is int and value > 0 else 0


def outputs_of(program: Mapping[str, Any], inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[Spec]:
    """What the program's outputs are for these inputs and parameters, by its description; [] where they do not
    say, and then the daemon refuses them."""
    specs = []
    for said in program["outputs"]:
        shape = [
            _size_of(program, one, inputs, parameters) if isinstance(one, str) else int(one) for one in said["shape"]
        ]
        if 0 in shape:
            return []
        specs.append(Spec(said["name"], said["dtype"], tuple(shape)))
        if specs[-1].bytes == 0:
            raise SluiceError("bad_value", f"output {said['name']} has no shape")
    return specs


def _payload(tensors: Iterable[Tensor]) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    for tensor in tensors:
        parts += [tensor.data, bytes(padding(tensor.data.nbytes))]
    return parts


@dataclass(slots=True)
class JobDraft:
    """A job whose memory is not made yet: how its inputs go depends on their size."""

    draft: Draft
    said: dict[str, Any]
    tensors: list[Tensor]
    bytes: int
    share: bool
    share_outputs: bool


def job(program: Mapping[str, Any], items: Sequence[Item], options: Mapping[str, Any]) -> JobDraft:
    left = dict(options)
    if not items:
        raise SluiceError("empty", "the job has no items")
    said: dict[str, Any] = {"program": program["name"], **_given(left, COMMON)}
    share, share_outputs = left.pop("share", SHARE), left.pop("share_outputs", False)
    _no_more(left)
    tensors: list[Tensor] = []
    plan, asked = [], []
    for item in items:
        inputs = {name: Tensor.of(value) for name, value in item.inputs.items()}
        tensors += inputs.values()
        plan.append(outputs_of(program, inputs, item.parameters))
        one: dict[str, Any] = {"inputs": {n: {"dtype": t.dtype, "shape": list(t.shape)} for n, t in inputs.items()}}
        if item.parameters:
            one["parameters"] = dict(item.parameters)
        asked.append(one)
    size = sum(tensor.data.nbytes + padding(tensor.data.nbytes) for tensor in tensors)
    draft = Draft(Type.JOB, "job", b"", [], [(at, 0) for at in range(len(items))], plan=plan)
    return JobDraft(draft, {**said, "items": asked}, tensors, size, size > share, share_outputs)


def finish_job(made: JobDraft, output_bytes: int) -> Draft:
    """Its descriptors are there: of the inputs where they are shared, of `output_bytes` where there are any."""
    draft, memory = made.draft, {}
    if made.share:
        memory["inputs"] = made.bytes
    else:
        draft.payload = _payload(made.tensors)
    if output_bytes:
        memory["outputs"] = output_bytes
        draft.outputs_shared = True
    items = made.said["items"]
    said = {name: value for name, value in made.said.items() if name != "items"}
    draft.head = encode({**said, **({"memory": memory} if memory else {}), "items": items})
    return draft


# ---- questions


def tokenize(prompt: str | Chat, special: bool | None) -> tuple[bytes, bytes]:
    """Head and payload; `special` None: the daemon's default, and not said."""
    data = prompt.encode("utf-8", "surrogatepass") if isinstance(prompt, str) else prompt.encode()
    if not data:
        raise SluiceError("empty", "the text is empty")
    head: dict[str, Any] = {"bytes": len(data)}
    if isinstance(prompt, Chat):
        head["chat"] = True
    elif special is not None:
        head["special"] = special
    return encode(head), padded(data)


def detokenize(tokens: Sequence[int], special: bool) -> tuple[bytes, bytes]:
    return encode({"count": len(tokens), "special": special}), padded(tokens_payload(tokens))
