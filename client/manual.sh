#!/usr/bin/env bash
# The manual pages of section 3, from the library's header, which says all that they say:
#     client/manual.sh SLUICE.H VERSION OUTPUT_DIRECTORY
# libsluice.3 has the whole; each function has a page with its prototype and its comment. Exit 1 where a function has no
# comment, naming it.
set -euo pipefail
header=$1 version=$2 out=$3
mkdir -p "$out"

awk -v version="$version" -v out="$out" '
function roff(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'"'"']/, "\\\\\\&&", s); return s }
function title(page, name, summary) {
    printf ".TH %s 3 \"\" \"Sluice %s\" \"Sluice\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, name, roff(summary) > page
}
# Lines of a comment, without their marks; an empty one ends a paragraph.
function plain(s) { if (s ~ /^ *\*\/$/) return ""; sub(/^ *\/?\*+ ?/, "", s); sub(/ *\*\/ *$/, "", s); return s }
function take(text, line) {
    line = plain(line)
    if (line ~ /^ +- / || line ~ /^ - /) { sub(/^ +- /, "", line); return text "\n.IP \\(bu 2\n" roff(line) }
    if (line == "") return text == "" ? text : text "\n.PP"
    return text == "" ? roff(line) : text "\n" roff(line)
}
function first_sentence(text,   flat) {
    flat = text; gsub(/\n\.PP\n/, " ", flat); gsub(/\n/, " ", flat); gsub(/\\-/, "-", flat)
    if (match(flat, /[.:;] /)) flat = substr(flat, 1, RSTART - 1)
    sub(/\.$/, "", flat)
    return tolower(substr(flat, 1, 1)) substr(flat, 2)
}
function whole(text) { sub(/(\n\.PP)+$/, "", text); return text }
function end_function(   page, name) {
    name = prototype; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
    if (comment == "") { print "no comment on " name > "/dev/stderr"; bad = 1; return }
    page = out "/" name ".3"
    title(page, name, first_sentence(comment))
    printf ".SH SYNOPSIS\n.nf\n#include <sluice.h>\n.PP\n%s\n.fi\n.SH DESCRIPTION\n%s\n", roff(prototype), whole(comment) > page
    printf ".SH SEE ALSO\n.BR libsluice (3)\n" > page
    close(page)
    names[++count] = name
    summaries[name] = first_sentence(comment)
}
/^extern "C"|^#|^}$/ { next }
NR == 1 { about = 1 }
about { intro = take(intro, $0); if (/\*\//) about = 0; next }
/^\/\*/ { commenting = 1; comment = "" }
commenting { comment = take(comment, $0); if (/\*\//) commenting = 0; next }
/^SLUICE_API/ { prototype = ""; collecting = 1 }
collecting {
    line = $0; sub(/^SLUICE_API /, "", line)
    prototype = prototype (prototype == "" ? "" : "\n") line
    if (line ~ /;/) { collecting = 0; sub(/;.*/, ";", prototype); end_function() }
    next
}
/^(typedef )?(enum|struct)/ && /\{/ && !/\}/ { block = 1 }
block { blocks = blocks roff($0) "\n"; if (/^}/) block = 0; next }
/^(typedef|enum)/ { blocks = blocks roff($0) "\n" }
/^$/ { comment = "" } # what follows has one of its own
END {
    page = out "/libsluice.3"
    title(page, "libsluice", "client of the Sluice inference daemon")
    printf ".SH SYNOPSIS\n.nf\n#include <sluice.h>\n.PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs sluice)\n.fi\n" > page
    printf ".SH DESCRIPTION\n%s\n.SH FUNCTIONS\n", whole(intro) > page
    for (i = 1; i <= count; i++) printf ".TP\n.BR %s (3)\n%s\n", names[i], roff(summaries[names[i]]) > page
    printf ".SH TYPES\n.nf\n%s.fi\n", blocks > page
    printf ".SH EXAMPLES\n/usr/share/doc/libsluice\\-dev/examples/generate.c\n.SH SEE ALSO\n.BR sluice (1),\n.BR sluiced (8)\n" > page
    exit bad
}' "$header"
gzip -9nf "$out"/*.3
