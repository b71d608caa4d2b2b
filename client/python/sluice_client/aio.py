"""asyncio's client. Requests of many tasks share its connection; a task that is cancelled cancels its request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from . import address, options, requests
from .errors import SluiceError
from .frames import Type
from .heads import encode
from .link import Link, answer_of, gather, only, read_text, read_tokens, tensors_of
from .options import Chat, Generating, Item, Prompt, Sampling
from .results import Answer, Embedding, Info, Outputs, Piece, Scores
from .session import HELD_MAX, Batch
from .tensors import Tensor, TensorLike


class AsyncStream:
    """Pieces as they come, for one task; leaving the `async with` before the end cancels. Then `answers` has all
    results."""

    def __init__(self, client: AsyncClient, batch: Batch, until: float | None) -> None:
        self._client = client
        self._batch = batch
        self._until = until

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while (piece := await self._next()) is not None:
            yield piece

    async def _next(self) -> Piece | None:
        batch = self._batch
        await self._client._wait_for_batch(batch, lambda: bool(batch.pieces) or batch.done, self._until)
        if batch.pieces:
            return batch.pieces.popleft()
        if batch.error is not None and not batch.dropped:
            raise batch.error.copy()
        self._client._connected.session.release(batch)
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
        self._client._connected.session.cancel(self._batch)
        self._client._write()

    def close(self) -> None:
        if not self._batch.done:
            self._client._drop(self._batch)
        self._client._connected.session.release(self._batch)


class AsyncClient:
    """One connection, for the tasks of one event loop: `async with AsyncClient(path) as client`, or connect() and
    close(). `path` and `timeout` are those of Client."""

    def __init__(self, path: str | None = None, *, timeout: float | None = None, held_max: int = HELD_MAX) -> None:
        self._path = path
        self._timeout = timeout
        self._held_max = held_max
        self._link: Link | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._watched = False  # for reading
        self._writing = False  # likewise

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def connect(self) -> None:
        if self._link is not None:
            raise SluiceError("usage", "this client is connected")
        until = self._until({})
        # A full backlog makes connect() wait, and no event tells its end: a thread waits.
        sock = await asyncio.to_thread(address.connect, self._path, self._timeout)
        self._link = Link(sock, self._held_max, self._changed)
        session = self._link.session
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)
        self._watched = True
        try:
            self._write()
            await self._wait_for(0, lambda: session.info is not None or session.lost is not None, until)
            _ = self.info
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The daemon cancels what is open."""
        if self._link is not None:
            self._unwatch()
            self._link.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_result(None)

    @property
    def _connected(self) -> Link:
        if self._link is None:
            raise SluiceError("usage", "this client is not connected yet")
        return self._link

    @property
    def info(self) -> Info:
        """What the daemon said of itself when it was connected to."""
        return self._connected.info

    # ---- the loop

    def _unwatch(self) -> None:
        link = self._connected
        if self._watched:
            self._watched = False
            self._loop.remove_reader(link.fileno)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(link.fileno)

    def _readable(self) -> None:
        self._connected.read()
        self._look()

    def _write(self) -> None:
        self._connected.write()
        self._look()

    def _look(self) -> None:
        """Watches for what is waited for now."""
        link = self._connected
        if link.session.lost is not None:
            self._unwatch()
        elif link.wants_write and not self._writing:
            self._writing = True
            self._loop.add_writer(link.fileno, self._write)
        elif self._writing and not link.wants_write:
            self._writing = False
            self._loop.remove_writer(link.fileno)

    def _changed(self, ident: int) -> None:
        waiting = self._waiting.get(ident)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _wait_for(self, ident: int, done: Callable[[], bool], until: float | None) -> None:
        """Until it is done; whose id it is, waits alone."""
        while not done():
            if ident in self._waiting:
                raise SluiceError("usage", "two tasks wait for one request")
            waiting = self._waiting[ident] = self._loop.create_future()
            try:
                left = None if until is None else max(0.0, until - time.monotonic())
                await asyncio.wait_for(waiting, left)
            except TimeoutError:
                raise SluiceError("timeout", "the daemon did not answer in time") from None
            finally:
                del self._waiting[ident]

    async def _wait_for_batch(self, batch: Batch, done: Callable[[], bool], until: float | None) -> None:
        try:
            await self._wait_for(batch.id, done, until)
        except BaseException:
            self._drop(batch)
            raise

    def _drop(self, batch: Batch) -> None:
        self._connected.session.drop(batch)
        self._write()

    def _until(self, given: dict[str, Any]) -> float | None:
        timeout = given.pop("timeout", self._timeout)
        return None if timeout is None else time.monotonic() + timeout

    async def _run(self, batch: Batch, until: float | None) -> Batch:
        self._write()
        await self._wait_for_batch(batch, lambda: batch.done, until)
        self._connected.session.release(batch)
        return batch

    def _submit(self, job: str, prompts: Sequence[Prompt], given: dict[str, Any], **how: Any) -> Batch:
        if job == "generate":
            given.setdefault("text", self.info.text)
        draft = requests.submit(job, prompts, given, **how)
        return self._connected.session.submit(draft, how.get("stream", False))

    async def _all(self, job: str, prompts: Sequence[Prompt], given: dict[str, Any], **how: Any) -> Batch:
        until = self._until(given)
        batch = await self._run(self._submit(job, prompts, given, partial=True, **how), until)
        gather(batch)
        return batch

    async def _one(self, job: str, prompt: Prompt, given: dict[str, Any]) -> Any:
        until = self._until(given)
        batch = await self._run(self._submit(job, [prompt], given), until)
        gather(batch)
        return only(batch)

    # ---- results

    async def generate(self, prompt: Prompt, **given: Unpack[Generating]) -> Answer:
        """One prompt, one answer."""
        if given.get("n", 1) != 1:
            raise TypeError("generate() gives one answer: generate_many() gives n")
        answer: Answer = await self._one("generate", prompt, dict(given))
        return answer

    async def generate_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Sampling] | None = None, **given: Unpack[Generating]
    ) -> list[Answer]:
        """As Client's."""
        batch = await self._all("generate", prompts, dict(given), each=each)
        return [one for one in batch.sequences if isinstance(one, Answer)]

    def stream(self, prompt: Prompt, **given: Unpack[Generating]) -> AsyncStream:
        """An answer as it comes. What goes wrong is raised by the iteration, or stands in `answers`."""
        return self.stream_many([prompt], **given)

    def stream_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Sampling] | None = None, **given: Unpack[Generating]
    ) -> AsyncStream:
        left: dict[str, Any] = dict(given)
        until = self._until(left)
        batch = self._submit("generate", prompts, left, stream=True, partial=len(prompts) > 1, each=each)
        self._write()
        return AsyncStream(self, batch, until)

    async def score(self, prompt: Prompt, **given: Unpack[options.Cached]) -> Scores:
        scores: Scores = await self._one("score", prompt, dict(given))
        return scores

    async def score_many(self, prompts: Sequence[Prompt], **given: Unpack[options.Cached]) -> list[Scores]:
        batch = await self._all("score", prompts, dict(given))
        return [one for one in batch.sequences if isinstance(one, Scores)]

    async def embed(self, prompt: Prompt, **given: Unpack[options.Embedding]) -> Embedding:
        rows: Embedding = await self._one("embed", prompt, dict(given))
        return rows

    async def embed_many(self, prompts: Sequence[Prompt], **given: Unpack[options.Embedding]) -> list[Embedding]:
        batch = await self._all("embed", prompts, dict(given))
        return [one for one in batch.sequences if isinstance(one, Embedding)]

    # ---- jobs

    async def run(
        self,
        program: str,
        inputs: Mapping[str, TensorLike],
        parameters: Mapping[str, float | bool] | None = None,
        **given: Unpack[options.Tensors],
    ) -> dict[str, Tensor]:
        """One call of a program: its outputs by their names."""
        [result] = await self.run_many(program, [Item(inputs, parameters or {})], **given)
        return tensors_of(result)

    async def run_many(self, program: str, items: Sequence[Item], **given: Unpack[options.Tensors]) -> list[Outputs]:
        left: dict[str, Any] = dict(given)
        until = self._until(left)
        if program not in self._connected.programs:
            await self._learn(until)
        batch, outputs = self._connected.submit_job(program, items, left)
        gather(await self._run(batch, until), outputs)
        return [one for one in batch.sequences if isinstance(one, Outputs)]

    async def _learn(self, until: float | None) -> list[dict[str, Any]]:
        head, _ = await self._ask(Type.PROGRAMS, until)
        self._connected.learn(head)
        return list(head["programs"])

    async def programs(self, *, enable: str | None = None, timeout: float | None = None) -> list[dict[str, Any]]:
        """Which there are, and what they take. `enable`: an admin's word that one takes jobs again."""
        until = self._until({} if timeout is None else {"timeout": timeout})
        if enable is not None:
            await self._ask(Type.PROGRAMS, until, encode({"enable": enable}))
        return await self._learn(until)

    # ---- questions

    async def _ask(
        self, kind: Type, until: float | None, head: bytes = b"", payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        session = self._connected.session
        question = session.ask(kind, head, payload)
        self._write()
        try:
            await self._wait_for(question.id, lambda: question.done, until)
        except BaseException:
            session.forget(question)
            raise
        return answer_of(question)

    async def _head(self, kind: Type, timeout: float | None, **said: Any) -> dict[str, Any]:
        until = self._until({} if timeout is None else {"timeout": timeout})
        fields = {name: value for name, value in said.items() if value is not None and value is not False}
        head, _ = await self._ask(kind, until, encode(fields))
        return head

    async def stats(
        self, *, requests: bool = False, buckets: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        return await self._head(Type.STATS, timeout, requests=requests, buckets=buckets)

    async def prometheus(self, *, timeout: float | None = None) -> str:
        return str((await self._head(Type.STATS, timeout, prometheus=True)).get("prometheus", ""))

    async def health(self, *, timeout: float | None = None) -> dict[str, Any]:
        return await self._head(Type.HEALTH, timeout)

    async def model(self, *, timeout: float | None = None) -> dict[str, Any]:
        return await self._head(Type.MODEL, timeout)

    async def drain(self, *, timeout: float | None = None) -> dict[str, Any]:
        """An admin's word that no new work is taken."""
        return await self._head(Type.DRAIN, timeout)

    async def resume(self, *, timeout: float | None = None) -> dict[str, Any]:
        return await self._head(Type.RESUME, timeout)

    async def timeline(self, start: int | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """For admins: when chunks of jobs ran, from `start` on; without it, where to go on. They are timed for 2 s."""
        return await self._head(Type.TIMELINE, timeout, **({} if start is None else {"from": start}))

    async def cancel(self, request: int, *, timeout: float | None = None) -> None:
        """Ends a request by the daemon's number of it, whichever connection it came by."""
        await self._head(Type.CANCEL, timeout, request=request)

    async def tokenize(
        self, prompt: str | Chat, *, special: bool | None = None, timeout: float | None = None
    ) -> list[int]:
        """As Client's."""
        until = self._until({} if timeout is None else {"timeout": timeout})
        return read_tokens(*await self._ask(Type.TOKENIZE, until, *requests.tokenize(prompt, special)))

    async def detokenize(self, tokens: Sequence[int], *, special: bool = True, timeout: float | None = None) -> str:
        until = self._until({} if timeout is None else {"timeout": timeout})
        return read_text(*await self._ask(Type.DETOKENIZE, until, *requests.detokenize(tokens, special)))
