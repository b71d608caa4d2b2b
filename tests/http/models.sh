#!/usr/bin/env bash
# Two models in one daemon: models.sh SLUICED SLUICE. What each answers, over HTTP and natively, while both are asked
# at once, is what it answers in a daemon of its own; figures are apart. Exit 1 if a check fails.
set -uo pipefail
. "$(dirname "$0")/daemon.sh"

http() { # BODY: the text of the answer
    curl -sS --max-time 60 --unix-socket "$scratch/http" http://localhost/v1/completions \
        -H 'Content-Type: application/json' -d "$1" | sed -E 's/.*"text":"([^"]*)".*/\1/'
}
question='"prompt": "417+385=", "max_tokens": 24, "temperature": 0, "ignore_eos": true'
native() { "$sluice" generate --tokens 1,2,3,4 --max-tokens 24 --temperature 0 "$@" 2>&1; }
count() { "$sluice" stats --prometheus | grep -F "sluice_model_$1{model=\"$2\"} " | sed 's/.* //'; }

start --model deploy/demo-model
demo_http=$(http "{$question}") demo_native=$(native)
stop
start --model synthetic:tiny
tiny_http=$(http "{$question}") tiny_native=$(native)
stop

start --model demo=deploy/demo-model --model org/tiny=synthetic:tiny --model-option org/tiny:context-max=200
for round in 1 2 3; do
    for model in demo org/tiny; do
        http "{\"model\": \"$model\", $question}" > "$scratch/http.$round.${model##*/}" &
        native --model "$model" > "$scratch/native.$round.${model##*/}" &
    done
done
for job in $(jobs -p); do
    [ "$job" = "$daemon" ] || wait "$job"
done
for round in 1 2 3; do
    check "demo over HTTP" "$(cat "$scratch/http.$round.demo")" "$demo_http"
    check "tiny over HTTP" "$(cat "$scratch/http.$round.tiny")" "$tiny_http"
    check "demo natively" "$(cat "$scratch/native.$round.demo")" "$demo_native"
    check "tiny natively" "$(cat "$scratch/native.$round.tiny")" "$tiny_native"
done
check "without a name" "$(http "{$question}")" "$demo_http"
check "a context of its own" "$(http "{\"model\": \"org/tiny\", \"prompt\": \"1\", \"max_tokens\": 300}" | grep -c 200)" 1
"$sluice" bench --model org/tiny --num-prompts 5 --random-input-len 8 --random-output-len 4 > "$scratch/bench" 2>&1
check "a load for tiny" "$?" 0
check "none for one that is not there" "$("$sluice" bench --model none --num-prompts 1 2>&1 | grep -c 'there is no model none here')" 1
check "requests of demo" "$(count requests_total demo)" 7
check "requests of tiny" "$(count requests_total org/tiny)" 11
check "tokens of tiny" "$(count generation_tokens_total org/tiny)" 164
check "a model that is not there" "$(native --model none | grep -c 'there is no model none here')" 1
check "a list of models" "$("$sluice" stats | grep -cE '(models|  ) +(demo|org/tiny): 0 running')" 2
stop

# What one model has cached of the device's memory goes where the other lacks it, at once and not after
# cache-idle-release. MiB: of 28 the weights of both take 21, and the prompts of a what is left.
start --model a=synthetic:tiny --model b=synthetic:tiny --slab-size 1MiB --gpu-memory-max 28MiB --gpu-memory-reserve 0
tokens() { # FIRST COUNT
    seq "$1" $(($1 + $2 - 1)) | awk '{ printf "%s%d", comma, $1 % 500; comma = "," }'
}
for first in 1 2 3 4; do
    http "{\"model\": \"a\", \"prompt\": [[$(tokens $first 400)]], \"max_tokens\": 1}" > /dev/null
done
check "a has filled the memory" "$("$sluice" stats --prometheus | awk '/model="a",kind="kv"/ { print ($2 > 3000000) }')" 1
check "b has it when it needs it" "$(http "{\"model\": \"b\", \"prompt\": [[$(tokens 1 1000)]], \"max_tokens\": 8}" | grep -c error)" 0
stop
[ $failed = 0 ]
