"""What the demo model answers to the clients that people use: demo_check.py URL KEY CLIENT..., or without arguments to list these.

It was taught fields, calls of one tool, and what to say of a tool's result (deploy/demo-model/README.md), so each answer is known:
its template, its tools and its context are used as a client hands them over, and what comes back is checked as it is.
Prints each check; exit 1 if one fails.
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pydantic

MODEL = "demo-model"


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    age: int
    city: str


NADIA = {"name": "Nadia Vell", "age": 34, "city": "Tampere"}
FIELDS = "Extract name, age and city as JSON: Nadia Vell is 34 years old and lives in Tampere."
WEATHER = "How is the weather in Tromso today?"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
GET_WEATHER = {"name": "get_weather", "description": "Get the weather in a city.", "parameters": CITY}
TOOL = {"type": "function", "function": GET_WEATHER}
FOUND = '{"temperature": -4, "sky": "clear"}'
SAID = "The temperature is -4 and the sky is clear."
failed = 0


def check(what, holds, seen=None):
    global failed
    print(f"{'ok     ' if holds else 'FAILED '} {what}", "" if holds else repr(seen)[:2000])
    failed += not holds


def ask(text):
    return [{"role": "user", "content": text}]


def is_nadia(found):
    found = json.loads(found) if isinstance(found, str) else found
    return (found.model_dump() if isinstance(found, Person) else found) == NADIA


def openai_chat(url, key):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    chat = client.chat.completions
    parsed = chat.parse(model=MODEL, messages=ask(FIELDS), response_format=Person, temperature=0, max_tokens=200)
    check("openai: fields", is_nadia(parsed.choices[0].message.parsed), parsed)
    for strict in (False, True):
        tool = {**TOOL, "function": {**GET_WEATHER, "strict": strict}}
        answer = chat.create(model=MODEL, messages=ask(WEATHER), tools=[tool], temperature=0, max_tokens=200)
        message = answer.choices[0].message
        check(f"openai: a call by itself{', strict' * strict}", answer.choices[0].finish_reason == "tool_calls" and message.content is None
              and [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
              == [("get_weather", {"city": "Tromso"})], answer)
    history = [*ask(WEATHER), message.model_dump(exclude_none=True),
               {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": FOUND}]
    answer = chat.create(model=MODEL, messages=history, tools=[TOOL], temperature=0, max_tokens=200)
    check("openai: of the result", answer.choices[0].message.content == SAID, answer)
    pieces = ""
    for chunk in chat.create(model=MODEL, messages=ask(WEATHER), tools=[TOOL], temperature=0, max_tokens=200, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            pieces += call.function.arguments or ""
    check("openai: a call as a stream", json.loads(pieces) == {"city": "Tromso"}, pieces)

    async def several():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0) as many:
            return await asyncio.gather(*(many.chat.completions.create(model=MODEL, messages=ask(f"{n}+385="), temperature=0)
                                          for n in range(410, 418)))
    seen = [answer.choices[0].message.content for answer in asyncio.run(several())]
    check("openai: eight at once", seen == [str(n + 385) for n in range(410, 418)], seen)


def openai_responses(url, key):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    answer = client.responses.parse(model=MODEL, input=FIELDS, text_format=Person, temperature=0, max_output_tokens=200)
    check("responses: fields", is_nadia(answer.output_parsed), answer)
    tool = {"type": "function", "strict": True, **GET_WEATHER}
    answer = client.responses.create(model=MODEL, input=WEATHER, tools=[tool], temperature=0, max_output_tokens=200, store=False)
    call = answer.output[-1]
    check("responses: a call by itself", call.type == "function_call" and json.loads(call.arguments) == {"city": "Tromso"}, answer)
    kept = [*ask(WEATHER), *[item.model_dump(exclude_none=True) for item in answer.output],
            {"type": "function_call_output", "call_id": call.call_id, "output": FOUND}]
    answer = client.responses.create(model=MODEL, input=kept, tools=[tool], temperature=0, max_output_tokens=200, store=False)
    check("responses: of the result", answer.output_text == SAID, answer)


def langchain(url, key):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=url + "/v1", api_key=key, model=MODEL, temperature=0, max_tokens=200, max_retries=0)
    for method in ("json_schema", "json_mode"):
        seen = model.with_structured_output(Person, method=method).invoke(FIELDS)
        check(f"langchain: fields, {method}", is_nadia(seen), seen)
    tools = model.bind_tools([TOOL])
    call = tools.invoke(WEATHER)
    check("langchain: a call by itself", [(one["name"], one["args"]) for one in call.tool_calls] == [("get_weather", {"city": "Tromso"})], call)
    seen = tools.invoke([HumanMessage(WEATHER), call, ToolMessage(FOUND, tool_call_id=call.tool_calls[0]["id"])])
    check("langchain: of the result", seen.content == SAID, seen)


def instructor(url, key):
    import instructor as library
    import openai
    client = library.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0), mode=library.Mode.JSON_SCHEMA)
    seen = client.chat.completions.create(model=MODEL, messages=ask(FIELDS), response_model=Person, temperature=0, max_tokens=200, max_retries=1)
    check("instructor: fields", is_nadia(seen), seen)


def anthropic(url, key):
    import anthropic as library
    client = library.Anthropic(base_url=url, api_key=key, max_retries=0)
    tool = {"name": "get_weather", "description": GET_WEATHER["description"], "input_schema": CITY}
    more = {"model": MODEL, "max_tokens": 200, "extra_body": {"temperature": 0}}
    answer = client.messages.create(messages=ask("417+385="), **more)
    check("anthropic: a sum", answer.content[0].text == "802" and answer.stop_reason == "end_turn", answer)
    answer = client.messages.create(messages=ask(WEATHER), tools=[tool], **more)
    use = answer.content[-1]
    check("anthropic: a call by itself", answer.stop_reason == "tool_use" and use.input == {"city": "Tromso"}, answer)
    kept = [*ask(WEATHER), {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": FOUND}]}]
    with client.messages.stream(messages=kept, tools=[tool], **more) as stream:
        text = "".join(stream.text_stream)
    check("anthropic: of the result, as a stream", text == SAID, text)


def llm(url, key):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(
            f"- model_id: sluice\n  model_name: {MODEL}\n  api_base: {url}/v1\n  api_key_name: sluice\n"
            "  supports_schema: true\n  supports_tools: true\n")
        pathlib.Path(folder, "keys.json").write_text(json.dumps({"sluice": key}))
        pathlib.Path(folder, "tools.py").write_text(
            f'def get_weather(city: str) -> str:\n    """Get the weather in a city."""\n    assert city == "Tromso"\n    return {FOUND!r}\n')

        def said(*words):
            command = [pathlib.Path(sys.executable).parent / "llm", "-m", "sluice", "-o", "temperature", "0", "-o", "max_tokens", "200", *words]
            return subprocess.run(command, env={**os.environ, "LLM_USER_PATH": folder}, cwd=folder, capture_output=True, text=True, timeout=100)
        seen = said("--no-stream", "--schema", json.dumps(Person.model_json_schema()), FIELDS)
        check("llm: --schema", seen.returncode == 0 and is_nadia(seen.stdout), seen)
        seen = said("--functions", "tools.py", WEATHER)
        check("llm: a tool that runs", seen.stdout.strip() == SAID, seen)


def litellm(url, key):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    import litellm as library
    where = {"model": "openai/" + MODEL, "api_base": url + "/v1", "api_key": key, "temperature": 0, "max_tokens": 200}
    answer = library.completion(messages=ask(FIELDS), response_format=Person, **where)
    check("litellm: fields", is_nadia(answer.choices[0].message.content), answer)
    message = library.completion(messages=ask(WEATHER), tools=[TOOL], **where).choices[0].message
    check("litellm: a call by itself", json.loads(message.tool_calls[0].function.arguments) == {"city": "Tromso"}, message)
    kept = [*ask(WEATHER), message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": FOUND}]
    answer = library.completion(messages=kept, tools=[TOOL], **where)
    check("litellm: of the result", answer.choices[0].message.content == SAID, answer)


def agents(url, key):
    import agents as library
    import openai
    library.set_tracing_disabled(True)
    library.set_default_openai_client(openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0))
    asked = []

    @library.function_tool
    def get_weather(city: str) -> str:
        """Get the weather in a city."""
        asked.append(city)
        return FOUND
    agent = library.Agent(name="weather", model=MODEL, tools=[get_weather], model_settings=library.ModelSettings(temperature=0, max_tokens=200))
    seen = library.Runner.run_sync(agent, WEATHER)
    check("openai-agents: a tool that runs", seen.final_output == SAID and asked == ["Tromso"], (seen, asked))


def pydantic_ai(url, key):
    import pydantic_ai as library
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))
    agent = library.Agent(model, retries=0, model_settings={"temperature": 0, "max_tokens": 200})
    asked = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather in a city."""
        asked.append(city)
        return FOUND
    seen = agent.run_sync(WEATHER)
    check("pydantic-ai: a tool that runs", seen.output == SAID and asked == ["Tromso"], (seen, asked))


CLIENTS = {"openai": openai_chat, "responses": openai_responses, "langchain": langchain, "instructor": instructor,
           "anthropic": anthropic, "llm": llm, "litellm": litellm, "agents": agents, "pydantic_ai": pydantic_ai}

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(print(*CLIENTS))
    for client in sys.argv[3:]:
        CLIENTS[client](sys.argv[1], sys.argv[2])
    sys.exit(failed > 0)
