"""A session and its socket, which never blocks; both clients stand on it."""

from __future__ import annotations

import os
import socket
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from . import memory, requests
from .errors import SluiceError
from .options import Item
from .results import Info, Outputs
from .session import HELD_MAX, Batch, Question, Session
from .tensors import Tensor

READ: Final = 256 << 10
NAME: Final = "sluice-client (python)"


class Link:
    def __init__(
        self, sock: socket.socket, held_max: int = HELD_MAX, changed: Callable[[int], None] | None = None
    ) -> None:
        self.sock = sock
        self.session = Session(NAME, held_max, changed)
        self.programs: dict[str, Mapping[str, Any]] = {}

    @property
    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def info(self) -> Info:
        if self.session.info is None:
            raise self.session.lost.copy() if self.session.lost else SluiceError("closed", "not connected yet")
        return self.session.info

    @property
    def wants_write(self) -> bool:
        return bool(self.session.out)

    def write(self) -> None:
        """What can be sent now. A daemon that takes nothing more may have said why: that is still read."""
        session = self.session
        while session.out:
            parcel = session.out[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", parcel.fds))] if parcel.fds else []
            try:
                count = self.sock.sendmsg([parcel.data], rights)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._mute(error)
                return
            session.sent(count)

    def _mute(self, error: OSError) -> None:
        while self.session.lost is None and self.read():
            pass
        self.session.lose(SluiceError("closed", f"the daemon takes nothing more: {error.strerror}"))

    def read(self) -> bool:
        """What is there now; false where there was nothing."""
        try:
            data = self.sock.recv(READ)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.session.lose(SluiceError("closed", f"the connection was lost: {error.strerror}"))
            return True
        if data:
            self.session.feed(data)
        else:
            self.session.eof()
        return True

    def close(self) -> None:
        self.session.lose(SluiceError("closed", "this client is closed"))
        self.sock.close()

    def learn(self, head: Mapping[str, Any]) -> None:
        """What PROGRAMS answers, looked at before anything is computed from it."""
        try:
            self.programs = {str(one["name"]): _described(one) for one in head["programs"]}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SluiceError("bad_value", "programs are described in a way that this package does not know") from None

    def submit_job(
        self, name: str, items: Sequence[Item], options: Mapping[str, Any]
    ) -> tuple[Batch, memory.OutputMemory | None]:
        program = self.programs.get(name)
        if program is None:
            has = ", ".join(self.programs) or "none"
            raise SluiceError("not_found", f"the daemon has no program {name}; it has {has}")
        made = requests.job(program, items, options)
        size = sum(spec.bytes for item in made.draft.plan for spec in item)
        if size > self.session.held_max:
            limit = self.session.held_max
            raise SluiceError("too_large", f"outputs of {size} bytes (held_max)", limit=limit, value=size)
        outputs = None
        if made.share_outputs:
            if not all(made.draft.plan):
                raise SluiceError("bad_value", "the inputs do not say what shapes the outputs have")
            outputs = memory.OutputMemory(made.draft.plan)
        fds = made.draft.fds
        try:
            if made.share:
                fds.append(memory.share_inputs(made.tensors))
            if outputs is not None:
                fds.append(outputs.take())
            draft = requests.finish_job(made, outputs.bytes if outputs else 0)
        except BaseException:
            for fd in fds:
                os.close(fd)
            if outputs is not None:
                outputs.close()
            raise
        return self.session.submit(draft, streams=False), outputs


def _described(program: Mapping[str, Any]) -> Mapping[str, Any]:
    for side in ("inputs", "outputs"):
        for tensor in program[side]:
            str(tensor["name"]).encode(), str(tensor["dtype"]).encode()
            if not all(isinstance(one, (str, int)) for one in tensor["shape"]):
                raise TypeError(side)
    return program


def answer_of(question: Question) -> tuple[dict[str, Any], bytes]:
    if question.error is not None:
        raise question.error
    return question.head, question.payload


def gather(batch: Batch, outputs: memory.OutputMemory | None = None) -> None:
    """Where outputs are in shared memory, the results get theirs; raises what befell the whole of it."""
    if batch.error is not None:
        raise batch.error.copy()
    for at, result in enumerate(batch.sequences):
        if outputs is not None and isinstance(result, Outputs) and result.finish_reason == "stop":
            result.tensors = outputs.tensors(at)


def only(batch: Batch) -> Any:
    """The result of a request of one sequence; its error is raised."""
    [result] = batch.sequences
    if result.error is not None:
        raise result.error.copy()
    return result


def tensors_of(result: Outputs) -> dict[str, Tensor]:
    if result.finish_reason == "stop":
        return result.tensors
    if result.error is not None:
        raise result.error.copy()
    code = result.finish_reason if result.finish_reason in ("deadline", "cancelled") else "internal"
    raise SluiceError(code, f"the job ended with {result.finish_reason}")


def read_tokens(head: dict[str, Any], payload: bytes) -> list[int]:
    count = head.get("count")
    if type(count) is not int or count < 0 or (4 * count + 7) // 8 * 8 != len(payload):
        raise SluiceError("bad_value", "the answer's tokens are not as many as it says")
    return list(struct.unpack(f"<{count}i", payload[: 4 * count]))


def read_text(head: dict[str, Any], payload: bytes) -> str:
    length = head.get("bytes")
    if type(length) is not int or length < 0 or (length + 7) // 8 * 8 != len(payload):
        raise SluiceError("bad_value", "the answer's text is not as long as it says")
    return payload[:length].decode("utf-8", "replace")
