"""Memory that is shared with the daemon: memfds, sealed as protocol/wire.md asks."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable

from .errors import SluiceError
from .frames import padding
from .tensors import Spec, Tensor


def _make(name: str) -> int:
    try:
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise SluiceError("io", f"no memory to share with the daemon: {error.strerror}") from None


def _write(fd: int, data: memoryview) -> None:
    while data.nbytes > 0:
        data = data[os.write(fd, data) :]


def share_inputs(tensors: Iterable[Tensor]) -> int:
    """A descriptor of memory that holds them, each padded; nobody can write it any more."""
    fd = _make("sluice-inputs")
    try:
        for tensor in tensors:
            _write(fd, tensor.data)
            _write(fd, memoryview(bytes(padding(tensor.data.nbytes))))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    except OSError as error:
        os.close(fd)
        raise SluiceError("no_memory", f"memory to share with the daemon: {error.strerror}") from None
    return fd


class OutputMemory:
    """Memory into which the daemon writes outputs, in the order of items and of the program."""

    def __init__(self, plan: list[list[Spec]]) -> None:
        self.plan = plan
        self.bytes = sum(spec.bytes + padding(spec.bytes) for item in plan for spec in item)
        self.fd = _make("sluice-outputs")
        try:
            os.posix_fallocate(self.fd, 0, self.bytes)  # without holes
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self.view = memoryview(mmap.mmap(self.fd, self.bytes))
        except OSError as error:
            self.close()
            raise SluiceError("no_memory", f"memory for outputs: {error.strerror}") from None

    def close(self) -> None:
        """The descriptor; what is mapped lives as long as a tensor of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def take(self) -> int:
        """The descriptor, which is the caller's to close from here on."""
        fd, self.fd = self.fd, -1
        return fd

    def tensors(self, item: int) -> dict[str, Tensor]:
        at = sum(spec.bytes + padding(spec.bytes) for one in self.plan[:item] for spec in one)
        made = {}
        for spec in self.plan[item]:
            made[spec.name] = Tensor(spec.dtype, spec.shape, self.view[at : at + spec.bytes])
            at += spec.bytes + padding(spec.bytes)
        return made
