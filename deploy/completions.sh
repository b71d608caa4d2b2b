#!/usr/bin/env bash
# Completions for bash and zsh of both programs, from what they say of their own options, which is their tables:
#     deploy/completions.sh SLUICED SLUICE OUTPUT_DIRECTORY
# Writes sluiced.bash, sluice.bash, _sluiced and _sluice. The build runs it (target sluice_pages). Exit 0, or not where
# one of the programs fails.
set -euo pipefail

sluiced=$1 sluice=$2 out=$3
mkdir -p "$out"

# ---- what there is: lines of an option's name, its value ("" for none, a|b for words) and the first of its help

tab=$'\037' # a real one would not keep an empty value

daemon_options() {
    "$sluiced" --help | awk -v tab="$tab" '
        function put() { if (name != "") print name tab value tab help; name = "" }
        /^Each of these/ { on = 1; next }
        !on && /^  --[a-z-]+,/ { for (i = 1; i <= NF; i++) { sub(/,/, "", $i); print $i tab tab } next }
        !on && /^  --/ { name = $1; value = $2 == "FILE" ? $2 : ""; sub(/^  --[a-z-]+( FILE)? +/, ""); help = $0; put() }
        on && /^  --/ { put(); name = $1; value = $2; help = ""; next }
        on && /^        / && name != "" && help == "" { help = $0; sub(/^ */, "", help) }
        END { put() }'
}
commands() { "$sluice" --help | sed -nE "s/^  ([a-z]+) +(.*)$/\1$tab\2/p"; }
command_options() { # COMMAND
    "$sluice" help "$1" | awk -v tab="$tab" '
        /^  --/ {
            match($0, /^  --[^ ]+( [^ ]+)?/)
            split(substr($0, 3, RLENGTH - 2), part, " ")
            help = substr($0, RLENGTH + 1)
            sub(/^ +(\* )?/, "", help)
            print part[1] tab part[2] tab help
        }'
}
words_of() { case $1 in *'|'*) tr '|' ' ' <<< "$1" ;; esac; }
names_of() { cut -d"$tab" -f1 | paste -sd' '; }

# ---- bash: what is no word of ours is a file's name, as ever

bash_values() { # of options with words
    while IFS=$tab read -r name value _; do
        words=$(words_of "$value")
        [ -z "$words" ] || printf "    %s) COMPREPLY=(\$(compgen -W '%s' -- \"\$current\")); return ;;\n" "$name" "$words"
    done
}
bash_head() { # NAME
    printf '# bash completion of %s, made by deploy/completions.sh of its own options.\n_%s() {\n' "$1" "$1"
    printf '    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n    COMPREPLY=()\n'
}
options_of() { printf "    [[ \$current != -* ]] || COMPREPLY=(\$(compgen -W '%s' -- \"\$current\"))\n" "$1"; }

{
    bash_head sluiced
    printf '    case $before in\n'
    daemon_options | bash_values
    printf '    esac\n'
    options_of "$(daemon_options | names_of)"
    printf '}\ncomplete -o default -F _sluiced sluiced\n'
} > "$out/sluiced.bash"

{
    bash_head sluice
    cat << 'END'
    local word command= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        -i | --instance | --socket) i=$((i + 1)) ;;
        -*) ;;
        *)
            command=$word
            break
            ;;
        esac
    done
END
    printf '    case $command in\n    "" | help)\n'
    printf "        [[ \$before == -i || \$before == --* ]] || COMPREPLY=(\$(compgen -W '%s' -- \"\$current\"))\n        ;;\n" \
        "$(commands | names_of) help -i --version --help"
    commands | cut -d"$tab" -f1 | while read -r command; do
        printf '    %s)\n    case $before in\n' "$command"
        command_options "$command" | bash_values
        printf '    esac\n'
        options_of "$(command_options "$command" | names_of) --help"
        printf '    ;;\n'
    done
    printf '    esac\n}\ncomplete -o default -F _sluice sluice\n'
} > "$out/sluice.bash"

# ---- zsh

zsh_specs() { # lines of options as arguments of _arguments
    while IFS=$tab read -r name value help; do
        help=$(sed -e 's/[]:\\[]/\\&/g' -e "s/'/'\\\\''/g" <<< "$help")
        words=$(words_of "$value")
        case $value in
        TEXT | FILE | PATH | DIR) action=_files ;;
        *) action=' ' ;;
        esac
        [ -z "$words" ] || action="($words)"
        [ -z "$value" ] || action=":$(tr -d ":'" <<< "$value"):$action"
        [ -n "$value" ] || action=
        printf " \\\\\n        '*%s[%s]%s'" "$name" "$help" "$action"
    done
}

{
    printf '#compdef sluiced\n# Made by deploy/completions.sh of its own options.\n_arguments'
    daemon_options | zsh_specs
    echo
} > "$out/_sluiced"

{
    printf '#compdef sluice\n# Made by deploy/completions.sh of its own options.\n'
    cat << 'END'
local context state state_descr line
typeset -A opt_args
_arguments -C '(-i --instance)'{-i,--instance}'[which daemon]:name:' '--socket[which daemon]:path:_files' \
    '--version[the version]' '--help[the commands]' '1:command:->command' '*::option:->option' && return
case $state in
command)
    local -a commands=(
END
    commands | while IFS=$tab read -r command help; do
        printf "        '%s:%s'\n" "$command" "$(sed -e "s/'/'\\\\''/g" -e 's/:/\\:/g' <<< "$help")"
    done
    printf "        'help:what a command does'\n    )\n    _describe command commands\n    ;;\noption)\n    case \$line[1] in\n"
    commands | cut -d"$tab" -f1 | while read -r command; do
        printf '    %s) _arguments' "$command"
        { command_options "$command"; echo "--help$tab${tab}what it does"; } | zsh_specs
        printf ' ;;\n'
    done
    printf '    esac\n    ;;\nesac\n'
} > "$out/_sluice"
