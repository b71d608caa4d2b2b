"""Heads: one JSON object each, read as strictly as protocol/wire.md says."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from .errors import SluiceError
from .frames import ALIGN, HEAD_MAX

Json = None | bool | int | float | str | list[Any] | dict[str, Any]

WHOLE_MAX: Final = 1 << 53
NUMBER_MAX: Final = 1e308
NUMBER_LENGTH_MAX: Final = 63
DEPTH_MAX: Final = 64


def _bad(text: str) -> NoReturn:
    raise SluiceError("bad_head", text)


def _whole(text: str) -> int:
    if len(text) > NUMBER_LENGTH_MAX or abs(int(text)) > WHOLE_MAX:
        _bad(f"a number beyond 2^53: {text[:NUMBER_LENGTH_MAX]}")
    return int(text)


def _number(text: str) -> float:
    if len(text) > NUMBER_LENGTH_MAX or not abs(float(text)) < NUMBER_MAX:
        _bad(f"a number out of range: {text[:NUMBER_LENGTH_MAX]}")
    return float(text)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        _bad("a key that occurs twice")
    return made


def _check(value: Json, depth: int) -> None:
    if depth > DEPTH_MAX:
        _bad(f"nested more than {DEPTH_MAX} deep")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
            _bad("a string with NUL or half a surrogate pair")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check(key, depth)
            _check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth + 1)


def decode(head: bytes) -> dict[str, Any]:
    """The object of a head; an empty head is an empty object."""
    if not head:
        return {}
    try:
        value = json.loads(
            head.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_number,
            parse_constant=lambda name: _bad(f"{name} is no JSON"),
        )
    except (ValueError, RecursionError) as error:
        raise SluiceError("bad_head", f"a head that is no JSON: {error}") from None
    if not isinstance(value, dict):
        _bad("a head that is no object")
    _check(value, 0)
    return value


def dump(value: Json) -> bytes:
    """Compact JSON in UTF-8; what JSON cannot say is refused."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise SluiceError("bad_value", f"what is asked cannot be said in JSON: {error}") from None


def encode(value: dict[str, Any]) -> bytes:
    """A head, with its spaces; none for an empty object."""
    if not value:
        return b""
    data = dump(value)
    data += b" " * (-len(data) % ALIGN)
    if len(data) > HEAD_MAX:
        raise SluiceError(
            "too_large",
            f"a head of {len(data)} bytes, at most {HEAD_MAX} are possible: longer texts go as tokens",
            limit=HEAD_MAX,
            value=len(data),
        )
    return data


class Fields:
    """The fields of a head, taken one by one; what nobody took is refused by name."""

    def __init__(self, values: dict[str, Any], what: str) -> None:
        self._values = dict(values)
        self._what = what

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise SluiceError("bad_value", f"{self._what}: {name} {why}")

    def _take(self, name: str) -> Any:
        if name not in self._values:
            self._refuse(name, "is missing")
        return self._values.pop(name)

    def has(self, name: str) -> bool:
        return name in self._values

    def whole(self, name: str, least: int = 0, most: int = WHOLE_MAX) -> int:
        value = self._take(name)
        if type(value) is not int or not least <= value <= most:
            self._refuse(name, f"is no whole number of {least} to {most}")
        return int(value)

    def maybe_whole(self, name: str) -> int | None:
        return self.whole(name) if self.has(name) else None

    def text(self, name: str, most: int) -> str:
        value = self._take(name)
        if not isinstance(value, str) or len(value.encode()) > most:
            self._refuse(name, f"is no string of at most {most} bytes")
        return str(value)

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            self._refuse(name, "is no boolean")
        return bool(value)

    def fields(self, name: str) -> Fields:
        value = self._take(name)
        if not isinstance(value, dict):
            self._refuse(name, "is no object")
        return Fields(value, f"{self._what}.{name}")

    def end(self) -> None:
        for name in self._values:
            raise SluiceError("unknown_field", f"{self._what}: {name[:64]}")
