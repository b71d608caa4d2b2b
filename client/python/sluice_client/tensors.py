"""Tensors: little-endian, row-major. NumPy's arrays are taken, and made where NumPy is there."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .errors import SluiceError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # for who checks types; nothing imports it

DTYPE_BYTES: Final = {
    "bool": 1,
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "u64": 8,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
}
RANK_MAX: Final = 6
BYTES_MAX: Final = 1 << 53

_STRUCT: Final = {
    "bool": "?",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
_KINDS: Final = {"?": "bool", **dict.fromkeys("BHILQ", "u"), **dict.fromkeys("bhilq", "i"), **dict.fromkeys("efd", "f")}
_NUMPY: Final = {"bool": "?", "bf16": "<u2"}


@dataclass(frozen=True, slots=True)
class Spec:
    """What a tensor is, without its values."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return tensor_bytes(self.dtype, self.shape)


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    if dtype not in DTYPE_BYTES:
        raise SluiceError("bad_value", f"there is no dtype {dtype!r}")
    if len(shape) > RANK_MAX or any(size < 1 for size in shape):
        raise SluiceError("bad_value", f"shape {tuple(shape)}: at most {RANK_MAX} dimensions, each from 1")
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    if size > BYTES_MAX:
        raise SluiceError("too_large", f"a tensor of {size} bytes", limit=BYTES_MAX, value=size)
    return size


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """`data` holds exactly the elements, as bytes. It may be somebody's memory: a job copies it when it is
    submitted."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def __post_init__(self) -> None:
        size = tensor_bytes(self.dtype, self.shape)
        if self.data.nbytes != size:
            raise SluiceError("bad_value", f"a tensor of {size} bytes has {self.data.nbytes} bytes of data")

    @classmethod
    def of(cls, value: TensorLike) -> Tensor:
        """From a Tensor, or whatever has the buffer protocol (NumPy's arrays, array.array, bytes)."""
        if isinstance(value, Tensor):
            return value
        try:
            view = memoryview(value)
        except (TypeError, ValueError, BufferError) as error:
            raise SluiceError("bad_value", f"this is no tensor: {error}") from None
        code = view.format.lstrip("@=<")
        kind = _KINDS.get(code)
        if kind is None or (view.format[:1] in "=>!" and sys.byteorder != "little"):
            raise SluiceError("bad_value", f"elements of format {view.format!r}, which no dtype has")
        shape = tuple(view.shape or ())
        dtype = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
        tensor_bytes(dtype, shape)
        if view.c_contiguous and view.ndim > 0:
            return cls(dtype, shape, view.cast("B"))
        return cls(dtype, shape, memoryview(view.tobytes()))

    @classmethod
    def from_values(cls, dtype: str, shape: Sequence[int], values: Sequence[float]) -> Tensor:
        """From Python's numbers, in row-major order."""
        if tensor_bytes(dtype, shape) != len(values) * DTYPE_BYTES[dtype]:
            raise SluiceError("bad_value", f"{len(values)} values for the shape {tuple(shape)}")
        try:
            if dtype == "bf16":
                data = struct.pack(f"<{len(values)}H", *(_bf16(value) for value in values))
            else:
                data = struct.pack(f"<{len(values)}{_STRUCT[dtype]}", *values)
        except (struct.error, OverflowError) as error:
            raise SluiceError("bad_value", f"a value that {dtype} does not have: {error}") from None
        return cls(dtype, tuple(shape), memoryview(data))

    def values(self) -> list[float]:
        """Python's numbers, in row-major order."""
        count = math.prod(self.shape)
        if self.dtype == "bf16":
            halves = struct.unpack(f"<{count}H", self.data)
            return list(struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(half << 16 for half in halves))))
        return list(struct.unpack(f"<{count}{_STRUCT[self.dtype]}", self.data))

    def numpy(self) -> Any:
        """An array of NumPy's over the same bytes; of bf16, which NumPy lacks, its bits as u16."""
        import numpy

        kind = _NUMPY.get(self.dtype) or f"<{self.dtype[0]}{DTYPE_BYTES[self.dtype]}"
        return numpy.frombuffer(self.data, dtype=kind).reshape(self.shape)


def _bf16(value: float) -> int:
    """Rounded to the nearest, ties to even, as devices do."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return int(bits >> 16 | 0x40)
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


if TYPE_CHECKING:
    TensorLike = Tensor | Buffer
else:
    TensorLike = Any
