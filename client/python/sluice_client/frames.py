"""Frames: a header of 24 bytes, a head, a payload. Nothing here knows what they mean."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .errors import SluiceError

MAGIC: Final = b"SLCE"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sBBHQII")
ALIGN: Final = 8
HEAD_MAX: Final = 1 << 20
FRAME_MAX: Final = 16 << 20  # of what a daemon sends


class Type(enum.IntEnum):
    HELLO = 1
    WELCOME = 2
    SUBMIT = 3
    ACCEPT = 4
    TOKENS = 5
    DONE = 6
    ERROR = 7
    CANCEL = 8
    STATS = 9
    HEALTH = 10
    MODEL = 11
    DRAIN = 12
    RESUME = 13
    RESULT = 14
    TOKENIZE = 15
    DETOKENIZE = 16
    JOB = 17
    TENSORS = 18
    PROGRAMS = 19
    TIMELINE = 20


class Flag(enum.IntFlag):
    NONE = 0
    LAST = 1
    ANSWER = 2


@dataclass(frozen=True, slots=True)
class Frame:
    type: Type
    flags: Flag
    id: int
    head: bytes
    payload: bytes


def padding(length: int) -> int:
    """Bytes that are missing to a multiple of 8."""
    return -length % ALIGN


def padded(data: bytes) -> bytes:
    return data + bytes(padding(len(data)))


def header(kind: Type, flags: Flag, ident: int, head_length: int, payload_length: int) -> bytes:
    return HEADER.pack(MAGIC, VERSION, kind, flags, ident, head_length, payload_length)


def encode(frame: Frame) -> bytes:
    """Head and payload have their padding already."""
    start = header(frame.type, frame.flags, frame.id, len(frame.head), len(frame.payload))
    return start + frame.head + frame.payload


class Decoder:
    """Bytes, however they are cut, to frames. What it refused once it refuses for good."""

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self._frame_max = frame_max
        self._bytes = bytearray()
        self._broken: SluiceError | None = None

    @property
    def within_frame(self) -> bool:
        return len(self._bytes) > 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._bytes += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if self._broken is not None:
            raise self._broken.copy()
        try:
            return self._take()
        except SluiceError as error:
            self._broken = error
            self._bytes.clear()
            raise

    def _take(self) -> Frame | None:
        have = len(self._bytes)
        start = bytes(self._bytes[: HEADER.size])
        if start[:4] != MAGIC[: len(start)]:
            raise SluiceError("bad_magic", "this is not the Sluice protocol")
        if have > 4 and start[4] != VERSION:
            raise SluiceError("bad_version", f"a frame of version {start[4]}, not {VERSION}")
        if have < HEADER.size:
            return None
        _, _, kind, flags, ident, head_length, payload_length = HEADER.unpack(start)
        self._check(kind, flags, head_length, payload_length)
        head_end = HEADER.size + head_length
        end = head_end + payload_length
        if have < end:
            return None
        with memoryview(self._bytes) as view:
            head, payload = bytes(view[HEADER.size : head_end]), bytes(view[head_end:end])
        del self._bytes[:end]
        return Frame(Type(kind), Flag(flags), ident, head, payload)

    def _check(self, kind: int, flags: int, head_length: int, payload_length: int) -> None:
        if not Type.HELLO <= kind <= Type.TIMELINE or flags > Flag.LAST + Flag.ANSWER:
            raise SluiceError("bad_frame", f"a frame of type {kind} with flags {flags}")
        if head_length % ALIGN or payload_length % ALIGN:
            raise SluiceError("bad_frame", "a frame's lengths are multiples of 8")
        size = HEADER.size + head_length + payload_length
        if head_length > HEAD_MAX or size > self._frame_max:
            raise SluiceError(
                "too_large",
                f"a frame of {size} bytes, {head_length} of them its head",
                limit=self._frame_max,
                value=size,
            )
