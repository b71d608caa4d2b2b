"""Answers against what OpenAI publishes: published_check.py URL KEY [DESCRIPTION]

Every answer and every event of a stream is read strictly into the types of the openai package, which are made from OpenAI's
description, and what those do not know must stand in OURS. With DESCRIPTION, openapi.json of the repository
openai/openai-openapi or described.json, what described.py keeps of it, they are validated against its schemas, too, by the
package jsonschema. The daemon at URL serves a model of random weights with tests/http/templates/tools.jinja. Prints each
check; exit 1 if one fails.
"""
import json
import sys
import typing
import urllib.error
import urllib.request

import pydantic
from openai.types import CreateEmbeddingResponse, Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject

URL, KEY = sys.argv[1:3]
MODEL = "tiny"
SCHEMA = {"type": "object", "properties": {"ripe": {"type": "boolean"}, "colour": {"enum": ["red", "green"]}},
          "required": ["ripe", "colour"], "additionalProperties": False}
FUNCTION = {"name": "pick", "description": "Picks a fruit.", "parameters": SCHEMA, "strict": True}
ASK = [{"role": "user", "content": "Pick one."}]
CHAT = {"model": MODEL, "messages": ASK, "max_tokens": 40}
TEXT = {"model": MODEL, "prompt": "Once", "max_tokens": 12}
ITEMS = {"model": MODEL, "input": "Pick one.", "max_output_tokens": 40}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required", "parallel_tool_calls": False}
THOUGHT = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 10}
FORM = {"type": "json_schema", "json_schema": {"name": "fruit", "schema": SCHEMA, "strict": True}}

# Members that OpenAI's answers have not, by the type that they stand in; daemon/http/FIELDS.md says which request asks for them.
OURS = {
    "ChatCompletionMessage": {"reasoning": "vLLM's: what a model thought"},
    "ChoiceDelta": {"reasoning": "the same, as it comes"},
    "Model": {"max_model_len": "vLLM's: the context"},
    "Response": {"store": "OpenAI's own answers have it, its description not"},
    "ResponseFunctionCallArgumentsDoneEvent": {"name": "the description has it, the package not yet"},
}

failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else str(seen)[:1500])
    failed += not holds


# ---- the daemon

def fetch(path, body=None):
    """Status and text; of a stream its events, each as a text."""
    request = urllib.request.Request(URL + path, None if body is None else json.dumps(body).encode(),
                                     {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def events_of(text):
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [line for line in lines if line != "[DONE]"]


def as_described(event):
    """Of completions OpenAI describes no events but whole answers. Its own streams have null where the usage and the reason of the
    end are still to come, as it says of stream_options; and so have these."""
    value = json.loads(event)
    if value.get("object") == "text_completion":
        for choice in value["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        if value["usage"] is None:
            del value["usage"]
    return json.dumps(value)


# ---- types

def strangers(value, path):
    """What the package's types do not know, and where."""
    if isinstance(value, pydantic.BaseModel):
        name = type(value).__name__
        for key in value.model_extra or {}:
            if key not in OURS.get(name, {}):
                yield f"{path}: {name} has no {key}"
        for key in type(value).model_fields:
            yield from strangers(getattr(value, key, None), f"{path}.{key}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from strangers(item, f"{path}[{at}]")


EVENTS = {event.model_fields["type"].annotation.__args__[0]: event for event in typing.get_args(typing.get_args(ResponseStreamEvent)[0])}


def faults_of_type(kind, text):
    if kind is ResponseStreamEvent:  # by its type, for words that say what is wrong
        kind = EVENTS.get(json.loads(text)["type"])
        if not kind:
            return [f"there is no event {json.loads(text)['type']}"]
    try:
        return list(strangers(pydantic.TypeAdapter(kind).validate_json(text, strict=True), ""))
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]


# ---- the description

def open_up(schema):
    """"nullable" is a word of OpenAPI 3.0, which the document still has."""
    if isinstance(schema, list):
        return [open_up(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    opened = {key: open_up(value) for key, value in schema.items()}
    return {"anyOf": [opened, {"type": "null"}]} if opened.get("nullable") is True else opened


def validator_of(path):
    import jsonschema
    with open(path) as file:
        document = open_up(json.load(file))

    def faults(name, value):
        schemas = document["components"]["schemas"]
        if name == "ResponseStreamEvent":
            names = [part["$ref"].rsplit("/", 1)[1] for part in schemas[name].get("anyOf") or schemas[name]["oneOf"]]
            kinds = {kind: part for part in names for kind in schemas[part]["properties"]["type"]["enum"]}
            if value.get("type") not in kinds:
                return [f"there is no event {value.get('type')}"]
            name = kinds[value["type"]]
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        found = jsonschema.Draft202012Validator(schema).iter_errors(value)
        return [f"{name}: {'.'.join(map(str, e.absolute_path))}: {jsonschema.exceptions.best_match([e]).message}"[:400] for e in found]

    return faults


described = validator_of(sys.argv[3]) if len(sys.argv) > 3 else lambda name, value: []


def hold(what, kind, name, text):
    faults = faults_of_type(kind, text) + described(name, json.loads(text))
    check(what, not faults, faults)


# ---- what is asked

class Models(pydantic.BaseModel):
    object: str
    data: list[Model]


class Error(pydantic.BaseModel):
    error: ErrorObject


CHATS = {
    "chat": CHAT,
    "chat, several with log-probabilities": {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2, "temperature": 1, "seed": 3},
    "chat, a schema": {**CHAT, "response_format": FORM, "max_tokens": 200},
    "chat, a call": {**CHAT, **TOOLS, "max_tokens": 400},
    "chat, a call cut off": {**CHAT, **TOOLS, "max_tokens": 9},
    "chat, thought": {**CHAT, **THOUGHT, "max_tokens": 60},
    "chat, tools and text": {**CHAT, "tools": TOOLS["tools"], "tool_choice": "none"},
}
TEXTS = {
    "completion": TEXT,
    "completion, log-probabilities": {**TEXT, "logprobs": 2, "n": 2, "seed": 1, "temperature": 1},
    "completion, echo": {**TEXT, "echo": True},
    "completion, several prompts": {**TEXT, "prompt": ["one", "two"]},
}
LISTS = {
    "response": ITEMS,
    "response, a schema": {**ITEMS, "text": {"format": {"type": "json_schema", **FORM["json_schema"]}}, "max_output_tokens": 200},
    "response, a call": {**ITEMS, "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required", "max_output_tokens": 400},
    "response, thought": {**ITEMS, **THOUGHT, "max_output_tokens": 60},
    "response, told again": {**ITEMS, "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9, "metadata": {"a": "b"},
                             "tools": [{"type": "function", **FUNCTION}], "tool_choice": "auto", "parallel_tool_calls": False},
}


def main():
    for path, requests, whole, part, names in (
            ("/v1/chat/completions", CHATS, ChatCompletion, ChatCompletionChunk,
             ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse")),
            ("/v1/completions", TEXTS, Completion, Completion, ("CreateCompletionResponse",) * 2),
            ("/v1/responses", LISTS, Response, ResponseStreamEvent, ("Response", "ResponseStreamEvent"))):
        for what, body in requests.items():
            status, text = fetch(path, body)
            check(f"{what}: answered", status == 200, text)
            if status == 200:
                hold(what, whole, names[0], text)
            if body.get("echo"):
                continue
            options = {} if whole is Response else {"stream_options": {"include_usage": True}}
            status, text = fetch(path, {**body, "stream": True, **options})
            events = [as_described(event) for event in events_of(text)]
            check(f"{what}: streamed", status == 200 and len(events) > 1, text)
            faults = [f for event in events for f in faults_of_type(part, event) + described(names[1], json.loads(event))]
            check(f"{what}: {len(events)} events", not faults, sorted(set(faults)))
    for what, more in (("embeddings", {}), ("embeddings, base64", {"encoding_format": "base64"})):
        text = fetch("/v1/embeddings", {"model": MODEL, "input": ["one", "two"], **more})[1]
        if not more:
            hold(what, CreateEmbeddingResponse, "CreateEmbeddingResponse", text)
        else:  # the type has numbers alone: the package decodes before it reads
            value = json.loads(text)
            check(what, all(isinstance(row.pop("embedding"), str) for row in value["data"]), text)
    hold("models", Models, "ListModelsResponse", fetch("/v1/models")[1])
    hold("a model", Model, "Model", fetch(f"/v1/models/{MODEL}")[1])
    for what, path, body in (("no messages", "/v1/chat/completions", {"model": MODEL}),
                             ("another model", "/v1/completions", {**TEXT, "model": "other"}),
                             ("an unknown field", "/v1/responses", {**ITEMS, "nothing": 1}),
                             ("too long", "/v1/embeddings", {"model": MODEL, "input": "a" * 100000})):
        status, text = fetch(path, body)
        check(f"{what}: refused", 400 <= status < 500, text)
        hold(f"{what}: the error", Error, "ErrorResponse", text)


main()
sys.exit(failed > 0)
