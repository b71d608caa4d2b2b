"""The package against protocol/wire.md: each example decoded, however it is cut, and encoded again."""

import re
import struct
import unittest

import page
from sluice_client import Chat, Constraint, Item, SluiceError, Tensor, frames, heads, link, options, records, requests
from sluice_client import session as sessions
from sluice_client.errors import RETRY
from sluice_client.frames import Decoder, Flag, Type

EX = page.EXAMPLES


def decode(data):
    [frame] = Decoder().feed(data)
    return frame


def made(draft):
    """The frame that a draft becomes, with the id of the example."""
    def frame(ident):
        payload = b"".join(draft.payload)
        return frames.header(draft.type, Flag.NONE, ident, len(draft.head), len(payload)) + draft.head + payload
    return frame


def refused(test, code, call, *arguments):
    with test.assertRaises(SluiceError) as seen:
        call(*arguments)
    test.assertEqual(seen.exception.code, code, seen.exception)


class Frames(unittest.TestCase):
    def test_the_page_has_an_example_of_what_is_read_and_said_here(self):
        self.assertGreaterEqual(len(EX), 25)

    def test_each_example_is_one_frame_however_it_is_cut(self):
        for name, data in EX.items():
            with self.subTest(name):
                whole = decode(data)
                self.assertEqual(frames.encode(whole), data)
                for at in range(1, len(data)):
                    decoder = Decoder()
                    self.assertEqual(list(decoder.feed(data[:at])), [])
                    self.assertTrue(decoder.within_frame)
                    self.assertEqual(list(decoder.feed(data[at:])), [whole])
                    self.assertFalse(decoder.within_frame)
                decoder = Decoder()
                self.assertEqual([frame for byte in data for frame in decoder.feed(bytes([byte]))], [whole])

    def test_all_examples_behind_each_other(self):
        data = b"".join(EX.values())
        decoder = Decoder()
        for size in (1, 7, 24, 1000, len(data)):
            seen = [frame for at in range(0, len(data), size) for frame in decoder.feed(data[at : at + size])]
            self.assertEqual(b"".join(map(frames.encode, seen)), data)

    def test_what_the_page_refuses_is_refused_as_soon_as_it_is_there(self):
        good = EX["done"]
        cases = [
            ("bad_magic", b"GET "), ("bad_magic", b"SLCX"), ("bad_version", b"SLCE\x02"),
            ("bad_frame", good[:5] + b"\x00" + good[6:24]), ("bad_frame", good[:5] + bytes([max(frames.Type) + 1]) + good[6:24]),
            ("bad_frame", good[:6] + b"\x04\x00" + good[8:24]),
            ("bad_frame", good[:16] + struct.pack("<II", 4, 0)), ("bad_frame", good[:16] + struct.pack("<II", 0, 9)),
            ("too_large", good[:16] + struct.pack("<II", (1 << 20) + 8, 0)),
            ("too_large", good[:16] + struct.pack("<II", 0, frames.FRAME_MAX)),
            ("too_large", good[:16] + struct.pack("<II", 1 << 20, 0xFFFFFFF8)),
        ]
        for code, data in cases:
            with self.subTest(code=code, data=data):
                decoder = Decoder()
                for byte in data[:-1]:
                    try:
                        self.assertEqual(list(decoder.feed(bytes([byte]))), [])
                    except SluiceError as error:
                        self.assertEqual(error.code, code)
                        break
                refused(self, code, lambda d=decoder, x=data: list(d.feed(x[-1:])))
                refused(self, code, lambda d=decoder: list(d.feed(good)))


class Tables(unittest.TestCase):
    def test_types(self):
        said = {int(row[0]): row[1] for row in page.rows("| type | | from")}
        self.assertEqual(said, {kind.value: kind.name for kind in Type})

    def test_codes(self):
        said = {row[0].strip("`"): row[2] for row in page.rows("| code | number")}
        self.assertEqual(said, RETRY)

    def test_fields_of_submit(self):
        said = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in page.rows("| field | type | default | meaning"))))
        known = set(options.Generating.__annotations__) | set(options.Embedding.__annotations__)
        known -= set(options.SAMPLING) | {"timeout", "constraint"}
        self.assertEqual(said, known | {"job", "lengths", "texts", "chats", "stream", "partial"})

    def test_sampling_fields(self):
        text = page.TEXT[page.TEXT.index("A field that is not given has the model's default.") :]
        said = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in text.split("\n\n")[1].splitlines()[2:])))
        self.assertEqual(said, set(options.SAMPLING) | {"each"})

    def test_constraints(self):
        [row] = [row for row in page.TEXT.splitlines() if row.startswith("| `constraint` |")]
        kinds = set(re.findall(r"`(\w+)`", row.split("|")[2])) - {"none"}
        ours = [Constraint.json(), Constraint.object(), Constraint.schema({}), Constraint.pattern("x"),
                Constraint.choice(["a"]), Constraint.grammar("x")]
        self.assertEqual(kinds, {one.kind for one in ours})

    def test_fields_of_conversations(self):
        said = {row[0].strip("`") for row in page.rows("| `messages` | non-empty")} | {"messages", "tools"}
        ours = heads.decode(Chat([{"role": "user"}], [], {}, False, "low").encode())
        self.assertEqual(said, set(ours))

    def test_dtypes(self):
        from sluice_client.tensors import DTYPE_BYTES
        sentence = page.TEXT[page.TEXT.index("dtypes are") :].split(", little-endian")[0]
        self.assertEqual(set(re.findall(r"`(\w+)`", sentence)), set(DTYPE_BYTES))


class Questions(unittest.TestCase):
    """What is said is what the page says, to the byte."""

    def test_hello(self):
        session = sessions.Session("sluice 0.1.0")
        self.assertEqual(bytes(session.out[0].data), EX["hello"])

    def check(self, name, draft):
        frame = made(draft)(decode(EX[name]).id)
        self.assertEqual(frame, EX[name], f"{frame!r} and not {EX[name]!r}")

    def test_submit(self):
        given = {"priority": 2, "deadline_ms": 5000, "max_tokens": 16, "temperature": 0}
        self.check("submit", requests.submit("generate", [[1, 2, 3], [10, 11]], given, stream=True))
        each = [{"max_tokens": 4}, {"max_tokens": 8, "temperature": 0.5, "seed": 42, "stop": ["\n"]}]
        self.check("submit_texts", requests.submit("generate", ["12+30=", "café"], {"text": True}, each=each))
        chat = Chat([{"role": "user", "content": "12+30="}])
        self.check("submit_chats", requests.submit("generate", [chat], {"text": True, "max_tokens": 8}, stream=True))
        self.check("submit_embed", requests.submit("embed", [[1, 2, 3]], {"pooling": "mean", "normalize": True}))

    def test_cache_fields_and_constraints(self):
        draft = requests.submit("generate", ["x"], {"cache": False, "cache_salt": "s", "adapter": "a", "constraint": Constraint.choice(["é"])})
        self.assertEqual(heads.decode(draft.head), {
            "job": "generate", "stream": False, "cache": False, "cache_salt": "s", "adapter": "a", "texts": ["x"],
            "constraint": "choice", "constraint_text": '["é"]'})
        draft = requests.submit("generate", ["x"], {"speculate": False})
        self.assertEqual(heads.decode(draft.head), {"job": "generate", "stream": False, "speculate": False, "texts": ["x"]})
        with self.assertRaises(TypeError):
            requests.submit("score", ["x"], {"speculate": False})

    def test_job(self):
        program = {"name": "affine", "inputs": [{"name": "x", "dtype": "f32", "shape": ["n"]}],
                   "outputs": [{"name": "y", "dtype": "f32", "shape": ["n"]}]}
        item = Item({"x": Tensor.from_values("f32", [3], [1, 0, -0.5])}, {"a": 2, "b": -1})
        draft = requests.job(program, [item], {"priority": 2, "deadline_ms": 5000})
        self.check("job", requests.finish_job(draft, 0))
        large = Item({"x": Tensor("f32", (1000000,), memoryview(bytes(4000000)))})
        draft = requests.job(program, [large], {"share_outputs": True})
        self.assertTrue(draft.share)
        self.check("job_memory", requests.finish_job(draft, draft.draft.plan[0][0].bytes))

    def test_sizes_that_are_parameters(self):
        program = {"name": "relevance", "inputs": [{"name": "image", "dtype": "u8", "shape": ["height", 3]}],
                   "outputs": [{"name": "budgets", "dtype": "i32", "shape": ["height", "rows", "columns"]}],
                   "parameters": [{"name": "rows", "type": "integer", "default": 5}, {"name": "columns", "required": True}]}
        image = {"image": Tensor("u8", (2, 3), memoryview(bytes(6)))}
        [spec] = requests.outputs_of(program, image, {"columns": 7})
        self.assertEqual(spec.shape, (2, 5, 7))
        [spec] = requests.outputs_of(program, image, {"columns": 7, "rows": 1})
        self.assertEqual(spec.shape, (2, 1, 7))
        for given in ({}, {"columns": 0}, {"columns": True}, {"columns": 2.5}, {"columns": -1}):
            self.assertEqual(requests.outputs_of(program, image, given), [], given)

    def test_control(self):
        for name, kind, head in (("health", Type.HEALTH, {}), ("stats", Type.STATS, {"requests": True}),
                                 ("programs_enable", Type.PROGRAMS, {"enable": "affine"}), ("cancel", Type.CANCEL, {}),
                                 ("timeline", Type.TIMELINE, {"from": 400}),
                                 ("cancel_request", Type.CANCEL, {"request": 1001})):
            frame = decode(EX[name])
            self.assertEqual((frame.type, frame.head), (kind, heads.encode(head)), name)
        frame = decode(EX["tokenize"])
        self.assertEqual((frame.head, frame.payload), requests.tokenize("12+30=", True))
        frame = decode(EX["detokenize"])
        self.assertEqual((frame.head, frame.payload), requests.detokenize([52, 50], False))

    def test_what_cannot_be_said_is_refused_here(self):
        refused(self, "empty", requests.submit, "generate", [], {})
        refused(self, "usage", requests.submit, "generate", ["a", [1]], {})
        refused(self, "usage", lambda: requests.submit("generate", ["a"], {}, each=[]))
        refused(self, "bad_value", requests.submit, "generate", [[1 << 31]], {})
        refused(self, "bad_value", requests.submit, "generate", ["\ud800"], {})
        refused(self, "bad_value", requests.submit, "generate", ["a"], {"temperature": float("nan")})
        refused(self, "bad_value", requests.submit, "generate", ["a"], {"n": 0})
        refused(self, "bad_value", requests.submit, "generate", ["a"], {"n": 1 << 40})
        refused(self, "too_large", requests.submit, "generate", ["a" * (1 << 20)], {})
        for given in ({"max_token": 3}, {"pooling": "mean"}, {"share": 1}):
            self.assertRaises(TypeError, requests.submit, "generate", ["a"], given)
        self.assertRaises(TypeError, requests.submit, "score", ["a"], {"max_tokens": 3})


class Answers(unittest.TestCase):
    def test_welcome(self):
        info = sessions.read_welcome(heads.decode(decode(EX["welcome"]).head))
        self.assertEqual((info.frame_max, info.batch_max, info.context_max, info.vocabulary), (16777216, 256, 4096, 32000))
        self.assertEqual((info.model, info.device, info.text, info.logprobs_max, info.n_max), ("demo", "cpu", True, 20, 16))

    def test_tokens(self):
        first, second = records.tokens(decode(EX["tokens"]).payload)
        self.assertEqual(first, records.Tokens(0, [17, 18], None, None, None))
        self.assertEqual(second, records.Tokens(1, [17], [-0.5], [[(17, -0.5), (4, -1.5)]], "42"))

    def test_results(self):
        score = records.result(decode(EX["result_score"]).payload)
        self.assertEqual(score, records.Result(0, records.SCORE, 1, [(-2.0, 3, -0.25)], []))
        rows = records.result(decode(EX["result_embed"]).payload)
        self.assertEqual(rows, records.Result(0, records.EMBED, 0, [], [[1.0, 0.0, -0.5]]))

    def test_tensors(self):
        part = records.part(decode(EX["tensors"]).payload)
        self.assertEqual((part.sequence, part.output, part.at), (0, 0, 0))
        self.assertEqual(struct.unpack("<3f", part.data), (1, -1, -2))

    def test_done_and_errors(self):
        at, end = sessions.read_done(heads.decode(decode(EX["done"]).head))
        self.assertEqual((at, end.finish_reason, end.prompt_tokens, end.completion_tokens), (1, "length", 2, 16))
        self.assertEqual((end.cached_tokens, end.queued_us, end.first_token_us, end.total_us), (0, 85, 1200, 20450))
        error, at = sessions.read_error(heads.decode(decode(EX["error"]).head))
        self.assertEqual((at, error.code, error.retry, error.limit, error.value), (None, "busy", "later", 1024, 1024))
        self.assertEqual(error.retry_after_ms, 50)
        error, at = sessions.read_error(heads.decode(decode(EX["error_sequence"]).head))
        self.assertEqual((at, error.code, error.retry), (1, "bad_token", "fix"))

    def test_texts_and_tokens(self):
        frame = decode(EX["tokenize_answer"])
        self.assertEqual(link.read_tokens(heads.decode(frame.head), frame.payload), [49, 50, 43, 51, 48, 61])
        frame = decode(EX["detokenize_answer"])
        self.assertEqual(link.read_text(heads.decode(frame.head), frame.payload), "42")
        for head in ({"count": 5}, {"count": -1}, {"count": 1 << 50}, {"count": True}, {}):
            refused(self, "bad_value", link.read_tokens, head, b"12345678")
        for head in ({"bytes": 9}, {"bytes": -8}, {"bytes": "8"}, {}):
            refused(self, "bad_value", link.read_text, head, b"12345678")

    def test_a_record_that_is_cut_anywhere_is_refused(self):
        for name, read in (("tokens", lambda x: list(records.tokens(x))), ("result_score", records.result),
                           ("result_embed", records.result), ("tensors", records.part)):
            payload = decode(EX[name]).payload
            for at in range(1, len(payload)):
                if name == "tokens" and at == 16:  # a record of its own
                    continue
                refused(self, "bad_frame", read, payload[:at])
            refused(self, "bad_frame", read, payload + b"\1\0\0\0\1\0\0\0")


    def test_padding_is_zeros(self):
        for name, read in (("tokens", lambda x: list(records.tokens(x))), ("result_embed", records.result), ("tensors", records.part)):
            payload = decode(EX[name]).payload
            refused(self, "bad_frame", read, payload[:-1] + b"\1")


class Heads(unittest.TestCase):
    def test_heads_are_read_strictly(self):
        for head in (b"[]", b"1", b"{", b"{}x", b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'{"a":NaN}', b'{"a":-Infinity}',
                     b'{"a":9007199254740993}', b'{"a":1e308}', b'{"a":1e999}', b'{"a":' + b"1" * 5000 + b"}",
                     b'{"a":"\\u0000"}', b'{"a":"\\ud800"}', b'{"\\udc00":1}', b'{"a":"\xff"}', b'{"a":"\n"}',
                     b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}",
                     b"\xef\xbb\xbf{}"):
            with self.subTest(head[:40]):
                refused(self, "bad_head", heads.decode, head)
        self.assertEqual(heads.decode(b'{"a":"\\ud83d\\ude00","b":-9007199254740992}  '), {"a": "😀", "b": -(1 << 53)})

    def test_fields_are_checked(self):
        done = heads.decode(decode(EX["done"]).head)
        for change, code in (({"more": 1}, "unknown_field"), ({"sequence": -1}, "bad_value"), ({"sequence": True}, "bad_value"),
                             ({"sequence": 0.5}, "bad_value"), ({"finish_reason": "tired"}, "bad_value"), ({"usage": 3}, "bad_value"),
                             ({"timings": {}}, "bad_value")):
            refused(self, code, sessions.read_done, {**done, **change})
        refused(self, "bad_value", sessions.read_error, {"code": "busy"})
        refused(self, "bad_value", sessions.read_error, {"code": "busy", "text": "x", "retry": "perhaps"})


class Tensors(unittest.TestCase):
    def test_values_come_back(self):
        for dtype, values in (("bool", [True, False]), ("u8", [0, 255]), ("i8", [-128, 127]), ("u64", [0, 2**64 - 1]),
                              ("i64", [-(2**63), 5]), ("f16", [0.5, -2.0]), ("bf16", [1.0, -0.5]), ("f32", [0.25, 2.0**127]),
                              ("f64", [1e300, -1.0])):
            tensor = Tensor.from_values(dtype, [2], values)
            self.assertEqual((tensor.values(), tensor.dtype), (values, dtype))

    def test_bf16_is_rounded_to_even(self):
        ties = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20]
        self.assertEqual(Tensor.from_values("bf16", [3], ties).values(), [1.0, 1 + 2**-6, 1 + 2**-7])
        [nan] = Tensor.from_values("bf16", [1], [float("nan")]).values()
        self.assertNotEqual(nan, nan)

    def test_what_is_no_tensor_is_refused(self):
        refused(self, "bad_value", Tensor.of, [1, 2])
        refused(self, "bad_value", Tensor.of, b"")
        refused(self, "bad_value", Tensor.from_values, "f32", [2], [1])
        refused(self, "bad_value", Tensor.from_values, "u8", [1], [256])
        refused(self, "bad_value", Tensor.from_values, "f8", [1], [1])
        refused(self, "bad_value", Tensor.from_values, "u8", [1] * 7, [1])
        refused(self, "bad_value", Tensor, "f32", (2,), memoryview(bytes(7)))

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy is not installed")
        for dtype in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
            array = np.arange(6).astype(dtype).reshape(2, 3)
            for one in (array, array.T, array[:, ::2], np.asfortranarray(array)):
                tensor = Tensor.of(one)
                self.assertTrue((tensor.numpy() == one).all() and tensor.numpy().dtype == one.dtype, dtype)
        self.assertEqual(Tensor.of(np.float32(2)).shape, ())
        for other in (np.zeros(2, ">f4"), np.zeros(2, "c8"), np.zeros(0), np.array(["a"])):
            refused(self, "bad_value", Tensor.of, other)


if __name__ == "__main__":
    unittest.main()
