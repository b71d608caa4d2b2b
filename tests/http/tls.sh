#!/usr/bin/env bash
# A proxy with TLS in front of the daemon, by the configuration that deploy/tls/ has for it, with real handshakes and real
# certificates: tls.sh nginx|haproxy SLUICED SLUICE. Exit 1 if a check fails, 77 where the proxy is not installed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

proxy=$1 sluiced=$2 sluice=$3
PATH=$PATH:/usr/sbin:/sbin
for tool in "$proxy" openssl curl; do
    command -v "$tool" > /dev/null || { echo "SKIPPED tls: $tool is not installed (deploy/deps.sh all)"; exit 77; }
done
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # as in curl.sh
scratch=$(mktemp -d)
export SLUICE_SOCKET=$scratch/sluice.sock
daemon='' front=''
finish() {
    [ -z "$front" ] || kill "$front" 2> /dev/null
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    wait
    rm -rf "$scratch"
}
trap finish EXIT

failed=0
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

# ---- certificates: of the site, by an authority of its own, and of clients, by another ----

key_of() { openssl ecparam -name prime256v1 -genkey -noout -out "$scratch/$1.key"; }
authority() { # NAME
    key_of "$1" && openssl req -x509 -new -key "$scratch/$1.key" -subj "/CN=$1" -days 2 -out "$scratch/$1.pem"
}
certificate() { # NAME AUTHORITY SUBJECT [EXTENSION]
    key_of "$1" && openssl req -new -key "$scratch/$1.key" -subj "$3" -out "$scratch/$1.csr" &&
        openssl x509 -req -in "$scratch/$1.csr" -CA "$scratch/$2.pem" -CAkey "$scratch/$2.key" -CAcreateserial -days 2 \
            -extfile <(echo "${4:-}") -out "$scratch/$1.pem"
}
{
    authority root && certificate site root /CN=llm.example.com 'subjectAltName=DNS:llm.example.com' &&
        authority clients && certificate ann clients /O=Example/CN=ann && certificate words clients '/CN=two words' &&
        authority stranger && certificate eve stranger /CN=ann
} 2> "$scratch/openssl.log" || { cat "$scratch/openssl.log"; exit 1; }
cat "$scratch/site.pem" "$scratch/site.key" > "$scratch/site-and-key.pem"

# ---- the daemon and the proxy, each on ports that nobody has ----

printf 'web first\nproxy second\n' > "$scratch/keys"
await() { # PID LOG COMMAND...
    for _ in $(seq 200); do
        "${@:3}" > /dev/null 2>&1 && return 0
        kill -0 "$1" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}
for port in $(shuf -i 20000-32000 -n 5); do
    "$sluiced" --model deploy/demo-model --device cpu --socket "$SLUICE_SOCKET" --http "127.0.0.1:$port" --http "unix:$scratch/http.sock" \
        --api-key-file "$scratch/keys" --trusted-keys proxy --http-names llm.example.com --cors-origins https://app.example.com \
        2> "$scratch/log" &
    daemon=$!
    await "$daemon" "$scratch/log" "$sluice" health && break
done
site() { # the configuration as it is shipped, but for places and ports
    sed -e "s|/etc/sluice/tls|$scratch|g" -e "s|127.0.0.1:8000|127.0.0.1:$port|" -e "s|\<8443\>|$certified|" -e "s|\<443\>|$secure|" "$1"
}
start_nginx() {
    echo 'proxy_set_header Authorization "Bearer second";' > "$scratch/nginx-key.conf"
    site deploy/tls/nginx.conf > "$scratch/sluice.conf"
    mkdir -p "$scratch/temp"
    cat > "$scratch/main.conf" << END
$([ "$(id -u)" -ne 0 ] || echo 'user root;')
daemon off;
worker_processes 1;
pid $scratch/nginx.pid;
error_log $scratch/front.log;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path $scratch/temp;
    proxy_temp_path $scratch/temp;
    fastcgi_temp_path $scratch/temp;
    uwsgi_temp_path $scratch/temp;
    scgi_temp_path $scratch/temp;
    include $scratch/sluice.conf;
}
END
    nginx -e "$scratch/front.log" -c "$scratch/main.conf" &
}
start_haproxy() {
    site deploy/tls/haproxy.cfg > "$scratch/haproxy.cfg"
    SLUICE_PROXY_KEY=second haproxy -db -f "$scratch/haproxy.cfg" > "$scratch/front.log" 2>&1 &
}
host=llm.example.com
ask() { # [CURL'S OPTIONS] PATH: by TLS, for clients with keys
    curl -sS --max-time 30 --noproxy '*' --cacert "$scratch/root.pem" --resolve "$host:$secure:127.0.0.1" "${@:1:$#-1}" "https://$host:$secure${!#}"
}
certified() { # NAME [CURL'S OPTIONS] PATH: with that certificate
    curl -sS --max-time 30 --noproxy '*' --cacert "$scratch/root.pem" --resolve "$host:$certified:127.0.0.1" \
        --cert "$scratch/$1.pem" --key "$scratch/$1.key" "${@:2:$#-2}" "https://$host:$certified${!#}"
}
for secure in $(shuf -i 32001-32700 -n 5); do
    certified=$((secure - 10000))
    "start_$proxy"
    front=$!
    await "$front" "$scratch/front.log" ask /health && break
done

# ---- clients with keys ----

code=(-o /dev/null -w '%{http_code} %{http_version}\n')
key=(-H 'Authorization: Bearer first')
json=(-H 'Content-Type: application/json')
complete=(-d '{"prompt": "417+385=", "max_tokens": 16}')
expect 'who has no key' '^401 ' ask "${code[@]}" "${json[@]}" "${complete[@]}" /v1/completions
expect 'a wrong key' '^401 ' ask "${code[@]}" -H 'Authorization: Bearer third' /v1/models
expect 'a key' '"text":"802"' ask "${key[@]}" "${json[@]}" "${complete[@]}" /v1/completions
expect 'its user' '[0-9]+ user=key/web job=generate' cat "$scratch/log"
expect 'HTTP/2' '^200 2' ask --http2 "${code[@]}" "${key[@]}" /v1/models
expect 'HTTP/1.1' '^200 1.1' ask --http1.1 "${code[@]}" "${key[@]}" /v1/models
expect 'another name' '^421 ' ask --http1.1 "${code[@]}" "${key[@]}" -H 'Host: evil.example.com' /v1/models
expect 'a user that a client would be is not handed on' '^200 ' ask "${code[@]}" "${key[@]}" -H 'X-Sluice-User: ann' /v1/models
expect 'figures' '^404 ' ask "${code[@]}" "${key[@]}" /metrics
expect 'figures in other letters' '^404 ' ask "${code[@]}" "${key[@]}" /%6detrics
preflight=(-X OPTIONS -i --http1.1 -H 'Origin: https://app.example.com' -H 'Access-Control-Request-Method: POST')
expect 'a preflight' '^[Aa]ccess-[Cc]ontrol-[Aa]llow-[Oo]rigin: https://app.example.com' ask "${preflight[@]}" /v1/completions
head -c 1000000 /dev/zero | tr '\0' ' ' > "$scratch/large"
echo '{"prompt": "417+385=", "max_tokens": 16}' >> "$scratch/large"
expect 'a large body' '"text":"802"' ask "${key[@]}" "${json[@]}" --data-binary "@$scratch/large" /v1/completions
head -c 17000000 /dev/zero > "$scratch/large"
expect 'one that is too large' '^413 ' ask "${code[@]}" "${key[@]}" "${json[@]}" --data-binary "@$scratch/large" /v1/completions
expect 'an authority that nobody knows' 'certificate' curl -sS --max-time 30 --noproxy '*' --resolve "$host:$secure:127.0.0.1" "https://$host:$secure/health"
old() { openssl s_client -connect "127.0.0.1:$secure" "$1" -cipher 'DEFAULT@SECLEVEL=0' < /dev/null 2>&1 | grep -E '^New|alert|Cipher is'; }
expect 'TLS 1.1' 'alert|Cipher is \(NONE\)' old -tls1_1
expect 'TLS 1.2' 'TLSv1.2, Cipher is [A-Z]' old -tls1_2

# The 200 pieces of a stream come as they are made, not as a buffer is full. How many are read at once is a matter of luck: the median
# of nine streams, and tried again. Behind a long prompt a step takes longer than whoever passes its token on.
pieces() {
    for _ in 1 2 3 4 5 6 7 8 9; do
        ask -N --http1.1 "${key[@]}" "${json[@]}" -d '{"prompt": "'"$(printf '%04000d' 0)"'", "max_tokens": 200, "ignore_eos": true, "stream": true}' \
            /v1/completions 2> /dev/null | dd bs=65536 2>&1 > /dev/null | sed -n 's/^[0-9]*+\([0-9]*\) records in/\1 pieces/p'
    done | sort -n | sed -n 5p
}
expect 'a stream piece by piece' '^([7-9][0-9]|[12][0-9]{2}) pieces' pieces
# Who goes away is cancelled behind the proxy, too.
leave() {
    ask -N "${key[@]}" "${json[@]}" -d '{"prompt": "1+1=", "n": 64, "max_tokens": 200, "ignore_eos": true, "stream": true}' /v1/completions \
        2> /dev/null | head -c 100 > /dev/null
    sleep 0.3
    grep -oE 'user=key/web job=generate .* cancelled=[0-9]+' "$scratch/log"
}
expect 'who goes away' 'cancelled=' leave

# ---- clients with certificates ----

expect 'a certificate' '"text":"802"' certified ann "${json[@]}" "${complete[@]}" /v1/completions
expect 'its user' '[0-9]+ user=key/proxy/ann job=generate' cat "$scratch/log"
expect 'what it says of itself is not handed on' '"text":"802"' certified ann "${json[@]}" "${complete[@]}" "${key[@]}" \
    -H 'X-Sluice-User: bob' /v1/completions
expect 'a certificate without a name' '^403 ' certified words "${code[@]}" /v1/models
expect 'figures by a certificate' '^404 ' certified ann "${code[@]}" /metrics
expect 'a certificate of a stranger' '^(400|000) ' certified eve "${code[@]}" /v1/models
none() {
    curl -sS --max-time 30 --noproxy '*' --cacert "$scratch/root.pem" --resolve "$host:$certified:127.0.0.1" "${code[@]}" "https://$host:$certified/v1/models"
}
expect 'no certificate' '^(400|000) ' none
! grep -q 'user=key/proxy/bob\|user=key/web/' "$scratch/log" || { echo "somebody was taken for another"; failed=$((failed + 1)); }

# Why the daemon listens by TCP here: a Unix socket asks for no key.
expect 'a Unix socket' '"text":"802"' curl -sS --max-time 30 --unix-socket "$scratch/http.sock" "${json[@]}" "${complete[@]}" http://localhost/v1/completions

[ "$failed" -eq 0 ] || tail -n 20 "$scratch/log" "$scratch/front.log"
[ "$failed" -eq 0 ]
