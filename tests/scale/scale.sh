#!/usr/bin/env bash
# Four daemons in network namespaces behind a router that people run: tests/scale/scale.sh ROUTER [BUILD] [--requests N]
# [--sessions N] [--seed N]. ROUTER is haproxy, haproxy-weights, sglang, sglang-cache, litellm or ray; or curve, which tells what 1, 2
# and 4 daemons do; or picker, what llm-d's endpoint picker reads of two. What comes from the package index is installed in
# BUILD, once. Exit 1 if a claim does not hold, and 77, SKIPPED with the reason, where the program or a namespace cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

router=${1:?haproxy, haproxy-weights, sglang, sglang-cache, litellm or ray}
build=.build/dev
if [ $# -ge 2 ] && [[ $2 != --* ]]; then
    build=$2
    shift
fi
shift
skip() {
    echo "SKIPPED scale $router: $*"
    exit 77
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || skip "no python3 of 3.10 or later here"
if [ "$(id -u)" -eq 0 ]; then apart=(unshare -n); else apart=(unshare -rn); fi
"${apart[@]}" sh -c 'ip link add veth0 type veth peer name veth1' 2> /dev/null || skip "no network namespaces here"

environment=
python=python3
case ${router%%-*} in
    sglang | litellm | ray)
        environment=$(tests/python/environment.sh "$build" "${router%%-*}") || skip "$environment"
        python=$environment/bin/python
        ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
command=(tests/scale/scale.py "$router" "$build" "$scratch" --environment "$environment")
case $router in
    ray) command=(tests/scale/ray_check.py "$build" "$scratch") ;; # its daemons are its own
    curve | picker) command=("tests/scale/$router.py" "$build" "$scratch") ;;
esac
code=0
"${apart[@]}" "$python" "${command[@]}" "$@" || code=$?
[ $code -eq 0 ] || [ $code -eq 77 ] || tail -n 5 "$scratch"/*.log
exit $code
