"""The plain client: calls that wait."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from . import address, options, requests
from .errors import SluiceError
from .frames import Type
from .heads import encode
from .link import Link, answer_of, gather, only, read_text, read_tokens, tensors_of
from .options import Chat, Generating, Item, Prompt, Sampling
from .results import Answer, Embedding, Info, Outputs, Piece, Scores
from .session import HELD_MAX, Batch, Question
from .tensors import Tensor, TensorLike


class Stream:
    """Pieces as they come; leaving the `with` before the end cancels. Then `answers` has all results."""

    def __init__(self, client: Client, batch: Batch, timeout: float | None) -> None:
        self._client = client
        self._batch = batch
        self._until = None if timeout is None else time.monotonic() + timeout

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Piece]:
        while (piece := self._next()) is not None:
            yield piece

    def _next(self) -> Piece | None:
        batch = self._batch
        self._client._wait_until(lambda: bool(batch.pieces) or batch.done, self._until, batch)
        if batch.pieces:
            return batch.pieces.popleft()
        if batch.error is not None and not batch.dropped:
            raise batch.error.copy()
        self._client._link.session.release(batch)
        return None

    @property
    def request(self) -> int:
        """The daemon's own number of it, by which another client can cancel; 0 before it is known."""
        return self._batch.request

    @property
    def answers(self) -> list[Answer]:
        """As far as they have come; those that have no `finish_reason` go on."""
        return [one for one in self._batch.sequences if isinstance(one, Answer)]

    def cancel(self) -> None:
        """Its answers end as cancelled, with what they have, unless they ended before: iterate on."""
        self._client._link.session.cancel(self._batch)
        self._client._link.write()

    def close(self) -> None:
        if not self._batch.done:
            self._client._drop(self._batch)
        self._client._link.session.release(self._batch)


class Client:
    """One connection, for one thread at a time. `path` None: $SLUICE_SOCKET, else the user's daemon, else the
    system's. `timeout`: seconds that connecting, and each call that is given none, may take; None is no limit."""

    def __init__(self, path: str | None = None, *, timeout: float | None = None, held_max: int = HELD_MAX) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._link = Link(address.connect(path, timeout), held_max)
        try:
            session = self._link.session
            self._wait_until(lambda: session.info is not None or session.lost is not None, until, None)
            self.info: Info = self._link.info
        except BaseException:
            self._link.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The daemon cancels what is open."""
        self._link.close()

    # ---- turns

    def _turn(self, until: float | None) -> bool:
        """Sends and reads what can be; false where the time has come."""
        link = self._link
        link.write()
        if link.session.lost is not None:
            return True
        left = None if until is None else max(0.0, until - time.monotonic())
        poll = select.poll()
        poll.register(link.fileno, select.POLLIN | (select.POLLOUT if link.wants_write else 0))
        ready = poll.poll(None if left is None else min(left * 1000, 2**31 - 1))
        if not ready:
            return until is None or time.monotonic() < until
        link.write()
        link.read()
        return True

    def _wait_until(self, done: Any, until: float | None, batch: Batch | None) -> None:
        try:
            while not done():
                if not self._turn(until):
                    raise SluiceError("timeout", "the daemon did not answer in time")
        except BaseException:
            if batch is not None:
                self._drop(batch)
            raise

    def _drop(self, batch: Batch) -> None:
        self._link.session.drop(batch)
        self._link.write()

    def _until(self, given: dict[str, Any]) -> float | None:
        timeout = given.pop("timeout", self._timeout)
        return None if timeout is None else time.monotonic() + timeout

    def _run(self, batch: Batch, until: float | None) -> Batch:
        self._wait_until(lambda: batch.done, until, batch)
        self._link.session.release(batch)
        return batch

    def _submit(self, job: str, prompts: Sequence[Prompt], given: dict[str, Any], **how: Any) -> Batch:
        if job == "generate":
            given.setdefault("text", self.info.text)
        draft = requests.submit(job, prompts, given, **how)
        return self._link.session.submit(draft, how.get("stream", False))

    def _all(self, job: str, prompts: Sequence[Prompt], given: dict[str, Any], **how: Any) -> Batch:
        until = self._until(given)
        batch = self._run(self._submit(job, prompts, given, partial=True, **how), until)
        gather(batch)
        return batch

    def _one(self, job: str, prompt: Prompt, given: dict[str, Any]) -> Any:
        until = self._until(given)
        batch = self._run(self._submit(job, [prompt], given), until)
        gather(batch)
        return only(batch)

    # ---- results

    def generate(self, prompt: Prompt, **given: Unpack[Generating]) -> Answer:
        """One prompt, one answer."""
        if given.get("n", 1) != 1:
            raise TypeError("generate() gives one answer: generate_many() gives n")
        answer: Answer = self._one("generate", prompt, dict(given))
        return answer

    def generate_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Sampling] | None = None, **given: Unpack[Generating]
    ) -> list[Answer]:
        """All `n` answers of the first prompt, then those of the second, and so on. A prompt that cannot be taken
        has answers with `error`, and the others run. `each`: sampling fields of single prompts, over those of all."""
        batch = self._all("generate", prompts, dict(given), each=each)
        return [one for one in batch.sequences if isinstance(one, Answer)]

    def stream(self, prompt: Prompt, **given: Unpack[Generating]) -> Stream:
        """An answer as it comes. What goes wrong is raised by the iteration, or stands in `answers`."""
        return self.stream_many([prompt], **given)

    def stream_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Sampling] | None = None, **given: Unpack[Generating]
    ) -> Stream:
        left = dict(given)
        timeout = left.pop("timeout", self._timeout)
        batch = self._submit("generate", prompts, left, stream=True, partial=len(prompts) > 1, each=each)
        self._link.write()
        return Stream(self, batch, timeout)  # type: ignore[arg-type]

    def score(self, prompt: Prompt, **given: Unpack[options.Cached]) -> Scores:
        scores: Scores = self._one("score", prompt, dict(given))
        return scores

    def score_many(self, prompts: Sequence[Prompt], **given: Unpack[options.Cached]) -> list[Scores]:
        return [one for one in self._all("score", prompts, dict(given)).sequences if isinstance(one, Scores)]

    def embed(self, prompt: Prompt, **given: Unpack[options.Embedding]) -> Embedding:
        rows: Embedding = self._one("embed", prompt, dict(given))
        return rows

    def embed_many(self, prompts: Sequence[Prompt], **given: Unpack[options.Embedding]) -> list[Embedding]:
        return [one for one in self._all("embed", prompts, dict(given)).sequences if isinstance(one, Embedding)]

    # ---- jobs

    def run(
        self,
        program: str,
        inputs: Mapping[str, TensorLike],
        parameters: Mapping[str, float | bool] | None = None,
        **given: Unpack[options.Tensors],
    ) -> dict[str, Tensor]:
        """One call of a program: its outputs by their names."""
        [result] = self.run_many(program, [Item(inputs, parameters or {})], **given)
        return tensors_of(result)

    def run_many(self, program: str, items: Sequence[Item], **given: Unpack[options.Tensors]) -> list[Outputs]:
        left = dict(given)
        until = self._until(left)
        if program not in self._link.programs:
            self._learn(until)
        batch, outputs = self._link.submit_job(program, items, left)
        gather(self._run(batch, until), outputs)
        return [one for one in batch.sequences if isinstance(one, Outputs)]

    def _learn(self, until: float | None) -> list[dict[str, Any]]:
        head = self._ask(Type.PROGRAMS, until)[0]
        self._link.learn(head)
        return list(head["programs"])

    def programs(self, *, enable: str | None = None, timeout: float | None = None) -> list[dict[str, Any]]:
        """Which there are, and what they take. `enable`: an admin's word that one takes jobs again."""
        until = self._until({} if timeout is None else {"timeout": timeout})
        if enable is not None:
            self._ask(Type.PROGRAMS, until, encode({"enable": enable}))
        return self._learn(until)

    # ---- questions

    def _answered(self, question: Question, until: float | None) -> tuple[dict[str, Any], bytes]:
        try:
            self._wait_until(lambda: question.done, until, None)
        except BaseException:
            self._link.session.forget(question)
            raise
        return answer_of(question)

    def _ask(
        self, kind: Type, until: float | None, head: bytes = b"", payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        return self._answered(self._link.session.ask(kind, head, payload), until)

    def _head(self, kind: Type, timeout: float | None, **said: Any) -> dict[str, Any]:
        until = self._until({} if timeout is None else {"timeout": timeout})
        fields = {name: value for name, value in said.items() if value is not None and value is not False}
        return self._ask(kind, until, encode(fields))[0]

    def stats(self, *, requests: bool = False, buckets: bool = False, timeout: float | None = None) -> dict[str, Any]:
        return self._head(Type.STATS, timeout, requests=requests, buckets=buckets)

    def prometheus(self, *, timeout: float | None = None) -> str:
        return str(self._head(Type.STATS, timeout, prometheus=True).get("prometheus", ""))

    def health(self, *, timeout: float | None = None) -> dict[str, Any]:
        return self._head(Type.HEALTH, timeout)

    def model(self, *, timeout: float | None = None) -> dict[str, Any]:
        return self._head(Type.MODEL, timeout)

    def drain(self, *, timeout: float | None = None) -> dict[str, Any]:
        """An admin's word that no new work is taken."""
        return self._head(Type.DRAIN, timeout)

    def resume(self, *, timeout: float | None = None) -> dict[str, Any]:
        return self._head(Type.RESUME, timeout)

    def timeline(self, start: int | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """For admins: when chunks of jobs ran, from `start` on; without it, where to go on. They are timed for 2 s."""
        return self._head(Type.TIMELINE, timeout, **({} if start is None else {"from": start}))

    def cancel(self, request: int, *, timeout: float | None = None) -> None:
        """Ends a request by the daemon's number of it, whichever connection it came by."""
        self._head(Type.CANCEL, timeout, request=request)

    def tokenize(self, prompt: str | Chat, *, special: bool | None = None, timeout: float | None = None) -> list[int]:
        """`special`: with the tokens that the model puts around texts (the default); a conversation has its own."""
        until = self._until({} if timeout is None else {"timeout": timeout})
        return read_tokens(*self._ask(Type.TOKENIZE, until, *requests.tokenize(prompt, special)))

    def detokenize(self, tokens: Sequence[int], *, special: bool = True, timeout: float | None = None) -> str:
        until = self._until({} if timeout is None else {"timeout": timeout})
        return read_text(*self._ask(Type.DETOKENIZE, until, *requests.detokenize(tokens, special)))
