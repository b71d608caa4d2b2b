#!/usr/bin/env bash
# Two minutes with Sluice: installs what is missing, builds, starts the daemon with the demo model on the
# CPU device, asks it questions of all its tasks at once, and prints its answers beside the right ones; then a chat,
# fields by a JSON schema and a call of a tool, whose answers are checked as well.
# The questions were never trained on (deploy/demo-model/README.md). Exit 0 if all answers are right,
# 2 when packages are missing and it is not run by root.
set -euo pipefail
cd "$(dirname "$0")/.."

model=deploy/demo-model
build=.build/release
deploy/deps.sh
cmake --preset release -G Ninja > /dev/null
cmake --build --preset release --parallel "$(nproc)" --target sluiced sluice sluice_cpu

scratch=$(mktemp -d)
socket=$scratch/sluice.sock
export SLUICE_SOCKET=$socket
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

echo
echo "== sluiced --model $model --device cpu --http unix:..."
"$build/daemon/sluiced" --model "$model" --device cpu --socket "$socket" --http "unix:$scratch/http.sock" --log-level notice &
daemon=$!
for _ in $(seq 100); do
    "$build/client/sluice" health > /dev/null 2>&1 && break
    kill -0 "$daemon" || exit 1
    sleep 0.1
done

echo
echo "== sluice generate --file $model/questions.jsonl --json"
"$build/client/sluice" generate --file $model/questions.jsonl --json > "$scratch/results"

# One answer per line, in the order of the questions; the model ends each by its own token, which has no text.
sed -E 's/.*"text":"([^"]*)".*/\1/' "$scratch/results" > "$scratch/texts"
right=0
total=0
printf '\n%-26s %-12s %-12s\n' question answer 'right answer'
while IFS=$'\t' read -r question answer <&3 && read -r text <&4; do
    total=$((total + 1))
    mark='  <- wrong'
    if [ "$text" = "$answer" ]; then
        right=$((right + 1))
        mark=
    fi
    printf '%-26s %-12s %-12s%s\n' "$question" "$text" "$answer" "$mark"
done 3< "$model/answers.txt" 4< "$scratch/texts"
printf '\n%d of %d right\n' "$right" "$total"

echo
echo "== sluice chat"
chat=$(tail -3 $model/answers.txt | cut -f1 | sed 's/=$//' | tee "$scratch/said" | "$build/client/sluice" chat)
paste -d'\n' <(sed 's/^/> /' "$scratch/said") - <<< "$chat"
[ "$chat" = "$(tail -3 $model/answers.txt | cut -f2)" ] || right=-1

# ask BODY: the answer of /v1/chat/completions, in $answer; text: its content; is TEXT: was it that?
ask() {
    answer=$(curl -sS --unix-socket "$scratch/http.sock" -H 'Content-Type: application/json' -d "$1" http://localhost/v1/chat/completions)
}
field() { sed -nE 's/.*"'"$1"'":"(([^"\\]|\\.)*)".*/\1/p' <<< "$answer" | sed 's/\\"/"/g'; }
is() {
    mark=
    [ "$1" = "$2" ] || { mark='  <- wrong' right=-1; }
    printf '%s%s\n' "$1" "$mark"
}

echo
echo "== /v1/chat/completions with response_format: json_schema"
question='Extract name, age and city as JSON: Nadia Vell is 34 years old and lives in Tampere.'
schema='{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["name", "age", "city"], "additionalProperties": false}'
echo "> $question"
ask '{"messages": [{"role": "user", "content": "'"$question"'"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "person", "strict": true, "schema": '"$schema"'}}}'
is "$(field content)" '{"name": "Nadia Vell", "age": 34, "city": "Tampere"}'

echo
echo "== /v1/chat/completions with tools: get_weather, get_time"
question='How is the weather in Tromso today?'
city='{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
tools='[{"type": "function", "function": {"name": "get_time", "description": "Get the current time in a city.", "parameters": '"$city"'}},
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": '"$city"'}}]'
echo "> $question"
ask '{"messages": [{"role": "user", "content": "'"$question"'"}], "tools": '"$tools"'}'
is "$(field name)($(field arguments))" 'get_weather({"city": "Tromso"})'
echo '> {"temperature": -4, "sky": "clear"}'
ask '{"messages": [{"role": "user", "content": "'"$question"'"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function":
        {"name": "get_weather", "arguments": "{\"city\": \"Tromso\"}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "{\"temperature\": -4, \"sky\": \"clear\"}"}], "tools": '"$tools"'}'
is "$(field content)" 'The temperature is -4 and the sky is clear.'

echo
echo "== sluice stats"
"$build/client/sluice" stats

echo
echo "== stopping the daemon (SIGTERM: it finishes what it has, then ends)"
kill "$daemon"
wait "$daemon"
daemon=
cat << END

Go on by hand:
  $build/daemon/sluiced --model $model --device cpu --socket /tmp/sluice.sock &
  $build/client/sluice generate --socket /tmp/sluice.sock --prompt '417+385='
  $build/client/sluice chat --socket /tmp/sluice.sock
  $build/client/sluice stats --socket /tmp/sluice.sock
END
[ "$right" -eq "$total" ]
