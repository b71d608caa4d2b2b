#!/usr/bin/env bash
# What slurm.sh checks, inside the root that it made: a cluster of one node that says it has four GPUs.
set -uo pipefail
check() { # WHAT COMMAND...: holds within 15 s
    local until=$((SECONDS + 15))
    while ! "${@:2}" > /tmp/check 2>&1; do
        if [ $SECONDS -ge $until ]; then
            echo "FAILED  $1"
            tail -n 20 /tmp/check "$HOME"/*.log /var/log/slurm*.log 2> /dev/null
            exit 1 # what follows stands on it
        fi
        sleep 0.2
    done
    echo "ok      $1"
}

printf '127.0.0.1 localhost\n10.9.9.1 head\n' > /etc/hosts # who has the loopback alone resolves no names
cat > /etc/slurm/slurm.conf << 'END'
ClusterName=test
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
GresTypes=gpu
KillWait=30
MpiDefault=none
NodeName=head CPUs=32 Boards=1 SocketsPerBoard=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=65536 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=head Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
END
echo 'CgroupPlugin=cgroup/v1' > /etc/slurm/cgroup.conf # nothing of cgroups is used
printf 'NodeName=head Name=gpu File=/dev/%s\n' null zero full random > /etc/slurm/gres.conf # there are no GPUs: files in their place
mkdir -p /var/spool/slurmctld /var/spool/slurmd /var/log/slurm /run/munge
dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 2> /dev/null
chown -R munge: /etc/munge /run/munge /var/lib/munge /var/log/munge
chmod 400 /etc/munge/munge.key
runuser -u munge -- munged 2> /dev/null || su munge -s /bin/sh -c munged
slurmctld -L /var/log/slurmctld.log
slurmd -L /var/log/slurmd.log
trap 'scancel -u root 2> /dev/null; kill $(cat /run/slurmd.pid /run/slurmctld.pid) 2> /dev/null; kill $(cat /run/munge/munged.pid) 2> /dev/null' EXIT
check 'the node is there' sh -c 'sinfo -h -o %T | grep -q idle'

export HOME=/sluice/home SLUICE_MODEL=/sluice/demo-model SERVE_DAEMON=/sluice/start SERVE_ADDRESS=127.0.0.1
export SERVE_OPTIONS='--device cpu --cpu-threads 1 --module-dir /sluice'
mkdir -p "$HOME/sluice"
echo 'me secret' > "$HOME/sluice/keys"
cd "$HOME" || exit 1
check 'the script is one that it would run' sbatch --test-only /sluice/slurm.sh
check 'it is submitted' sbatch --parsable /sluice/slurm.sh
job=$(grep -oE '^[0-9]+' /tmp/check)
workers() { [ "$(cat "$HOME"/sluice/workers/* 2> /dev/null | wc -l)" -eq "$1" ]; }
check 'four daemons say where they are' workers 4
answers() { # all that are named
    local address port agent
    workers 0 && return 1
    while read -r address port agent; do
        curl -sf "http://$address:$port/v1/completions" -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' \
            -d '{"prompt": "417+385=", "max_tokens": 16}' | grep -q '"text":"802"' || return 1
        (exec 3<> "/dev/tcp/$address/$agent" && grep -q '^up ready' <&3) || return 1
    done < <(cat "$HOME"/sluice/workers/*)
}
check 'each answers, and tells its weight' answers
check 'one is asked to end' scancel --batch --signal=TERM "${job}_2"
leaving() { (exec 3<> /dev/tcp/127.0.0.1/9002 && grep -q '^up drain' <&3); }
check 'it says so first' leaving
check 'then it is gone from the list' workers 3
check 'and ended well' grep -q 'drain-grace is over' "$HOME/sluice-$job-2.log"
check 'the others still answer' answers
check 'all are asked to end' scancel --batch --signal=TERM "$job"
check 'and nothing is left' workers 0
check 'of the jobs either' sh -c '[ -z "$(squeue -h)" ]'
