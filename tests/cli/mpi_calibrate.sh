#!/usr/bin/env bash
# One calibration on 1 to 4 MPI ranks of this machine gives the bytes of a process alone: every observer, exact and
# quantized, each way to have the weights, more ranks than samples. What goes wrong on one rank ends all with one message
# that names rank, host and layer, and the state goes on with another number of ranks.
#   tests/cli/mpi_calibrate.sh       KVCAL names the program, MPIRUN what starts ranks

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1
MPIRUN=${MPIRUN:-mpirun}

check() {  # MESSAGE COMMAND...
  local message=$1
  shift
  checks=$((checks + 1))
  "$@" || fail "$message: $(tail -n 5 run.log)"
}

make_inputs() {
  sed -E -e 's/("num_hidden_layers": )[0-9]+/\16/' "$MODELS/llama/config.json" >config.json
  "$KVCAL" synth --config config.json --seed 1 model >/dev/null 2>&1 || exit 1
  for i in $(seq 9); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$i" $((5 * i + 9)))"; done >text.jsonl
  # Long enough to be met by a signal.
  for i in $(seq 400); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$((i % 9))" 119)"; done >long.jsonl
}

recipe() {  # OBSERVER [OBSERVER OF INPUTS]
  printf 'quant_stage:\n  quant_modifiers:\n    QuantizationModifier:\n      ignore: [lm_head]\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {num_bits: 8, type: float, strategy: tensor, symmetric: true}\n          input_activations: {num_bits: 8, type: float, strategy: tensor, symmetric: true, dynamic: false, observer: %s}\n      kv_cache_scheme: {num_bits: 8, type: float, strategy: attn_head, symmetric: true, dynamic: false, observer: %s}\n' "${2:-$1}" "$1"
}

ranks() {  # COUNT ARGUMENT...
  local count=$1
  shift
  timeout 900 "$MPIRUN" --allow-run-as-root --oversubscribe --bind-to none -n "$count" "$KVCAL" calibrate "$@" >run.log 2>&1
}

alone() {
  "$KVCAL" calibrate "$@" --state none >run.log 2>&1
}

same() {
  diff -r "$1" "$2" >>run.log
}

make_inputs

# Three ranks share nine samples unevenly by their lengths; how many ranks there are is a matter of the exchange, which all
# observers share.
check_equal_bytes() {
  local observer forward count counts
  for observer in static_minmax minmax memoryless_minmax mse percentile entropy attention_mse; do
    if [[ $observer == attention_mse ]]; then recipe $observer static_minmax; else recipe $observer; fi >recipe.yaml
    counts=3
    [[ $observer == mse ]] && counts="1 2 3 4"
    for forward in quantized exact; do
      local args=(model --recipe recipe.yaml --dataset text.jsonl --kv-forward $forward --reproducible --threads 1)
      check "$observer $forward alone" alone "${args[@]}" --output alone || return
      for count in $counts; do
        check "$observer $forward on $count ranks" ranks $count "${args[@]}" --output many
        check "$observer $forward on $count ranks gives other bytes" same alone many
        rm -rf many
      done
      rm -rf alone
    done
  done
}

check_weights() {
  recipe mse >recipe.yaml
  local args=(model --recipe recipe.yaml --dataset text.jsonl --reproducible --threads 1) way
  check "alone" alone "${args[@]}" --output alone
  for way in shared exchange local; do
    check "weights $way" ranks 3 "${args[@]}" --weights $way --output many
    check "weights $way give other bytes" same alone many
    rm -rf many
  done
  check "more ranks than samples" ranks 12 "${args[@]}" --output many
  check "more ranks than samples give other bytes" same alone many
  rm -rf many
  check "until stable, alone" alone "${args[@]}" --stop-when-stable 90% --stable-samples 2 --output stable
  check "until stable" ranks 3 "${args[@]}" --stop-when-stable 90% --stable-samples 2 --output many
  check "until stable gives other bytes" same stable many
  rm -rf many stable
  # The comparison is of use only if it sees what differs.
  cp -r alone changed
  printf x | dd of=changed/config.json bs=1 seek=20 conv=notrunc status=none
  same alone changed && fail "a byte that differs is not noticed"
  rm -rf alone changed
}

# The layer that engines run as a draft, whose rows end before the last token of each sample.
check_drafts() {
  recipe minmax >recipe.yaml
  local name
  for name in glm4_moe deepseek_v3 qwen3_next qwen3_5; do
    local args=("$MODELS/../drafts/$name" --recipe recipe.yaml --dataset text.jsonl --reproducible --threads 1)
    check "$name alone" alone "${args[@]}" --output alone || return
    check "$name on 3 ranks" ranks 3 "${args[@]}" --output many
    check "$name on 3 ranks gives other bytes" same alone many
    rm -rf alone many
  done
}

long_run() {  # ARGUMENT...
  ranks 3 model --recipe recipe.yaml --dataset long.jsonl --reproducible --threads 1 --num-samples 400 --device reference \
    --state-share 100% "$@"
}

rank_of() {
  tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p'
}

messages() {
  grep -c '^error: ' run.log
}

check_failure() {  # NAME SIGNAL PATTERN ARGUMENT...
  local name=$1 signal=$2 pattern=$3 process victim=
  shift 3
  rm -rf out out.kvcal-state
  (long_run --output out "$@") &
  local run=$!
  await $run test -s out.kvcal-state/state.json || fail "$name: no layer was kept: $(<run.log)"
  for process in $(ours "^$KVCAL calibrate"); do [[ $(rank_of "$process") == 1 ]] && victim=$process; done
  [[ -n $victim ]] || { fail "$name: rank 1 is not to be found"; return; }
  kill "-$signal" "$victim"
  wait $run
  local status=$?
  checks=$((checks + 3))
  [[ $status -ne 0 ]] || fail "$name: the run says that it is done"
  [[ $(messages) -eq 1 ]] || fail "$name: $(messages) messages: $(<run.log)"
  grep -qE "$pattern" run.log || fail "$name: the message is not '$pattern': $(<run.log)"
  [[ $signal == STOP ]] && kill -9 "$victim" 2>/dev/null
  await $$ none_of_ours "^$KVCAL calibrate" || fail "$name: a rank lives on"
  [[ ! -e out && -f out.kvcal-state/state.json ]] || fail "$name: found $(ls -A)"
}

check_failures() {
  recipe static_minmax >recipe.yaml
  check "a long run alone" alone model --recipe recipe.yaml --dataset long.jsonl --reproducible --num-samples 400 --device reference --output long
  check_failure "a rank that dies" KILL '^error: rank 1 on host .* died in layer [0-9]+'
  check "after a death: goes on with two ranks" ranks 2 model --recipe recipe.yaml --dataset long.jsonl --reproducible --num-samples 400 --device reference --output out --resume
  check "after a death: gives other bytes" same long out
  check_failure "a rank that hangs" STOP '^error: rank 1 on host .* has not answered for .* in layer [0-9]+' --rank-timeout 30
  check "after a hang: goes on alone" "$KVCAL" calibrate model --recipe recipe.yaml --dataset long.jsonl --reproducible --num-samples 400 --device reference --output out --resume >/dev/null 2>&1
  check "after a hang: gives other bytes" same long out
}

check_bad_model() {
  cp -r "$MODELS/llama" nan && chmod -R u+w nan
  local offset
  offset=$(python3 - <<'PY'
import json, struct
with open("nan/model.safetensors", "rb") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(size))
print(8 + size + header["model.layers.1.self_attn.v_proj.weight"]["data_offsets"][0])
PY
  )
  printf '\xff\xff\xff\xff' | dd of=nan/model.safetensors bs=1 seek="$offset" conv=notrunc status=none
  ranks 3 nan --recipe recipe.yaml --dataset text.jsonl --output out2 && fail "NaN in the weights: done"
  checks=$((checks + 2))
  [[ $(messages) -eq 1 ]] || fail "NaN: $(messages) messages: $(<run.log)"
  grep -qE '^error: rank [0-2] on host .*: NaN or Inf in V of layer 1' run.log || fail "NaN: $(<run.log)"
  [[ ! -e out2 && ! -e out2.kvcal-state ]] || fail "NaN: something is left"
  ranks 2 model --recipe missing.yaml --dataset text.jsonl --output out2 && fail "a recipe that is not there: done"
  [[ $(messages) -eq 1 ]] || fail "a recipe that is not there: $(messages) messages: $(<run.log)"
}

# Only the first rank writes, so another output of another rank would be none.
check_other_output() {
  recipe minmax >recipe.yaml
  timeout 900 "$MPIRUN" --allow-run-as-root --oversubscribe --bind-to none -n 2 bash -c \
    'exec "$KVCAL" calibrate model --recipe recipe.yaml --dataset text.jsonl --output "own${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"' \
    >run.log 2>&1 && fail "another output on one rank: done"
  grep -qE '^error: rank 1 on host .* sees another --output than rank 0 on host ' run.log ||
    fail "another output on one rank: $(<run.log)"
  [[ $(messages) -eq 1 && ! -e own0 && ! -e own1 ]] || fail "another output on one rank: $(ls): $(<run.log)"
}

check_equal_bytes
check_other_output
check_weights
check_drafts
check_failures
check_bad_model
echo "$checks checks, $failed failed"
[[ $failed -eq 0 ]]
