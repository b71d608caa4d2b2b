#!/usr/bin/env bash
# `sluice top` in a terminal of tmux: what stands on the screen at 80x24 and after a resize, and a request
# cancelled by key. Usage: top.sh SLUICED SLUICE. Exit 1: the screen differs; 77: skipped, no tmux here.
set -euo pipefail
command -v tmux > /dev/null || { echo "SKIPPED: no tmux"; exit 77; }

folder=$(mktemp -d /tmp/sluice-top-XXXXXX)
socket=$folder/socket
terminal() { tmux -S "$folder/tmux" "$@"; }
finish() {
    terminal kill-server 2> /dev/null || true
    [ -z "${daemon:-}" ] || kill "$daemon" 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
fail() {
    echo "FAILED: $1"
    terminal capture-pane -p || true
    exit 1
}
# until TEXT: the screen shows it, at last.
until_shown() {
    for _ in $(seq 300); do
        terminal capture-pane -p | grep -qE "$1" && return
        sleep 0.1
    done
    fail "never shown: $1"
}

"$1" --model synthetic:tiny --device cpu --socket "$socket" 2> "$folder/log" &
daemon=$!
for _ in $(seq 300); do
    "$2" health --socket "$socket" > /dev/null 2>&1 && break
    sleep 0.1
done

LC_ALL=C.UTF-8 terminal -f /dev/null new-session -d -x 80 -y 24 "'$2' top --socket '$socket'; echo over; sleep 60"
until_shown '^sluice top: synthetic:tiny on .*, ready, up [0-9]+ s'
for row in 'requests/s +[0-9.]+' 'tokens/s +[0-9.]+' 'running +[0-9]+' 'waiting +[0-9]+' 'batch' 'TTFT ' 'ITL ' 'E2E ' 'step, mean' \
    'KV blocks +[0-9]+ used' 'cache +[0-9]+ blocks' 'MiB +weights [0-9]+' 'users ' ' +REQUEST +USER +JOB'; do
    until_shown "^$row"
done

# Work with no end in sight: it is listed, counted, and has latencies.
"$2" generate --socket "$socket" --tokens 1,2,3 --max-tokens 4000 --n 64 --ignore-eos > "$folder/out" 2>&1 &
client=$!
until_shown "^> [0-9]+ +$(id -u) +generate"
until_shown '^running +[1-9]'
until_shown '^ITL +[0-9]'
until_shown "^users +$(id -u) 100%"
[ "$(terminal capture-pane -p | wc -l)" -le 24 ] || fail "more than 24 rows"
terminal capture-pane -p | LC_ALL=C sed 's/\xe2\x96./x/g' | awk 'length > 80 { exit 1 }' || fail "wider than 80 columns"

terminal resize-window -x 100 -y 40
until_shown '^ITL +[0-9]'
until_shown ' +REQUEST +USER +JOB'
terminal resize-window -x 60 -y 20
until_shown '^sluice top'
[ "$(terminal capture-pane -p | wc -l)" -le 20 ] || fail "more than 20 rows"

terminal send-keys c
until_shown '^request [0-9]+ is cancelled'
wait "$client" && fail "the cancelled client reports success"
until_shown '^running +0'
terminal send-keys q
until_shown '^over'

# Into a pipe: lines.
timeout -s INT 2.5 "$2" top --socket "$socket" > "$folder/lines" || true
head -1 "$folder/lines" | grep -q 'req/s .*ttft p50' || fail "no heading in the pipe"
[ "$(grep -cE '^ +[0-9]+\.[0-9] ' "$folder/lines")" -ge 2 ] || fail "no lines in the pipe"
"$2" stats --socket "$socket" --prometheus | grep '^sluice_requests_total 1$' > /dev/null || fail "no Prometheus text"
echo "1 passed, 0 failed"
