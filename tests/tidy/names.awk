# Names of source files in comments and pages that no file of the tree has: awk -f names.awk LIST FILE...
# LIST has the tree's paths, a line each; a name may be any end of one, from a slash on. Pages (.md) are looked at
# whole, sources in their comments (/* */). Not looked at: <system.h>, ends of names (_cpu.c),
# patterns, addresses and places outside the tree, and noun, op and example, which stand for others.
FNR == NR {
    path = $0
    have[path] = 1
    while (i = index(path, "/")) {
        path = substr(path, i + 1)
        have[path] = 1
    }
    next
}

FNR == 1 { inside = 0 }

# What of the line is comment.
function comment(line,    out, i) {
    out = ""
    while (line != "") {
        i = index(line, inside ? "*/" : "/*")
        if (inside)
            out = out " " (i ? substr(line, 1, i - 1) : line)
        if (!i)
            break
        inside = !inside
        line = substr(line, i + 2)
    }
    return out
}

{
    text = FILENAME ~ /\.md$/ ? $0 : comment($0)
    while (match(text, /[A-Za-z0-9_.\/<*-]+/)) {
        word = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/\.+$/, "", word)
        if (word !~ /\.(c|h|cu|cuh|def|py|sh)$/ || word ~ /^[_.<\/]|\*/ || word in have)
            continue
        base = word
        sub(/.*\//, "", base)
        if (base !~ /^(noun|op|op_cpu|example)\./)
            print FILENAME ":" FNR ": " word
    }
}
