#!/usr/bin/env bash
# Reranking and scores over HTTP by the demo model, told by its files which tokens say no and yes, and by options: against the
# log-probabilities of those tokens behind the same prompts, on one device and on several (scores_check.py). Skipped without python3.
#     tests/http/scores.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2034
build=${1:-.build/release}
python3 -c '' 2> /dev/null || { echo "SKIPPED: no python3"; exit 77; }
# shellcheck source=tests/demo/daemon.sh
source tests/demo/daemon.sh
# shellcheck disable=SC2034
checkpoints=$folder/checkpoints
python3 tests/http/scores_check.py make deploy/demo-model "$checkpoints"
run() {
    model=$1
    shift
    daemon_start --http "unix:$folder/http.sock" "$@"
    python3 tests/http/scores_check.py ask "$folder/http.sock"
    daemon_stop
}
run "$checkpoints/config"
run "$checkpoints/module" --cpu-devices 2 --tp 2
run "$checkpoints/module" --cpu-devices 2 --pp 2 --prefix-cache no
run deploy/demo-model --score-tokens n,y --score-template "$checkpoints/module/chat_template.jinja" --step-tokens 16
run deploy/demo-model --score-tokens n,y --chat-template "$checkpoints/module/chat_template.jinja"

# What cannot be, by name.
refuses() {
    said=$1
    shift
    if "$build/daemon/sluiced" --check --device cpu "$@" > "$folder/log" 2>&1; then
        echo "FAILED  $* is taken"; exit 1
    fi
    grep -qF -- "$said" "$folder/log" || { cat "$folder/log"; echo "FAILED  it does not say \"$said\""; exit 1; }
    echo "ok      $said"
}
tells() {
    said=$1
    "$build/daemon/sluiced" --check --device cpu --model "$2" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
    grep -qF -- "$said" "$folder/log" || { cat "$folder/log"; echo "FAILED  it does not say \"$said\""; exit 1; }
    echo "ok      $said"
}
refuses 'score-tokens: "no" is 2 tokens, not one' --model synthetic:tiny --score-tokens no,yes
refuses 'score-tokens: no and yes are the same token' --model synthetic:tiny --score-tokens n,n
refuses 'score-tokens: two words are wanted' --model synthetic:tiny --score-tokens n,y,z
refuses 'score-tokens: two words are wanted' --model synthetic:tiny --score-tokens n
refuses 'score-template: the model'"'"'s chat template has no messages' --model synthetic:tiny --score-tokens n,y
refuses 'score-template: /nonexistent/t: ' --model synthetic:tiny --score-tokens n,y --score-template /nonexistent/t
refuses 'score-tokens: the checkpoint names no tokens' --model deploy/demo-model --score-template "$checkpoints/module/chat_template.jinja"
tells 'scores       yes, by tokens ' "$checkpoints/config"
tells 'scores       NO: the checkpoint names no tokens that say no and yes' deploy/demo-model
tells 'scores       NO: LogitScore has no false_token_id: one token'"'"'s logit is no probability' "$checkpoints/one"
tells 'scores       NO: classifier_from_token has no two words' "$checkpoints/five"
tells 'scores       NO: "zq#" is 3 tokens, not one' "$checkpoints/long"
tells 'scores       NO: the model'"'"'s chat template has no messages of the roles query and document' "$checkpoints/talks"
