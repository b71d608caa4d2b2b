#!/usr/bin/env bash
# Holds the order of folders that the file `folders` beside this one lists: tests/tidy/folders.sh [BUILD]
# Checked are includes, in the text of the tree, and, with BUILD, calls and data between the object files of the
# libraries there (by nm): what goes upward goes through a table that was handed down, or not at all. Prints each
# breach; exit 1 if any.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
git rev-parse --is-inside-work-tree > /dev/null || { echo "SKIPPED folders: this is no checkout that git reads"; exit 77; }
build=${1-}
sources_max=20 # of one folder

bad=0
breach() {
    echo "$1"
    bad=1
}

order=$(sed -E 's/#.*//; /^\s*$/d' tests/tidy/folders)

# No circle, however long.
while IFS= read -r line; do
    breach "tests/tidy/folders: ${line#tsort: -: }: in a circle of folders"
done < <(echo "$order" | awk -F: '{n = split($2, to, " "); for (i = 1; i <= n; i++) print $1, to[i]}' |
    tsort 2>&1 > /dev/null | grep -v 'contains a loop')

# "FROM TO WHAT" on each line of the input must be an edge of the list.
allowed() {
    awk -v order="$order" '
        BEGIN {
            lines = split(order, line, "\n")
            for (i = 1; i <= lines; i++) {
                split(line[i], half, ":")
                listed[half[1]] = 1
                n = split(half[2], to, " ")
                for (k = 1; k <= n; k++) edge[half[1] " " to[k]] = 1
            }
        }
        $1 == $2 { next }
        !($1 in listed) { print $3 ": its folder " $1 " is not in tests/tidy/folders"; next }
        !(($1 " " $2) in edge) { print $3 ": " $1 " may not use " $2 }' | sort -u
}

sources() { git ls-files client daemon gpu protocol | grep -E '\.(c|h|cu|cuh|def)$'; }

while IFS= read -r line; do
    breach "$line"
done < <(sources | xargs grep -HoE '^\s*#\s*include\s+"[^"]+/[^"/]+"' |
    sed -E 's/^(.*)\/([^\/:]+):\s*#\s*include\s+"(.*)\/([^"\/]+)"/\1 \3 \1\/\2(includes-\4)/' | allowed)

# Of models' families there is a file each, however many: they are not counted.
families=$(sed -nE 's,^FAMILY\((.*)\)$,gpu/models/families/\1.c,p' gpu/models/families/families.def)
while read -r count folder; do
    [ "$count" -le $sources_max ] || breach "$folder: $count sources, over $sources_max"
done < <(sources | grep -E '\.(c|cu)$' | grep -vxF "$families" | sed -E 's,/[^/]+$,,' | sort | uniq -c)

while IFS= read -r file; do
    grep -qF "families/${file##*/}" gpu/models/CMakeLists.txt || breach "$file: no line of families.def, so nobody builds it"
done < <(git ls-files 'gpu/models/families/*.c' | grep -vxF "$families")

# Which folder defines a symbol, and which uses it: of all object files under the build's own folders.
skipped=0
if [ -n "$build" ] && ! command -v nm > /dev/null; then
    echo "SKIPPED folders: nm is not installed; calls were not looked at, includes were"
    skipped=77
elif [ -n "$build" ]; then
    objects=$(cd "$build" && find client daemon gpu protocol -name '*.c.o' | grep -E 'CMakeFiles/sluice[a-z_]*\.dir/' |
        grep -vE 'sluice_emu_audit' | while read -r object; do # of sources that are still there
        source=$(sed -E 's,/CMakeFiles/[^/]*\.dir/,/,; s,\.o$,,; :up s,[^/]+/__/,,; t up' <<< "$object")
        [ -f "$OLDPWD/$source" ] && echo "$object"
    done)
    while IFS= read -r line; do
        breach "$line"
    done < <(cd "$build" && echo "$objects" | xargs nm -A -P 2> /dev/null |
        awk '
            { # PATH: NAME TYPE ...; the path is FOLDER/CMakeFiles/TARGET.dir/REST/FILE.c.o
                path = $1; sub(/:$/, "", path); sub(/\/CMakeFiles\/[^\/]*\.dir/, "", path); sub(/\.o$/, "", path)
                while (sub(/[^\/]+\/__\//, "", path)) { } # a source from beside the library
                folder = path; sub(/\/[^\/]*$/, "", folder)
                if ($3 == "U") { use[folder " " $2] = path }
                else if ($3 ~ /^[TDBRVWC]$/) { if (!($2 in home)) home[$2] = folder; else if (home[$2] != folder) home[$2] = "several" }
            }
            END {
                for (u in use) {
                    split(u, part, " ")
                    if (!(part[2] in home) || home[part[2]] == "several") continue
                    # The runtime is beneath everybody, and which one that is, the build says; a failed assert ends in service/.
                    if (home[part[2]] == "gpu/emu" || part[2] == "__assert_fail") continue
                    print part[1], home[part[2]], use[u] "(uses-" part[2] ")"
                }
            }' | allowed)
fi
[ $bad -ne 0 ] || bad=$skipped
exit $bad
