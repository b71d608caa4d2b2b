"""Binary payloads of answers: TOKENS, RESULT, TENSORS."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from .errors import SluiceError
from .frames import padding

TOKENS_MAX: Final = 32767
TOPS_MAX: Final = 20
SCORE: Final = 1
EMBED: Final = 2

_TOKENS: Final = struct.Struct("<IHH")
_RESULT: Final = struct.Struct("<IHHIIII")
_TENSORS: Final = struct.Struct("<IIQQ")
_COUNT: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Tokens:
    sequence: int
    tokens: list[int]
    logprobs: list[float] | None
    tops: list[list[tuple[int, float]]] | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Result:
    sequence: int
    kind: int
    first: int
    scores: list[tuple[float, int, float]]
    rows: list[list[float]]


@dataclass(frozen=True, slots=True)
class Part:
    sequence: int
    output: int
    at: int
    data: bytes


def _bad(what: str, why: str) -> NoReturn:
    raise SluiceError("bad_frame", f"{what}: {why}")


class _Reader:
    """Takes what is there; what is not there is refused before anything is made of it."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            _bad(self._what, f"{size} bytes are said to follow, {self.left} do")
        self.at += size
        return self._data[self.at - size : self.at]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def floats(self, count: int) -> list[float]:
        return list(struct.unpack(f"<{count}f", self.take(4 * count)))

    def pad(self) -> None:
        if any(self.take(padding(self.at))):
            _bad(self._what, "padding that is not 0")

    def end(self) -> None:
        self.pad()
        if self.left:
            _bad(self._what, f"{self.left} bytes too many")


def _tops(reader: _Reader, count: int) -> list[list[tuple[int, float]]]:
    (width,) = reader.unpack(_COUNT)
    if width > TOPS_MAX:
        _bad("tokens", f"{width} likeliest tokens, at most {TOPS_MAX} are possible")
    pairs = list(struct.iter_unpack("<if", reader.take(8 * count * width)))
    return [[(int(t), float(p)) for t, p in pairs[i * width : (i + 1) * width]] for i in range(count)]


def tokens(payload: bytes) -> Iterator[Tokens]:
    reader = _Reader(payload, "tokens")
    while reader.left:
        sequence, count, flags = reader.unpack(_TOKENS)
        if count > TOKENS_MAX or flags & ~7:
            _bad("tokens", f"a record of {count} tokens with flags {flags}")
        ids = list(struct.unpack(f"<{count}i", reader.take(4 * count)))
        logprobs = reader.floats(count) if flags & 1 else None
        tops = _tops(reader, count) if flags & 2 else None
        text = None
        if flags & 4:
            try:
                text = reader.take(reader.unpack(_COUNT)[0]).decode("utf-8")
            except UnicodeDecodeError:
                _bad("tokens", "text that is not UTF-8")
        reader.pad()
        yield Tokens(sequence, ids, logprobs, tops, text)


def result(payload: bytes) -> Result:
    reader = _Reader(payload, "result")
    sequence, kind, flags, first, count, width, zero = reader.unpack(_RESULT)
    if kind not in (SCORE, EMBED) or flags or zero or (kind == SCORE) != (width == 0) or count == 0:
        _bad("result", f"kind {kind}, flags {flags}, {count} rows of {width}")
    scores: list[tuple[float, int, float]] = []
    rows: list[list[float]] = []
    if kind == SCORE:
        for logprob, token, top, rest in struct.iter_unpack("<fifI", reader.take(16 * count)):
            if rest:
                _bad("result", "padding that is not 0")
            scores.append((logprob, token, top))
    else:
        values = reader.floats(count * width)
        rows = [values[i * width : (i + 1) * width] for i in range(count)]
    reader.end()
    return Result(sequence, kind, first, scores, rows)


def part(payload: bytes) -> Part:
    reader = _Reader(payload, "tensors")
    sequence, output, at, size = reader.unpack(_TENSORS)
    data = reader.take(size)
    reader.end()
    return Part(sequence, output, at, data)
