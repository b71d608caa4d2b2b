"""Requests to a router, and what became of each: HTTP/1.1 by hand, so that no library tries anything again."""
import asyncio
import json
import random
import time

REQUEST_S = 120  # nothing takes so long: it hangs
TOKENS = (16, 24, 32, 40, 48)  # of an answer


class Outcome:
    """What one request came to. kind: "good", "cancelled" (by us), "error" (told as one), "cut" (a stream without its end), or
    "wrong" (an answer that is none: never allowed)."""

    def __init__(self, request):
        self.request = request
        self.begin = time.monotonic()
        self.end = None
        self.kind, self.detail, self.daemon, self.status = "wrong", "", None, 0

    def close(self, kind, detail=""):
        self.kind, self.detail, self.end = kind, detail, time.monotonic()
        return self


class Request:
    def __init__(self, number, rng, prompts, cancels=True):
        self.number = number
        self.user = f"r{number}"
        self.prompt = rng.choice(prompts)
        self.tokens = rng.choice(TOKENS)
        draw = rng.random()
        self.stream = draw < 0.5
        self.cancel = cancels and draw < 0.1
        self.session = None

    def body(self, model, chat):
        body = {"model": model, "max_tokens": self.tokens, "temperature": 0, "ignore_eos": True, **prompt_of(self.prompt, chat)}
        if self.stream:
            body["stream"] = True
        return json.dumps(body).encode()


def prompt_of(prompt, chat):
    return {"messages": [{"role": "user", "content": prompt.rstrip("=")}]} if chat else {"prompt": prompt}


def path_of(chat):
    return "/v1/chat/completions" if chat else "/v1/completions"


def text_of(choice):
    """Of a completion, a chat, or a piece of either."""
    return choice.get("text") or (choice.get("message") or choice.get("delta") or {}).get("content") or ""


async def read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return int(head[0].split()[1]), fields


async def pieces(reader, fields):
    """The body, by chunks where it has them. Raises IncompleteReadError where it has no end."""
    if fields.get("transfer-encoding", "").lower() != "chunked":
        if "content-length" in fields:
            yield await reader.readexactly(int(fields["content-length"]))
        else:
            yield await reader.read()
        return
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield piece[:-2]


class Load:
    """Who asks. run() asks for at least `count` in all, and on until `busy` is done."""

    def __init__(self, address, port, key, model, expected, seed, chat=False):
        self.address, self.port, self.key, self.model = address, port, key, model
        self.expected = expected  # the answers, by prompt and tokens
        self.prompts = sorted({prompt for prompt, _ in expected})
        self.rng = random.Random(seed)
        self.chat = chat
        self.outcomes = []
        self.next = 0

    def head(self, request, body):
        lines = [f"POST {path_of(self.chat)} HTTP/1.1", f"Host: {self.address}", "Content-Type: application/json",
                 f"X-Request-Id: {request.user}", f"X-Sluice-User: {request.user}", f"Content-Length: {len(body)}",
                 "Connection: close"]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        if request.session is not None:
            lines += [f"X-Session: session-{request.session}", f"X-LiteLLM-Session-Id: session-{request.session}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def one(self, request):
        outcome = Outcome(request)
        try:
            return await asyncio.wait_for(self.exchange(request, outcome), REQUEST_S)
        except asyncio.TimeoutError:
            return outcome.close("wrong", "it hangs")
        except (asyncio.IncompleteReadError, ConnectionError, OSError) as error:
            return outcome.close("cut", repr(error))
        except (KeyError, ValueError) as error:
            return outcome.close("wrong", repr(error))

    async def exchange(self, request, outcome):
        reader, writer = await asyncio.open_connection(self.address, self.port, limit=1 << 20)
        try:
            body = request.body(self.model, self.chat)
            writer.write(self.head(request, body) + body)
            outcome.status, fields = await read_head(reader)
            outcome.daemon = fields.get("x-served-by") or fields.get("x-litellm-model-api-base")
            if request.stream and outcome.status == 200:
                return await self.stream(request, outcome, reader, fields)
            text = b"".join([piece async for piece in pieces(reader, fields)])
            if outcome.status != 200:
                return outcome.close("error", f"{outcome.status} {text[:200]!r}")
            answer = json.loads(text)
            return self.judge(request, outcome, text_of(answer["choices"][0]), len(answer["choices"]))
        finally:
            writer.close()

    async def stream(self, request, outcome, reader, fields):
        text, rest, ids, done = "", b"", set(), False
        async for piece in pieces(reader, fields):
            rest += piece
            *events, rest = rest.split(b"\n\n")
            for event in events:
                data = event.strip().removeprefix(b"data:").strip()
                if done and data:
                    return outcome.close("wrong", f"something after the end: {data[:100]!r}")
                if data == b"[DONE]":
                    done = True
                elif data and not data.startswith(b":"):
                    message = json.loads(data)
                    if "error" in message:
                        return outcome.close("error", f"in the stream: {data[:200]!r}")
                    ids.add(message["id"])
                    text += "".join(text_of(choice) for choice in message["choices"])
            if request.cancel and text:
                return outcome.close("cancelled")
        if not done:
            return outcome.close("cut", "a stream without its end")
        if len(ids) != 1:
            return outcome.close("wrong", f"a stream of {len(ids)} answers")
        return self.judge(request, outcome, text, 1)

    def judge(self, request, outcome, text, count):
        wanted = self.expected[request.prompt, request.tokens]
        if count == 1 and text == wanted:
            return outcome.close("good")
        return outcome.close("wrong", f"{text!r} instead of {wanted!r}")

    async def worker(self, count, busy, base):
        while self.next < count or (busy and not busy.done()):
            self.next += 1
            self.outcomes.append(await self.one(Request(base + self.next, self.rng, self.prompts)))
            await asyncio.sleep(self.rng.random() * (0.02 if self.next < count else 0.2))  # enough have asked: only so that some always do

    async def run(self, count, workers, busy=None):
        """Closed loop: the outcomes of this run."""
        first, self.next = len(self.outcomes), 0
        await asyncio.gather(*[self.worker(count, busy, first) for _ in range(workers)])
        if busy:
            await busy
        return self.outcomes[first:]

    async def run_together(self, count, size, make):
        """`size` at once, then the next: who is fast gets no more than who is slow."""
        first = len(self.outcomes)
        for begin in range(first + 1, first + count + 1, size):
            numbers = range(begin, min(begin + size, first + count + 1))
            self.outcomes += await asyncio.gather(*[self.one(make(number)) for number in numbers])
        return self.outcomes[first:]
