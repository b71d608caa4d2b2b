"""Answers that fit, by the clients that people use: answers_check.py URL KEY CLIENT..., or without arguments to list these.

The daemon at URL serves a model of random weights with tests/http/templates/tools.jinja: what it says is noise, so all that
holds of an answer is what was asked of it. Prints each check; exit 1 if one fails.
"""
import asyncio
import enum
import json
import sys
import typing

import pydantic

MODEL = "tiny"


class Colour(str, enum.Enum):
    red = "red"
    green = "green"


class Fruit(pydantic.BaseModel):
    """A fruit."""
    model_config = pydantic.ConfigDict(extra="forbid")  # a model that says noise would fill in more for ever
    colour: Colour
    ripe: bool
    weight: int = pydantic.Field(ge=1, le=900)
    parts: list[typing.Literal["skin", "core", "stalk"]] = pydantic.Field(max_length=2)


SCHEMA = Fruit.model_json_schema()
TOOL = {"type": "function", "function": {"name": "pick", "description": "Picks a fruit.", "parameters": SCHEMA, "strict": True}}
ASK = [{"role": "user", "content": "Pick one."}]
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:2000])
    failed += not holds


def is_fruit(arguments):
    try:
        return bool(Fruit.model_validate(json.loads(arguments) if isinstance(arguments, str) else arguments))
    except (ValueError, TypeError):
        return False


def openai_chat(url, key):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    chat = client.chat.completions
    answer = chat.parse(model=MODEL, messages=ASK, response_format=Fruit, max_tokens=500)
    check("openai: parse", isinstance(answer.choices[0].message.parsed, Fruit), answer)
    answer = chat.create(model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=500)
    call = answer.choices[0].message.tool_calls[0]
    check("openai: tool_choice required", answer.choices[0].finish_reason == "tool_calls" and call.function.name == "pick"
          and is_fruit(call.function.arguments), answer)
    name = {"type": "function", "function": {"name": "pick"}}
    pieces, ids, names, finish = "", [], [], None
    for chunk in chat.create(model=MODEL, messages=ASK, tools=[TOOL], tool_choice=name, max_tokens=500, stream=True):
        choice = chunk.choices[0]
        for delta in choice.delta.tool_calls or []:
            ids += [delta.id] if delta.id else []
            names += [delta.function.name] if delta.function.name else []
            pieces += delta.function.arguments or ""
        finish = choice.finish_reason or finish
    check("openai: a call as a stream", is_fruit(pieces) and len(ids) == 1 and names == ["pick"] and finish == "tool_calls",
          (pieces, ids, names, finish))
    with chat.stream(model=MODEL, messages=ASK, tools=[openai.pydantic_function_tool(Fruit)], tool_choice="required",
                     parallel_tool_calls=False, max_tokens=500) as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    check("openai: parsed arguments of a stream", isinstance(call.function.parsed_arguments, Fruit), call)
    history = ASK + [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "pick", "arguments": '{"colour": "red"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
    answer = chat.create(model=MODEL, messages=history, tools=[TOOL], tool_choice="none", max_tokens=5)
    check("openai: results of tools", answer.choices[0].message.content is not None, answer)
    thinks = {"thinking_token_budget": 20, "chat_template_kwargs": {"enable_thinking": True}}
    answer = chat.parse(model=MODEL, messages=ASK, response_format=Fruit, max_tokens=500, extra_body=thinks)
    message = answer.choices[0].message
    check("openai: thought within a budget, then what was asked for", isinstance(message.parsed, Fruit)
          and 0 < len(message.reasoning) and answer.usage.completion_tokens < 300, answer)
    try:
        chat.create(model=MODEL, messages=ASK, tools=[{"type": "function", "function": {"name": "no name", "parameters": {}}}])
        check("openai: refusals", False)
    except openai.BadRequestError as error:
        check("openai: refusals", error.param == "tools", error)

    async def ask():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0) as other:
            return await other.chat.completions.parse(model=MODEL, messages=ASK, response_format=Fruit, max_tokens=500)
    check("openai: parse, async", isinstance(asyncio.run(ask()).choices[0].message.parsed, Fruit))


def openai_responses(url, key):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    answer = client.responses.parse(model=MODEL, input="Pick one.", text_format=Fruit, max_output_tokens=500)
    check("responses: parse", isinstance(answer.output_parsed, Fruit), answer)
    tool = {"type": "function", "name": "pick", "parameters": SCHEMA, "strict": True}
    answer = client.responses.create(model=MODEL, input="Pick one.", tools=[tool], tool_choice="required", parallel_tool_calls=False,
                                     max_output_tokens=500, store=False)
    check("responses: a call", answer.output[-1].type == "function_call" and is_fruit(answer.output[-1].arguments), answer)
    kept = [{"role": "user", "content": "Pick one."}, *[item.model_dump(exclude_none=True) for item in answer.output],
            {"type": "function_call_output", "call_id": answer.output[-1].call_id, "output": "done"}]
    answer = client.responses.create(model=MODEL, input=kept, tools=[tool], tool_choice="none", max_output_tokens=5)
    check("responses: goes on", answer.status in ("completed", "incomplete"), answer)
    seen, pieces = [], ""
    with client.responses.stream(model=MODEL, input="Pick one.", tools=[tool], tool_choice="required", parallel_tool_calls=False,
                                 max_output_tokens=500) as stream:
        for event in stream:
            seen.append(event.type)
            pieces += event.delta if event.type == "response.function_call_arguments.delta" else ""
        final = stream.get_final_response()
    check("responses: a stream", seen[0] == "response.created" and seen[-1] == "response.completed" and is_fruit(pieces)
          and final.output[-1].arguments == pieces, seen)
    try:
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
        check("responses: refusals", False)
    except openai.BadRequestError as error:
        check("responses: refusals", error.param == "previous_response_id", error)


def langchain(url, key):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=url + "/v1", api_key=key, model=MODEL, max_tokens=500, max_retries=0)
    for method in ("json_schema", "function_calling", "json_mode"):
        if method == "json_mode":  # any object: what it holds is the model's affair
            try:
                seen = model.with_structured_output(Fruit, method=method, include_raw=True).invoke("Pick one as JSON.")
                json.loads(seen["raw"].content)
                seen = Fruit
            except ValueError as error:
                seen = error
            check("langchain: json_mode", seen is Fruit, seen)
            continue
        seen = model.with_structured_output(Fruit, method=method, strict=True).invoke("Pick one.")
        check("langchain: " + method, isinstance(seen, Fruit), seen)


def instructor(url, key):
    import instructor as library
    import openai
    for mode in (library.Mode.TOOLS_STRICT, library.Mode.JSON_SCHEMA):
        client = library.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0), mode=mode)
        seen = client.chat.completions.create(model=MODEL, messages=ASK, response_model=Fruit, max_tokens=500, max_retries=1)
        check(f"instructor: {mode.value}", isinstance(seen, Fruit), seen)


def anthropic(url, key):
    import anthropic as library
    client = library.Anthropic(base_url=url, api_key=key, max_retries=0)
    tool = {"name": "pick", "description": "Picks a fruit.", "input_schema": SCHEMA}
    one = {"type": "tool", "name": "pick"}
    answer = client.messages.create(model=MODEL, max_tokens=20, system="Be brief.", messages=ASK)
    check("anthropic: a message", answer.role == "assistant" and answer.usage.output_tokens > 0, answer)
    answer = client.messages.create(model=MODEL, max_tokens=500, messages=ASK, tools=[tool], tool_choice=one)
    use = answer.content[-1]
    check("anthropic: a call", answer.stop_reason == "tool_use" and use.name == "pick" and is_fruit(use.input), answer)
    kept = ASK + [{"role": "assistant", "content": answer.content},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "done"}]}]
    with client.messages.stream(model=MODEL, max_tokens=500, messages=kept, tools=[tool], tool_choice=one) as stream:
        final = stream.get_final_message()
    check("anthropic: a stream", final.stop_reason == "tool_use" and is_fruit(final.content[-1].input), final)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = client.messages.create(model=MODEL, max_tokens=1500, messages=ASK, tools=[tool], thinking=thinking,
                                    tool_choice={"type": "any", "disable_parallel_tool_use": True})
    check("anthropic: thinking", answer.content[-1].type == "tool_use" and is_fruit(answer.content[-1].input)
          and 1024 <= answer.usage.output_tokens < 1400, answer)
    count = client.messages.count_tokens(model=MODEL, messages=ASK, tools=[tool])
    check("anthropic: count_tokens", count.input_tokens > 100, count)
    try:
        client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": [{"type": "image", "source": {
            "type": "url", "url": "http://localhost/x.png"}}]}])
        check("anthropic: refusals", False)
    except library.BadRequestError as error:
        check("anthropic: refusals", error.body["error"]["type"] == "invalid_request_error", error)
    try:
        library.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(model=MODEL, max_tokens=5, messages=ASK)
        check("anthropic: keys", False)
    except library.AuthenticationError as error:
        check("anthropic: keys", error.body["error"]["type"] == "authentication_error", error)


def llm(url, key):
    """`llm --schema`: the command that people have, with the model in its own file."""
    import os
    import pathlib
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(
            f"- model_id: sluice\n  model_name: {MODEL}\n  api_base: {url}/v1\n  api_key_name: sluice\n"
            "  supports_schema: true\n  supports_tools: true\n")
        pathlib.Path(folder, "keys.json").write_text(json.dumps({"sluice": key}))
        command = [pathlib.Path(sys.executable).parent / "llm", "-m", "sluice", "--no-stream", "-o", "max_tokens", "500", "--schema",
                   json.dumps(SCHEMA), "Pick one."]
        said = subprocess.run(command, env={**os.environ, "LLM_USER_PATH": folder}, capture_output=True, text=True, timeout=100)
    check("llm: --schema", is_fruit(said.stdout), said)


def litellm(url, key):
    import os
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    import litellm as library
    answer = library.completion(model="openai/" + MODEL, api_base=url + "/v1", api_key=key, messages=ASK, response_format=Fruit,
                                max_tokens=500)
    check("litellm: a schema", is_fruit(answer.choices[0].message.content), answer)
    pieces = ""
    for chunk in library.completion(model="openai/" + MODEL, api_base=url + "/v1", api_key=key, messages=ASK, tools=[TOOL],
                                    tool_choice="required", parallel_tool_calls=False, max_tokens=500, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            pieces += call.function.arguments or ""
    check("litellm: a call as a stream", is_fruit(pieces), pieces)


def agents(url, key):
    import agents as library
    import openai
    library.set_tracing_disabled(True)
    library.set_default_openai_client(openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0))
    agent = library.Agent(name="picker", instructions="Pick.", model=MODEL, output_type=Fruit,
                          model_settings=library.ModelSettings(max_tokens=500))
    seen = library.Runner.run_sync(agent, "Pick one.")
    check("openai-agents: an output's type", isinstance(seen.final_output, Fruit), seen)


def pydantic_ai(url, key):
    import pydantic_ai as library
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))
    settings = {"max_tokens": 500, "parallel_tool_calls": False}
    for output in (library.NativeOutput(Fruit), library.ToolOutput(Fruit, strict=True)):
        seen = library.Agent(model, output_type=output, retries=0, model_settings=settings).run_sync("Pick one.")
        check(f"pydantic-ai: {type(output).__name__}", isinstance(seen.output, Fruit), seen)


CLIENTS = {"openai": openai_chat, "responses": openai_responses, "langchain": langchain, "instructor": instructor,
           "anthropic": anthropic, "llm": llm, "litellm": litellm, "agents": agents, "pydantic_ai": pydantic_ai}

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(print(*CLIENTS))
    for client in sys.argv[3:]:
        CLIENTS[client](sys.argv[1], sys.argv[2])
    sys.exit(failed > 0)
