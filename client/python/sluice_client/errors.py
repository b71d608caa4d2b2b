"""What goes wrong, by the names that the wire has (protocol/wire.md lists them)."""

from __future__ import annotations

from typing import Final, Literal

Retry = Literal["never", "later", "fix"]

RETRY: Final[dict[str, Retry]] = {
    "internal": "later",
    "no_memory": "later",
    "io": "later",
    "bad_magic": "never",
    "bad_version": "never",
    "bad_frame": "never",
    "bad_head": "fix",
    "bad_state": "never",
    "unknown_field": "fix",
    "bad_value": "fix",
    "bad_token": "fix",
    "empty": "fix",
    "too_large": "fix",
    "busy": "later",
    "draining": "later",
    "loading": "later",
    "denied": "never",
    "not_found": "never",
    "unsupported": "never",
    "deadline": "never",
    "cancelled": "never",
    "slow_reader": "later",
    "device": "later",
    "device_memory": "later",
    "not_finite": "never",
    "program": "never",
    "program_off": "never",
    "bad_model": "never",
    "bad_config": "fix",
    "connect": "later",
    "timeout": "later",
    "closed": "later",
    "usage": "fix",
}


class SluiceError(Exception):
    """`code` is a name of RETRY's; `retry` says whether the same may pass when it is asked again.

    `limit` and `value` are those of a limit that was met, `retry_after_ms` is the daemon's hint;
    each is None where there is none.
    """

    def __init__(
        self,
        code: str,
        text: str,
        *,
        retry: Retry | None = None,
        retry_after_ms: int | None = None,
        limit: int | None = None,
        value: int | None = None,
    ) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.retry: Retry = retry if retry is not None else RETRY.get(code, "never")
        self.retry_after_ms = retry_after_ms
        self.limit = limit
        self.value = value

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    def copy(self) -> SluiceError:
        """One for each who raises it: a traceback belongs to one of them."""
        return SluiceError(
            self.code,
            self.text,
            retry=self.retry,
            retry_after_ms=self.retry_after_ms,
            limit=self.limit,
            value=self.value,
        )
