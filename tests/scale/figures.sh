#!/usr/bin/env bash
# The fleet's rules and dashboard by a real Prometheus over two daemons: tests/scale/figures.sh [BUILD]. Every expression is asked, every
# series that one names must be there. Exit 1 if not; 77, SKIPPED, without Prometheus.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
for tool in prometheus promtool python3 curl; do
    command -v $tool > /dev/null || { echo "SKIPPED figures: $tool is not installed (deploy/deps.sh all)"; exit 77; }
done
scratch=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2> /dev/null || true; wait; rm -rf "$scratch"' EXIT
soon() {
    for _ in $(seq 300); do
        "$@" > /dev/null 2>&1 && return 0
        sleep 0.2
    done
    echo "never: $*"
    exit 1
}
port=$((20000 + $$ % 10000))
targets=
for number in 1 2; do
    "$build/daemon/sluiced" --model synthetic:null --device cpu --cpu-threads 1 --socket "$scratch/$number.sock" \
        --metrics "127.0.0.1:$((port + number))" 2> "$scratch/$number.log" &
    started+=($!)
    targets+="\"127.0.0.1:$((port + number))\", "
    soon "$build/client/sluice" health --socket "$scratch/$number.sock"
    "$build/client/sluice" generate --socket "$scratch/$number.sock" --tokens 1,2,3 --max-tokens 50 --ignore-eos > /dev/null
done
cp deploy/prometheus.rules.yml deploy/scale/fleet.rules.yml "$scratch/"
sed -e "s/targets: .*/targets: [${targets%, }]/" -e 's/_interval: .*/_interval: 1s/' deploy/scale/prometheus.yml > "$scratch/prometheus.yml"
promtool check config "$scratch/prometheus.yml" > "$scratch/check" 2>&1 || { cat "$scratch/check"; exit 1; }
server=http://127.0.0.1:$((port + 10))
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" --web.listen-address="127.0.0.1:$((port + 10))" \
    2> "$scratch/prometheus.log" &
started+=($!)
answers() { promtool query instant "$server" "$1" | grep -q "$2"; }
soon answers 'fleet:ready:sum' '=> 2 @'
soon answers 'sum(sluice_generation_tokens_total)' '=> 100 @'
soon answers 'fleet:sequences_per_ready:avg' '=> 0 @'
soon answers 'fleet:generation_tokens:rate1m' '=> ' # of two scrapes
python3 - > "$scratch/expressions" << 'END'
import json, re
for panel in json.load(open("deploy/scale/grafana.json"))["panels"]:
    for target in panel["targets"]:
        print(target["expr"])
text = open("deploy/scale/fleet.rules.yml").read()
for rule in re.findall(r"expr: (>-\n(?: {10}.*\n)+|.*)", text):
    print(" ".join(rule.removeprefix(">-").split()))
END
count=0
while IFS= read -r expression; do
    promtool query instant "$server" "$expression" > "$scratch/answer" 2>&1 || { echo "$expression: $(cat "$scratch/answer")"; exit 1; }
    count=$((count + 1))
done < "$scratch/expressions"
curl -sf "$server/api/v1/label/__name__/values" | tr ',' '\n' | grep -oE '(sluice_|fleet:)[a-z0-9_:]*' | sort -u > "$scratch/there"
grep -ohE '(sluice_|fleet:)[a-z0-9_:]*' "$scratch/expressions" | sort -u > "$scratch/named"
missing=$(comm -23 "$scratch/named" "$scratch/there")
[ -z "$missing" ] || { echo "not there: $missing"; exit 1; }
echo "$count expressions were asked, $(wc -l < "$scratch/named") series are there"
[ "$count" -ge 15 ]
