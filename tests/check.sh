# What scripts have that go through a list of checks: . tests/check.sh. Each check prints a line; `failed` is 1 once one has failed.
# shellcheck shell=bash
# shellcheck disable=SC2034 # whoever reads this ends with it
failed=0
check() { # WHAT COMMAND...: what the command prints stands under a failure
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok      $what"
    else
        printf 'FAILED  %s\n%s\n' "$what" "$(tail -n 100 <<< "$said")"
        failed=1
    fi
}
is() { [ "$1" = "$2" ] || { echo "is \"$1\", not \"$2\""; return 1; }; }
