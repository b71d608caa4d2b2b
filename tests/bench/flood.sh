#!/usr/bin/env bash
# What rate one core of the load generator drives against a server that costs nothing.
# Usage: flood.sh FLOOD SLUICE [RATE [SECONDS]]. Generator on core 0, server on core 1.
# Prints what the generator says; judges nothing.
set -euo pipefail
folder=$(mktemp -d /tmp/sluice-flood-XXXXXX)
trap 'kill $server 2> /dev/null; rm -rf "$folder"' EXIT
taskset -c 1 "$1" "$folder/socket" &
server=$!
sleep 0.2
taskset -c 0 "$2" bench --socket "$folder/socket" --request-rate "${3:-50000}" --duration "${4:-5}" --random-input-len 8 \
    --random-output-len 1 --connections 1
