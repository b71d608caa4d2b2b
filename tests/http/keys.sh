#!/usr/bin/env bash
# Keys of callers by TCP, on a daemon with the demo model: keys.sh SLUICED SLUICE. Who has one is called by its name
# everywhere; a reload reads the file again, whole or not at all; who is refused leaves a line. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

expect() { # NAME PATTERN COMMAND...: within 20 s what the command prints holds the pattern
    local name=$1 pattern=$2 seen until=$((SECONDS + 20))
    shift 2
    while
        seen=$("$@" 2>&1)
        ! grep -qE -- "$pattern" <<< "$seen"
    do
        if [ $SECONDS -ge $until ]; then
            failed=$((failed + 1))
            printf '%s: %s\n  instead of %s\n' "$name" "$seen" "$pattern"
            return
        fi
        sleep 0.1
    done
}
lines_of() { grep -E "$1" "$scratch/log"; }
logged() { expect "a line $1" . lines_of "$1"; }

# Another's port is tried for, and the next one taken.
printf '# who may\nweb first\nbatch second\n' > "$scratch/keys"
for port in $(shuf -i 20000-32000 -n 5); do
    printf 'model = deploy/demo-model\ndevice = cpu\nhttp = 127.0.0.1:%s\napi-key-file = %s\n' "$port" "$scratch/keys" > "$scratch/config"
    "$sluiced" --config "$scratch/config" --socket "$SLUICE_SOCKET" 2> "$scratch/log" &
    daemon=$!
    listens && break
done
question='{"prompt": "417+385=", "max_tokens": 16}'
ask() { # KEY BODY [CURL'S OPTIONS]
    curl -sS --max-time 20 "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
        -H "Authorization: Bearer $1" -d "$2" "${@:3}"
}
status_of() { ask "$1" "$question" -o /dev/null -w '%{http_code}'; }
busy() { # what stats say while results enough to be seen are computed
    ask first '{"prompt": "1+1=", "n": 32, "max_tokens": 100, "ignore_eos": true}' -o /dev/null &
    local client=$!
    while kill -0 $client 2> /dev/null; do
        "$sluice" stats --requests "$@" | grep -E 'key/' && break
        sleep 0.02
    done
    kill $client 2> /dev/null
    wait $client
}

expect 'a key' '"text":"802"' ask first "$question"
logged '[0-9]+ user=key/web job=generate'
expect 'no such key' '"type":"authentication_error"' ask third "$question"
logged 'refused user=unknown code=denied status=401'
expect 'a key that may not name users' '"type":"permission_error"' ask first "$question" -H 'x-sluice-user: ann'
logged 'refused user=key/web code=denied status=403'
expect 'too much' '"code":"too_large"' ask second '{"prompt": "1", "n": 1000}'
logged 'refused user=key/batch code=too_large value=1000 limit=128 status=400'
expect 'stats in JSON' '"user":"key/web"' busy --json
expect 'stats' 'key/web +generate' busy
"$sluice" generate --prompt '1+1=' > /dev/null
logged "[0-9]+ user=$(id -u) job=generate"

# What one has asked another does not find, whoever asks how often; who gives the same salt does. The beginning has 120 tokens.
found() { # KEY [FIELDS]: how much of the prompt was cached, told twice
    local body
    body="{\"prompt\": \"$(printf '%0120d' 7)\", \"max_tokens\": 1${2:-}}"
    ask "$1" "$body" | grep -oE '"cached_tokens":[0-9]+|"total_tokens":[0-9]+' | tail -1
}
salt=', "cache_salt": "ours"'
expect 'nothing at first' '"total_tokens":121' found first
for _ in 1 2; do
    expect 'nothing of a user is found by another' '"total_tokens":121' found second ', "cache": false'
done
seen=$(found second) # once: from now on it is its own
[ "$seen" = '"total_tokens":121' ] || { echo "another's prompt was found: $seen"; failed=$((failed + 1)); }
expect 'its own is' '"cached_tokens":(96|112)' found first
expect 'nothing by a salt at first' '"total_tokens":121' found first "$salt"
seen=$(found second "$salt")
[[ $seen =~ ^\"cached_tokens\":(96|112)$ ]] || { echo "by a salt in common: $seen"; failed=$((failed + 1)); }
expect 'who asks for none finds none' '"total_tokens":121' found first ', "cache": false'

# A reload: one key more, one less, and one that takes the place of another under the same name.
printf 'web first\nweb newer\nthird third\n' > "$scratch/keys"
kill -HUP "$daemon"
expect 'a key that came' 200 status_of third
expect 'a key that went' 401 status_of second
expect 'a second key of a name' 200 status_of newer
expect 'the first of them' 200 status_of first
logged 'user=key/third job=generate'

# One that cannot be used changes nothing, options included.
printf 'web other\nweb\n' > "$scratch/keys"
echo 'n-max = 2' >> "$scratch/config"
kill -HUP "$daemon"
logged 'keys:2: "NAME KEY" is expected; the daemon goes on with what it had'
expect 'the keys stay' 200 status_of third
expect 'a new one is not there' 401 status_of other
expect 'nor is an option' '"n_max":128' "$sluice" model --json
! grep -qE 'first|newer|second' "$scratch/log" || { echo "a key is in the log"; failed=$((failed + 1)); }

kill "$daemon"
wait "$daemon" || failed=$((failed + 1))
daemon=
[ "$failed" -eq 0 ] || tail -20 "$scratch/log"
[ "$failed" -eq 0 ]
