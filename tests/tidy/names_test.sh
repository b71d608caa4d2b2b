#!/usr/bin/env bash
# What names.awk reports of a page and a source that name files which are there, and others.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
rules=$PWD/names.awk
folder=$(mktemp -d) && cd "$folder" || exit 1
trap 'rm -rf "$folder"' EXIT

printf '%s\n' gpu/kernels/ring.cuh gpu/step.c > list
cat > page.md << 'END'
`kernels/ring.cuh` and step.c are there; lost.c is not, nor is `gpu/kernels/step.c`.
Nobody looks for noun.h, op_cpu.c, *_test.c, _cpu.c, <sysexits.h>, /usr/lib/x.sh or https://example.com/a.py.
END
cat > source.c << 'END'
/* Of ring.cuh. */ int a = s.c + "gone.h"; /* It says
 * more (gone.cuh), */
int b = at.h; /* see step.c. Not step.cu. */
END
expected='page.md:1: lost.c
page.md:1: gpu/kernels/step.c
source.c:2: gone.cuh
source.c:3: step.cu'
found=$(awk -f "$rules" list page.md source.c)
[ "$found" = "$expected" ] || {
    diff <(echo "$expected") <(echo "$found")
    exit 1
}
echo "1 passed, 0 failed"
