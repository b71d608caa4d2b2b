"""What OpenAI's description says of the answers that Sluice gives: described.py OPENAPI_JSON > described.json

OPENAPI_JSON is openapi.json of the repository openai/openai-openapi (MIT). Kept are the schemas that those answers are made of,
without texts, examples and defaults; of parts that come in kinds (items, tools, events) the kinds below: an answer with any
other kind fails. published_check.py reads this file as it does the whole description.
"""
import json
import sys

ANSWERS = ["CreateChatCompletionResponse", "CreateChatCompletionStreamResponse", "CreateCompletionResponse", "CreateEmbeddingResponse",
           "ListModelsResponse", "Model", "Response", "ResponseStreamEvent", "ErrorResponse"]
KINDS = {
    "message", "function_call", "reasoning", "function", "output_text", "reasoning_text", "refusal", "text", "json_schema", "json_object", "error",
    *(f"response.{event}" for event in (
        "created", "in_progress", "completed", "incomplete", "failed", "output_item.added", "output_item.done", "content_part.added",
        "content_part.done", "output_text.delta", "output_text.done", "reasoning_text.delta", "reasoning_text.done",
        "function_call_arguments.delta", "function_call_arguments.done"))}
SILENT = {"description", "title", "example", "examples", "default", "deprecated", "externalDocs", "discriminator"}


def kinds(schema, schemas):
    """The values that its type may have; none: it has no kind."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    kind = schema.get("properties", {}).get("type", {})
    found = kind.get("enum") or ([kind["const"]] if "const" in kind else [])
    for part in schema.get("allOf", []):
        found = found or kinds(part, schemas)
    return found


def is_kept(schema, schemas):
    found = kinds(schema, schemas)
    return not found or any(kind in KINDS for kind in found)


def reduce(value, schemas, wanted, names=False):
    """`names`: the keys are names of members, not words of the language."""
    if isinstance(value, list):
        return [reduce(one, schemas, wanted) for one in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        wanted.append(value["$ref"].rsplit("/", 1)[1])
    kept = {key: one for key, one in value.items() if names or (key not in SILENT and not key.startswith("x-"))}
    for key in ("anyOf", "oneOf"):
        if key in kept and not names:
            kept[key] = [one for one in kept[key] if is_kept(one, schemas)]
    return {key: reduce(one, schemas, wanted, key == "properties" and not names) for key, one in kept.items()}


def main():
    with open(sys.argv[1]) as file:
        document = json.load(file)
    schemas, wanted, kept = document["components"]["schemas"], list(ANSWERS), {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = {}
            kept[name] = reduce(schemas[name], schemas, wanted)
    print('{"source": ' + json.dumps(f"openapi.json {document['info']['version']} of github.com/openai/openai-openapi (MIT), by described.py") + ",")
    print('"components": {"schemas": {')
    print(",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name], separators=(',', ':'))}" for name in sorted(kept)))
    print("}}}")


main()
