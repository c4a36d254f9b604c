#!/usr/bin/env bash
# Submits a sweep to Slurm: an array with one task a cell, and a job behind it that makes the tables, whatever cells failed.
#   tools/cluster/submit_sweep.sh SWEEP.yaml OUTPUT [SBATCH ARGUMENT ...]      prints the two jobs' numbers
# KVCAL names the program.
set -euo pipefail
if (($# < 2)); then
  echo "usage: submit_sweep.sh SWEEP.yaml OUTPUT [SBATCH ARGUMENT ...]" >&2
  exit 2
fi
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kvcal=${KVCAL:-kvcal} sweep=$1 output=$2
shift 2

count=$("$kvcal" sweep "$sweep" --output "$output" --list | wc -l)
array=$(sbatch --parsable --array="0-$((count - 1))" "$@" "$folder/sweep.sbatch" "$sweep" "$output")
collect=$(sbatch --parsable --job-name=kvcal-collect --dependency="afterany:$array" --ntasks=1 \
  --wrap "$(printf '%q ' "$kvcal" sweep "$sweep" --output "$output" --collect)")
echo "$array $collect"
