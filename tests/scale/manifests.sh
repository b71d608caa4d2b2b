#!/usr/bin/env bash
# The manifests of deploy/scale/kubernetes against their schemas: tests/scale/manifests.sh [BUILD [--crds FILE...]], FILE a published
# definition of a custom kind. kubernetes-validate is installed in BUILD, once. Exit 1 if one is wrong; 77, SKIPPED
# with the reason, where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
environment=$(tests/python/environment.sh "$build" kubernetes) || {
    echo "SKIPPED manifests: $environment"
    exit 77
}
exec "$environment/bin/python" tests/scale/manifests.py "${@:2}"
