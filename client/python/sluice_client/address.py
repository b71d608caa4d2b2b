"""Which sockets are tried, and why none answered."""

from __future__ import annotations

import grp
import os
import socket
import stat

from .errors import SluiceError

SYSTEM = "/run/sluice/sluice.sock"


def paths(path: str | None) -> list[str]:
    """`path` when there is one, else $SLUICE_SOCKET, else the user's and the system's."""
    if path is not None:
        return [path]
    given = os.environ.get("SLUICE_SOCKET")
    if given:
        return [given]
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return ([f"{folder}/sluice.sock"] if folder else []) + [SYSTEM]


def _denied(path: str) -> str:
    try:
        status = os.stat(path)
        if status.st_mode & stat.S_IWGRP:
            name = grp.getgrgid(status.st_gid).gr_name
            return f"no permission: you need to be in group {name} (usermod -aG {name} USER, then log in again)"
    except (OSError, KeyError):
        pass
    return "no permission: only its owner may use it, or enter its folder"


def _why(path: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such socket"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return "the daemon does not accept connections"
    if isinstance(error, PermissionError):
        return _denied(path)
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def connect(path: str | None, timeout: float | None) -> socket.socket:
    """A socket of the first that accepts, which does not block; the error names each path and why."""
    reasons, absent = [], True
    for one in paths(path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(one)
        except (OSError, ValueError) as error:
            sock.close()
            reasons.append(f"{one}: {_why(one, error)}")
            absent = absent and isinstance(error, (FileNotFoundError, ConnectionRefusedError))
            continue
        sock.setblocking(False)
        return sock
    hint = " (is sluiced running?)" if absent else ""
    raise SluiceError("connect", "; ".join(reasons) + hint)
