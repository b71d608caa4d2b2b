#!/usr/bin/env bash
# A Python environment that tests share, made in BUILD/environments from the package index that pip knows, once for each list:
#     tests/python/environment.sh BUILD LIST
# Its packages are those of packages/LIST.txt (clients: 0.6 GiB, a minute of a core; newest: openai's newest package alone; sglang, litellm,
# ray: routers of tests/scale; kubernetes: what checks manifests). Prints its folder; 77, with the reason, where it cannot be had. Who comes while it is made waits; what could not be installed is not tried
# again for half an hour, so that tests do not wait for it one after the other. INSTALL_S: seconds that it may take (400).
set -uo pipefail
build=$(cd "${1:?tests/python/environment.sh BUILD LIST}" && pwd) || exit 2
list=$(dirname "$(realpath "$0")")/packages/${2:?a list of packages}.txt
folder=$build/environments/$2
log=$folder.log
limit=${INSTALL_S:-400}
give_up() {
    echo "$*"
    exit 77
}

[ -e "$list" ] || { echo "no such list: $list"; exit 2; }
mkdir -p "$build/environments"
exec 9> "$folder.lock"
flock --wait $((limit + 30)) 9 || give_up "another makes it, and is not done in time ($log)"
if ! cmp -s "$list" "$folder/done"; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || give_up "no Python 3.11 here"
    [ -z "$(find "$folder.refused" -mmin -30 2> /dev/null)" ] || give_up "packages could not be installed a while ago ($log)"
    [ "$(df --output=avail -k "$build" | tail -1)" -ge 1048576 ] || give_up "less than 1 GiB is free"
    rm -rf "$folder"
    python3 -m venv "$folder" > "$log" 2>&1 || give_up "no python3-venv here ($log)"
    if ! timeout "$limit" "$folder/bin/pip" install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
        --requirement "$list" >> "$log" 2>&1; then
        touch "$folder.refused"
        give_up "packages cannot be installed ($log)"
    fi
    cp "$list" "$folder/done"
fi
echo "$folder"
