#!/bin/bash
# Runs in the container of tests/service/boot.sh, as a service. Each check prints a line; the last line of all is
# "all holds" when none failed; boot.sh reads it.
set -uo pipefail

failed=0
check() { # WHAT COMMAND...
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok      $what"
    else
        printf 'FAILED  %s\n%s\n' "$what" "$said"
        failed=1
    fi
}
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
is() { [ "$1" = "$2" ] || { echo "is \"$1\", not \"$2\""; return 1; }; }
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

# ---- HTTP and metrics by passed sockets, the latter over TCP to a service without a network

ask_metrics() {
    exec 3<> /dev/tcp/127.0.0.1/9464 || return 1
    printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nConnection: close\r\n\r\n' >&3
    grep -q '^sluice_requests_total [1-9]' <&3
}
systemctl stop sluiced.service 2> /dev/null
check "the HTTP and metrics sockets start" systemctl start sluiced-http.socket sluiced-metrics.socket
check "a request starts the daemon with all three sockets" is "$(answer_of alice)" 802
check "metrics are served" ask_metrics
check "the HTTP socket is the group's" is "$(stat -c %a:%G /run/sluice/http.sock)" 660:sluice

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
batch /tmp/batch 200
chmod a+r /tmp/long /tmp/batch
as alice sluice health -i null > /dev/null 2>&1
check "an instance serves its own socket" as alice sluice -i null health
as alice sluice generate -i null --file /tmp/long --json > /tmp/alice.out 2> /tmp/alice.err &
client=$!
check "alice's requests run" holds 20 busy
number_of() { as "$1" sluice stats -i null --requests --json | grep -oE '"request":[0-9]+' | head -1 | cut -d: -f2; }
number=$(number_of alice)
check "alice sees her requests" test -n "$number"
check "bob sees none" is "$(number_of bob)" ""
check "bob cannot cancel hers" fails as bob sluice cancel -i null "${number:-1}"
check "root sees them" test -n "$(number_of root)"
kill -9 "$(value sluiced@null.service MainPID)"
wait $client
check "kill -9: her client is told that a retry is worth it" is $? 4
check "the daemon comes back" holds 20 as alice sluice health -i null
check "as a restart" is "$(value sluiced@null.service NRestarts)" 1

# ---- upgrade with requests in flight

as bob sluice generate -i null --file /tmp/batch --json > /tmp/bob.out 2> /tmp/bob.err &
client=$!
check "bob's requests run" holds 20 busy
upgrades=(/test/next/{sluiced,sluice,libsluice0}_*.deb)
! dpkg -s sluice-cuda > /dev/null 2>&1 || upgrades+=(/test/next/sluice-cuda_*.deb)
check "the upgrade installs" dpkg -i "${upgrades[@]}"
wait $client
check "requests in flight were finished" is "$? $(done_lines /tmp/bob.out)" "0 200"
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
