#!/usr/bin/env bash
# Models that sleep and wake: sleep.sh SLUICED SLUICE. Asleep a model holds no device memory and its daemon is well; the
# next request wakes it and has the answer that it had before. Of two of which one fits both are served while each is
# asked all the time. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
state() { "$sluice" model "$1" | sed -n 's/^state *//p'; }
becomes() { # MODEL STATE
    for _ in $(seq 200); do
        [ "$(state "$1")" = "$2" ] && return
        sleep 0.05
    done
    check "the state of $1" "$(state "$1")" "$2"
}
figure() { "$sluice" stats --prometheus | grep -F "sluice_model_$1 " | sed 's/.* //'; }
post() { curl -sS -X POST --max-time 20 --unix-socket "$scratch/http" "http://localhost$1"; }

start --model demo=deploy/demo-model --model tiny=synthetic:tiny
demo=$(native) tiny=$(native --model tiny)
"$sluice" sleep tiny > /dev/null
becomes tiny asleep
check "weights of one that sleeps" "$(figure 'memory_bytes{model="tiny",kind="weights"}')" 0
check "weights of the other" "$(("$(figure 'memory_bytes{model="demo",kind="weights"}')" > 0))" 1
check "health says asleep, not ill" "$("$sluice" health --json | grep -c '"status":"ok".*"asleep":\["tiny"\]')" 1
check "texts need no device" "$(curl -sS --unix-socket "$scratch/http" http://localhost/tokenize -H 'Content-Type: application/json' -d '{"model": "tiny", "prompt": "ab"}' | grep -c '"count":2')" 1
check "and nobody woke it" "$(state tiny)" asleep
check "a request wakes it" "$(native --model tiny)" "$tiny"
check "it is awake" "$(state tiny)" awake
check "it slept once" "$(figure 'sleeps_total{model="tiny"}')" 1
check "its tokens count on" "$(figure 'generation_tokens_total{model="tiny"}')" 48
check "a deadline holds while it wakes" "$(post /sleep/tiny > /dev/null; becomes tiny asleep; native --model tiny --deadline-ms 1 | grep -c -i deadline)" 1
becomes tiny awake
check "all sleep" "$(post /sleep | grep -c demo)" 1
becomes demo asleep
becomes tiny asleep
check "vLLM's word for it" "$(curl -sS --unix-socket "$scratch/http" http://localhost/is_sleeping)" '{"is_sleeping":true}'
check "the sum of all" "$("$sluice" stats --prometheus | grep -E '^sluice_memory_bytes\{kind="(weights|kv_held|scratch_held|graphs|pinned)"\}' | awk '{ sum += $2 } END { print sum }')" 0
check "one wakes before it is asked" "$(post /wake_up/demo | grep -c -E 'waking|awake')" 1
becomes demo awake
check "none of that name" "$(post /sleep/none | grep -c 'there is no model none here')" 1
check "both answer" "$(native) $(native --model tiny)" "$demo $tiny"
"$sluice" sleep demo > /dev/null
becomes demo asleep
stop

# Files that are gone when it is to wake are no end of the daemon.
cp -r deploy/demo-model "$scratch/demo"
start --model "demo=$scratch/demo" --model tiny=synthetic:tiny
"$sluice" sleep > /dev/null
becomes demo asleep
mv "$scratch/demo" "$scratch/away"
check "one that cannot be read is refused" "$(native | grep -c "bad_model: .*no such directory")" 1
check "the other goes on, and the daemon is well" "$(native --model tiny) $("$sluice" health --json | grep -c '"status":"ok"')" "$tiny 1"
mv "$scratch/away" "$scratch/demo"
check "once it is there again it wakes" "$(native)" "$demo"
stop

start --model a=synthetic:tiny --sleep-after 300ms
a=$(native)
becomes a asleep
check "one that nobody used, woken" "$(native)" "$a"
stop

# Weights in host memory. The CPU device keeps them where it is told to.
kept() { "$sluice" model "$1" | sed -n 's/^weights *//p'; }
is_kept() { # MODEL
    for _ in $(seq 200); do
        [ "$(figure "memory_bytes{model=\"$1\",kind=\"kept_pinned\"}")" -gt 0 ] && return
        sleep 0.05
    done
    check "$1 has its weights in host memory" no yes
}
for release in no yes; do
    cp -r deploy/demo-model "$scratch/kept"
    start --model "demo=$scratch/kept" --model tiny=synthetic:tiny --host-memory 1GiB --release-device $release
    demo=$(native) tiny=$(native --model tiny)
    is_kept demo
    is_kept tiny
    check "one that is awake" "$(kept tiny)" device
    "$sluice" sleep tiny > /dev/null
    becomes tiny asleep
    check "one that sleeps beside another" "$(kept tiny)" pinned
    "$sluice" sleep demo > /dev/null
    becomes demo asleep
    wanted=pinned
    [ $release = no ] || wanted=mapped
    for _ in $(seq 100); do
        [ "$(kept demo)" = $wanted ] && break
        sleep 0.05
    done
    check "all asleep, release-device $release" "$(kept demo) $(kept tiny)" "$wanted $wanted"
    check "weights on the device" "$(figure 'memory_bytes{model="demo",kind="weights"}')" 0
    # What its file has now nobody could answer with.
    size=$(stat -c %s "$scratch/kept/model.safetensors")
    dd if=/dev/zero of="$scratch/kept/model.safetensors" bs=4096 seek=$((size / 8192)) count=$((size / 8192)) conv=notrunc 2> /dev/null
    check "answers come from host memory" "$(native)" "$demo"
    check "and the other's" "$(native --model tiny)" "$tiny"
    check "all is registered again" "$(kept tiny) $(figure 'memory_bytes{model="tiny",kind="kept_mapped"}')" "device 0"
    check "the daemon is well" "$("$sluice" health --json | grep -c '"status":"ok"')" 1
    stop
    rm -r "$scratch/kept"
done

# Files that were changed meanwhile are another model's: it does not wake as that, and does once they are back.
cp -r deploy/demo-model "$scratch/changed"
start --model "demo=$scratch/changed" --model tiny=synthetic:tiny --host-memory 0
demo=$(native)
"$sluice" sleep demo > /dev/null
becomes demo asleep
sed -i 's/"eos_token_id": 256/"eos_token_id": 255/' "$scratch/changed/config.json" "$scratch/changed/generation_config.json"
check "other end tokens" "$(native | grep -c 'they differ in its end tokens: restart the daemon')" 1
cp deploy/demo-model/*.json "$scratch/changed"
check "its own again" "$(native)" "$demo"
for file in tokenizer.json tokenizer_config.json; do
    "$sluice" sleep demo > /dev/null
    becomes demo asleep
    printf ' ' >> "$scratch/changed/$file"
    check "another $file" "$(native | grep -c 'they differ in tokenizer.json, tokenizer_config.json or .*: restart the daemon')" 1
    check "the daemon is well" "$("$sluice" health --json | grep -c '"status":"ok".*"failing":\["demo"\]')" 1
    cp "deploy/demo-model/$file" "$scratch/changed"
    check "its own $file" "$(native)" "$demo"
done
stop

# Two of which one has room in host memory: the other wakes from its files.
start --model a=synthetic:tiny --model b=synthetic:tiny --host-memory 7MiB
a=$(native) b=$(native --model b)
for _ in $(seq 100); do
    grep -q "will wake from its files, not from host memory: host-memory of" "$scratch/log" && break
    sleep 0.05
done
check "it says so" "$(grep -c "will wake from its files, not from host memory: host-memory of" "$scratch/log")" 1
"$sluice" sleep a > /dev/null
"$sluice" sleep b > /dev/null
becomes a asleep
becomes b asleep
check "one in host memory, one in files" "$(printf '%s\n' "$(kept a)" "$(kept b)" | sort | xargs)" "files pinned"
check "both wake" "$(native) $(native --model b)" "$a $b"
stop

# Of 16 MiB each takes 10 with nothing that runs.
start --model a=synthetic:tiny --model b=synthetic:tiny --slab-size 1MiB --gpu-memory-max 16MiB --gpu-memory-reserve 0 \
    --sleep-after 1000s --model-stay 100ms --model-option b:seed=7
a=$(native)
check "the other begins asleep" "$(state b)" asleep
b=$(native --model b)
check "it has taken the place" "$(state a) $(state b)" "asleep awake"
check "which of the models it is" "$(("$(native --model a | grep -c .)" == 1))" 1
for _ in $(seq 6); do
    for model in a b; do
        (for _ in 1 2 3; do native --model $model; done) > "$scratch/$model.$_.$RANDOM" &
    done
done
for job in $(jobs -p); do
    [ "$job" = "$daemon" ] || wait "$job"
done
check "answers of a" "$(cat "$scratch"/a.* | sort -u)" "$a"
check "answers of b" "$(cat "$scratch"/b.* | sort -u)" "$b"
check "answers in all" "$(cat "$scratch"/a.* "$scratch"/b.* | wc -l)" 36
check "how many wakes are no thrash" "$(("$(figure 'wakes_total{model="a"}')" < 20))" 1
stop

# Beside each other they leave room for 256 tokens of KV: one that is idle makes way for what another computes.
start --model a=synthetic:tiny --model b=synthetic:tiny --slab-size 1MiB --gpu-memory-max 24MiB --gpu-memory-reserve 0 \
    --model-stay 100ms --model-option b:seed=7
b=$(native --model b)
check "both are awake" "$(state a) $(state b)" "awake awake"
check "tokens of the one that had no memory" "$("$sluice" generate --tokens 1,2,3,4 --ignore-eos --max-tokens 1000 2>&1 | tr , '\n' | grep -c .)" 1000
check "it has taken the other's" "$(state a) $(state b)" "awake asleep"
check "which answers again" "$(native --model b)" "$b"

# Where both starve the one named last makes way: what it has said stays said, under a constraint as well, and it goes on in its turn.
long() { "$sluice" generate --tokens 1,2,3,4 --ignore-eos --max-tokens 1000 --temperature 0 --model "$1" 2>&1; }
digits() { "$sluice" generate --tokens 5,6 --regex '[0-9a-f]{900}' --max-tokens 1000 --temperature 0 --model "$1" 2>&1; }
wanted=$(long a; digits a; long b; digits b)
check "what is constrained is as long" "$(digits b | tr , '\n' | grep -c .)" 900
stop
until grep -q 'neither gets on beside the other' "$scratch/log"; do
    [ -z "$daemon" ] || stop
    start --model a=synthetic:tiny --model b=synthetic:tiny --slab-size 1MiB --gpu-memory-max 24MiB --gpu-memory-reserve 0 \
        --model-stay 100ms --model-option b:seed=7
    long b > "$scratch/b.long" &
    asked=$!
    digits b > "$scratch/b.digits" &
    asked="$asked $!"
    until [ "$(figure 'generation_tokens_total{model="b"}')" -gt 100 ]; do sleep 0.01; done
    long a > "$scratch/a.long" &
    asked="$asked $!"
    digits a > "$scratch/a.digits" &
    # shellcheck disable=SC2086
    wait $asked $!
    check "answers of two that starve" "$(cat "$scratch"/a.long "$scratch"/a.digits "$scratch"/b.long "$scratch"/b.digits)" "$wanted"
done
check "tokens are counted once" "$(figure 'generation_tokens_total{model="b"}') $(figure 'prompt_tokens_total{model="b"}')" "1900 6"
stop
[ $failed = 0 ]
