"""A connection's protocol without a socket: what is to be sent, and to whom what came is for.

Every sequence ends exactly once: by the daemon's word, or with the connection. A daemon that leaves the
protocol loses the connection, and everything that is open ends with that error.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from . import heads, records
from .errors import RETRY, Retry, SluiceError
from .frames import FRAME_MAX, HEADER, Decoder, Flag, Frame, Type, header
from .requests import Draft
from .results import Answer, Embedding, Ending, Info, Outputs, Piece, Scores, Sequence
from .tensors import Tensor

UNSENT_MAX: Final = 64 << 20
HELD_MAX: Final = 2 << 30
HELD_FACTOR: Final = 8  # a number of 4 bytes is an object here, of 28 and its place in a list
QUESTIONS_MAX: Final = 1024
REASONS: Final = ("stop", "length", "cancelled", "deadline", "error")
_KINDS: Final[dict[str, type[Sequence]]] = {
    "generate": Answer,
    "score": Scores,
    "embed": Embedding,
    "job": Outputs,
}


@dataclass(slots=True)
class Batch:
    """A request until its one end. `pieces` are those of a stream that nobody has taken yet."""

    id: int
    draft: Draft
    sequences: list[Sequence]
    open: set[int]
    streams: bool
    pieces: deque[Piece] = field(default_factory=deque)
    buffers: dict[tuple[int, int], bytearray] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    request: int = 0
    dropped: bool = False
    error: SluiceError | None = None  # of all of it

    @property
    def done(self) -> bool:
        return not self.open


@dataclass(slots=True)
class Question:
    id: int
    type: Type
    done: bool = False
    head: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    error: SluiceError | None = None


@dataclass(slots=True)
class Parcel:
    """Bytes to send, and descriptors that go with the first of them."""

    data: memoryview
    fds: list[int]


def read_error(head: dict[str, Any]) -> tuple[SluiceError, int | None]:
    fields = heads.Fields(head, "error")
    code, text = fields.text("code", 64), fields.text("text", 511)
    retry: Retry = RETRY.get(code, "never")
    if fields.has("retry"):
        said = fields.text("retry", 8)
        if said not in ("never", "later", "fix"):
            raise SluiceError("bad_value", f"error: retry is {said!r}")
        retry = said  # type: ignore[assignment]
    sequence = fields.maybe_whole("sequence")
    limit, value, after = (fields.maybe_whole(name) for name in ("limit", "value", "retry_after_ms"))
    fields.end()
    return SluiceError(code, text, retry=retry, retry_after_ms=after, limit=limit, value=value), sequence


def read_done(head: dict[str, Any]) -> tuple[int, Ending]:
    fields = heads.Fields(head, "done")
    sequence, reason = fields.whole("sequence"), fields.text("finish_reason", 16)
    usage, timings = fields.fields("usage"), fields.fields("timings")
    fields.end()
    if reason not in REASONS:
        raise SluiceError("bad_value", f"done: finish_reason is {reason!r}")
    ending = Ending(
        finish_reason=reason,
        prompt_tokens=usage.whole("prompt_tokens"),
        completion_tokens=usage.whole("completion_tokens"),
        cached_tokens=usage.maybe_whole("cached_tokens") or 0,
        queued_us=timings.whole("queued_us"),
        first_token_us=timings.whole("first_token_us"),
        total_us=timings.whole("total_us"),
    )
    usage.end()
    timings.end()
    if reason == "error":
        ending.error = SluiceError("internal", "the daemon gave no reason")
    return sequence, ending


def read_welcome(head: dict[str, Any]) -> Info:
    fields = heads.Fields(head, "welcome")
    if fields.whole("version") != 1:
        raise SluiceError("bad_version", "the daemon welcomes to another version than 1")
    info = Info(
        frame_max=fields.whole("frame_max", HEADER.size),
        batch_max=fields.whole("batch_max"),
        context_max=fields.whole("context_max"),
        vocabulary=fields.whole("vocabulary"),
        model=fields.text("model", 127),
        device=fields.text("device", 127),
        text=fields.flag("text"),
        logprobs_max=fields.whole("logprobs_max"),
        n_max=fields.whole("n_max"),
    )
    fields.end()
    return info


class Session:
    """`held_max`: bytes of results that are kept, of all requests that are open or not yet taken; a daemon
    that sends more loses the connection. `changed` is called with the id of what a frame was for (0: of the
    connection); it only takes note."""

    def __init__(self, name: str, held_max: int = HELD_MAX, changed: Callable[[int], None] | None = None) -> None:
        self._changed = changed or (lambda ident: None)
        self.out: deque[Parcel] = deque()
        self.info: Info | None = None
        self.lost: SluiceError | None = None
        self._unsent = 0
        self._next_id = 1
        self._decoder = Decoder(FRAME_MAX)
        self._batches: dict[int, Batch] = {}
        self._questions: dict[int, Question] = {}
        self._held = 0
        self._held_by: dict[int, int] = {}
        self.held_max = held_max
        self._queue(Type.HELLO, 0, heads.encode({"versions": [1, 1], "client": name}), [])

    # ---- out

    def _queue(
        self, kind: Type, ident: int, head: bytes, payload: list[bytes | memoryview], fds: list[int] | None = None
    ) -> None:
        length = sum(len(part) for part in payload)
        size = HEADER.size + len(head) + length
        if self.info is not None and size > self.info.frame_max:
            raise SluiceError(
                "too_large",
                f"the message takes {size} bytes, the daemon takes {self.info.frame_max} at a time",
                limit=self.info.frame_max,
                value=size,
            )
        if self._unsent + size > UNSENT_MAX:
            raise SluiceError(
                "busy",
                f"{self._unsent} bytes wait to be sent already",
                retry="later",
                limit=UNSENT_MAX,
                value=self._unsent + size,
            )
        data = b"".join([header(kind, Flag.NONE, ident, len(head), length), head, *payload])
        self.out.append(Parcel(memoryview(data), fds or []))
        self._unsent += size

    def sent(self, count: int) -> None:
        """So many bytes of the first parcel are gone, and with any its descriptors."""
        parcel = self.out[0]
        self._unsent -= count
        self._close(parcel)
        parcel.data = parcel.data[count:]
        if not parcel.data.nbytes:
            self.out.popleft()

    @staticmethod
    def _close(parcel: Parcel) -> None:
        for fd in parcel.fds:
            os.close(fd)
        parcel.fds = []

    def _check_speaking(self) -> None:
        if self.lost is not None:
            raise self.lost.copy()

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def submit(self, draft: Draft, streams: bool) -> Batch:
        """The draft's descriptors are the session's from here on, whatever comes."""
        ident = self._id()
        fds, draft.fds = draft.fds, []
        try:
            self._check_speaking()
            self._queue(draft.type, ident, draft.head, draft.payload, fds)
        except SluiceError:
            for fd in fds:
                os.close(fd)
            raise
        draft.payload = []  # it is sent, or waits to be
        kind = _KINDS[draft.job]
        sequences = [kind(prompt=prompt, index=index) for prompt, index in draft.places]
        batch = Batch(ident, draft, sequences, set(range(len(sequences))), streams)
        self._batches[ident] = batch
        return batch

    def ask(self, kind: Type, head: bytes = b"", payload: bytes = b"") -> Question:
        self._check_speaking()
        if len(self._questions) >= QUESTIONS_MAX:
            raise SluiceError(
                "busy", f"{QUESTIONS_MAX} questions are open", limit=QUESTIONS_MAX, value=QUESTIONS_MAX + 1
            )
        question = Question(self._id(), kind)
        self._queue(kind, question.id, head, [payload])
        self._questions[question.id] = question
        return question

    def cancel(self, batch: Batch) -> None:
        if batch.open and self.lost is None:
            self._queue(Type.CANCEL, batch.id, b"", [])

    def drop(self, batch: Batch) -> None:
        """Nobody wants its results any more: it is cancelled, and what still comes is not kept."""
        if not batch.dropped:
            batch.dropped = True
            self.release(batch)
            batch.pieces.clear()
            batch.buffers.clear()
            batch.texts.clear()
            try:
                self.cancel(batch)
            except SluiceError as error:
                self.lose(error)

    def forget(self, question: Question) -> None:
        """Its answer is not waited for; when it comes it is for nobody, and no error."""
        question.error = SluiceError("timeout", "the daemon did not answer in time")

    # ---- in

    def feed(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                try:
                    self._take(frame)
                finally:  # whose answer broke the protocol has been told so, too
                    self._changed(frame.id)
                if self.lost is not None:
                    return
        except SluiceError as error:
            self.lose(error)

    def eof(self) -> None:
        if self._decoder.within_frame:
            self.lose(SluiceError("closed", "the daemon closed the connection within a frame"))
        else:
            self.lose(SluiceError("closed", "the daemon closed the connection"))

    def lose(self, error: SluiceError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        while self.out:
            self._close(self.out.popleft())
        for batch in list(self._batches.values()):
            self._fail(batch, error)
        for question in self._questions.values():
            question.done, question.error = True, question.error or error.copy()
            self._changed(question.id)
        self._questions.clear()
        self._changed(0)

    def _take(self, frame: Frame) -> None:
        if frame.type is Type.ERROR and frame.id == 0:
            self.lose(read_error(heads.decode(frame.head))[0])
        elif self.info is None:
            if frame.type is not Type.WELCOME or frame.id or frame.payload:
                raise SluiceError("bad_state", f"the daemon begins with a frame of type {frame.type}")
            self.info = read_welcome(heads.decode(frame.head))
        elif frame.id in self._questions:
            self._take_answer(self._questions.pop(frame.id), frame)
        elif frame.id in self._batches:
            self._take_of(self._batches[frame.id], frame)
        else:
            raise SluiceError("bad_state", f"the daemon answers request {frame.id}, which is unknown or has ended")

    def _take_answer(self, question: Question, frame: Frame) -> None:
        question.done = True
        if frame.type is Type.ERROR:
            question.error = question.error or read_error(heads.decode(frame.head))[0]
            return
        try:
            if frame.type is not question.type or not frame.flags & Flag.ANSWER:
                raise SluiceError("bad_state", f"a question of type {question.type} is answered by {frame.type}")
            question.head, question.payload = heads.decode(frame.head), frame.payload
        except SluiceError as error:
            question.error = error.copy()
            raise

    def _take_of(self, batch: Batch, frame: Frame) -> None:
        if frame.type is Type.ACCEPT:
            if batch.request:
                raise SluiceError("bad_state", "the daemon accepts a request twice")
            fields = heads.Fields(heads.decode(frame.head), "accept")
            batch.request = fields.whole("request", 1)
            fields.end()
        elif frame.type is Type.ERROR:
            error, at = read_error(heads.decode(frame.head))
            if at is None:
                self._fail(batch, error)
            else:
                self._end(batch, at, Ending(finish_reason="error", error=error), frame)
        elif frame.type is Type.DONE:
            at, ending = read_done(heads.decode(frame.head))
            self._end(batch, at, ending, frame)
        else:
            self._take_values(batch, frame)

    def _sequence(self, batch: Batch, at: int) -> Sequence:
        if not batch.request:
            raise SluiceError("bad_state", "the daemon answers what it has not accepted")
        if at not in batch.open:
            raise SluiceError("bad_state", f"the daemon answers for sequence {at}, which is unknown or has ended")
        return batch.sequences[at]

    def _take_values(self, batch: Batch, frame: Frame) -> None:
        if frame.type is Type.TOKENS and batch.draft.job == "generate":
            for record in records.tokens(frame.payload):
                self._take_tokens(batch, record)
        elif frame.type is Type.RESULT and batch.draft.job in ("score", "embed"):
            self._take_result(batch, records.result(frame.payload))
        elif frame.type is Type.TENSORS and batch.draft.job == "job":
            self._take_part(batch, records.part(frame.payload))
        else:
            raise SluiceError("bad_state", f"a {batch.draft.job} request is answered by {frame.type.name}")
        if not batch.dropped:
            factor = 1 if frame.type is Type.TENSORS else HELD_FACTOR
            self._hold(batch, factor * len(frame.payload))

    def _hold(self, batch: Batch, size: int) -> None:
        self._held += size
        self._held_by[batch.id] = self._held_by.get(batch.id, 0) + size
        if self._held > self.held_max:
            raise SluiceError(
                "too_large",
                f"{self._held} bytes of results wait to be taken",
                limit=self.held_max,
                value=self._held,
            )

    def release(self, batch: Batch) -> None:
        """Its results are the caller's now."""
        self._held -= self._held_by.pop(batch.id, 0)

    def _take_tokens(self, batch: Batch, record: records.Tokens) -> None:
        answer = self._sequence(batch, record.sequence)
        assert isinstance(answer, Answer)
        if batch.dropped:
            return
        logprobs, tops, text = record.logprobs or [], record.tops or [], record.text or ""
        if batch.streams and (record.tokens or text):
            batch.pieces.append(Piece(answer.prompt, answer.index, record.tokens, text, logprobs, tops))
        answer.tokens += record.tokens
        batch.texts.setdefault(record.sequence, []).append(text)
        answer.logprobs += logprobs
        answer.tops += tops

    def _take_result(self, batch: Batch, result: records.Result) -> None:
        into = self._sequence(batch, result.sequence)
        if isinstance(into, Scores) and result.kind == records.SCORE:
            if not batch.dropped:
                if result.first != 1 + len(into.logprobs):
                    raise SluiceError("bad_frame", f"scores from {result.first} on, after {len(into.logprobs)}")
                into.logprobs += [logprob for logprob, _, _ in result.scores]
                into.tops += [(token, logprob) for _, token, logprob in result.scores]
        elif isinstance(into, Embedding) and result.kind == records.EMBED:
            rows = into.rows
            if not batch.dropped:
                if result.first != len(rows) or (rows and len(rows[0]) != len(result.rows[0])):
                    raise SluiceError("bad_frame", f"rows from {result.first} on, after {len(rows)}")
                rows += result.rows
        else:
            raise SluiceError("bad_state", "the daemon answers with results of another job")

    def _take_part(self, batch: Batch, part: records.Part) -> None:
        self._sequence(batch, part.sequence)
        plan = batch.draft.plan[part.sequence]
        if batch.draft.outputs_shared or part.output >= len(plan):
            raise SluiceError("bad_state", f"the daemon sends output {part.output}, which nobody waits for")
        if batch.dropped:
            return
        have = batch.buffers.setdefault((part.sequence, part.output), bytearray())
        if part.at != len(have) or part.at + len(part.data) > plan[part.output].bytes:
            raise SluiceError("bad_frame", f"{len(part.data)} bytes of output {part.output} at {part.at}")
        have += part.data

    # ---- ends

    @staticmethod
    def _join(batch: Batch, at: int) -> None:
        answer = batch.sequences[at]
        if isinstance(answer, Answer):
            answer.text = "".join(batch.texts.pop(at, []))

    def _outputs(self, batch: Batch, at: int) -> dict[str, Tensor]:
        made = {}
        for number, spec in enumerate(batch.draft.plan[at]):
            data = batch.buffers.pop((at, number), bytearray())
            if len(data) != spec.bytes:
                raise SluiceError("bad_state", f"output {spec.name} ends after {len(data)} of {spec.bytes} bytes")
            made[spec.name] = Tensor(spec.dtype, spec.shape, memoryview(data))
        return made

    def _end(self, batch: Batch, at: int, ending: Ending, frame: Frame) -> None:
        sequence = self._sequence(batch, at)
        whole = ending.finish_reason == "stop" and not batch.dropped and not batch.draft.outputs_shared
        if isinstance(sequence, Outputs) and whole:
            sequence.tensors = self._outputs(batch, at)
        self._join(batch, at)
        for name in Ending.__dataclass_fields__:
            setattr(sequence, name, getattr(ending, name))
        batch.open.discard(at)
        if not batch.open:
            del self._batches[batch.id]
        elif frame.flags & Flag.LAST:
            self._fail(batch, SluiceError("internal", "the daemon ended the request without a word on this sequence"))

    def _fail(self, batch: Batch, error: SluiceError) -> None:
        batch.error = error
        for at in batch.open:
            self._join(batch, at)
            batch.sequences[at].finish_reason, batch.sequences[at].error = "error", error.copy()
        batch.open.clear()
        batch.buffers.clear()
        self._batches.pop(batch.id, None)
        self._changed(batch.id)
