#!/bin/bash
# Runs in the container of tests/service/boot.sh, as a service. Each check prints a line; the last line of all is
# "all holds" when none failed; boot.sh reads it.
set -uo pipefail

# shellcheck source=tests/check.sh
. "$(dirname "$0")/check.sh"
as() { # USER COMMAND...
    runuser -u "$1" -- env -u XDG_RUNTIME_DIR "${@:2}"
}
value() { systemctl show --property="$2" --value "$1"; } # UNIT PROPERTY
holds() { # SECONDS COMMAND...: within so long
    local until=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { echo "not in time: $*"; return 1; }
        sleep 0.1
    done
}
fails() { ! "$@"; }
log_says() { journalctl --no-pager -u "$1" | grep -q "$2"; }

# A batch that keeps the daemon busy for some seconds, without a model.
batch() { # FILE RESULTS: four of each of its lines
    for _ in $(seq $(($2 / 4))); do
        echo '{"tokens":[1,2,3],"max_tokens":8000,"n":4,"ignore_eos":true}'
    done > "$1"
}
busy() { sluice stats -i null --json | grep -qE '"requests":[1-9]'; }
done_lines() { grep -c '"finish_reason":"length"' "$1"; }

# ---- install

check "the packages install" dpkg -i /test/now/{sluiced,sluice,libsluice0}_*.deb
check "nothing is enabled" fails systemctl is-enabled --quiet sluiced.socket
check "nothing is started" fails systemctl is-active --quiet sluiced.socket sluiced.service
check "there is a user sluice" id sluice
for user in alice bob carol; do
    useradd --create-home "$user"
done
usermod -aG sluice alice
usermod -aG sluice bob
cp -r /test/model /var/lib/sluice/demo
printf 'model = /var/lib/sluice/demo\ndevice = cpu\n' > /etc/sluice/sluiced.conf
printf 'model = synthetic:null\ndevice = cpu\nsequences-max = 4\ndrain-timeout = 120s\n' > /etc/sluice/null.conf
printf 'model = synthetic:null\ndevice = cpu\nstep-timeout = 500ms\n' > /etc/sluice/frozen.conf
check "units are without fault" systemd-analyze verify --man=no sluiced.service sluiced.socket sluiced@null.service
check "the running system rates the service at most 2.0" systemd-analyze security --threshold=20 sluiced.service

# ---- activation and jobs

systemctl enable --quiet sluiced.socket
systemctl start sluiced.socket
inode=$(stat -c %i /run/sluice/sluice.sock)
check "the socket is there, the daemon is not" is "$(value sluiced.service ActiveState)" inactive
answer_of() { as "$1" sluice generate --prompt '417+385='; }
check "a first request starts the daemon and is answered" is "$(answer_of alice)" 802
check "the daemon says that it is ready" is "$(value sluiced.service ActiveState)" active
check "its status can be read" grep -q '^Serving .* on ' <<< "$(value sluiced.service StatusText)"
check "it runs as its own user" is "$(stat -c %U "/proc/$(value sluiced.service MainPID)")" sluice
check "who is not in group sluice is kept out" fails as carol sluice health
jobs() {
    as bob sluice generate --file /test/model/questions.jsonl --json > /tmp/results || return 1
    sed -E 's/.*"text":"([^"]*)".*/\1/' /tmp/results | paste - <(cut -f2 /test/model/answers.txt) |
        awk -F'\t' '$1 != $2 { print; wrong = 1 } END { exit wrong }'
}
chmod -R a+rX /test
check "a batch of the demo model's questions is answered right" jobs
check "score" as bob sluice score --prompt '417+385=802'
check "embed" as bob sluice embed --prompt '417+385='

# ---- CUDA's package, where one was built: its drop-in holds from here on, the device stays the CPU

if ls /test/now/sluice-cuda_*.deb > /dev/null 2>&1; then
    check "the CUDA package installs beside it" dpkg -i /test/now/sluice-cuda_*.deb
    check "the running daemon has its drop-in" is "$(value sluiced.service PrivateDevices)" no
    check "and answers under it" is "$(answer_of alice)" 802
    check "the running system rates the service at most 2.0 with it" systemd-analyze security --threshold=20 sluiced.service
else
    echo "SKIPPED the CUDA package: no nvcc here"
fi

# ---- stop and start

systemctl stop sluiced.service 2> /dev/null
check "stop leaves the socket" is "$(stat -c %i /run/sluice/sluice.sock)" "$inode"
check "the next client starts the daemon again" is "$(answer_of bob)" 802
systemctl restart sluiced.service
check "restart leaves the socket" is "$(stat -c %i /run/sluice/sluice.sock)" "$inode"

# Nobody is lost to a restart: who connects waits in the socket, who had connected is answered, or told that a retry
# is worth it.
crowd() {
    local clients=() lost=0 status
    for _ in $(seq 20); do
        as alice sluice generate --prompt '417+385=' > /dev/null 2>> /tmp/crowd.err &
        clients+=($!)
        [ ${#clients[@]} -ne 10 ] || systemctl restart --no-block sluiced.service
    done
    for client in "${clients[@]}"; do
        wait "$client"
        status=$?
        [ $status -eq 0 ] || [ $status -eq 4 ] || lost=$((lost + 1))
    done
    [ $lost -eq 0 ] || { echo "$lost clients were lost"; cat /tmp/crowd.err; return 1; }
}
check "a restart among clients loses none" crowd

# ---- HTTP: by its Unix socket from the start, by TCP and with figures once that is enabled

ask_http() { # USER CURL'S OPTIONS AND URL
    as "$1" curl -sS --max-time 20 -H 'Content-Type: application/json' -d '{"prompt": "417+385=", "max_tokens": 16}' "${@:2}" |
        grep -oE '"text":"[^"]*"|"code":"[^"]*"'
}
ask_tcp() { ask_http carol -H "Authorization: Bearer $1" http://127.0.0.1:8000/v1/completions; } # KEY
ask_metrics() { curl -sS --max-time 20 "http://127.0.0.1:$1/metrics" | grep '^sluice_requests_total' > /dev/null; }
check "HTTP is served on a socket beside the native one" is \
    "$(ask_http alice --unix-socket /run/sluice/http.sock http://localhost/v1/completions)" '"text":"802"'
check "the HTTP socket is the group's" is "$(stat -c %a:%G /run/sluice/http.sock)" 660:sluice
check "TCP and figures are enabled while the daemon runs" systemctl enable --quiet sluiced-tcp.socket sluiced-metrics.socket
check "a restart without keys fails" fails systemctl restart sluiced.service
check "and the log names the option" log_says sluiced.service 'http: 127.0.0.1:8000, which was passed, needs an api-key-file'
systemctl reset-failed sluiced.service
printf 'web first\n' > /etc/sluice/keys
chgrp sluice /etc/sluice/keys
chmod 640 /etc/sluice/keys
echo 'api-key-file = /etc/sluice/keys' >> /etc/sluice/sluiced.conf
systemctl disable --now --quiet sluiced-tcp.socket sluiced-metrics.socket
systemctl restart sluiced.service
check "the daemon runs without them" is "$(answer_of alice)" 802
systemctl enable --quiet sluiced-tcp.socket sluiced-metrics.socket
check "a restart that binds them among clients loses none" crowd
check "TCP is served to who has a key" is "$(ask_tcp first)" '"text":"802"'
check "and to nobody else" is "$(ask_tcp second)" '"code":"denied"'
check "figures are served" ask_metrics 9464
check "the native socket stayed" is "$(stat -c %i /run/sluice/sluice.sock)" "$inode"
printf 'web first\nbatch second\n' > /etc/sluice/keys
check "reload reads the keys again" systemctl reload sluiced.service
check "a key that came is known" is "$(ask_tcp second)" '"text":"802"'
check "the log has its name" holds 5 log_says sluiced.service 'user=key/batch job=generate'

# ---- what the service would not see is told by --check, and by the service

systemctl reset-failed sluiced.service
check "--check of a good file says whose eyes it looked with" grep -q '^service  *sluiced.service, as user sluice$' \
    <<< "$(sluiced --config /etc/sluice/sluiced.conf --check)"
told() { # NAME PATTERN: by --check, and in the log of a service that does not start
    local code
    sluiced --config "/etc/sluice/$1.conf" --check 2> /tmp/said
    code=$?
    grep -q "$2" /tmp/said || { echo "--check:"; cat /tmp/said; return 1; }
    systemctl start "sluiced@$1.service" 2> /dev/null
    code="$code $(value "sluiced@$1.service" ExecMainStatus) $(value "sluiced@$1.service" NRestarts)"
    is "$code" '78 78 0' && log_says "sluiced@$1.service" "$2"
}
configure() { # NAME LINE...
    printf '%s\n' 'device = cpu' "${@:2}" > "/etc/sluice/$1.conf"
}
configure tcp 'model = synthetic:null' 'http = 127.0.0.1:8002' 'insecure-loopback = yes'
check "an address of TCP in the file" told tcp 'http: .*sluiced-tcp'
mkdir -p /etc/systemd/system/sluiced@lonely.service.d
printf '[Service]\nRestrictAddressFamilies=AF_INET\n' > /etc/systemd/system/sluiced@lonely.service.d/inet.conf
systemctl daemon-reload
cp /etc/sluice/tcp.conf /etc/sluice/lonely.conf
check "the same where only the network is missing, as with CUDA" told lonely 'http: .*(PrivateNetwork=).*sluiced-tcp'
cp -r /test/model /home/alice/model
chmod -R a+rX /home/alice
configure home 'model = /home/alice/model'
check "a model in a home directory" told home 'model: /home/alice/model is in a home directory, which sluiced@home.service does not see'
ln -s /home/alice/model /var/lib/sluice/link
configure link 'model = /var/lib/sluice/link'
sluiced --config /etc/sluice/link.conf --check 2> /tmp/said
check "and behind a link" grep -q 'model: /home/alice/model is in a home directory' /tmp/said
cp -r /test/model /var/lib/sluice/closed
chmod 700 /var/lib/sluice/closed
configure closed 'model = /var/lib/sluice/closed'
sluiced --config /etc/sluice/closed.conf --check 2> /tmp/said
check "a model that the service's user may not read" grep -q 'Permission denied.*as user sluice' /tmp/said
configure outside 'model = synthetic:null' 'profile-steps = 10' 'profile-file = /var/lib/trace.json'
check "a file that it may not write" told outside 'profile-file: .*ProtectSystem=strict'
mkdir -p /etc/systemd/system/sluiced@home.service.d
printf '[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths=/home/alice/model\n' > /etc/systemd/system/sluiced@home.service.d/bind.conf
systemctl daemon-reload
check "a drop-in that allows it is believed" sluiced --config /etc/sluice/home.conf --check
systemctl reset-failed
check "and rightly" systemctl start sluiced@home.service
check "by who asks it" is "$(as alice sluice generate -i home --prompt '417+385=')" 802
configure example 'model = /usr/share/sluice/demo-model'
systemctl start sluiced@example.socket
check "the example model is served from where it lies" is "$(as alice sluice generate -i example --prompt '417+385=')" 802
systemctl stop sluiced@{home,example}.{service,socket} 2> /dev/null

# ---- two models, of which one sleeps

mkdir -p /etc/systemd/system/sluiced@two.service.d
printf '[Service]\nWatchdogSec=2\n' > /etc/systemd/system/sluiced@two.service.d/watchdog.conf
systemctl daemon-reload
configure two 'model = demo=/var/lib/sluice/demo' 'model = tiny=synthetic:tiny' 'model-option = tiny:sleep-after=2s' 'host-memory = 64MiB'
check "--check tells of both models" is "$(sluiced --config /etc/sluice/two.conf --check | grep -c '^model ')" 2
systemctl start sluiced@two.socket
demo() { as alice sluice generate -i two --prompt '417+385='; }
tiny() { as alice sluice generate -i two --model tiny --tokens 1,2 --max-tokens 3 --ignore-eos; }
ask_two() { as alice curl -sS --max-time 20 --unix-socket /run/sluice/two-http.sock "http://localhost$1"; }
check "the first of two models answers" is "$(demo)" 802
first=$(tiny)
check "and the second" grep -qE '^[0-9]+,[0-9]+,[0-9]+$' <<< "$first"
check "HTTP lists both" is "$(ask_two /v1/models | grep -oE '"id":"(demo|tiny)"' | paste -s)" "$(printf '"id":"demo"\t"id":"tiny"')"
two_says() { value sluiced@two.service StatusText | grep -q "$1"; }
check "the status names them" two_says '^Serving demo and 1 more on '
asleep() { sluice health -i two --json | grep -q "\"status\":\"ok\".*\"asleep\":\[$1\]"; }
is_well() { # asleep or not, it takes work
    is "$(value sluiced@two.service ActiveState) $(value sluiced@two.service NRestarts)" 'active 0' &&
        ask_two /readyz | grep -q '"status":"ok","ready":true' && ask_two /livez | grep -q '"status":"ok"'
}
check "the one that nobody asks sleeps" holds 20 asleep '"tiny"'
check "it is kept in host memory" is "$(sluice model -i two tiny | sed -n 's/^weights *//p')" pinned
check "the status counts it" holds 5 two_says '; 1 of 2 models asleep$'
check "who is no admin puts none to sleep" fails as alice sluice sleep -i two demo
check "root does" sluice sleep -i two demo
check "and all sleep" holds 20 asleep '"demo","tiny"'
sleep 4 # twice the watchdog's time
check "the service is well" is_well
check "the status counts both" two_says '; 2 of 2 models asleep$'
check "a reload wakes none" systemctl reload sluiced@two.service
check "and all still sleep" asleep '"demo","tiny"'
check "a request wakes the first" is "$(demo)" 802
check "and the second, which says what it said" is "$(tiny)" "$first"
check "it is well, too" is_well
check "the second sleeps once more" holds 20 asleep '"tiny"'
check "and HTTP still lists it" is "$(ask_two /v1/models | grep -oc '"id":"tiny"')" 1
sluice sleep -i two demo > /dev/null
systemctl restart sluiced@two.service
check "after a restart the first answers" is "$(demo)" 802
check "and the second" is "$(tiny)" "$first"
# Requests for one that sleeps, and a restart among them: the next daemon's clients are answered, the others are
# answered or told that a retry is worth it.
sleepers() {
    local clients=() lost=0 status
    sluice sleep -i two tiny > /dev/null
    for _ in $(seq 20); do
        tiny > /dev/null 2>> /tmp/sleepers.err &
        clients+=($!)
        [ ${#clients[@]} -ne 10 ] || systemctl restart --no-block sluiced@two.service
    done
    for client in "${clients[@]}"; do
        wait "$client"
        status=$?
        [ $status -eq 0 ] || [ $status -eq 4 ] || lost=$((lost + 1))
    done
    [ $lost -eq 0 ] || { echo "$lost clients were lost"; cat /tmp/sleepers.err; return 1; }
}
check "a restart among clients of one that sleeps loses none" sleepers
check "and both answer" is "$(demo) $(tiny)" "802 $first"
systemctl stop sluiced@two.{service,socket} 2> /dev/null

# ---- reload

limit() { sluice model --json | sed -E 's/.*"batch_max":([0-9]+).*/\1/'; }
pid=$(value sluiced.service MainPID)
echo 'batch-max = 77' >> /etc/sluice/sluiced.conf
check "reload with a good file" systemctl reload sluiced.service
check "changes the option" is "$(limit)" 77
echo 'batch-max = 99' >> /etc/sluice/sluiced.conf
check "reload with a bad file fails" fails systemctl reload sluiced.service
kill -HUP "$pid"
status_says() { value sluiced.service StatusText | grep -q "$1"; }
check "SIGHUP with a bad file is told by the status" holds 5 status_says 'last reload failed'
check "and nothing has changed" is "$(limit) $(value sluiced.service MainPID)" "77 $pid"
sed -i '$d' /etc/sluice/sluiced.conf

# ---- an instance; users apart; kill -9

systemctl start sluiced@null.socket
batch /tmp/long 4000
batch /tmp/batch 1000
chmod a+r /tmp/long /tmp/batch
as alice sluice health -i null > /dev/null 2>&1
check "an instance serves its own socket" as alice sluice -i null health
check "and HTTP beside it" is "$(as alice curl -sS --max-time 20 --unix-socket /run/sluice/null-http.sock http://localhost/health |
    grep -o '"ready":true')" '"ready":true'
systemctl enable --quiet sluiced-metrics@null.socket
systemctl restart sluiced@null.service
check "and figures, once that is enabled" ask_metrics 9465
as alice sluice generate -i null --file /tmp/long --json > /tmp/alice.out 2> /tmp/alice.err &
client=$!
check "alice's requests run" holds 20 busy
number_of() { as "$1" sluice stats -i null --requests --json | grep -oE '"request":[0-9]+' | head -1 | cut -d: -f2; }
# Between two of her requests there is none for a moment.
listed() { for _ in {1..100}; do number_of "$1" | grep . && return; sleep 0.1; done; }
number=$(listed alice)
check "alice sees her requests" test -n "$number"
check "bob sees none" is "$(number_of bob)" ""
check "bob cannot cancel hers" fails as bob sluice cancel -i null "${number:-1}"
check "root sees them" test -n "$(listed root)"
kill -9 "$(value sluiced@null.service MainPID)"
wait $client
check "kill -9: her client is told that a retry is worth it" is $? 4
check "the daemon comes back" holds 20 as alice sluice health -i null
check "as a restart" is "$(value sluiced@null.service NRestarts)" 1

# ---- upgrade with requests in flight

upgrades=(/test/next/{sluiced,sluice,libsluice0}_*.deb)
! dpkg -s sluice-cuda > /dev/null 2>&1 || upgrades+=(/test/next/sluice-cuda_*.deb)
# What a version before had enabled and started.
printf '[Socket]\nListenStream=/run/sluice/old-http.sock\nService=sluiced@old.service\n' > /run/systemd/system/sluiced-http@old.socket
ln -s /usr/lib/systemd/system/sluiced-http@.socket /etc/systemd/system/sockets.target.wants/sluiced-http@old.socket
systemctl daemon-reload
systemctl start sluiced-http@old.socket
rm /run/systemd/system/sluiced-http@old.socket
# As apt does: what takes long comes first, and restarts nothing, so that his requests meet the restart.
check "the upgrade is unpacked" dpkg --unpack "${upgrades[@]}"
as bob sluice generate -i null --file /tmp/batch --json > /tmp/bob.out 2> /tmp/bob.err &
client=$!
check "bob's requests run" holds 20 busy
check "the upgrade installs" dpkg --configure --pending
check "a socket that is another unit's now has moved" is "$(systemctl is-active sluiced-http@old.socket sluiced@old.socket | paste -s)" \
    "$(printf 'inactive\tactive')"
check "and is not enabled any more" fails test -L /etc/systemd/system/sockets.target.wants/sluiced-http@old.socket
check "it is there" test -S /run/sluice/old-http.sock
wait $client
check "requests in flight were finished" is "$? $(done_lines /tmp/bob.out)" "0 1000"
check "there were some" log_says sluiced@null.service 'SIGTERM: ends when [1-9][0-9]* sequences'
check "the new version answers" as alice sluice health -i null
check "the first daemon was upgraded, too" is "$(answer_of alice)" 802
check "its socket stayed" is "$(stat -c %i /run/sluice/sluice.sock)" "$inode"

# ---- a frozen device

mkdir -p /etc/systemd/system/sluiced@frozen.service.d
printf '[Service]\nWatchdogSec=2\nEnvironment=SLUICE_EMU_FAULT=launch:200:hang\n' \
    > /etc/systemd/system/sluiced@frozen.service.d/hang.conf
systemctl daemon-reload
systemctl start sluiced@frozen.socket
as alice sluice generate -i frozen --tokens 1,2,3 --max-tokens 4000 --ignore-eos > /dev/null 2>&1
check "a frozen device: its client is told that a retry is worth it" is $? 4
check "the watchdog has killed the daemon" holds 5 log_says sluiced@frozen.service 'Watchdog timeout'
check "and it is back" holds 20 as alice sluice health -i frozen
check "as a restart" is "$(value sluiced@frozen.service NRestarts)" 1

# ---- no model, and the end

printf 'device = cpu\n' > /etc/sluice/empty.conf
systemctl start sluiced@empty.service 2> /dev/null
check "without a model it fails and is not tried again" is \
    "$(value sluiced@empty.service ExecMainStatus) $(value sluiced@empty.service NRestarts)" "78 0"
check "the packages are removed" dpkg -r "$(dpkg -s sluice-cuda > /dev/null 2>&1 && echo sluice-cuda || echo sluice)" sluiced sluice
check "and no daemon is left" fails grep -qsx sluiced /proc/[0-9]*/comm

if [ $failed -eq 0 ]; then
    echo "all holds"
else
    journalctl --no-pager -u 'sluiced*' | tail -60
fi
