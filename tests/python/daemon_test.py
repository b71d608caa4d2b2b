"""Both clients against a daemon of $BUILD with the demo model, and one with the program affine."""

import asyncio
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

from peer import LIVE_S
from sluice_client import AsyncClient, Chat, Client, Constraint, Item, SluiceError, Tensor

BUILD = pathlib.Path(os.environ.get("BUILD", ".build/dev"))
TOP = pathlib.Path(__file__).resolve().parents[2]
ASKED = {"417+385=": "802", "12+30=": "42", "reverse abc=": "cba", "max 3,71,5=": "71"}


class Daemon:
    def __init__(self, *options):
        self._folder = tempfile.TemporaryDirectory()
        self.path = self._folder.name + "/s"
        self._log = open(self._folder.name + "/log", "w+")
        command = [BUILD / "daemon/sluiced", "--device", "cpu", "--socket", self.path, *options]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        until = time.monotonic() + LIVE_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError("the daemon is not ready")
            time.sleep(0.05)

    def _ready(self):
        try:
            with Client(self.path, timeout=LIVE_S) as client:
                return client.health()["ready"]
        except SluiceError as error:
            if error.code != "connect":
                raise
            return False

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(LIVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.seek(0)
        said = self._log.read()
        self._log.close()
        self._folder.cleanup()
        return self._process.returncode, said


class WithDaemon(unittest.TestCase):
    options: tuple = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.options)
        cls.path = cls.daemon.path

    @classmethod
    def tearDownClass(cls):
        status, said = cls.daemon.stop()
        if status != 0:
            raise RuntimeError(f"the daemon ended with {status}: {said[-2000:]}")

    def client(self):
        client = Client(self.path, timeout=LIVE_S)
        self.addCleanup(client.close)
        return client

    def both(self, name, *arguments, **given):
        """What both clients give."""
        one = getattr(self.client(), name)(*arguments, **given)

        async def run():
            async with AsyncClient(self.path, timeout=LIVE_S) as client:
                return await getattr(client, name)(*arguments, **given)
        return one, asyncio.run(run())

    def refused(self, code, name, *arguments, **given):
        for client in ("plain", "asyncio"):
            with self.subTest(client=client, name=name), self.assertRaises(SluiceError) as seen:
                if client == "plain":
                    getattr(self.client(), name)(*arguments, **given)
                else:
                    self.both_async(name, *arguments, **given)
            self.assertEqual(seen.exception.code, code, seen.exception)

    def both_async(self, name, *arguments, **given):
        async def run():
            async with AsyncClient(self.path, timeout=LIVE_S) as client:
                return await getattr(client, name)(*arguments, **given)
        return asyncio.run(run())


class Model(WithDaemon):
    options = ("--model", str(TOP / "deploy/demo-model"))

    def test_answers(self):
        for prompt, text in ASKED.items():
            for answer in self.both("generate", prompt, max_tokens=16, temperature=0):
                self.assertEqual((answer.text, answer.finish_reason), (text, "stop"))
                self.assertEqual(answer.completion_tokens, len(answer.tokens))
        for answer in self.both("generate", "417+385=", max_tokens=2):
            self.assertEqual((answer.text, answer.finish_reason, answer.completion_tokens), ("80", "length", 2))

    def test_tokens_and_logprobs(self):
        ids = self.client().tokenize("417+385=")
        for answer in self.both("generate", ids, max_tokens=16, text=False, logprobs=2):
            self.assertEqual((answer.text, self.client().detokenize(answer.tokens, special=False)), ("", "802"))
            self.assertEqual(len(answer.logprobs), len(answer.tokens))
            self.assertEqual([top[0][0] for top in answer.tops], answer.tokens)
            self.assertEqual([top[0][1] for top in answer.tops], answer.logprobs)

    def test_many_prompts_and_results(self):
        each = [{"n": 2}, {"max_tokens": 1}, {}]
        for answers in self.both("generate_many", [*list(ASKED)[:2], "7" * 9000], each=each, max_tokens=16):
            self.assertEqual([(one.prompt, one.index) for one in answers], [(0, 0), (0, 1), (1, 0), (2, 0)])
            self.assertEqual([one.text for one in answers], ["802", "802", "4", ""])
            self.assertEqual((answers[3].finish_reason, answers[3].error.code), ("error", "too_large"))

    def test_conversations(self):
        chat = Chat([{"role": "user", "content": "417+385="}])
        for answer in self.both("generate", chat, max_tokens=16):
            self.assertEqual(answer.text, "802")
        self.refused("bad_value", "generate", Chat([{"content": "x"}]))

    def test_streams(self):
        with self.client().stream_many(list(ASKED), max_tokens=16) as stream:
            pieces = list(stream)
        self.assertGreater(stream.request, 0)
        self.assertEqual([one.text for one in stream.answers], list(ASKED.values()))
        for number, text in enumerate(ASKED.values()):
            self.assertEqual("".join(piece.text for piece in pieces if piece.prompt == number), text)

        async def run():
            asked = {"logprobs": 1, "max_tokens": 100, "ignore_eos": True}  # more than one piece brings
            async with AsyncClient(self.path, timeout=LIVE_S) as client, client.stream("417+385=", **asked) as stream:
                return [piece async for piece in stream], stream.answers
        pieces, [answer] = asyncio.run(run())
        self.assertGreater(len(pieces), 1)
        self.assertEqual([token for piece in pieces for token in piece.tokens], answer.tokens)
        self.assertEqual([value for piece in pieces for value in piece.logprobs], answer.logprobs)

    def test_many_tasks_share_a_connection(self):
        async def run():
            async with AsyncClient(self.path, timeout=LIVE_S) as client:
                return await asyncio.gather(*(client.generate(f"{n}+{n + 1}=", max_tokens=8) for n in range(10, 60)))
        self.assertEqual([one.text for one in asyncio.run(run())], [str(2 * n + 1) for n in range(10, 60)])

    def test_constraints(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
        for constraint, holds in (
            (Constraint.pattern("[a-c]{3}"), lambda text: len(text) == 3 and set(text) <= set("abc")),
            (Constraint.choice(["yes", "no"]), lambda text: text in ("yes", "no")),
            (Constraint.schema(schema), lambda text: isinstance(json.loads(text)["a"], bool)),
            (Constraint.grammar('root ::= "x" | "y"'), lambda text: text in ("x", "y")),
        ):
            for answer in self.both("generate", "417+385=", constraint=constraint, max_tokens=60):
                self.assertTrue(answer.finish_reason == "stop" and holds(answer.text), answer)
        self.refused("unsupported", "generate", "x", constraint=Constraint.json(), stop=["a"])

    def test_the_cache_and_who_shares_it(self):
        prompt = "1,2,3,4,5,6,7,8,9," * 8
        self.client().generate(prompt, max_tokens=1, cache_salt="mine")
        seen = [self.client().generate(prompt, max_tokens=1, **given).cached_tokens
                for given in ({"cache_salt": "mine"}, {"cache_salt": "another"}, {"cache_salt": "mine", "cache": False})]
        self.assertGreater(seen[0], 0)
        self.assertEqual(seen[1:], [0, 0])

    def test_scores_and_rows(self):
        for scores in self.both("score", "417+385=802"):
            self.assertEqual((len(scores.logprobs), len(scores.tops)), (10, 10))
            self.assertEqual("".join(chr(token) for token, _ in scores.tops[-3:]), "802")
        for rows in self.both("score_many", ["12", "123"]):
            self.assertEqual([len(one.logprobs) for one in rows], [1, 2])
        for pooling, count in (("last", 1), ("mean", 1), ("all", 8)):
            for rows in self.both("embed", "417+385=", pooling=pooling):
                self.assertEqual(len(rows.rows), count)
        for one, other in self.both("embed_many", ["417", "12"]):
            self.assertAlmostEqual(sum(value * value for value in one.vector), 1, places=4)
            self.assertNotEqual(one.vector, other.vector)

    def test_deadlines_and_priorities(self):
        try:
            ends = {one.finish_reason for one in self.both("generate", "417", max_tokens=250, ignore_eos=True, deadline_ms=1)}
        except SluiceError as error:  # before it was accepted
            ends = {error.code}
        self.assertEqual(ends, {"deadline"})
        self.refused("bad_value", "generate", "x", priority=8)
        for answer in self.both("generate", "12+30=", priority=-8):
            self.assertEqual(answer.text, "42")

    def test_cancel_from_within_and_from_another_connection(self):
        client, other = self.client(), self.client()
        for end in (lambda stream: stream.cancel(), lambda stream: other.cancel(stream.request)):
            with client.stream_many(["417"] * 8, max_tokens=200, ignore_eos=True, n=16) as stream:
                next(iter(stream))
                end(stream)
                for _ in stream:
                    pass
            self.assertIn("cancelled", {one.finish_reason for one in stream.answers})
        self.refused("not_found", "cancel", 1 << 50)

    def test_questions(self):
        for head in self.both("stats", requests=True):
            self.assertIn("requests", head)
        for text in self.both("prometheus"):
            self.assertIn("sluice_connections_total", text)
        for head in self.both("model"):
            self.assertEqual(head["model"], "demo-model")
        for ids in self.both("tokenize", Chat([{"role": "user", "content": "hi"}])):
            self.assertGreater(len(ids), 2)
        for text in self.both("detokenize", [52, 50]):
            self.assertEqual(text, "42")
        self.refused("bad_token", "detokenize", [1 << 20])
        self.refused("empty", "tokenize", "")
        self.assertEqual(self.client().info.vocabulary, 1024)

    def test_refusals_say_what_and_whether_to_try_again(self):
        with self.assertRaises(SluiceError) as seen:
            self.client().generate("x", temperature=1000)
        self.assertEqual((seen.exception.code, seen.exception.retry), ("bad_value", "fix"))
        self.refused("too_large", "generate", "7" * 9000)
        self.refused("unsupported", "generate", "x", constraint=Constraint.pattern(r"(a)\1"))
        self.assertRaises(TypeError, self.client().generate, "x", n=2)
        self.assertRaises(TypeError, self.client().generate, "x", temprature=1)

    def test_a_client_in_each_of_four_threads(self):
        seen = []

        def work():
            with Client(self.path, timeout=LIVE_S) as client:
                seen.append([client.generate(prompt).text for prompt in ASKED])
        threads = [threading.Thread(target=work) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(seen, [list(ASKED.values())] * 4)


class Program(WithDaemon):
    options = ("--program", str((BUILD / "gpu/programs/affine-cpu.so").resolve()))
    ways = ({}, {"share": 0}, {"share_outputs": True}, {"share": 0, "share_outputs": True})

    def test_tensors_by_each_way(self):
        x = Tensor.from_values("f32", [3], [1, 0, -0.5])
        for way in self.ways:
            for outputs in self.both("run", "affine", {"x": x}, {"a": 2, "b": -1}, **way):
                self.assertEqual(outputs["y"].values(), [1, -1, -2], way)

    def test_many_items(self):
        items = [Item({"x": Tensor.from_values("f32", [n], list(range(n)))}, {"b": n}) for n in (1, 2, 5)]
        for way in self.ways:
            for results in self.both("run_many", "affine", items, **way):
                self.assertEqual([one.tensors["y"].values() for one in results], [[1], [2, 3], [5, 6, 7, 8, 9]], way)

    def test_large_tensors(self):
        x = Tensor("f32", (1 << 20,), memoryview(bytes(4 << 20)))
        for way in self.ways:
            for outputs in self.both("run", "affine", {"x": x}, {"b": 1}, **way):
                self.assertEqual(bytes(outputs["y"].data), b"\0\0\x80\x3f" * (1 << 20))

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy is not installed")
        x = np.linspace(0, 1, 1000, dtype=np.float32)
        for outputs in self.both("run", "affine", {"x": x}, {"a": 2}):
            self.assertTrue((outputs["y"].numpy() == 2 * x).all())

    def test_refusals(self):
        x = Tensor.from_values("f32", [1], [1])
        self.refused("not_found", "run", "nothing", {"x": x})
        self.refused("unknown_field", "run", "affine", {"z": x})
        self.refused("bad_value", "run", "affine", {"x": x}, {"a": 1e39})
        self.refused("unknown_field", "run", "affine", {"x": x}, {"c": 1})
        self.refused("bad_value", "run", "affine", {"x": b"bytes"})
        self.refused("unsupported", "generate", "x")
        self.assertRaises(TypeError, self.client().run, "affine", {"x": x}, cache=False)

    def test_no_descriptors_are_left(self):
        client = self.client()
        x = Tensor.from_values("f32", [3], [1, 2, 3])
        client.run("affine", {"x": x})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            client.run("affine", {"x": x}, share=0, share_outputs=True)
            with self.assertRaises(SluiceError):
                client.run("affine", {"x": x}, {"a": float("inf")}, share=0, share_outputs=True)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 1)  # a mapping that is not collected yet

    def test_timeline(self):
        x = {"x": Tensor.from_values("f32", [2], [1, 2])}
        for start in [told["next"] for told in self.both("timeline")]:
            client = self.client()
            client.run("affine", x)
            told = client.timeline(start)
            self.assertGreaterEqual(len(told["chunks"]), 1)
            self.assertEqual(told["chunks"][0]["program"], "affine")
            self.assertLessEqual(told["chunks"][0]["in"][1], told["chunks"][0]["kernels"][0])

    def test_programs(self):
        for programs in self.both("programs"):
            self.assertEqual([one["name"] for one in programs], ["affine"])
        for programs in self.both("programs", enable="affine"):
            self.assertFalse(programs[0]["off"])


if __name__ == "__main__":
    unittest.main()
