"""The manifests of deploy/scale/kubernetes: core kinds by kubernetes-validate, strictly; custom ones by what of their published
definitions they use, which stands here, since that validator only warns of kinds that it does not know. A field that stands
nowhere is refused in both. Each manifest is also broken, and must be found so. Run by manifests.sh."""
import copy
import glob
import sys

import jsonschema
import kubernetes_validate
import yaml

NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
LABEL = {"type": "string", "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$", "maxLength": 63}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
DURATION = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}


def fields(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def several(items, most=None):
    return {"type": "array", "items": items, "minItems": 1, **({"maxItems": most} if most else {})}


LABELS = {"type": "object", "additionalProperties": LABEL}
META = fields(["name"], name=NAME, labels=LABELS)
SELECTOR = fields(["matchLabels"], matchLabels=LABELS)

KINDS = {
    # prometheus-operator, monitoring.coreos.com_podmonitors.yaml
    ("monitoring.coreos.com/v1", "PodMonitor"): fields(
        ["selector", "podMetricsEndpoints"], selector=SELECTOR,
        podMetricsEndpoints=several(fields(port={"type": "string"}, path={"type": "string"}, interval=DURATION))),
    # gateway-api-inference-extension, inference.networking.k8s.io_inferencepools.yaml
    ("inference.networking.k8s.io/v1", "InferencePool"): fields(
        ["selector", "targetPorts"], selector=SELECTOR, targetPorts=several(fields(["number"], number=PORT), 8),
        endpointPickerRef=fields(["name"], name=NAME, port=fields(["number"], number=PORT), failureMode={"enum": ["FailOpen", "FailClose"]})),
    # gateway-api, gateway.networking.k8s.io_httproutes.yaml
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): fields(
        [], parentRefs=several(fields(["name"], group=NAME, kind={"type": "string"}, name=NAME), 32),
        rules=several(fields(
            [], matches=several(fields([], path=fields([], type={"enum": ["Exact", "PathPrefix", "RegularExpression"]},
                                                       value={"type": "string", "maxLength": 1024})), 64),
            backendRefs=several(fields(["name"], group=NAME, kind={"type": "string"}, name=NAME), 16), timeouts=fields([], request=DURATION)), 16)),
}


def wrong(manifest):
    """Why it is refused, or nothing."""
    spec = KINDS.get((manifest["apiVersion"], manifest["kind"]))
    try:
        if spec:
            whole = fields(["apiVersion", "kind", "metadata", "spec"], apiVersion={}, kind={}, metadata=META, spec=spec)
            jsonschema.validate(manifest, whole)
        else:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return getattr(error, "message", str(error)).splitlines()[0][:200]
    return None


def main():
    failed = count = 0
    for path in sorted(glob.glob("deploy/scale/kubernetes/*.yaml")):
        for manifest in yaml.safe_load_all(open(path)):
            what = f"{manifest['kind']} of {path}"
            broken = copy.deepcopy(manifest)
            broken.setdefault("spec", broken)["nobodyKnowsThis"] = 1
            why = wrong(manifest)
            if why:
                print(f"{what}: {why}")
            elif not wrong(broken):
                why = "a field that nobody knows is taken"
                print(f"{what}: {why}")
            failed += bool(why)
            count += 1
    print(f"{count} manifests, {failed} wrong")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
