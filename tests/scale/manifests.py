"""The manifests of deploy/scale/kubernetes: core kinds by kubernetes-validate, strictly; custom ones by the schemas in kinds/, which have of
their published definitions what the manifests use, since that validator only warns of kinds that it does not know. Each manifest
is also broken in many ways, and must be refused each time. Run by manifests.sh.

    manifests.py [--crds FILE...]     FILE: a published definition; kinds/ must take nothing that it does not
"""
import argparse
import copy
import glob
import json
import sys

import jsonschema
import kubernetes_validate
import yaml

KINDS = "tests/scale/kinds"
SHARED = {
    "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63,
                                                          "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}},
    "port": {"type": "object", "additionalProperties": False, "required": ["number"],
             "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 65535}}},
    "reference": {"type": "object", "additionalProperties": False, "required": ["name"],
                  "properties": {"group": {"type": "string", "maxLength": 253,
                                           "pattern": r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"},
                                 "kind": {"type": "string", "maxLength": 63, "pattern": r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"},
                                 "name": {"type": "string", "minLength": 1, "maxLength": 253}}},
}
META = {"type": "object", "additionalProperties": False, "required": ["name"],
        "properties": {"name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253},
                       "labels": {"$ref": "#/$defs/labels"}}}
MAPS = ("labels", "matchLabels", "data", "stringData", "requests", "limits")  # of names that anybody may choose
FREE = ("emptyDir", "securityContext")  # all of what is in them may be left out


def kinds():
    """The schema of each custom kind, by its version and name."""
    found = {}
    for path in sorted(glob.glob(f"{KINDS}/*.json")):
        kind = json.load(open(path))
        properties = {"apiVersion": {"const": kind["apiVersion"]}, "kind": {"const": kind["kind"]}, **kind.get("properties", {})}
        required = ["apiVersion", "kind", *kind.get("required", [])]
        if "spec" in kind:
            properties.update(metadata=META, spec=kind["spec"])
            required += ["metadata", "spec"]
        whole = {"type": "object", "additionalProperties": False, "required": required, "properties": properties, "$defs": SHARED}
        jsonschema.Draft202012Validator.check_schema(whole)
        found[kind["apiVersion"], kind["kind"]] = whole
    return found


def wrong(manifest, schema):
    """Why it is refused, or nothing. Without a schema it is a core kind."""
    try:
        if schema:
            jsonschema.Draft202012Validator(schema).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError,
            kubernetes_validate.InvalidSchemaError) as error:
        return getattr(error, "message", str(error)).splitlines()[0][:200]
    return dangling(manifest)


def dangling(manifest):
    """A plugin that a picker's profile names and that is not in its list."""
    if manifest["kind"] != "EndpointPickerConfig":
        return None
    names = [plugin.get("name", plugin["type"]) for plugin in manifest["plugins"]]
    used = [plugin["pluginRef"] for profile in manifest["schedulingProfiles"] for plugin in profile["plugins"]]
    return next((f"no plugin is named {name}" for name in used if name not in names), None)


def places(node, path=()):
    """Every object and list of a manifest, by the way to it."""
    yield path, node
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))


def at(manifest, path):
    for key in path:
        manifest = manifest[key]
    return manifest


def broken(manifest):
    """What it is broken by, and the broken one: in each object a field that nobody knows, and each value of another type."""
    for path, node in places(manifest):
        if isinstance(node, dict) and (not path or path[-1] not in MAPS):
            other = copy.deepcopy(manifest)
            at(other, path)["nobodyKnowsThis"] = 1
            yield f"{'.'.join(map(str, path))} with a field that nobody knows", other
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if not path and key in ("apiVersion", "kind"):
                continue  # by these it was chosen who checks it
            other = copy.deepcopy(manifest)
            at(other, path)[key] = {"a": ["value"]} if not isinstance(value, dict) else "a value"
            yield f"{'.'.join(map(str, (*path, key)))} of another type", other


def without(manifest, schema):
    """A custom kind, by its schema: without each field that must be there, and beyond each bound."""
    def follow(node):
        return {**SHARED[node["$ref"].rsplit("/", 1)[1]], **node} if "$ref" in node else node

    def walk(node, value, path):
        node = follow(node)
        for name in node.get("required", []):
            other = copy.deepcopy(manifest)
            del at(other, path)[name]
            yield f"{'.'.join(map(str, path))} without {name}", other
        bad = beyond(node)
        if bad is not None and path:
            other = copy.deepcopy(manifest)
            at(other, path[:-1])[path[-1]] = bad
            yield f"{'.'.join(map(str, path))} as {str(bad)[:30]}", other
        for name, child in node.get("properties", {}).items():
            if name in value:
                yield from walk(child, value[name], (*path, name))
        for number, child in enumerate(value if node.get("type") == "array" else []):
            yield from walk(node["items"], child, (*path, number))

    yield from walk(schema, manifest, ())


def beyond(node):
    if "maximum" in node:
        return node["maximum"] + 1
    if "enum" in node or "const" in node:
        return "Nobody"
    if "pattern" in node:
        return "% %"
    if "maxItems" in node:
        return [{}] * (node["maxItems"] + 1)
    return "" if node.get("minLength") else [] if node.get("minItems") else None


def manifests():
    """What stands in the files, and what stands in a manifest as the text of a file."""
    for path in sorted(glob.glob("deploy/scale/kubernetes/*.yaml")):
        for manifest in yaml.safe_load_all(open(path)):
            yield f"{manifest['kind']} of {path}", manifest
            for name, text in manifest.get("data", {}).items() if manifest["kind"] == "ConfigMap" else ():
                if name.endswith(".yaml"):
                    inner = yaml.safe_load(text)
                    yield f"{inner['kind']} of {name} in {path}", inner


# ---- beside what is published ---------------------------------------------------------------


def looser(ours, theirs, where):
    """What of ours the published schema does not take, or would not check."""
    ours = {**SHARED[ours["$ref"].rsplit("/", 1)[1]], **ours} if "$ref" in ours else ours
    if ours.get("type", theirs.get("type")) != theirs.get("type"):
        yield f"{where}: {ours.get('type')}, published {theirs.get('type')}"
    for name in theirs.get("required", []):
        if name not in ours.get("required", []):
            yield f"{where}: {name} must be there by what is published"
    for name in ("maximum", "maxItems", "maxLength", "maxProperties"):
        if name in theirs and "enum" not in ours and "pattern" not in ours and ours.get(name, theirs[name] + 1) > theirs[name]:
            yield f"{where}: {name} {ours.get(name)}, published {theirs[name]}"
    if "pattern" in theirs and ours.get("pattern") != theirs["pattern"]:
        yield f"{where}: pattern {ours.get('pattern')}, published {theirs['pattern']}"
    if "enum" in theirs and not set(ours.get("enum", ["any"])) <= set(theirs["enum"]):
        yield f"{where}: {ours.get('enum')}, published {theirs['enum']}"
    for name, child in ours.get("properties", {}).items():
        if name not in theirs.get("properties", {}):
            yield f"{where}.{name}: not published"
        else:
            yield from looser(child, theirs["properties"][name], f"{where}.{name}")
    if "items" in ours:
        yield from looser(ours["items"], theirs["items"], f"{where}[]")


def beside(paths, custom):
    failed = compared = 0
    for path in paths:
        definition = yaml.safe_load(open(path))["spec"]
        for version in definition["versions"]:
            schema = custom.get((f"{definition['group']}/{version['name']}", definition["names"]["kind"]))
            if schema:
                theirs = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                for why in looser(schema["properties"]["spec"], theirs, definition["names"]["kind"]):
                    print(f"FAILED  {why}")
                    failed += 1
                compared += 1
    print(f"{compared} kinds beside what is published, {failed} differences")
    return failed or not compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crds", nargs="+", default=[])
    options = parser.parse_args()
    custom = kinds()
    failed = count = ways = 0
    seen = set()
    for what, manifest in manifests():
        name = (manifest["apiVersion"], manifest["kind"])
        schema = custom.get(name)
        seen.add(name)
        why = wrong(manifest, schema)
        if why:
            print(f"FAILED  {what}: {why}")
        taken = []
        for how, other in [*broken(manifest), *(without(manifest, schema) if schema else ())]:
            ways += 1
            if not wrong(other, schema):
                taken.append(how)
        for how in taken:
            print(f"FAILED  {what}: {how} is taken")
        failed += bool(why) + len(taken)
        count += 1
    for name in set(custom) - seen:
        print(f"FAILED  no manifest is a {name}")
        failed += 1
    print(f"{count} manifests, {ways} broken ones, {failed} wrong")
    return 1 if failed or not count or (options.crds and beside(options.crds, custom)) else 0


if __name__ == "__main__":
    sys.exit(main())
