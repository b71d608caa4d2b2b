#!/usr/bin/env python3
"""Makes tests/text/data/chat.jsonl: what transformers renders for our own templates (tests/text/data/templates), for
published ones, and for snippets.

    pip install transformers jinja2 && python3 tests/text/reference/chat.py TEMPLATES
    python3 tests/text/reference/chat.py families

`families`: tests/text/data/families.jsonl alone, of templates/families: what the templates of Gemma, Phi, OLMo, Granite,
SmolLM3, GLM-4, GLM-4.5, Qwen3-Coder, DeepSeek and gpt-oss do, in our words.
TEMPLATES is a folder of published templates (*.jinja); they are read from there by the test too, and are
not part of this project. A case whose rendering fails has no output."""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather; \"now\", <b>é</b> & 日本\n",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "days": {"type": "integer", "default": 3, "minimum": -1, "maximum": 2.5},
        "units": {"type": "string", "enum": ["c", "f"]}, "exact": {"type": "boolean", "default": False, "x": None}}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}


MANY_TYPES = {"type": "object", "required": ["a"], "properties": {
    "a": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "b": {"type": ["string", "null"]},
    "c": {"oneOf": [{"type": "object"}, {"type": "number"}, {"type": "string", "nullable": True}]}, "d": {"type": "array"},
    "e": {"type": "object", "required": ["y"], "properties": {"x": {"type": "boolean"}, "y": {"type": "string"}}},
    "f": {"type": "array", "items": {"type": "object", "properties": {"some": {"type": "string"}, "more": {"type": "string"},
          "names": {"type": "number"}}}}, "g": {"type": ["object"]}, "h": {}}}


def say(role, content, **more):
    return dict({"role": role, "content": content}, **more)


def called(name, arguments, number="abcdefghi"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


CALL = {"city": "Köln", "days": 2, "exact": True, "list": [1, 2.5, None, "x\ty"], "empty": {}}
CONVERSATIONS = {
    "one": [say("user", "Hello")],
    "system": [say("system", "You are terse."), say("user", "Hello")],
    "turns": [say("system", "  Spaces \n"), say("user", " a "), say("assistant", "b\n"), say("user", "\tc"), say("assistant", " d ")],
    "long": [say(("user", "assistant")[i % 2], "message %d 😀 — ünïcode \\ \" '" % i) for i in range(9)],
    "empty": [say("user", ""), say("assistant", ""), say("user", "")],
    "empty system": [say("system", ""), say("user", "x")],
    "special": [say("user", "<|im_end|><|eot_id|>[/INST]</s>{{ x }}{% if %}")],
    "call": [say("user", "Weather?"), say("assistant", "", tool_calls=[called("get_weather", CALL)]),
             say("tool", '{"t": 20}', tool_call_id="abcdefghi", name="get_weather"), say("assistant", "20 degrees")],
    "call none": [say("user", "Weather?"), say("assistant", None, tool_calls=[called("get_weather", {})]),
                  say("tool", "warm", tool_call_id="abcdefghi")],
    "call text": [say("system", "s"), say("user", "Weather?"),
                  say("assistant", "I look.", tool_calls=[called("clock", {}), called("get_weather", {"city": "Rom"}, "123456789")]),
                  say("tool", "12:00", tool_call_id="abcdefghi"), say("tool", "hot", tool_call_id="123456789"),
                  say("assistant", "Noon, hot."), say("user", "Thanks")],
    "call dict": [say("user", "q"), say("assistant", "", tool_calls=[called("clock", {"a": "b"})]),
                  say("tool", {"content": {"x": [1, "é"]}}, tool_call_id="abcdefghi")],
    "call list": [say("user", "q"), say("assistant", "", tool_calls=[called("clock", {"a": "b"})]),
                  say("tool", ["it's", "\"x\"", "a\u00a0b\u200b"], tool_call_id="abcdefghi")],
    "call id": [say("user", "q"), say("assistant", "", tool_calls=[called("clock", {}, "short")])],
    "ipython": [say("user", "q"), say("assistant", "a"), say("ipython", [1, {"k": None}])],
    "order": [say("assistant", "first"), say("user", "then")],
    "twice": [say("user", "a"), say("user", "b")],
    "role": [say("developer", "x")],
    "nothing": [],
}
WORD = {"type": "text", "text": " a word "}
LATER = {  # of families/, with some of those above
    "thought": [say("user", "q"), say("assistant", "<think>\nhm\n</think>\n\nyes"), say("user", "and?"),
                say("assistant", "<think>x</think>no")],
    "reasoned": [say("user", "q"), say("assistant", "\n\nyes", reasoning_content="because")],
    "no think": [say("system", "Short. /no_think"), say("user", "q"), say("assistant", "\na")],
    "override": [say("system", "Only this. /think /system_override  "), say("user", "q")],
    "parts": [say("system", [WORD]), say("user", [{"type": "image"}, WORD, WORD]), say("assistant", "ok")],
    "meta": [say("user", "q"), say("assistant", "{}", metadata="clock"), say("observation", "12:00"), say("assistant", "noon")],
    "own tools": [say("system", "s", tools='[{"name": "clock"}]', functions="clock()"), say("user", "q /nothink")],
    "number": [say("user", 5)],
    "thinking": [say("system", "s"), say("user", "q"), say("assistant", "", thinking="so", tool_calls=[called("clock", {"a": [1, "é"]})]),
                 say("tool", "12:00", tool_call_id="abcdefghi")],
    "thought before": [say("user", "q"), say("assistant", "", thinking="so", tool_calls=[called("clock", {})]),
                       say("tool", "12:00", tool_call_id="abcdefghi"), say("assistant", "noon", thinking="it is"), say("user", "and?")],
}
LATER_EXTRAS = {
    "plain": {}, "tools": {"tools": [dict(CLOCK, x="é"), CLOCK]}, "thinking": {"thinking": True, "enable_thinking": True},
    "not thinking": {"enable_thinking": False, "python_tools": ["def f(): pass"], "xml_tools": [CLOCK]},
    "types": {"tools": [WEATHER, dict(CLOCK, function=dict(CLOCK["function"], parameters=MANY_TYPES))], "reasoning_effort": "high"},
    "documents": {"texts": [{"text": "one"}, {"text": "two\n"}], "controls": {"citations": True, "length": "short"}, "tools": [CLOCK]},
}
LATER_USES = ["one", "system", "turns", "empty system", "call", "call none", "call text", "call dict", "order", "twice", "nothing"]
EXTRAS = {"plain": {}, "tools": {"tools": [WEATHER, CLOCK]}, "no tools": {"tools": []},
          "builtin": {"builtin_tools": ["code_interpreter", "clock"], "tools": [CLOCK]},
          "system tools": {"tools": [WEATHER], "tools_in_user_message": False, "date_string": "1 Jan 2000"}}

VARIABLES = {"t": " aé-b {c} ", "n": 7, "f": 2.5, "e": "", "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"k": "v", "n": [1, None, True], "items": 5},
             "m": [{"a": {"b": 1}, "r": "x"}, {"a": {"b": 0}, "r": "y"}, {"r": "x"}], "z": None, "yes": True, "u": "Straße ñ 日本 😀'\"\n\\", "x0": 1e21}
SNIPPETS = r"""
{{ t|trim }}|{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ t.strip(' a') }}|{{ t|trim|length }}|{{ u|length }}
{{ t|upper }}{{ t|lower }}{{ t|title }}{{ t.title() }}{{ t|capitalize }}{{ 'aBC dEF'.capitalize() }}{{ 'o-neil (x) it\'s'|title }}{{ "it's o-k".title() }}
{{ l|join(', ') }}{{ l|join }}{{ w|join('-') }}{{ [1, none, 'x', 2.0, true]|join(' ') }}
{{ l|first }}{{ l|last }}{{ e|first is defined }}{{ []|last }}{{ u|first }}{{ u[-1] }}{{ u[0] }}{{ u[1:4] }}{{ u[::-1] }}{{ u[:-2] }}{{ u[-3:] }}{{ l[::-1] }}{{ l[::2] }}{{ l[5:] }}{{ l[-1:0:-1] }}{{ t[10:2] }}{{ l[:100] }}
{{ d }}{{ l }}{{ (1,) }}{{ (1, 'a') }}{{ {} }}{{ [] }}{{ {'a': [1, {'b': none}]} }}{{ u }}{{ [u] }}{{ ["a'b", 'a"b', 'a\'b"c', '\t\r\n\x07é\u200b\xad'] }}
{{ d|tojson }}{{ d|tojson(indent=2) }}{{ d|tojson(indent=4, sort_keys=true) }}{{ u|tojson }}{{ u|tojson(ensure_ascii=true) }}{{ d|tojson(separators=(',', ':')) }}{{ []|tojson(indent=2) }}{{ {}|tojson(indent=2) }}{{ [[], {}, [1]]|tojson(indent=1) }}
{{ '\x7f\x1f/<>&'|tojson }}{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}{{ (1, 2)|tojson }}{{ z|tojson }}{{ yes|tojson }}{{ f|tojson }}{{ x0|tojson }}
{{ 1 + 2 * 3 - 4 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 1.0 }}{{ 1e16 }}{{ 1e-5 }}{{ 0.1 + 0.2 }}{{ 1e15 }}{{ 123456789.125 }}{{ 6.0 // 4 }}{{ 5.5 % 2 }}{{ +n }}{{ -n }}
{{ n == 7 }}{{ n != 7 }}{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 1 == 1.0 }}{{ true == 1 }}{{ 'a' == 1 }}{{ none == z }}{{ [1] == [1.0] }}{{ {'a': 1} == {'a': 1} }}{{ (1,) == [1] }}
{{ 'a' in t }}{{ 'x' not in t }}{{ 1 in l }}{{ 'k' in d }}{{ 9 not in l }}{{ none in [none] }}{{ 'x' in nope }}
{{ not yes }}{{ not n == 8 }}{{ yes and n }}{{ e or 'other' }}{{ z or e or l }}{{ n and z }}{{ 'a' if yes else 'b' }}{{ 'a' if e else 'b' }}{{ 'a' if e }}{{ 'a' if e else 'b' if z else 'c' }}
{{ t ~ n ~ z ~ [1] }}{{ 'a' ~ 1 * 2 }}{{ 'x' * 3 }}{{ 'a' 'b' "c" }}{{ [1] + [2] }}{{ 'a' + 'b' | upper }}
{{ nope is defined }}{{ nope is undefined }}{{ n is defined }}{{ d.k is defined }}{{ d.q is defined }}{{ d['q'] is not defined }}{{ z is none }}{{ z is not none }}{{ nope }}{{ d.q }}{{ nope|default('x') }}{{ e|default('x') }}{{ e|default('x', true) }}{{ z|d('y', boolean=true) }}{{ nope|d }}
{{ n is number }}{{ yes is number }}{{ f is float }}{{ n is integer }}{{ yes is integer }}{{ yes is boolean }}{{ t is string }}{{ d is mapping }}{{ l is sequence }}{{ d is sequence }}{{ t is iterable }}{{ n is iterable }}{{ nope is iterable }}{{ z is iterable }}{{ yes is true }}{{ yes is false }}{{ n is odd }}{{ n is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(4) }}{{ n is eq 7 }}{{ n is equalto(8) }}{{ n is ne 3 }}{{ n is lt 8 }}{{ n is ge 8 }}{{ 1 is in l }}{{ 'AB' is upper }}{{ 'AB' is lower }}{{ z is sameas none }}
{{ m|selectattr('r', 'equalto', 'x')|list|length }}{{ m|selectattr('a')|map(attribute='r')|join(',') }}{{ m|rejectattr('a', 'defined')|list }}{{ m[:2]|map(attribute='a.b')|list }}{{ m|map(attribute='q', default='-')|join }}{{ l|select('odd')|list }}{{ l|reject('equalto', 3)|list }}{{ l|select|list }}{{ w|map('upper')|list }}{{ w|map('replace', 'a', 'z')|join }}{{ m[:2]|selectattr('a.b')|list }}
{{ w|sort }}{{ w|sort(reverse=true) }}{{ w|sort(case_sensitive=true) }}{{ l|sort }}{{ m|sort(attribute='r')|map(attribute='r')|list }}{{ w|unique|list }}{{ ['a', 'A', 'a']|unique(true)|list }}{{ l|min }}{{ l|max }}{{ l|sum }}{{ w|min }}{{ l|reverse|list }}{{ u|reverse }}{{ -3|abs }}{{ d|dictsort }}{{ {'b': 1, 'A': 2}|dictsort(reverse=true) }}{{ {'b': 1, 'A': 2}|dictsort(by='value') }}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}{% for k, v in d.items() %}{{ k }}{{ loop.index }}{% endfor %}{{ d.keys()|list }}{{ d.values()|list }}{{ d.get('k') }}{{ d.get('q') }}{{ d.get('q', 1) }}{{ d['items'] }}{{ d|length }}
{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ 'a b c'.split(none, 1) }}{{ ' a b  c '.split(maxsplit=1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\nb\r\nc\n'.splitlines() }}{{ 'x'.split('x') }}{{ '</think>y'.split('</think>')[-1] }}{{ ''.split() }}{{ ''.split(',') }}
{{ t.startswith(' a') }}{{ t.endswith('x') }}{{ t.endswith(('x', ' ')) }}{{ t.replace('é', 'E') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'aaa'|replace('a', 'b', 1) }}{{ t.find('b') }}{{ t.find('q') }}{{ 'abab'.rfind('ab') }}{{ 'abab'.count('ab') }}{{ '-'.join(w) }}{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ ''.isdigit() }}{{ ' '.isspace() }}{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ l.count(1) }}{{ l.index(1) }}
{{ '3'|int }}{{ 'x'|int }}{{ 'x'|int(5) }}{{ '3.7'|int }}{{ 3.7|int }}{{ '2.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ n|string ~ 'x' }}{{ z|string }}{{ l|string }}{{ 'abc'|list }}{{ d|list }}{{ (1, 2)|list }}{{ t|safe }}
{{ 'a\nb\n\nc'|indent }}{{ 'a\nb'|indent(2, true) }}{{ 'a\n\nb'|indent(2, blank=true) }}{{ 'a\nb\n'|indent('> ') }}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% set ns = namespace(a=1, b='q') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem is defined }}{{ loop.cycle('a', 'b') }};{% else %}none{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{{ loop.last }}{% endfor %}{% for i in l if i > 5 %}x{% else %}y{% endfor %}{% for i in nope %}x{% endfor %}{% for c in u %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(3)|list }}{{ range(1, 9, 3)|list }}{{ range(3, 0, -1)|list }}{{ range(0)|list }}
{% macro f(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}{{ n }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=4, a=5) }}{{ f() }}{% set q = f(9) %}{{ q|length }}{% macro r(i) %}{{ i }}{% if i > 0 %}{{ r(i - 1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (3, 4) %}{{ a }}{{ b }}{% set t2 = 1, 2 %}{{ t2 }}
{% set a, b = (1, 2) %}{{ a + b }}{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for a, b in [[1, 2]] %}{% set c = a %}{{ c }}{% endfor %}
{% set cap %}<{{ n }}>{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ cap }}{{ cap|length }}
a
  {% if yes %}
  b
  {%- if yes %}
c
   {%- endif -%}
   d
  {% endif %}
  {# comment #}
e {# inline #} f
{#- strip -#}
 g {{- n -}} h
  {{ n }}
  {%+ if yes %}i{% endif %}
  {% if yes +%}
j
  {%- endif %}
{%- for i in l %}
  - {{ i }}
{%- endfor %}

    {% set x = 1 %}   
end
{% if yes %}{% elif z %}1{% elif e %}2{% else %}3{% endif %}{% if z %}0{% elif n > 5 %}1{% else %}2{% endif %}{% if z %}0{% elif e %}1{% else %}2{% endif %}
{{ {'a': 1, 'b': {'c': [1, 2]}}.b.c[1] }}{{ d.n[1] }}{{ d.n.0 }}{{ m[0].a.b }}{{ m[-1]['r'] }}{{ l[9] is defined }}{{ d.n[9] }}{{ t.foo is defined }}{{ z.foo is defined }}{{ n.foo }}
{{ '\\n\'\"\u00e9\x41\101\q' }}{{ "a\
b" }}{{ "tab\t|" }}
{{ strftime_now('%d %b %Y') }}{{ strftime_now is defined }}{{ namespace is defined }}{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2)|tojson }}
{% generation %}x{{ n }}{% endgeneration %}{{ (n) }}{{ ((n, 1)) }}{{ not (n == 7) }}{{ (1 if z else 2) + 1 }}{{ n|string|length }}{{ (n|string)[0] }}{{ [n, n][1:]|length }}
{{ nope.foo }}
{{ nope.foo.bar }}
{{ z + 1 }}
{{ nope + 'x' }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ nope|tojson }}
{{ [1, nope]|tojson }}
{{ raise_exception('No ' ~ n) }}
{% for i in z %}{% endfor %}
{% for i in n %}{% endfor %}
{% for a, b in [[1]] %}{% endfor %}
{{ n|length }}
{{ l|join(',').foo() }}
{% set d.k = 1 %}
{{ 1 < 'a' }}
{{ 1 in n }}
{{ range(100001) }}
{{ d.nope() }}
{{ 'a'.nope }}
{{ z.strip() }}
{{ m|sort(attribute='a') }}
{{ f }}{{ x0 }}{{ 10 ** 15 }}{{ 1.5e300 }}{{ 100000000000000000.0 }}{{ 0.00001234 }}{{ 3.0 * 2 }}{{ n * 1.5 }}
{% set ns = namespace(multi=true, last=m|length - 1) %}{% for x in m[::-1] %}{% set index = (m|length - 1) - loop.index0 %}{% if ns.multi and x.r is string and not(x.r.startswith('q') and x.r.endswith('x')) %}{% set ns.multi = false %}{% set ns.last = index %}{% endif %}{% endfor %}{{ ns.last }}{{ '<think>\na\n</think>\n\nb'.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}{{ enable is defined and enable is false }}
{% if m[0]['r'] == 'x' %}{% set loop_m = m[1:] %}{% set s = m[0]['r'] %}{% else %}{% set loop_m = m %}{% set s = false %}{% endif %}{% for x in loop_m %}{% if (x['r'] == 'y') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}{% if loop.index0 == 0 and s != false %}{% set c = '<<SYS>>\n' + s + '\n<</SYS>>\n\n' + x['r'] %}{% else %}{% set c = x['r'] %}{% endif %}{% if x['r'] == 'y' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}{% elif x['r'] == 'x' %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}{% endfor %}
"""


def snippets():
    """One to a line, but for those that begin at 'a' alone and end at 'end'."""
    whole, out = None, []
    for line in SNIPPETS.strip("\n").split("\n"):
        if whole is None and line == "a":
            whole = []
        if whole is None:
            if out and out[-1].endswith("\\") and not out[-1].endswith("\\\\"):
                out[-1] += "\n" + line
            else:
                out.append(line)
            continue
        whole.append(line)
        if line == "end":
            out += ["\n".join(whole), "\r\n".join(whole) + "\r\n", "\n".join(whole[1:])]
            whole = None
    return out


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def render(source, variables):
    try:
        return chat_template_utils._compile_jinja_template(source).render(**variables)
    except Exception:
        return None


def write(name, cases):
    with open(DATA / name, "w") as out:
        for case in cases:
            out.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "cases,", sum(c["output"] is None for c in cases), "without output")


def families(add):
    conversations = {**{name: CONVERSATIONS[name] for name in LATER_USES}, **LATER}
    for path in sorted((DATA / "templates/families").glob("*.jinja")):
        for conversation, messages in conversations.items():
            for what, extra in LATER_EXTRAS.items():
                if conversation not in ("one", "call text", *LATER) and what not in ("plain", "thinking"):
                    continue
                extra = dict(extra)
                tools = extra.pop("tools", None)
                add(path.read_text(), messages, tools, what != "thinking", extra, file="templates/families/" + path.name,
                    what="%s, %s" % (conversation, what))


def main():
    chat_template_utils.datetime = Clock
    cases = []

    def add(template, messages, tools, prompt, extra, **where):
        variables = dict(extra, bos_token="<bos>", eos_token="<eos>", documents=None, messages=messages, tools=tools,
                         add_generation_prompt=prompt)
        cases.append(dict(where, messages=messages, tools=tools, prompt=prompt, extra=extra,
                          output=render(template, variables)))

    if sys.argv[1:] == ["families"]:
        families(add)
        write("families.jsonl", cases)
        return

    own = sorted((DATA / "templates").glob("*.jinja"))
    for path in own + sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        source = path.read_text()
        for conversation, messages in CONVERSATIONS.items():
            for what, extra in EXTRAS.items():
                extra = dict(extra)
                tools = extra.pop("tools", None)
                for prompt in (False, True) if what == "plain" else (True,):
                    add(source, messages, tools, prompt, extra, file=("templates/" if path in own else "") + path.name,
                        what="%s, %s" % (conversation, what))
    for source in snippets():
        add(source, [], None, False, VARIABLES, source=source)
    write("chat.jsonl", cases)


if __name__ == "__main__":
    main()
