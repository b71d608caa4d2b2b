#!/usr/bin/env bash
# What bash and zsh offer of both programs' options: completions.sh SLUICED SLUICE. Exit 1 if a check fails; zsh's part is
# SKIPPED, with a line, where there is no zsh.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

sluiced=$1 sluice=$2
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
deploy/completions.sh "$sluiced" "$sluice" "$made" || exit 1

failed=0
is() { # WHAT IS WANTED
    [ "$2" = "$3" ] || { printf '%s: "%s" instead of "%s"\n' "$1" "$2" "$3"; failed=1; }
}

# ---- bash

# shellcheck disable=SC1091
. "$made/sluiced.bash"
# shellcheck disable=SC1091
. "$made/sluice.bash"
offered() { # WORD...: what is offered for the last of them
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    "_$1" "$1" "${*: -1}" "${*: -2:1}"
    echo "${COMPREPLY[*]}"
}
daemon=$("$sluiced" --help | grep -oE '^  --[a-z-]+|, --[a-z-]+' | grep -oE -- '--.*')
is 'the options of sluiced' "$(offered sluiced -- | tr ' ' '\n')" "$daemon"
is 'there are many' "$(($(wc -l <<< "$daemon") > 40))" 1
is 'part of one' "$(offered sluiced --api-key)" --api-key-file
is 'a choice' "$(offered sluiced --model x --device c)" 'cuda cpu'
is 'a switch' "$(offered sluiced --log-requests y)" yes
is 'a file is left to bash' "$(offered sluiced --config /et)" ''
commands=$("$sluice" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
is 'commands' "$(offered sluice -i name '' | tr ' ' '\n' | grep -v -- '^-' | grep -vx help)" "$commands"
is 'part of one' "$(offered sluice det)" detokenize
for command in $commands; do
    is "the options of sluice $command" "$(offered sluice --socket /x "$command" -- | tr ' ' '\n' | grep -vx -- --help)" \
        "$("$sluice" help "$command" | grep -oE '^  --[a-z0-9-]+' | tr -d ' ')"
done
is 'the name of a daemon' "$(offered sluice -i x)" ''

# ---- zsh: what its own function for options is given

if command -v zsh > /dev/null; then
    given() { # FILE [COMMAND]
        zsh -f -c '
            _arguments() { [[ $1 = -C ]] && { state=option; return 1 }; print -rl -- "$@" }
            _describe() { }
            complete_it() { local -a line=('"${2:-}"'); eval "$(< '"$1"')" }
            complete_it' | sed -nE 's/^\*(--[a-z0-9-]+)\[.*/\1/p'
    }
    for file in "$made/_sluiced" "$made/_sluice"; do
        zsh -n "$file" || failed=1
        is "what $file is for" "$(head -1 "$file")" "#compdef ${file##*/_}"
    done
    is 'the options of sluiced in zsh' "$(given "$made/_sluiced")" "$daemon"
    for command in $commands; do
        is "the options of sluice $command in zsh" "$(given "$made/_sluice" "$command" | grep -vx -- --help)" \
            "$("$sluice" help "$command" | grep -oE '^  --[a-z0-9-]+' | tr -d ' ')"
    done
else
    echo "SKIPPED completions of zsh: it is not installed"
fi
exit $failed
