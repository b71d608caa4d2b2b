#!/usr/bin/env python3
"""The demo model's tasks that have a form: fields extracted into JSON, one call of a tool, and what is said of its result.

    structured.py [--count 20] [--seed 1]     prints held-out requests a task, a line of JSON each: its task, the body
                                              of a request of /v1/chat/completions, and the right answer

Values are drawn from open vocabularies, so that they cannot be known by heart. A request belongs to the training set,
the development set or the test set by a hash of what its user asks, so no test question was ever trained on.
"""

import argparse
import json
import random
import sys
import zlib

from tasks import SPLIT_CLASSES, TASKS

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = """Ada Alan Amir Ana Bea Ben Bob Carla Chen Clara David Dora Elena Emil Eva Farid Finn Grace Hana Hugo Ida Igor
Ines Ivan Jane John Jonas Karim Kate Lars Lea Leo Lina Luca Maria Marta Max Mia Mina Nadia Nils Noah Nora Olga Omar Oscar
Paul Petra Rosa Sam Sara Sofia Tara Tom Uma Vera Victor Wanda Yuki Zoe""".split()
CITIES = """Accra Amman Athens Berlin Bern Bogota Boston Cairo Chicago Delhi Dublin Geneva Hanoi Helsinki Istanbul Jakarta
Kyiv Kyoto Lagos Lima Lisbon London Lyon Madrid Milan Munich Nairobi Oslo Paris Porto Prague Quito Riga Rome Seoul Sofia
Stockholm Sydney Tokyo Toronto Tunis Turin Vienna Warsaw Zagreb Zurich""".split()
WORDS = """able account active address age agent air album alert amount animal answer apple area article artist asset author
balance bank base battery bicycle bill bird block blue board body book bottle box branch bread bridge brown budget bus button
cable camera capital car card carpet cat category chair change channel chapter charge chart chicken child city class client
clock cloud code coffee color comment company contact context cost country cover credit cup currency customer data date day
deadline deck degree delay depth desk detail device dinner direction discount display distance doctor document door driver
duration east editor email employee energy engine entry error event exam example expense factor family farm fee field file
film finger fish flag flight floor flower folder food forecast forest format frame friend fruit fuel game garden gas genre
glass goal gold grade grain green group guest guide hall hammer hand harbor head health heart height history holiday home
horse hospital hotel hour house humidity image index invoice iron island item job journey juice key kitchen label lake lamp
language laptop leader leaf length letter level library light limit line link list location lunch machine market material
meal measure meeting member memory menu message metal method milk minute mirror mode model module moment money month mood
morning mountain movie museum music network night node noise north note notice number object ocean office oil onion option
orange order origin output owner page paint painter pair paper parent park part partner party path payment pen pencil people
pepper period person phone photo piano picture piece pilot plan planet plant plate player pocket point policy pool port
position post potato power president pressure price printer prize process product profile profit program project proof
quality quantity queue radio rain range rate reader reason recipe record region rent report resource result review rice ring
river road rock role roof room root route rule salary salt sample sand scale school score screen sea search season seat
section sensor server service session shape sheet ship shirt shoe shop sign signal silver singer site size skill sky snow
soap song sound soup source south space speed spoon sport spring stage station status step stone store storm story street
student style subject sugar summer sun supplier surface system table target task taxi teacher team temperature tent term test
text theater ticket time title tool topic total tower town toy track train travel tree trip truck type unit user valley value
vehicle version video village visitor voice volume wage wall watch water wave weather week weight west wheel width wind
window winter wire wood word worker world writer year yellow zone""".split()
COLORS = "red green blue black white yellow orange purple brown pink gray silver".split()
JOBS = """teacher doctor engineer painter driver nurse lawyer farmer baker pilot cook writer singer plumber designer
accountant carpenter librarian programmer electrician""".split()


def syllables(rng):
    return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "l", "s", "k"))
                   for _ in range(rng.randint(2, 3)))


def word(rng):
    return rng.choice(WORDS) if rng.random() < 0.4 else syllables(rng)


def letters(rng):
    return "".join(rng.choices(LETTERS, k=rng.randint(2, 8)))


def proper(rng, known):
    if rng.random() < 0.35:
        return rng.choice(known)
    return word(rng).capitalize()


def integer(rng, digits):
    return str(rng.randrange(1, 10 ** rng.randint(1, digits)))


def decimal(rng):
    return integer(rng, 3) + ("" if rng.random() < 0.3 else f".{rng.randint(0, 99):02d}")


def date(rng):
    return f"{rng.randint(1950, 2049)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def pair(rng, make):
    return make() if rng.random() < 0.7 else f"{make()} {make()}"


KINDS = {
    "name": lambda rng: pair(rng, lambda: proper(rng, NAMES)),
    "place": lambda rng: pair(rng, lambda: proper(rng, CITIES)),
    "company": lambda rng: proper(rng, NAMES) + rng.choice(("", "", " Ltd", " Works")),
    "word": word,
    "words": lambda rng: " ".join(word(rng) for _ in range(rng.randint(1, 3))),
    "color": lambda rng: rng.choice(COLORS),
    "job": lambda rng: rng.choice(JOBS) if rng.random() < 0.5 else word(rng),
    "age": lambda rng: str(rng.randint(1, 99)),
    "count": lambda rng: integer(rng, 3),
    "number": lambda rng: integer(rng, 5),
    "degrees": lambda rng: str(rng.randint(-40, 60)),
    "price": decimal,
    "date": date,
    "time": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
    "email": lambda rng: f"{word(rng)}{rng.choice(('', '.' + word(rng)))}@{word(rng)}.{rng.choice(('com', 'org', 'net', 'de', 'io'))}",
    "phone": lambda rng: "-".join("".join(rng.choices("0123456789", k=k)) for k in (3, 4)),
    "id": lambda rng: "".join(rng.choices(LETTERS.upper(), k=rng.randint(1, 3))) + rng.choice(("", "-")) + integer(rng, 4),
    "symbol": lambda rng: "".join(rng.choices(LETTERS.upper(), k=rng.randint(2, 5))),
}
TYPES = {"age": "integer", "count": "integer", "number": "integer", "degrees": "integer", "price": "number"}

# ---- fields: what they may be called, the kind of their values, and how a sentence says them

FIELDS = {
    "name": (("name", "full_name", "person", "customer", "who"), "name", ()),
    "age": (("age", "age_years", "years"), "age", ("is {} years old", "is {}", "has the age of {}")),
    "city": (("city", "town", "location", "place", "home"), "place", ("lives in {}", "comes from {}", "lives in the city of {}")),
    "company": (("company", "employer", "firm"), "company", ("works at {}", "works for {}", "is employed by {}")),
    "job": (("job", "profession", "occupation", "role"), "job", ("works as a {}", "is a {}")),
    "email": (("email", "email_address", "mail"), "email", ("has the email {}", "can be reached at {}", "writes from {}")),
    "phone": (("phone", "phone_number", "telephone"), "phone", ("has the phone number {}", "can be called at {}")),
    "birthday": (("birthday", "birth_date", "born", "date_of_birth"), "date", ("was born on {}", "has a birthday on {}")),
    "color": (("color", "favorite_color"), "color", ("likes {}", "likes the color {}")),
    "product": (("product", "item", "article", "product_name"), "words", ()),
    "price": (("price", "cost", "amount", "price_usd"), "price", ("costs {} dollars", "costs ${}", "is sold for {} euros")),
    "quantity": (("quantity", "count", "pieces", "number_of_items"), "count", ("was bought {} times", "comes in packs of {}")),
    "date": (("date", "day", "delivery_date", "when"), "date", ("arrives on {}", "was ordered on {}", "is due on {}")),
    "order": (("order_id", "order", "reference", "id"), "id", ("has the order number {}", "is listed as {}")),
    "event": (("event", "title", "event_name"), "words", ()),
    "venue": (("venue", "location", "place", "city"), "place", ("takes place in {}", "is held in {}", "happens in {}")),
    "start": (("start", "time", "start_time"), "time", ("begins at {}", "starts at {}")),
    "on": (("date", "day", "when"), "date", ("is on {}", "is planned for {}")),
    "guests": (("guests", "participants", "people"), "count", ("has {} guests", "is for {} people")),
}
SUBJECTS = {
    "name": ("{}", ("age", "city", "company", "job", "email", "phone", "birthday", "color")),
    "product": ("The {}", ("price", "quantity", "date", "order")),
    "event": ("The event {}", ("venue", "start", "on", "guests")),
}


def generic_field(rng):
    key = word(rng) if rng.random() < 0.7 else f"{word(rng)}_{word(rng)}"
    return key, rng.choice(tuple(KINDS))


def clauses_of(rng, subject, found):
    said = []
    for field in found:
        said.append(rng.choice(FIELDS[field[3]][2]).format(field[2]))
    if not said:
        return f"This is about {subject}."
    if len(said) == 1:
        return f"{subject} {said[0]}."
    if rng.random() < 0.3:
        return f"{subject} {said[0]}. " + " ".join(f"It {s}." if rng.random() < 0.5 else f"{subject} {s}." for s in said[1:])
    return f"{subject} " + ", ".join(said[:-1]) + f" and {said[-1]}."


def story(rng):
    """A text and its fields in the order of the text: (key, kind, value, canonical name or None)."""
    if rng.random() < 0.25:
        fields, seen = [], set()
        for _ in range(rng.randint(1, 4)):
            key, kind = generic_field(rng)
            if seen.isdisjoint(key.split("_")):  # a word of one field's name is in no other's
                seen.update(key.split("_"))
                fields.append((key, kind, KINDS[kind](rng), None))
        style = rng.randrange(3)
        shown = [(k.replace("_", " ") if style == 0 else k, v) for k, _, v, _ in fields]
        return {0: " ".join(f"The {k} is {v}." for k, v in shown),
                1: "\n".join(f"{k}: {v}" for k, v in shown),
                2: ", ".join(f"{k}: {v}" for k, v in shown)}[style], fields
    subject = rng.choice(("name", "name", "product", "event"))
    form, others = SUBJECTS[subject]
    chosen = rng.sample(others, rng.randint(1, min(4, len(others))))
    fields = []
    for canonical in (subject, *chosen):
        keys, kind, _ = FIELDS[canonical]
        key = keys[0] if rng.random() < 0.6 else rng.choice(keys)
        while key in (field[0] for field in fields):
            key = rng.choice(keys)
        fields.append((key, kind, KINDS[kind](rng), canonical))
    return clauses_of(rng, form.format(fields[0][2]), fields[1:]), fields


# ---- schemas, and the forms in which clients write them

ABOUT = ("the {}", "The {} as it is written.", "{} from the text", "What the text says of the {}")


def schema_of(rng, fields, described):
    properties = {}
    for key, kind, _, _ in fields:
        node = {"type": TYPES.get(kind, "string")}
        if described == "title":
            node = {"title": key.replace("_", " ").title(), **node}
        elif described == "description":
            node["description"] = rng.choice(ABOUT).format(key)
        properties[key] = node
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    if described == "title":
        schema = {"properties": properties, "required": list(properties), "title": word(rng).title(), "type": "object"}
    if rng.random() < 0.6:
        schema["additionalProperties"] = False
    return schema


def value_of(kind, text):
    return text if kind not in TYPES else Raw(text)


class Raw:
    """A number, kept as it was written."""

    def __init__(self, text):
        self.text = text


def written(pairs):
    return "{" + ", ".join(json.dumps(k) + ": " + (v.text if isinstance(v, Raw) else json.dumps(v, ensure_ascii=False))
                           for k, v in pairs) + "}"


def listed(keys):
    return keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + " and " + keys[-1]


def extract(rng):
    """Messages, the schema, the answer."""
    text, fields = story(rng)
    form = rng.random()
    if form >= 0.15:  # some of the fields, in an order of the asker's own
        fields = rng.sample(fields, rng.randint(1, len(fields)))
    else:  # nobody says which: all, as they are usually called
        fields = [(FIELDS[f[3]][0][0] if f[3] else f[0], *f[1:]) for f in fields]
        if len({f[0] for f in fields}) < len(fields):
            return extract(rng)
    schema = schema_of(rng, fields, rng.choice(("", "", "title", "description")))
    keys = [f[0] for f in fields]
    shown = json.dumps(schema, indent=rng.choice((None, None, 2)))
    system = None
    if form < 0.15:
        user = rng.choice(("Extract as JSON: {}", "{}", "Extract the information: {}", "Extract the fields: {}")).format(text)
        if not user.startswith("Extract"):
            system = "Answer in JSON."
    elif form < 0.6:
        names = listed(keys) if rng.random() < 0.7 else ", ".join(keys)
        user = rng.choice(("Extract {names} as JSON: {text}", "Extract the {names} as JSON: {text}", "{text}\nExtract {names} as JSON.",
                           "Extract {names}: {text}", "Give me {names} of this as JSON:\n{text}")).format(names=names, text=text)
    elif form < 0.8:
        system = rng.choice(("Answer in JSON by this schema: {}", "Extract fields by this JSON schema:\n{}",
                             "You extract data. The answer is JSON by the schema\n```json\n{}\n```")).format(shown)
        user = rng.choice(("{}", "Extract: {}", "Text: {}")).format(text)
    else:
        user = rng.choice(("Extract by this schema: {schema}\n{text}", "{text}\n\nAnswer in JSON by this schema:\n{schema}",
                           "Extract the fields of this JSON schema:\n{schema}\n\nText: {text}")).format(schema=shown, text=text)
    messages = [{"role": "user", "content": user}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return messages, schema, written([(key, value_of(kind, value)) for key, kind, value, _ in fields])


# ---- tools: names, descriptions, parameters (names, kind, optional), and questions that are answered by a call

FAMILIES = (
    (("get_weather", "weather", "current_weather", "get_current_weather", "getWeather"),
     ("Get the weather in a city.", "Returns the current weather for a place.", "The weather of a city, now."),
     ((("city", "location", "place"), "place"),),
     ("What is the weather in {}?", "How is the weather in {} today?", "Tell me the weather in {}.", "What's the weather like in {}?")),
    (("get_time", "current_time", "time_in", "getTime"),
     ("Get the current time in a city.", "What time it is at a place."),
     ((("city", "location", "timezone_city"), "place"),),
     ("What time is it in {}?", "Tell me the time in {}.", "What is the time in {} now?")),
    (("get_stock_price", "stock_price", "quote"),
     ("Get the price of a stock by its symbol.", "The latest quote of a share."),
     ((("symbol", "ticker"), "symbol"),),
     ("What is the stock price of {}?", "How much is a share of {}?", "Give me the quote of {}.")),
    (("convert_currency", "exchange", "convert_money"),
     ("Convert an amount of money from one currency to another.", "Exchanges money between currencies."),
     ((("amount", "value"), "price"), (("from", "from_currency", "source"), "symbol"), (("to", "to_currency", "target"), "symbol")),
     ("Convert {} {} to {}.", "How much is {} {} in {}?", "Exchange {} {} into {}.")),
    (("send_email", "mail", "send_mail"),
     ("Send an email.", "Writes an email to an address."),
     ((("to", "address", "recipient"), "email"), (("subject", "title"), "words")),
     ("Send an email to {} about {}.", "Write to {} with the subject {}.", "Email {} about {}.")),
    (("book_table", "reserve_table", "make_reservation"),
     ("Book a table at a restaurant.", "Reserves a table for guests."),
     ((("restaurant", "name"), "name"), (("people", "guests", "party_size"), "count")),
     ("Book a table at {} for {} people.", "Reserve a table at {} for {}.")),
    (("search", "web_search", "search_web", "google"),
     ("Search the web.", "Looks something up on the internet."),
     ((("query", "q", "text"), "words"),),
     ("Search the web for {}.", "Look up {}.", "Search for {}.")),
    (("add", "add_numbers", "sum", "calculate_sum"),
     ("Add two numbers.", "The sum of two numbers."),
     ((("a", "x", "first"), "number"), (("b", "y", "second"), "number")),
     ("Add {} and {}.", "What is the sum of {} and {}?", "How much is {} plus {}?")),
    (("create_event", "add_event", "schedule_meeting"),
     ("Create an event in the calendar.", "Puts a meeting into the calendar."),
     ((("title", "name", "summary"), "words"), (("date", "day", "when"), "date")),
     ("Create an event {} on {}.", "Schedule {} for {}.", "Put {} into my calendar on {}.")),
    (("set_timer", "start_timer", "timer"),
     ("Set a timer.", "Starts a timer of some minutes."),
     ((("minutes", "duration", "duration_minutes"), "count"),),
     ("Set a timer for {} minutes.", "Start a timer of {} minutes.")),
    (("get_order", "order_status", "find_order"),
     ("Find an order by its number.", "The status of an order."),
     ((("order_id", "id", "number"), "id"),),
     ("Where is my order {}?", "What is the status of order {}?", "Find the order {}.")),
    (("find_flights", "search_flights", "flights"),
     ("Search flights between two cities.", "Finds flights on a date."),
     ((("from", "origin"), "place"), (("to", "destination"), "place"), (("date", "day"), "date")),
     ("Find flights from {} to {} on {}.", "Is there a flight from {} to {} on {}?")),
    (("translate", "translate_text"),
     ("Translate a text into another language.", "Translates words."),
     ((("text", "words"), "words"), (("language", "to", "target_language"), "name")),
     ("Translate {} into {}.", "How do you say {} in {}?")),
    (("create_user", "add_user", "register"),
     ("Create a user.", "Registers a person with an age."),
     ((("name", "user", "full_name"), "name"), (("age", "years"), "age")),
     ("Create a user {} of age {}.", "Register {}, who is {} years old.", "Add {}, {} years old.")),
)
PROSE = []
OPTIONAL = ("unit", "limit", "format", "lang", "verbose", "page", "timezone", "style", "source_id", "max_results")


def snake(rng, count):
    return "_".join(rng.choice(WORDS) if rng.random() < 0.8 else syllables(rng) for _ in range(count))


def sentence(rng, length):
    words = [rng.choice(WORDS) if rng.random() < 0.85 else word(rng) for _ in range(length)]
    return " ".join(words).capitalize() + rng.choice((".", ".", ".", ":", ";"))


def drawn_family(rng):
    """A family in the form of those above, of drawn words: what it asks for stands in its question."""
    attribute, thing = rng.sample(WORDS, 2)
    if rng.random() < 0.5:
        kind = rng.choice(("name", "word", "id", "number", "date"))
        return ((f"get_{attribute}", f"{thing}_{attribute}", f"find_{attribute}"),
                (f"Returns the {attribute} of a {thing}.", f"The {attribute} of one {thing}."),
                (((thing, f"{thing}_id", f"{thing}_name"), kind),),
                (f"What is the {attribute} of the {thing} {{}}?", f"Tell me the {attribute} of {thing} {{}}.",
                 f"Find the {attribute} of the {thing} {{}}."))
    name = snake(rng, rng.randint(1, 3))
    keys = rng.sample(WORDS, rng.randint(1, 3))
    parameters = tuple(((key,), rng.choice(tuple(KINDS))) for key in keys)
    slots = [f"{key} {{}}" for key in keys]
    return ((name,), (sentence(rng, rng.randint(3, 10)), f"About the {attribute} of a {thing}."), parameters,
            (f"Call {name} with {listed(slots)}.", f"Use {name} with {', '.join(slots)}.", f"Run {name}: {', '.join(slots)}"))


def prose(rng):
    """A piece of real English, with marks and code in it: of the documentation that is part of Python."""
    if not PROSE:
        from pydoc_data.topics import topics
        PROSE.extend(" ".join(part.split()) for _, text in sorted(topics.items()) for part in text.split("\n\n"))
    text = rng.choice(PROSE)
    start = rng.randrange(max(1, len(text) - 300))
    return text[start : start + rng.randint(20, 600)].strip() or "-"


def filler(rng, length):
    return prose(rng) if rng.random() < 0.5 else " ".join(sentence(rng, rng.randint(4, 16)) for _ in range(length))


def node_of(rng, kind, key, wordy):
    node = {"type": TYPES.get(kind, "string")}
    if wordy or rng.random() < 0.4:
        node["description"] = filler(rng, 1) if wordy else rng.choice(ABOUT).format(key)
    return node


def tool_of(rng, family, wordy=False):
    """A tool of a family, with names of its own; and the (key, kind) that its questions fill."""
    names, texts, parameters, _ = family
    name = rng.choice(names)
    filled, properties = [], {}
    for keys, kind in parameters:
        key = keys[0] if rng.random() < 0.5 else rng.choice(keys)
        while key in properties:
            key += "_" + rng.choice(WORDS)
        properties[key] = node_of(rng, kind, key, wordy)
        filled.append((key, kind))
    required = list(properties)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        key = rng.choice(OPTIONAL)
        if key not in properties:
            properties[key] = node_of(rng, "word", key, wordy)
            if rng.random() < 0.3:
                properties[key]["enum"] = rng.sample(WORDS, rng.randint(2, 4))
    schema = {"type": "object", "properties": properties, "required": required}
    if rng.random() < 0.5:
        schema["additionalProperties"] = False
    text = rng.choice(texts)
    if wordy:
        text = f"{text} {filler(rng, rng.randint(1, 6))}"
        if rng.random() < 0.5:
            text = f"{filler(rng, rng.randint(1, 6))} {text}"
    function = {"name": name, "description": text, "parameters": schema}
    if rng.random() < 0.15:
        function = {"description": text, "name": name, "parameters": schema}
    if rng.random() < 0.15:
        function["strict"] = True
    return {"type": "function", "function": function}, filled


def toolbox(rng, others, wordy, named):
    """Tools, and the one that is asked for: (tools, its name, its filled keys, its family)."""
    chosen = rng.choice(FAMILIES) if named or rng.random() < 0.6 else drawn_family(rng)
    families = [f for f in rng.sample(FAMILIES, min(others, len(FAMILIES))) if f is not chosen]
    families = [f if named or rng.random() < 0.5 else drawn_family(rng) for f in families]
    wanted, filled = tool_of(rng, chosen, wordy and rng.random() < 0.5)
    tools = [wanted]
    names = {wanted["function"]["name"]}
    for family in families:
        tool, _ = tool_of(rng, family, wordy and rng.random() < 0.5)
        if tool["function"]["name"] not in names:
            names.add(tool["function"]["name"])
            tools.append(tool)
    rng.shuffle(tools)
    return tools, wanted["function"]["name"], filled, chosen


def call(rng, others=None, wordy=False, named=False):
    """Tools, messages, and the call: (name, arguments as they are written). Named: of tools of
    FAMILIES, as those of real clients are; else two of five are of drawn words, and half of those around it."""
    others = rng.choice((0, 0, 1, 2, 3, 5)) if others is None else others
    tools, name, filled, family = toolbox(rng, others, wordy, named)
    values = [KINDS[kind](rng) for _, kind in filled]
    asked = rng.choice(family[3]).format(*values)
    arguments = written([(key, value_of(kind, value)) for (key, kind), value in zip(filled, values)])
    return tools, [{"role": "user", "content": asked}], (name, arguments)


def result(rng, others=None, wordy=False, named=False):
    """What follows a call: its result, and a sentence that says it."""
    tools, messages, (name, arguments) = call(rng, others, wordy, named)
    if rng.random() < 0.3:
        told = KINDS[rng.choice(("word", "words", "number", "price", "date", "time", "name"))](rng)
        said = f"The answer is {told}."
    else:
        pairs = {}
        while len(pairs) < rng.randint(1, 3):
            key, kind = generic_field(rng) if rng.random() < 0.5 else (rng.choice(WORDS), "degrees")
            pairs[key] = value_of(kind, KINDS[kind](rng))
        told = written(pairs.items())
        parts = [f"the {k.replace('_', ' ')} is {v.text if isinstance(v, Raw) else v}" for k, v in pairs.items()]
        said = listed(parts) + "."
        said = said[0].upper() + said[1:]
    call_id = "call_" + "".join(rng.choices(LETTERS, k=8))
    messages = messages + [
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": call_id, "content": told}]
    return tools, messages, said


TALK = (
    (("Hello", "Hi", "Good morning", "Hello!", "Hi there"), "Hello! Ask me for a sum, or for fields of a text as JSON."),
    (("Who are you?", "What are you?", "What is your name?"), "I am the demo model of Sluice, a small Llama that was trained in five minutes."),
    (("What can you do?", "Help", "How can you help me?"),
     "I add, sort, reverse, find the largest number, extract fields as JSON and call tools."),
    (("Thank you", "Thanks", "Thanks!", "Thank you!"), "You are welcome."),
    (("Goodbye", "Bye", "See you"), "Goodbye!"),
    (("How are you?", "How do you do?"), "I am fine, and all my weights are in place."),
)


def talk(rng):
    asked, said = rng.choice(TALK)
    return [{"role": "user", "content": rng.choice(asked)}], said


def repeat(rng):
    text = " ".join((letters if rng.random() < 0.3 else KINDS[rng.choice(tuple(KINDS))])(rng) for _ in range(rng.randint(1, 5)))
    return [{"role": "user", "content": f"Repeat: {text}"}], text


def split(messages):
    """The set that a conversation belongs to, by its last user's question."""
    asked = [m for m in messages if m["role"] == "user"][-1]["content"]
    return {0: "test", 1: "dev"}.get(zlib.crc32(asked.encode()) % SPLIT_CLASSES, "train")


def request(task, rng):
    """A held-out request as tests ask it over HTTP and the right answer."""
    while True:
        if task == "extract":
            messages, schema, answer = extract(rng)
            body = {"messages": messages, "response_format": {"type": "json_schema", "json_schema": {
                "name": "fields", "strict": False, "schema": schema}}}
        elif task == "result":
            tools, messages, answer = result(rng, named=True)
            body = {"messages": messages, "tools": tools}
        else:
            far = task == "far"
            tools, messages, (name, arguments) = call(rng, rng.randint(1, 8) if far else None, far, True)
            body, answer = {"messages": messages, "tools": tools}, {"name": name, "arguments": arguments}
        if split(messages) == "test":
            return {"task": task, "request": {**body, "temperature": 0, "max_tokens": 200}, "answer": answer}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="requests of each task")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.count} held-out requests a task", file=sys.stderr)
    for task in ("extract", "call", "result"):
        rng = random.Random(f"{options.seed} {task}")
        for _ in range(options.count):
            print(json.dumps(request(task, rng), ensure_ascii=False))


if __name__ == "__main__":
    main()
