"""Both clients against a daemon that leaves the protocol, is silent or goes away: an error that names it, within
bounds, and every sequence ends once."""

import asyncio
import os
import random
import struct
import unittest

import page
from peer import ACCEPT, LIVE_S, Peer, done, say
from sluice_client import AsyncClient, Client, Item, SluiceError, Tensor, requests
from sluice_client.frames import Flag, Type
from sluice_client.session import Session

EX = page.EXAMPLES
PROGRAM = {"name": "p", "inputs": [{"name": "x", "dtype": "u8", "shape": ["n"]}],
           "outputs": [{"name": "y", "dtype": "u8", "shape": ["n"]}]}


def plain(path, call, **how):
    with Client(path, **{"timeout": LIVE_S, **how}) as client:
        return call(client)


def aio(path, call, **how):
    async def run():
        async with AsyncClient(path, **{"timeout": LIVE_S, **how}) as client:
            return await call(client)
    return asyncio.run(run())


def tokens(sequence=0, ids=(1,), text=None, flags=0):
    data = b"" if text is None else struct.pack("<I", len(text)) + text
    record = struct.pack(f"<IHH{len(ids)}i", sequence, len(ids), flags | (text is not None) * 4, *ids) + data
    return say(Type.TOKENS, payload=record)


def part(data, at=0, output=0, item=0, ident=2):
    return say(Type.TENSORS, payload=struct.pack("<IIQQ", item, output, at, len(data)) + data, ident=ident)


def error(code="busy", ident=1, **more):
    return say(Type.ERROR, {"code": code, "text": "no", "retry": "later", **more}, ident=ident, flags=Flag.LAST)


GENERATE = [
    ("bad_magic", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ("bad_version", b"SLCE\x02"),
    ("closed", None),
    ("bad_state", EX["welcome"]),
    ("bad_state", done()),
    ("bad_state", ACCEPT + ACCEPT),
    ("bad_state", ACCEPT + tokens(7)),
    ("bad_state", ACCEPT + done(1)),
    ("bad_state", ACCEPT + say(Type.ACCEPT, {"request": 2}, ident=9)),
    ("bad_state", ACCEPT + say(Type.RESULT, payload=EX["result_score"][24:])),
    ("bad_state", ACCEPT + say(Type.HEALTH, {}, flags=Flag.ANSWER)),
    ("bad_state", ACCEPT + say(Type.SUBMIT, {})),
    ("bad_value", say(Type.ACCEPT, {"request": 0})),
    ("unknown_field", say(Type.ACCEPT, {"request": 1, "x": 2})),
    ("bad_head", ACCEPT + say(Type.DONE)[:16] + struct.pack("<II", 8, 0) + b"[[[[[[[["),
    ("bad_value", ACCEPT + done(reason="tired")),
    ("unknown_field", ACCEPT + done(more=1)),
    ("bad_frame", ACCEPT + say(Type.TOKENS, payload=struct.pack("<IHH", 0, 32767, 0))),
    ("bad_frame", ACCEPT + say(Type.TOKENS, payload=struct.pack("<IHH", 0, 0, 8))),
    ("bad_frame", ACCEPT + say(Type.TOKENS, payload=struct.pack("<IHHI", 0, 0, 4, 0xFFFFFFFF))),
    ("bad_frame", ACCEPT + say(Type.TOKENS, payload=struct.pack("<IHHiI", 0, 1, 2, 5, 0xFFFFFFFF))),
    ("bad_frame", ACCEPT + tokens(text=b"\xff")),
    ("too_large", ACCEPT + say(Type.TOKENS)[:16] + struct.pack("<II", 0, 0xFFFFFFF8)),
    ("too_large", ACCEPT + tokens(ids=range(30000)) * 40),
    ("busy", error()),
    ("slow_reader", ACCEPT + error("slow_reader", ident=0)),
    ("internal", ACCEPT + done(reason="error")),
    ("not_finite", ACCEPT + error("not_finite", sequence=0)),
]
JOB = [
    ("bad_state", done(ident=2)),
    ("bad_frame", part(b"123", at=1)),
    ("bad_frame", part(b"12") + part(b"34", at=0)),
    ("bad_frame", part(b"1234567890")),
    ("bad_frame", say(Type.TENSORS, payload=struct.pack("<IIQQ", 0, 0, 0, 1 << 60), ident=2)),
    ("bad_state", part(b"123", output=1)),
    ("bad_state", part(b"123", item=1)),
    ("bad_state", part(b"12") + done(ident=2)),
    ("bad_state", say(Type.TOKENS, payload=EX["tokens"][24:], ident=2)),
    ("program", error("program", ident=2, sequence=0)),
]


def answer_job(answer, programs):
    def answers(frame):
        if frame.type is Type.PROGRAMS:
            return say(Type.PROGRAMS, programs, ident=frame.id, flags=Flag.ANSWER)
        return say(Type.ACCEPT, {"request": 1}, ident=frame.id) + answer if frame.type is Type.JOB else b""
    return answers


class Hostile(unittest.TestCase):
    def refuse(self, run, code, answers, call, **how):
        before = len(os.listdir("/proc/self/fd"))
        with Peer(answers) as peer:
            with self.assertRaises(SluiceError) as seen:
                run(peer.path, call, **how)
            self.assertEqual(seen.exception.code, code, seen.exception)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before, "descriptors are left")

    def test_answers_to_a_prompt(self):
        for run in (plain, aio):
            for number, (code, answer) in enumerate(GENERATE):
                with self.subTest(run=run.__name__, number=number, code=code):
                    self.refuse(run, code, lambda _, a=answer: a, lambda c: c.generate([1, 2]), held_max=1 << 20)

    def test_streams(self):
        def stream(client):
            with client.stream([1, 2]) as pieces:
                return list(pieces)

        async def astream(client):
            async with client.stream([1, 2]) as pieces:
                return [piece async for piece in pieces]
        for run, call in ((plain, stream), (aio, astream)):
            for number, (code, answer) in enumerate(GENERATE):
                if code in ("internal", "not_finite"):  # of a sequence: stands in its answer
                    continue
                with self.subTest(run=run.__name__, number=number, code=code):
                    self.refuse(run, code, lambda _, a=answer: a, call, held_max=1 << 20)

    def test_answers_to_a_job(self):
        item = Tensor.from_values("u8", [3], [1, 2, 3])
        for run in (plain, aio):
            for number, (code, answer) in enumerate(JOB):
                with self.subTest(run=run.__name__, number=number, code=code):
                    for share in (1 << 20, 0):
                        self.refuse(run, code, answer_job(answer, {"programs": [PROGRAM]}),
                                    lambda c, s=share: c.run("p", {"x": item}, share=s))

    def test_programs_that_are_described_badly(self):
        outputs = {"name": "y", "dtype": "u8"}
        for code, programs in (
            ("bad_value", {}), ("bad_value", {"programs": 3}), ("bad_value", {"programs": [3]}), ("not_found", {"programs": []}),
            ("bad_value", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": [1.5]}]}]}),
            ("bad_value", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": [-1]}]}]}),
            ("bad_value", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": [2] * 7}]}]}),
            ("bad_value", {"programs": [{**PROGRAM, "outputs": [{**outputs, "dtype": "x", "shape": [2]}]}]}),
            ("too_large", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": [1 << 40]}]}]}),
            ("too_large", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": [1 << 53, 2]}]}]}),
            ("bad_value", {"programs": [{**PROGRAM, "outputs": [{**outputs, "shape": ["m"]}]}]}),
        ):
            for run in (plain, aio):
                with self.subTest(run=run.__name__, programs=programs):
                    self.refuse(run, code, answer_job(b"", programs),
                                lambda c: c.run("p", {"x": b"123"}, share=0, share_outputs=True))

    def test_answers_to_questions(self):
        for code, answer in (("bad_state", say(Type.MODEL, {}, flags=Flag.ANSWER)), ("bad_state", say(Type.HEALTH, {})),
                             ("denied", error("denied")), ("bad_state", say(Type.HEALTH, {}, ident=5)), ("closed", None)):
            for run in (plain, aio):
                with self.subTest(run=run.__name__, code=code):
                    self.refuse(run, code, lambda _, a=answer: a, lambda c: c.health())

    def test_greetings(self):
        for code, greeting in (("closed", None), ("bad_magic", b"x"), ("bad_state", ACCEPT), ("bad_version", error("bad_version", 0)),
                               ("bad_value", say(Type.WELCOME, {"version": 1}, ident=0)), ("timeout", b"")):
            for run in (plain, aio):
                with self.subTest(run=run.__name__, code=code), Peer(lambda _: b"", greeting) as peer:
                    with self.assertRaises(SluiceError) as seen:
                        run(peer.path, lambda c: None, timeout=0.2 if code == "timeout" else LIVE_S)
                    self.assertEqual(seen.exception.code, code)

    def test_nobody_is_there(self):
        for run in (plain, aio):
            with self.assertRaises(SluiceError) as seen:
                run("/nowhere/at all", lambda c: None)
            self.assertEqual(str(seen.exception), "connect: /nowhere/at all: no such socket (is sluiced running?)")
            with self.assertRaises(SluiceError) as seen:
                run("/" + "x" * 200, lambda c: None)
            self.assertEqual(seen.exception.code, "connect")


class Waiting(unittest.TestCase):
    """A daemon that is slow, and callers that do not wait for it."""

    @staticmethod
    def silent_first(frame):
        """Nothing to the first request; when it is cancelled, its end and what was on its way."""
        if frame.type is Type.CANCEL:
            return ACCEPT + tokens() + done(reason="cancelled")
        if frame.type is Type.SUBMIT and frame.id > 1:
            return (say(Type.ACCEPT, {"request": 7}, ident=frame.id) + done(ident=frame.id))
        return b""

    def test_a_timeout_cancels_and_the_connection_goes_on(self):
        def call(client):
            with self.assertRaises(SluiceError) as seen:
                client.generate([1], timeout=0.05)
            self.assertEqual(seen.exception.code, "timeout")
            return client.generate([1])

        async def acall(client):
            with self.assertRaises(SluiceError) as seen:
                await client.generate([1], timeout=0.05)
            self.assertEqual(seen.exception.code, "timeout")
            return await client.generate([1])
        for run, one in ((plain, call), (aio, acall)):
            with self.subTest(run.__name__), Peer(self.silent_first) as peer:
                self.assertEqual(run(peer.path, one).finish_reason, "stop")
                self.assertTrue(peer.wait_for(Type.CANCEL))

    def test_a_task_that_is_cancelled_cancels(self):
        async def call(client):
            task = asyncio.create_task(client.generate([1]))
            await asyncio.sleep(0)
            await asyncio.to_thread(peer.wait_for, Type.SUBMIT)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return await client.generate([1])
        with Peer(self.silent_first) as peer:
            self.assertEqual(aio(peer.path, call).finish_reason, "stop")
            self.assertTrue(peer.wait_for(Type.CANCEL))

    def test_leaving_a_stream_cancels(self):
        answers = lambda frame: ACCEPT + tokens() if frame.type is Type.SUBMIT else done(reason="cancelled")  # noqa: E731

        def call(client):
            with client.stream([1]) as pieces:
                for piece in pieces:
                    return piece

        async def acall(client):
            async with client.stream([1]) as pieces:
                async for piece in pieces:
                    return piece
        for run, one in ((plain, call), (aio, acall)):
            with self.subTest(run.__name__), Peer(answers) as peer:
                self.assertEqual(run(peer.path, one).tokens, [1])
                self.assertTrue(peer.wait_for(Type.CANCEL))

    def test_an_answer_that_comes_late_is_nobodys(self):
        def answers(frame):
            late = say(Type.HEALTH, {"status": "late"}, flags=Flag.ANSWER) if frame.id == 2 else b""
            return late + say(frame.type, {"status": "ok"}, ident=frame.id, flags=Flag.ANSWER) if frame.id == 2 else b""

        def call(client):
            self.assertRaises(SluiceError, client.health, timeout=0.05)
            return client.health()
        with Peer(answers) as peer:
            self.assertEqual(plain(peer.path, call), {"status": "ok"})

    def test_a_client_that_is_closed_says_so(self):
        with Peer(lambda _: b"") as peer:
            client = Client(peer.path, timeout=LIVE_S)
            client.close()
            for call in (client.health, lambda: client.generate([1]), lambda: client.stream([1])):
                with self.assertRaises(SluiceError) as seen:
                    call()
                self.assertEqual(seen.exception.code, "closed")


class Random(unittest.TestCase):
    def test_whatever_comes_every_sequence_ends_once(self):
        conversation = (EX["welcome"] + ACCEPT + tokens(0, (1, 2), b"ab") + tokens(1, (3,), b"c") + done(0)
                        + tokens(1, (4,), "é".encode()) + done(1))
        draw = random.Random(24)
        lost = 0
        for _ in range(3000):
            data = bytearray(conversation)
            for _ in range(draw.randint(0, 3)):
                data[draw.randrange(len(data))] = draw.choice((0, 1, 0xFF, draw.randrange(256)))
            session = Session("x")
            batch = session.submit(requests.submit("generate", ["a", "b"], {}), streams=True)
            at = 0
            while at < len(data) and session.lost is None:
                step = draw.choice((1, 7, 64, len(data)))
                session.feed(bytes(data[at : at + step]))
                at += step
            lost += session.lost is not None
            session.eof()
            self.assertTrue(batch.done)
            for answer in batch.sequences:
                self.assertIn(answer.finish_reason, ("stop", "length", "cancelled", "deadline", "error"))
                self.assertEqual(answer.error is not None, answer.finish_reason == "error")
            with self.assertRaises(SluiceError):
                session.submit(requests.submit("generate", ["a"], {}), streams=False)
        self.assertTrue(100 < lost < 2900, lost)

    def test_what_waits_to_be_sent_is_bounded(self):
        session = Session("x")
        session.feed(EX["welcome"])
        with self.assertRaises(SluiceError) as seen:
            for _ in range(100):
                session.submit(requests.submit("generate", [[1] * (1 << 20)], {}), streams=False)
        self.assertEqual((seen.exception.code, seen.exception.retry), ("busy", "later"))
        with self.assertRaises(SluiceError) as seen:
            session.submit(requests.submit("generate", [[1] * (4 << 20)], {}), streams=False)
        self.assertEqual(seen.exception.code, "too_large")

    def test_many_items_are_one_job(self):
        items = [Item({"x": b"12345"}), Item({"x": b"1"})]
        made = requests.job(PROGRAM, items, {})
        self.assertEqual(b"".join(requests.finish_job(made, 0).payload), b"12345\0\0\x001\0\0\0\0\0\0\0")
        self.assertEqual([[spec.shape for spec in plan] for plan in made.draft.plan], [[(5,)], [(1,)]])


if __name__ == "__main__":
    unittest.main()
