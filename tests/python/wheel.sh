#!/usr/bin/env bash
# The Python client as people install it: tests/python/wheel.sh BUILD
# A wheel is built of client/python/ and has what it should and nothing else; in an environment of its own, away from the tree,
# it asks a daemon of BUILD; with NumPy the tests that want it run, and mypy --strict takes the package and a program that uses it.
# Its tools are those of environment.sh. Prints each check; exit 1 if one fails; 77, with the reason, where they cannot be had.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
BUILD=$(cd "${1:?tests/python/wheel.sh BUILD}" && pwd) || exit 2
export BUILD PYTHONDONTWRITEBYTECODE=1
source=$here/../../client/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
skip() {
    echo "SKIPPED python_wheel: $*"
    exit 77
}

environment=$("$here/environment.sh" "$BUILD" clients) || skip "$environment"
python=$environment/bin/python

failed=0
check() { # WHAT COMMAND...: what the command prints stands under a failure
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok      $what"
    else
        printf 'FAILED  %s\n%s\n' "$what" "$(tail -40 <<< "$said")"
        failed=1
    fi
}

builds() { # of a copy: setuptools leaves its own folders beside the source
    cp -r "$source" "$scratch/source" && rm -rf "$scratch/source/sluice_client/__pycache__" &&
        "$python" -m build --no-isolation --wheel --sdist --outdir "$scratch/dist" "$scratch/source"
}
has_what_it_should() {
    local want
    want=$(cd "$source" && printf '%s\n' sluice_client/* | grep -v __pycache__ | sort)
    diff <(unzip_names | grep -v '\.dist-info/' | sort) - <<< "$want"
}
unzip_names() { "$python" -m zipfile --list "$scratch"/dist/*.whl | awk 'NR > 1 { print $1 }'; }
is_pure() { [ "$(basename "$scratch"/dist/*.whl)" = "sluice_client-$(version)-py3-none-any.whl" ]; }
version() { sed -nE 's/^project\(sluice VERSION ([0-9.]+).*/\1/p' "$here/../../CMakeLists.txt"; }
installs() { # alone: it depends on nothing
    rm -rf "$scratch/venv"
    python3 -m venv "$scratch/venv" &&
        "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$scratch"/dist/*.whl
}
asks() {
    (cd "$scratch" && "$scratch/venv/bin/python" - "$here" << 'END'
import sys
import sluice_client
assert sys.prefix in sluice_client.__file__, sluice_client.__file__
sys.path.append(sys.argv[1])
from daemon_test import TOP, Daemon
daemon = Daemon("--model", str(TOP / "deploy/demo-model"))
try:
    with sluice_client.Client(daemon.path, timeout=60) as client:
        answer = client.generate("417+385=", max_tokens=16)
    assert answer.text == "802", answer
finally:
    status, said = daemon.stop()
assert status == 0, said
END
    )
}
is_typed() {
    (cd "$source" && "$python" -m mypy --cache-dir "$scratch/mypy" sluice_client)
}
types_reach_programs() { # through py.typed, as installed: one right and two wrong calls
    cat > "$scratch/program.py" << 'END'
from sluice_client import Client

with Client() as client:
    text: str = client.generate("x", max_tokens=8, temperature=0.5).text
    number: int = client.generate("x").text
    client.generate("x", max_tokens="8")
END
    local said
    said=$(cd "$scratch" && "$python" -m mypy --strict --cache-dir "$scratch/mypy2" --python-executable "$scratch/venv/bin/python" program.py)
    echo "$said"
    [ "$(grep -c ': error:' <<< "$said")" = 2 ] && grep -q '^program.py:5: error' <<< "$said" && grep -q '^program.py:6: error' <<< "$said"
}
numpy_is_taken() { "$python" "$here/suite.py" "$1" "$2" | grep -x '1 passed, 0 failed'; }

check "a wheel and a source package are built" builds
check "the wheel has the package's files and no others" has_what_it_should
check "its name says pure Python and the tree's version" is_pure
check "it is installed without an index" installs
check "installed, it asks a daemon" asks
check "mypy --strict takes the package" is_typed
check "types reach a program that uses it" types_reach_programs
check "NumPy's arrays, every dtype" numpy_is_taken wire Tensors.test_numpy
check "NumPy's arrays and a program" numpy_is_taken daemon Program.test_numpy
exit $failed
