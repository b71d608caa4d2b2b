#!/usr/bin/env bash
# What can be seen in the text of the tree, checked: folder dependencies, circles of includes, file
# sizes, left-overs.
#   protocol/base <- gpu <- daemon      protocol <- client      protocol <- daemon
# Nothing includes daemon/; of protocol/, gpu/ includes base/ alone. Prints each breach; exit 1 if any.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
git rev-parse --is-inside-work-tree > /dev/null || { echo "SKIPPED tidy: this is no checkout that git reads"; exit 77; }

bad=0
breach() {
    echo "$1"
    bad=1
}

# includes FOLDER ALLOWED: every "..." include of FOLDER's files starts with one of the allowed paths.
includes() {
    local folder=$1 allowed=$2 line
    while IFS= read -r line; do
        breach "$line: $folder/ may include only $allowed"
    done < <(grep -rnE '^\s*#\s*include\s+"' "$folder" --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.def' |
        grep -v '^gpu/emu/include/' |
        grep -vE "#\s*include\s+\"($allowed)")
}
includes protocol/base 'protocol/base/'
includes protocol 'protocol/'
includes gpu 'gpu/|protocol/base/'
includes client 'client/|protocol/'
includes daemon 'daemon/|gpu/|protocol/'
# A kernel's CUDA body and its CPU body know nothing of each other, and the engine nothing of either.
while IFS= read -r line; do
    breach "$line: only CPU bodies include the emulation"
done < <(grep -nE '#\s*include\s+"gpu/emu/' $(git ls-files gpu | grep -E '\.(c|h|cu|cuh)$' | grep -vE '^gpu/(emu|kernels/cpu)/|_cpu\.[ch]$'))
while IFS= read -r line; do
    breach "$line: which runtime it is, is CMake's choice"
done < <(grep -nE '#\s*if.*(CUDA|EMU|CPU_DEVICE)' $(git ls-files 'gpu/*.c' | grep -v '^gpu/emu/'))

# A model's words are in its family's file: the engine knows ops, values and weights. (Who may use whom: folders.sh.)
while IFS= read -r line; do
    breach "$line: a model's word outside gpu/models"
done < <(git grep -nE '[a-z]_proj\b|gate_up|layernorm|lm_head|embed_tokens|model_type|num_hidden' -- \
    'gpu/*.[ch]' 'gpu/*.cu' 'gpu/*.cuh' 'gpu/*.def' ':!gpu/models')
# No header includes itself, over however many others: tsort names those that go in a circle.
while IFS= read -r line; do
    breach "${line#tsort: }: in a circle of includes"
done < <(git ls-files '*.h' '*.cuh' |
    xargs grep -HoE '^\s*#\s*include\s+"[^"]+\.(h|cuh)' | sed -E 's/^([^:]+):.*"/\1 /' |
    tsort 2>&1 > /dev/null | grep -v 'contains a loop')

# A test is its tables, which are long.
while IFS= read -r file; do
    lines=$(wc -l < "$file") most=600
    [[ $file != tests/* ]] || most=700
    [ "$lines" -le $most ] || breach "$file: $lines lines, over $most"
done < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

while IFS= read -r line; do
    breach "$line: left over"
done < <(git grep -nE '\b(TODO|FIXME|XXX|HACK)\b|#if 0' -- '*.[ch]' '*.cu' '*.cuh' '*.sh' '*.py' ':!tests/tidy')

# Lines of kernels end by the 100th column.
while IFS= read -r line; do
    breach "$line: more than 100 columns"
done < <(git grep -nP '^.{101}' -- '*.cu' '*.cuh')

# The Python client stands on Python alone, and goes by the house's lengths where Python's lines allow it.
while IFS= read -r line; do
    breach "$line: the Python client imports Python's own modules and itself"
done < <(git ls-files 'client/python/*.py' | xargs -r grep -nE '^\s*(import|from)\s+[a-z_]' |
    grep -vE ':\s*(import|from) (__future__|array|asyncio|collections|dataclasses|enum|fcntl|grp|json|math|mmap|os|select|socket|stat|struct|sys|time|types|typing)\b' |
    grep -vE 'sluice_client/tensors\.py:[0-9]+:\s+(import numpy|from typing_extensions import Buffer)')
while IFS= read -r file; do
    lines=$(wc -l < "$file")
    [ "$lines" -le 600 ] || breach "$file: $lines lines, over 600"
    while IFS= read -r line; do
        breach "$file:$line: a tab, a space at its end, or more than 120 columns"
    done < <(grep -nP '\t| $|^.{121}' "$file")
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" 2> /dev/null || ! command -v python3 > /dev/null || breach "$file: no Python"
done < <(git ls-files 'client/python/*.py')

# Figures have one home: comments and pages that quote them drift.
while IFS= read -r line; do
    breach "$line: figures are for tests/bench"
done < <(git grep -nE '[0-9] (us|tok/s|[GT]B/s|TFLOP/s)\b' -- gpu/kernels '*.md' ':!tests/bench' ':!README.md')

# Names of files in comments and pages are those of files.
while IFS= read -r line; do
    breach "$line: no such file"
done < <(awk -f tests/tidy/names.awk <(git ls-files 2>/dev/null) \
    $(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.md' 2>/dev/null))

# And each source of these three has its place in a page of its folder.
for folder in client daemon protocol; do
    pages=$(git ls-files "$folder/*README.md" | xargs cat)
    while IFS= read -r file; do
        noun=$(basename "$file" .c)
        [[ $pages == *"$noun.c"* || $pages == *"$noun.h"* ]] || breach "$file: no page of $folder/ names it"
    done < <(git ls-files "$folder/*.c")
done
while IFS= read -r file; do
    grep -qF "\`$(basename "$file")\`" client/python/README.md || breach "$file: the package's page does not name it"
done < <(git ls-files 'client/python/sluice_client/*.py' | grep -v '/__init__')

while IFS= read -r name; do
    breach "$name: not one of the top level's"
done < <(git ls-files | sed 's,/.*,,' | sort -u |
    grep -vxE 'CMakeLists\.txt|CMakePresets\.json|daemon|gpu|protocol|client|tests|deploy|README\.md|\..*')

[ $bad -eq 0 ] && echo "1 passed, 0 failed"
exit $bad
