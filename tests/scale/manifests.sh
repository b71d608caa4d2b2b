#!/usr/bin/env bash
# The manifests of deploy/scale/kubernetes against their schemas: tests/scale/manifests.sh [BUILD [--crds FILE...]], FILE a published
# definition of a custom kind. kubernetes-validate is installed in BUILD/scale/kubernetes, once. Exit 1 if one is wrong; 77, SKIPPED
# with the reason, where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
environment=$build/scale/kubernetes
skip() {
    echo "SKIPPED manifests: $*"
    exit 77
}
if ! [ -e "$environment/installed" ]; then
    mkdir -p "$build/scale"
    rm -rf "$environment"
    python3 -m venv "$environment" > "$environment.log" 2>&1 || skip "no python3-venv here ($environment.log)"
    timeout "${INSTALL_S:-300}" "$environment/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0 \
        >> "$environment.log" 2>&1 || skip "kubernetes-validate cannot be installed ($environment.log)"
    touch "$environment/installed"
fi
exec "$environment/bin/python" tests/scale/manifests.py "${@:2}"
