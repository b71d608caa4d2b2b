"""A daemon that says what a test wants: a thread behind a Unix socket."""

import contextlib
import socket
import tempfile
import threading

import page
from sluice_client.frames import Decoder, Flag, Frame, Type, encode, padded
from sluice_client.heads import dump

LIVE_S = 60  # a bound for what would hang, not a time that is measured


def say(kind, head=None, payload=b"", ident=1, flags=Flag.NONE):
    data = b"" if head is None else dump(head)
    return encode(Frame(kind, flags, ident, data + b" " * (-len(data) % 8), padded(payload)))


ACCEPT = say(Type.ACCEPT, {"request": 1001})


def done(sequence=0, reason="stop", ident=1, **more):
    head = {"sequence": sequence, "finish_reason": reason, "usage": {"prompt_tokens": 2, "completion_tokens": 1},
            "timings": {"queued_us": 1, "first_token_us": 2, "total_us": 3}, **more}
    return say(Type.DONE, head, ident=ident)


class Peer:
    """`answers` says what is answered to a frame: bytes, None to close, or b"" for nothing. Frames that came are in `seen`."""

    def __init__(self, answers, greeting=page.EXAMPLES["welcome"]):
        self.answers, self.greeting, self.seen = answers, greeting, []
        self.arrived = threading.Condition()

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.path = folder + "/s"
        self._listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._listener.bind(self.path)
        self._listener.listen(4)
        self._listener.settimeout(LIVE_S)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(LIVE_S)
        self._stack.close()

    def wait_for(self, kind):
        with self.arrived:
            return self.arrived.wait_for(lambda: any(frame.type is kind for frame in self.seen), LIVE_S)

    def _serve(self):
        with contextlib.suppress(OSError), self._listener.accept()[0] as sock:
            sock.settimeout(LIVE_S)
            decoder = Decoder(1 << 30)
            while data := sock.recv(1 << 16):
                for frame in decoder.feed(data):
                    answer = self.greeting if frame.type is Type.HELLO else self.answers(frame)
                    with self.arrived:
                        self.seen.append(frame)
                        self.arrived.notify_all()
                    if answer is None:
                        return
                    sock.sendall(answer)
