#!/usr/bin/env bash
# The files of tools/cluster on a real Slurm of two nodes: a calibration on both gives the bytes of a process alone, one that
# is stopped in its layers goes back to the queue and on, one whose rank dies fails with a message and goes on; a sweep's
# array and its tables are those of one command.
#   tests/cluster/slurm_test.sh       as root; KVCAL names the program

source "$(dirname "${BASH_SOURCE[0]}")/../cli/support.sh"
source "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"

export PATH=$PATH:/usr/sbin:/sbin  # of the daemons
if [[ $(id -u) -ne 0 ]] || ! command -v slurmctld >/dev/null; then
  echo "skipped: needs root and Slurm (slurm-wlm, munge)"
  exit 77
fi
find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1
CLUSTER=$SOURCE_FOLDER/tools/cluster
# Both nodes have one host name: the transport through shared memory would take them for one machine with one /tmp.
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_pml=ob1

check() {  # MESSAGE COMMAND...
  local message=$1
  shift
  checks=$((checks + 1))
  "$@" || fail "$message"
}

make_inputs() {
  sed -E -e 's/("num_hidden_layers": )[0-9]+/\18/' "$MODELS/llama/config.json" >config.json
  "$KVCAL" synth --config config.json --seed 1 model >/dev/null 2>&1 || exit 1
  for i in $(seq 9); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$i" $((5 * i + 9)))"; done >text.jsonl
  for i in $(seq 800); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$((i % 9))" 119)"; done >long.jsonl
  cp "$DATA/recipe.yaml" recipe.yaml
}

same() {
  diff -r "$1" "$2"
}

submit() {  # SBATCH ARGUMENT...
  sbatch --parsable --output=job-%j.log "$@"
}

state_of_job() {  # JOB
  scontrol -o show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | head -n 1
}

is_over() {  # JOB
  [[ $(state_of_job "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]
}

# Ends when the job is no longer in the queue; prints its state.
wait_for() {  # JOB
  await $$ is_over "$1"
  state_of_job "$1"
}

wait_for_layer() {  # JOB: until its state keeps one
  has_layer_or_is_over() { [[ -s out.kvcal-state/state.json ]] || is_over "$1"; }
  await $$ has_layer_or_is_over "$1"
  [[ -s out.kvcal-state/state.json ]]
}

check_calibration() {
  local job more
  for more in "--kv-forward quantized" "--kv-forward exact"; do
    # shellcheck disable=SC2086  # two words
    "$KVCAL" calibrate model --recipe recipe.yaml --dataset text.jsonl --reproducible $more --output alone --state none >/dev/null 2>&1
    # shellcheck disable=SC2086
    job=$(submit "$CLUSTER/calibrate.sbatch" model recipe.yaml text.jsonl out --reproducible $more)
    check "$more: $(cat "job-$job.log" 2>/dev/null)" test "$(wait_for "$job")" == COMPLETED
    check "$more: $(cat "job-$job.log")" same alone out
    check "$more: the ranks are on two machines: $(cat "job-$job.log")" grep -q "2 ranks on 2 machines" "job-$job.log"
    rm -rf alone out
  done
}

long_run() {
  submit "$@" "$CLUSTER/calibrate.sbatch" model recipe.yaml long.jsonl out --reproducible --device reference --num-samples 800 --state-share 100%
}

check_requeue() {
  local job
  "$KVCAL" calibrate model --recipe recipe.yaml --dataset long.jsonl --reproducible --device reference \
    --num-samples 800 --output long --state none >/dev/null 2>&1
  job=$(long_run)
  check "a layer is kept" wait_for_layer "$job"
  scancel --signal=TERM "$job"
  check "asked to stop, it goes back to the queue and to its end" test "$(wait_for "$job")" == COMPLETED
  check "it says where it goes on: $(cat "job-$job.log")" grep -q "^goes on after " "job-$job.log"
  check "stopped and gone on: $(cat "job-$job.log")" same long out
  rm -rf out
}

check_death() {
  local job process victim=
  job=$(long_run --no-requeue)
  check "a layer is kept" wait_for_layer "$job"
  for process in $(pgrep -f "^$KVCAL calibrate"); do
    grep -qzx SLURM_PROCID=1 "/proc/$process/environ" && victim=$process
  done
  kill -9 "$victim"
  check "a rank that dies ends the job" test "$(wait_for "$job")" == FAILED
  check "it is said which: $(cat "job-$job.log")" grep -qE "^(. *)?error: rank 1 on host n2 died in layer [0-9]+" "job-$job.log"
  job=$(long_run)
  check "it goes on" test "$(wait_for "$job")" == COMPLETED
  check "died and gone on: $(cat "job-$job.log")" same long out
  rm -rf out
}

check_sweep() {
  make_sweep
  local jobs
  "$KVCAL" sweep sweep.yaml --output alone >alone.table 2>/dev/null
  jobs=$("$CLUSTER/submit_sweep.sh" sweep.yaml out --output=cell-%A-%a.log)
  check "the tables are made: $(cat ./cell-*.log)" test "$(wait_for "${jobs#* }")" == COMPLETED
  check "a sweep's results" cmp alone/results.csv out/results.csv
  check "a sweep's results" cmp alone/results.json out/results.json
}

make_inputs
trap 'stop_slurm "$SCRATCH_ROOT/slurm"; rm -rf "$SCRATCH_ROOT"' EXIT
start_slurm "$SCRATCH_ROOT/slurm" || exit 1
check_calibration
check_requeue
check_death
check_sweep
echo "$checks checks, $failed failed"
[[ $failed -eq 0 ]]
