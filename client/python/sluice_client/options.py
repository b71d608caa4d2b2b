"""What may be asked: the options of each call, by their names on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from .heads import Json, dump
from .tensors import TensorLike


class Common(TypedDict, total=False):
    """`timeout`: seconds that the caller waits; then what was asked is cancelled. The rest is the daemon's."""

    priority: int
    deadline_ms: int
    timeout: float | None


class Cached(Common, total=False):
    cache: bool
    cache_salt: str
    adapter: str
    model: str


class Sampling(TypedDict, total=False):
    """One that is not given has the model's default."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    ignore_eos: bool
    logprobs: int
    n: int
    stop: Sequence[str]
    stop_token_ids: Sequence[int]
    logit_bias: Mapping[int, float]


class Generating(Cached, Sampling, total=False):
    """`text`: whether answers have text beside tokens; where not given, whether the daemon has texts.
    `speculate`: False where none of its next tokens are to be guessed."""

    constraint: Constraint
    text: bool
    speculate: bool


class Embedding(Cached, total=False):
    pooling: Literal["last", "mean", "all"]
    normalize: bool


class Tensors(Common, total=False):
    """`share`: bytes of inputs from which on they go by memory that is shared with the daemon, not
    through the socket; 0 is always. `share_outputs`: outputs are written into such memory, too."""

    share: int
    share_outputs: bool


SAMPLING = frozenset(Sampling.__annotations__)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What all outputs of a request must be."""

    kind: str
    text: str | None = None

    @staticmethod
    def json() -> Constraint:
        """Any JSON value."""
        return Constraint("json")

    @staticmethod
    def object() -> Constraint:
        """Any JSON object."""
        return Constraint("object")

    @staticmethod
    def schema(schema: str | bool | Mapping[str, Any]) -> Constraint:
        """JSON by a JSON Schema (2020-12); Pydantic's `model_json_schema()` is one."""
        if isinstance(schema, str):
            return Constraint("schema", schema)
        return Constraint("schema", dump(schema if isinstance(schema, bool) else dict(schema)).decode())

    @staticmethod
    def pattern(pattern: str) -> Constraint:
        """The whole of a regular expression."""
        return Constraint("pattern", pattern)

    @staticmethod
    def choice(choices: Sequence[str]) -> Constraint:
        """One of these."""
        return Constraint("choice", dump(list(choices)).decode())

    @staticmethod
    def grammar(grammar: str) -> Constraint:
        """By a grammar in GBNF, from its rule `root`."""
        return Constraint("grammar", grammar)


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation, of which the model's chat template makes the prompt."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    add_generation_prompt: bool = True
    reasoning_effort: str | None = None

    def encode(self) -> bytes:
        said: dict[str, Json] = {"messages": [dict(message) for message in self.messages]}
        if self.tools is not None:
            said["tools"] = [dict(tool) for tool in self.tools]
        if self.chat_template_kwargs is not None:
            said["chat_template_kwargs"] = dict(self.chat_template_kwargs)
        if not self.add_generation_prompt:
            said["add_generation_prompt"] = False
        if self.reasoning_effort is not None:
            said["reasoning_effort"] = self.reasoning_effort
        return dump(said)


Prompt = str | Sequence[int] | Chat


@dataclass(frozen=True, slots=True)
class Item:
    """One call of a program."""

    inputs: Mapping[str, TensorLike]
    parameters: Mapping[str, float | bool] = field(default_factory=dict)
