#!/usr/bin/env bash
# The page of `sluice bench --report` in headless Chromium: its curves, as the browser drew them, against the records
# of the same run (page.js). Then with one point moved, which must be noticed.
#     tests/loadgen/page.sh SLUICED SLUICE
# Exit 1 where they differ, 77 and a line that starts with SKIPPED where there is no Chromium.
set -euo pipefail

browser=
for name in chromium chromium-browser google-chrome; do
    # Ubuntu's is a stand-in that says to install a snap.
    if command -v $name > /dev/null && $name --version > /dev/null 2>&1; then
        browser=$name
        break
    fi
done
[ -n "$browser" ] || { echo "SKIPPED: no Chromium (deploy/deps.sh all)"; exit 77; }

folder=$(mktemp -d /tmp/sluice-page-XXXXXX)
export SLUICE_SOCKET=$folder/socket
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

"$1" --model synthetic:tiny --device cpu --socket "$SLUICE_SOCKET" 2> "$folder/log" &
daemon=$!
for _ in $(seq 300); do
    "$2" health > /dev/null 2>&1 && break
    sleep 0.1
done
"$2" bench --num-prompts 300 --request-rate 30 --burstiness 0.2 --random-input-len 24 --random-output-len 16 --random-range-ratio 0.9 \
    --ignore-eos --json "$folder/records" --save-detailed --report "$folder/page" > /dev/null
! grep -qiE '<(script|link|img|iframe)|(src|href|url)[=(]' "$folder/page" || { echo "FAILED: the page is not self-contained"; exit 1; }

look() { # PAGE: prints the checks
    {
        cat "$1"
        printf '<script>const records = '
        cat "$folder/records"
        printf ';</script>\n<script>\n'
        cat "$(dirname "$0")/page.js"
        printf '</script>\n'
    } > "$1.html"
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --dump-dom \
        "file://$1.html" 2> "$folder/browser" | sed -n '/<pre id="checks">/,/<\/pre>/p' | grep -E '^(ok|FAILED)' > "$1.checks" ||
        { tail -3 "$folder/browser"; echo "FAILED: the browser told nothing"; exit 1; }
    cat "$1.checks"
}
look "$folder/page"
! grep -q '^FAILED' "$folder/page.checks" || exit 1
# Some spans had no arrival, and no latency of zero.
grep -q 'ttft_p50_over_time: .* some empty' "$folder/page.checks" || { echo "FAILED: no span was empty"; exit 1; }

# The tenth point of the first distribution four of 240 higher.
awk '/data-metric="ttft"/ { split($0, part, " "); for (i = 1; i < 20; i++) if (part[i] ~ /^[0-9.]+,[0-9.]+$/ && ++n == 10) {
        split(part[i], at, ","); sub(part[i], at[1] "," at[2] - 4) } } { print }' "$folder/page" > "$folder/moved"
cmp -s "$folder/page" "$folder/moved" && { echo "FAILED: nothing was moved"; exit 1; }
look "$folder/moved" > "$folder/noticed"
[ "$(grep '^FAILED' "$folder/noticed")" = "FAILED  ttft: 300 points of 300 values" ] ||
    { cat "$folder/noticed"; echo "FAILED: a point that was moved is not noticed"; exit 1; }
echo "ok      a point that is moved is noticed"
