#!/usr/bin/env bash
# New versions of models: reload.sh SLUICED SLUICE. One takes over between requests while clients ask all the time, and
# none of these is lost; each answer is whole one version's. What cannot be loaded leaves the old one, which says why.
# Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
field() { "$sluice" model "$1" | sed -n "s/^$2  *//p"; }
becomes() { # MODEL WORD: of its reload
    for _ in $(seq 200); do
        [ "$(field "$1" reload)" = "$2" ] && return
        sleep 0.05
    done
    check "the reload of $1" "$(field "$1" reload)" "$2"
}
figure() { "$sluice" stats --prometheus | grep -F "sluice_$1 " | grep -v "^#" | sed "s,.* ,,"; }
ask() { curl -sS -X "$1" --max-time 20 --unix-socket "$scratch/http" "http://localhost$2"; }
version() { # DIR SEEK: the demo model, with zeros instead of some weights
    cp -r deploy/demo-model "$1"
    dd if=/dev/zero of="$1/model.safetensors" bs=4096 seek="$2" count=40 conv=notrunc 2> /dev/null
}
version "$scratch/two" 700
version "$scratch/three" 800

start --model demo=deploy/demo-model --model tiny=synthetic:tiny
one=$(native) tiny=$(native --model tiny)
weights=$(figure 'model_memory_bytes{model="demo",kind="weights"}')
check "the first version" "$(field demo model_version) $(field demo reload)" "1 none"
check "a new one takes over" "$("$sluice" reload demo "$scratch/two" | sed -n 's/^model_version *//p')" 2
two=$(native)
check "which answers otherwise" "$([ "$one" != "$two" ] && echo yes)" yes
check "and the same again" "$(native)" "$two"
check "the other model goes on" "$(native --model tiny)" "$tiny"
check "its figures go on, too" "$(figure 'model_generation_tokens_total{model="demo"}') $(figure 'model_reloads_total{model="demo"}')" "73 1"
check "back to the first" "$("$sluice" reload demo deploy/demo-model --json | grep -c '"model_version":3.*"reload":"none"')" 1
check "whose answers are as before" "$(native)" "$one"

# While clients ask: every answer is one of the two, whole, and all come.
mkdir "$scratch/answers"
for client in 1 2 3 4; do
    (
        for number in $(seq 12); do
            native > "$scratch/answers/$client.$number" || echo failed >> "$scratch/answers/$client.$number"
        done
    ) &
done
sleep 0.3
for directory in "$scratch/two" deploy/demo-model "$scratch/two"; do
    "$sluice" reload demo "$directory" > /dev/null
    check "a reload under load" $? 0
done
for job in $(jobs -p); do
    [ "$job" = "$daemon" ] || wait "$job"
done
for answer in "$scratch"/answers/*; do
    got=$(cat "$answer")
    [ "$got" = "$one" ] || check "an answer is one version's" "$got" "$two"
done
check "answers in all" "$(ls "$scratch/answers" | wc -l)" 48
check "then it is the last one's" "$(native)" "$two"
check "nothing of the others is left" "$(figure 'model_memory_bytes{model="demo",kind="weights"}')" "$weights"

# Over HTTP: the directory that it is served from, whose files are others now.
cp "$scratch/three/model.safetensors" "$scratch/two/model.safetensors"
check "it begins" "$(ask POST /reload/demo | grep -c '"model":"demo","model_version":[56],"reload":"')" 1
becomes demo none
check "how it stands" "$(ask GET /reload_state/demo)" '{"model":"demo","model_version":7,"reload":"none"}'
three=$(native)
check "a third version" "$([ "$three" != "$one" ] && [ "$three" != "$two" ] && echo yes)" yes
check "none of that name" "$(ask POST /reload/none | grep -c 'there is no model none here')" 1
"$sluice" sleep demo > /dev/null
for _ in $(seq 100); do [ "$(field demo state)" = asleep ] && break; sleep 0.05; done
check "asleep it is not reloaded" "$("$sluice" reload demo 2>&1 | grep -c 'demo is asleep: it is reloaded while it is awake')" 1
check "it wakes as that version" "$(native)" "$three"

# What cannot be: the version before it stays, and says why.
refused() { # WHAT DIR PATTERN
    check "$1" "$("$sluice" reload demo "$2" 2>&1 > /dev/null | grep -c -E "$3")" 1
    check "$1: the reason stays" "$(field demo reload_error | grep -c -E "$3") $(field demo reload)" "1 failed"
    check "$1: health says so, and is well" "$("$sluice" health --json | grep -c '"status":"ok".*"not_reloaded":\["demo"\]')" 1
    check "$1: the old one answers" "$(native)" "$three"
}
mkdir "$scratch/empty"
refused "no model" "$scratch/empty" "config.json: no such file"
version "$scratch/bad" 60
truncate -s 100000 "$scratch/bad/model.safetensors"
refused "half a file" "$scratch/bad" "model.safetensors"
version "$scratch/shape" 60
sed -i 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 1/' "$scratch/shape/config.json"
refused "another shape" "$scratch/shape" "may not differ in its shape .config.json."
version "$scratch/text" 60
printf ' ' >> "$scratch/text/tokenizer.json"
refused "another tokenizer" "$scratch/text" "may not differ in tokenizer.json"
check "how often" "$(figure 'model_reloads_refused_total{model="demo"}')" 4
check "then one that can" "$("$sluice" reload demo "$scratch/three" > /dev/null; echo $?) $(field demo reload) $("$sluice" health --json | grep -c '"not_reloaded":\[\]')" "0 none 1"

# What was computed before is the old one's.
cached() { curl -sS --max-time 20 --unix-socket "$scratch/http" http://localhost/v1/completions -H 'Content-Type: application/json' \
    -d "{\"prompt\": [$(seq -s, 1 200)], \"max_tokens\": 1}" | grep -o '"cached_tokens":[0-9]*' | grep -o '[0-9]*$' || echo 0; }
cached > /dev/null
check "its own is found" "$(("$(cached)" > 100))" 1
"$sluice" reload demo "$scratch/three" > /dev/null
check "nothing of another load is, though its weights are the same" "$(cached)" 0
check "its own is found again" "$(("$(cached)" > 100))" 1

# A daemon that drains, and one that has no room for both.
"$sluice" drain > /dev/null
check "while it drains" "$("$sluice" reload demo "$scratch/two" 2>&1 | grep -c draining)" 1
"$sluice" resume > /dev/null
check "it goes on" "$(native)" "$three"
stop
start --model tiny=synthetic:tiny --slab-size 1MiB --gpu-memory-max 16MiB --gpu-memory-reserve 0
tiny=$(native)
check "no room for both" "$("$sluice" reload 2>&1 | grep -c 'device_memory: .*; the version before it stays')" 1
check "the one that is there answers" "$(native) $(field tiny model_version)" "$tiny 1"
check "and is well" "$("$sluice" health --json | grep -c '"status":"ok"')" 1
stop

# What runs and what waits as one takes over ends on the old one, of one place; two replicas have one each.
for layout in "--sequences-max 1" "--sequences-max 1 --dp 2 --cpu-devices 2"; do
    places=${layout##*dp }
    places=${places%% *}
    [ "$places" = 2 ] || places=1
    # shellcheck disable=SC2086 # options
    start --model demo=deploy/demo-model $layout
    long() { "$sluice" generate --tokens 1,2,3,4 --temperature 0 --ignore-eos --max-tokens 200; }
    asked=$((places + 2))
    whole=$(long)
    clients=
    for client in $(seq $asked); do
        long > "$scratch/long.$client" &
        clients="$clients $!"
    done
    for _ in $(seq 200); do
        [ "$(figure requests)" = $asked ] && break
        sleep 0.02
    done
    "$sluice" reload demo "$scratch/three" > /dev/null &
    reload=$!
    for _ in $(seq 400); do
        [ "$(field demo model_version)" = 2 ] && break
        sleep 0.02
    done
    new=$(native)
    wait $reload
    check "the reload, $layout" $? 0
    for client in $clients; do
        wait "$client"
        check "a client, $layout" $? 0
    done
    for client in $(seq $asked); do
        check "an answer across it, $layout" "$(cat "$scratch/long.$client")" "$whole"
    done
    check "the new one's, $layout" "$new" "$three"
    stop
done

# Its weights go to host memory as those before did, and it wakes from there.
cp -r "$scratch/two" "$scratch/kept"
cp "$scratch/three/model.safetensors" "$scratch/kept/model.safetensors"
start --model demo=deploy/demo-model --model tiny=synthetic:tiny --host-memory 1GiB
"$sluice" reload demo "$scratch/kept" > /dev/null
for _ in $(seq 200); do
    [ "$(grep -c 'demo has its weights in host memory' "$scratch/log")" = 2 ] && break
    sleep 0.05
done
"$sluice" sleep demo > /dev/null
for _ in $(seq 200); do [ "$(field demo weights)" = pinned ] && break; sleep 0.05; done
cp deploy/demo-model/model.safetensors "$scratch/kept/model.safetensors"
check "it wakes as what was loaded" "$(native)" "$three"
stop

# Where host memory has room for one version, the new one's weights go there once the old one is gone.
in_host() { # COUNT: so often a model's weights went there
    for _ in $(seq 200); do
        [ "$(grep -c ' has its weights in host memory' "$scratch/log")" = "$1" ] && return
        sleep 0.05
    done
    check "weights go to host memory, time $1" "$(grep 'host memory' "$scratch/log" | tail -1)" yes
}
two_models() { start --model demo=deploy/demo-model --model tiny=synthetic:tiny --host-memory "$1"; }
two_models 1GiB
in_host 2
kept=$(figure 'memory_bytes{kind="kept_pinned"}')
stop
two_models $((kept + (1 << 20)))
in_host 2
"$sluice" reload demo "$scratch/two" > /dev/null
in_host 3
check "of both versions one is there" "$(figure 'memory_bytes{kind="kept_pinned"}')" "$kept"
stop

# A call of the device that fails while it loads: the first one that the start does not come to.
faulty() { # CALL ERROR: starts
    for nth in 3 30 50 80; do
        SLUICE_EMU_FAULT=$1:$nth:$2 "$sluiced" --model demo=deploy/demo-model --device cpu 2> "$scratch/log" &
        daemon=$!
        listens && return
        wait "$daemon"
    done
    check "a start with $1" failed started
}
for fault in cudaMemPoolCreate:invalid-value cudaMemcpyAsync:memory-allocation; do
    call=${fault%:*}
    faulty "$call" "${fault#*:}"
    check "$fault" "$("$sluice" reload demo 2>&1 | grep -c "$call: .*; the version before it stays")" 1
    check "the old one answers, $fault" "$(native)" "$one"
    check "the daemon is well" "$("$sluice" health --json | grep -c '"status":"ok"')" 1
    check "and then it can, $fault" "$("$sluice" reload demo > /dev/null; echo $?) $(native)" "0 $one"
    stop
done
faulty cudaMemcpyAsync illegal-address
"$sluice" reload demo > /dev/null 2>&1
wait "$daemon"
check "a device that is lost is everybody's" $? 75
daemon=
[ $failed = 0 ]
