#!/usr/bin/env bash
# Daemons on a Slurm cluster, an array of jobs with a GPU each: SLUICE_MODEL=/models/model sbatch slurm.sh. Each writes where it listens
# into SERVE_FOLDER/workers/, on a file system that all see, and takes that away again when it ends; what makes a router's
# configuration of them is at the end of deploy/scale/README.md. Before its time is over, a job has TERM 200 s ahead: readiness
# falls (drain-grace), and requests are finished (drain-timeout). After a node's failure it is queued again.
#     scancel --batch --signal=TERM JOB    ends one in peace; scancel alone gives it KillWait, 30 s if not set
#SBATCH --job-name=sluice
#SBATCH --array=0-3
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --gpus=1
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:TERM@200
#SBATCH --requeue
#SBATCH --output=sluice-%A-%a.log
set -euo pipefail

: "${SLUICE_MODEL:?the model directory}"
folder=${SERVE_FOLDER:-$HOME/sluice}
number=${SLURM_ARRAY_TASK_ID:-0}
port=$((${SERVE_PORT:-8000} + number)) # several may run on one node
agent=$((port + 1000))
address=${SERVE_ADDRESS:-$(hostname -I | cut -d ' ' -f 1)}
worker=$folder/workers/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}-$number
local=$(mktemp -d)
mkdir -p "$folder/workers"

# shellcheck disable=SC2086
"${SERVE_DAEMON:-sluiced}" --model "$SLUICE_MODEL" --socket "$local/sluice.sock" --http "$address:$port" --agent-check "$address:$agent" \
    --api-key-file "$folder/keys" --busy-status 503 --drain-grace 10s --drain-timeout 150s ${SERVE_OPTIONS:-} &
daemon=$!
trap 'kill -TERM $daemon 2> /dev/null || true' TERM
echo "$address $port $agent" > "$worker"

# A signal ends the first wait, the daemon's own end the next.
code=0
wait $daemon || code=$?
while kill -0 $daemon 2> /dev/null; do
    code=0
    wait $daemon || code=$?
done
rm -rf "$worker" "$local"
exit $code
