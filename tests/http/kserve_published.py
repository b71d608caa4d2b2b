"""Answers of the inference protocol against its published description (open_inference_rest.yaml of kserve/open-inference-protocol).

What that says of answers stands in kserve_published.json. With the variable OPEN_INFERENCE_DESCRIPTION, that file itself, answers are
validated against its schemas, too: those without bytes behind them, which are an extension of Triton's that it does not know.
"""
import collections
import copy
import json
import os
import re

import jsonschema

# What is answered with 200 to a method and a path; with anything else, an error.
ANSWERS = [
    ("GET", r"/v2/?", "metadata_server_response"),
    ("GET", r"/v2/models/(?!stats$)[^/]+(/versions/[^/]+)?", "metadata_model_response"),
    ("POST", r"/v2/models/[^/]+(/versions/[^/]+)?/infer", "inference_response"),
]
ERROR = "inference_error_response"


def ours():
    with open(os.path.join(os.path.dirname(__file__), "kserve_published.json")) as file:
        return json.load(file)


def theirs(path):
    """Its components, whose references are made ours."""
    import yaml
    with open(path) as file:
        text = json.dumps(yaml.safe_load(file)["components"]["schemas"])
    return {"$defs": json.loads(text.replace("#/components/schemas/", "#/$defs/"))}


def kind_of(method, path, status):
    """By which schema an answer goes; None: by none."""
    if status != 200:
        return ERROR
    return next((kind for of, pattern, kind in ANSWERS if of == method and re.fullmatch(pattern, path)), None)


def validator(schemas, kind):
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", **schemas})


def json_of(body, headers):
    """An answer's JSON, without the bytes behind it; None where it is none."""
    length = {name.lower(): value for name, value in headers.items()}.get("inference-header-content-length")
    text = body[:int(length)] if length else body
    return json.loads(text) if text else None


class Published:
    def __init__(self):
        self.schemas, self.faults = [ours()], []
        self.seen, self.first = collections.Counter(), {}
        if os.environ.get("OPEN_INFERENCE_DESCRIPTION"):
            self.schemas.append(theirs(os.environ["OPEN_INFERENCE_DESCRIPTION"]))

    def look(self, method, path, status, body, headers):
        kind = kind_of(method, path, status)
        if not kind or not path.startswith("/v2") or (status == 200 and not body):
            return
        try:
            told = json_of(body, headers)
        except ValueError as error:
            self.faults.append(f"{method} {path} {status}: {error}")
            return
        if told is None and status != 200:
            return  # /v2/health: a status and nothing else
        self.seen[kind] += 1
        self.first.setdefault(kind, told)
        for number, schemas in enumerate(self.schemas):
            binary = any("binary_data_size" in one.get("parameters", {}) for one in told.get("outputs", [])) if status == 200 else False
            if number == 0 or not binary:
                self.faults += [f"{method} {path} {status}: {fault.message[:80]}" for fault in validator(schemas, kind).iter_errors(told)]

    def lenient(self):
        """What is broken in an answer that was seen and is taken all the same: nothing, else the schemas say nothing."""
        taken = []
        for kind, told in self.first.items():
            for name in self.schemas[0]["$defs"][kind]["required"]:
                for change in ("left out", "another type"):
                    broken = copy.deepcopy(told)
                    broken.pop(name, None)
                    if change == "another type":
                        broken[name] = 5
                    if validator(self.schemas[0], kind).is_valid(broken):
                        taken.append(f"{kind}: {name} {change}")
        return taken
