"""What comes back: values for programs to read."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import SluiceError
from .tensors import Tensor

Top = tuple[int, float]
"""A token and its log-probability."""


@dataclass(frozen=True, slots=True)
class Info:
    """What the daemon said of itself when it was connected to (WELCOME)."""

    model: str
    device: str
    context_max: int
    vocabulary: int
    batch_max: int
    logprobs_max: int
    n_max: int
    frame_max: int
    text: bool


@dataclass(slots=True)
class Ending:
    """How a sequence ended: `stop`, `length`, `cancelled`, `deadline` or `error`, and then `error` says why."""

    finish_reason: str = ""
    error: SluiceError | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queued_us: int = 0
    first_token_us: int = 0
    total_us: int = 0


@dataclass(slots=True)
class Sequence(Ending):
    """`prompt` is counted as the prompts (or items) were given, `index` says which of a prompt's results."""

    prompt: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a sequence's tokens, as they come; how many means nothing."""

    prompt: int
    index: int
    tokens: list[int]
    text: str
    logprobs: list[float]
    tops: list[list[Top]]


@dataclass(slots=True)
class Answer(Sequence):
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[Top]] = field(default_factory=list)


@dataclass(slots=True)
class Scores(Sequence):
    """Of the prompt's tokens from the second on: their log-probabilities, and which token was likeliest."""

    logprobs: list[float] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)


@dataclass(slots=True)
class Embedding(Sequence):
    """One row, or one for each token of the prompt with pooling `all`."""

    rows: list[list[float]] = field(default_factory=list)

    @property
    def vector(self) -> list[float]:
        return self.rows[0]


@dataclass(slots=True)
class Outputs(Sequence):
    tensors: dict[str, Tensor] = field(default_factory=dict)
