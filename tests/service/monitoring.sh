#!/usr/bin/env bash
# A real Prometheus scrapes a daemon; every metric that the rules and the dashboard name is in that scrape, every
# expression parses and can be asked:
#     tests/service/monitoring.sh [BUILD_DIRECTORY]     (.build/dev when not given)
# Exit 77 and a line that starts with SKIPPED where Prometheus is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-.build/dev}
for tool in prometheus promtool curl; do
    command -v $tool > /dev/null || { echo "SKIPPED monitoring: $tool is not installed"; exit 77; }
done
scratch=$(mktemp -d)
started=()
finish() {
    [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

failed=0
fail() {
    echo "FAILED  $*"
    failed=1
}
soon() { # COMMAND...: within 30 s
    for _ in $(seq 300); do
        "$@" > /dev/null 2>&1 && return
        sleep 0.1
    done
    echo "FAILED  not in time: $*"
    exit 1
}

promtool check config deploy/prometheus.yml > "$scratch/check" 2>&1 || { cat "$scratch/check"; exit 1; }
echo "ok      promtool check config, with the rules"

# Ports of the test's own, so that nothing that runs here already is asked.
port=$((20000 + $$ % 20000))
"$build/daemon/sluiced" --model synthetic:null --device cpu --socket "$scratch/sluice.sock" \
    --metrics "127.0.0.1:$port" 2> "$scratch/daemon.log" &
started+=($!)
soon "$build/client/sluice" health --socket "$scratch/sluice.sock"
"$build/client/sluice" generate --socket "$scratch/sluice.sock" --tokens 1,2,3 --max-tokens 50 --ignore-eos > /dev/null
sed -e "s/127.0.0.1:9464/127.0.0.1:$port/" -e 's/scrape_interval: .*/scrape_interval: 1s/' deploy/prometheus.yml \
    > "$scratch/prometheus.yml"
cp deploy/prometheus.rules.yml "$scratch/"
server=http://127.0.0.1:$((port + 1))
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" \
    --web.listen-address="127.0.0.1:$((port + 1))" 2> "$scratch/prometheus.log" &
started+=($!)
answers() { promtool query instant "$server" "$1" | grep -q "$2"; }
soon answers 'up{job="sluice"}' '=> 1 @'
soon answers 'sluice_generation_tokens_total > 0' '=> 50 @'
echo "ok      Prometheus scrapes the daemon"

# Every expression, one per line, with Grafana's variables as it would put them.
{
    sed -n 's/^ *"expr": "\(.*\)",$/\1/p' deploy/grafana.json | sed 's/\\"/"/g' |
        sed -e 's/\$__rate_interval/1m/g' -e 's/\$instance/.*/g'
    { curl -sf "$server/api/v1/rules"; echo; } | sed 's/"query":"/\n&/g' |
        sed -nE 's/^"query":"(([^"\\]|\\.)*)".*/\1/p' |
        sed -e 's/\\"/"/g' -e 's/\\u003e/>/g' -e 's/\\u003c/</g'
} > "$scratch/expressions"
count=$(wc -l < "$scratch/expressions")
[ "$count" -eq $(($(grep -c 'alert:' deploy/prometheus.rules.yml) + $(grep -c '"expr"' deploy/grafana.json))) ] ||
    fail "$count expressions were found, that is not all of them"
while IFS= read -r expression; do
    promtool query instant "$server" "$expression" > "$scratch/answer" 2>&1 ||
        fail "$expression: $(cat "$scratch/answer")"
done < "$scratch/expressions"
echo "ok      $count expressions were asked"

# A series by its whole name; histograms' parts included.
curl -sf "$server/api/v1/label/__name__/values" | tr ',' '\n' | grep -o 'sluice_[a-z0-9_]*' | sort -u > "$scratch/there"
grep -oh 'sluice_[a-z0-9_]*' "$scratch/expressions" | sort -u > "$scratch/named"
missing=$(comm -23 "$scratch/named" "$scratch/there")
[ -z "$missing" ] || fail "not in the scrape: $missing"
echo "ok      $(wc -l < "$scratch/named") metrics that rules and dashboard name are looked up in the scrape"

# And the labels' values that they ask for.
for pair in $(grep -ohE '(finished_reason|reason|kind)=~?"[^"]*"' "$scratch/expressions" | sort -u); do
    for value in $(sed 's/.*="*~*"*//; s/"$//' <<< "$pair" | tr '|' ' '); do
        curl -sf "$server/api/v1/label/${pair%%[=]*}/values" | grep -q "\"$value\"" || fail "no ${pair%%=*} $value"
    done
done
echo "ok      labels"
exit $failed
