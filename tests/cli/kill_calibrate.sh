#!/usr/bin/env bash
# Kills a calibration (SIGKILL) at KILLS places from its start to its end, every third of them twice: when its state keeps a
# layer, while the next layer computes, when the output is written. After each the source has the same bytes and the output is absent or whole; the run that goes on with --resume gives
# the bytes of one that was never killed, and leaves no state.
#   tests/cli/kill_calibrate.sh [--model FOLDER --dataset FILE] [--recipe FILE] [--ranks "1 2 3"] [--table FILE] [KILLS] [ARGUMENT ...]
# --ranks: numbers of MPI ranks, which killed and resumed runs take in turn. ARGUMENT: of kvcal calibrate. KVCAL names the
# program.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

model= data= ranks=1 table= recipe=$SOURCE_FOLDER/recipes/fp8_kv_tensor.yaml
while [[ ${1:-} == --* ]]; do
  case $1 in
    --model) model=$(realpath "$2") ;;
    --dataset) data=$(realpath "$2") ;;
    --recipe) recipe=$(realpath "$2") ;;
    --ranks) ranks=$2 ;;
    --table) table=$(realpath "$2") ;;
    *) break ;;
  esac
  shift 2
done
KILLS=${1:-20}
shift || true
more=("$@")
[[ $# -gt 0 ]] || more=(--state-share 100%)  # every layer is kept, however busy the machine is
read -ra ranks <<<"$ranks"
find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1

# A model of eight layers and text enough that a run takes its time.
make_inputs() {
  sed -E -e 's/("hidden_size": )[0-9]+/\1256/' -e 's/("intermediate_size": )[0-9]+/\1704/' \
    -e 's/("num_hidden_layers": )[0-9]+/\18/' -e 's/("num_attention_heads": )[0-9]+/\14/' \
    -e 's/("num_key_value_heads": )[0-9]+/\12/' "$MODELS/llama/config.json" >config.json
  "$KVCAL" synth --config config.json --seed 1 model >/dev/null 2>&1 || exit 1
  for i in $(seq 32); do printf '{"input_ids": [%s]}\n' "$(seq -s, "$((i % 7 + 1))" $((i % 7 + 60 + 2 * i)))"; done >text.jsonl
  model=$PWD/model data=$PWD/text.jsonl
}
[[ -n $model ]] || make_inputs

launcher() {  # RANKS
  (($1 == 1)) && [[ ${#ranks[@]} -eq 1 ]] && return
  echo "mpirun --allow-run-as-root --oversubscribe --bind-to none -n $1"
}

calibrate() {  # RANKS ARGUMENT...
  local count=$1
  shift
  # shellcheck disable=SC2046  # several words
  exec $(launcher "$count") "$KVCAL" calibrate "$model" --recipe "$recipe" --dataset "$data" --output out --reproducible \
    ${more[@]+"${more[@]}"} "$@" >run.log 2>&1
}

hashes() {
  (cd "$model" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# Sets kept to the last layer that the state keeps: -1 is none, $layers all and a part of the output.
look() {
  local text=
  kept=-1
  [[ -s out.kvcal-state/state.json ]] || return 0
  read -r -d '' text <out.kvcal-state/state.json
  kept=$layers
  [[ ! $text =~ '"layer": '([0-9]+) ]] || kept=${BASH_REMATCH[1]}
}

# Places of a run.
has_started() { [[ -s run.log ]]; }
keeps_layer() { look; ((kept >= $1)); }
is_behind_layer() { keeps_layer "$1" && [[ $kept -gt $1 || -d out.kvcal-state/hidden-0 && -d out.kvcal-state/hidden-1 ]]; }
writes_output() { compgen -G '.out.partial-*/*' >/dev/null || [[ -e out ]]; }
has_output() { [[ -e out ]]; }

place_of() {  # KILL: sets place; the first before all layers, the last two behind them
  local layer=$((($1 - 1) * layers / (KILLS > 4 ? KILLS - 3 : 1)))
  if (($1 == 0)); then
    place=(has_started)
  elif (($1 == KILLS - 2)); then
    place=(writes_output)
  elif (($1 == KILLS - 1)); then
    place=(has_output)
  elif (($1 % 2)); then
    place=(keeps_layer "$layer")
  else
    place=(is_behind_layer "$layer")
  fi
}

kill_at() {  # PLACE [LAYER] -- RANKS ARGUMENT...
  local condition=()
  while [[ $1 != -- ]]; do condition+=("$1") && shift; done
  shift
  rm -f run.log
  (calibrate "$@") &
  local pid=$!
  step_until $pid "${condition[@]}"
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  # What mpirun started.
  ours "$KVCAL calibrate" | xargs -r kill -9 2>/dev/null
  await $$ none_of_ours "$KVCAL calibrate" || fail "a killed rank lives on"
}

where() {
  if [[ -d out ]]; then
    echo done
  elif [[ -f out.kvcal-state/state.json ]]; then
    local layer
    layer=$(sed -n 's/.*"layer": \([0-9]*\).*/\1/p' out.kvcal-state/state.json)
    echo "${layer:+after layer $layer}" | grep . || echo "writing the output"
  else
    echo "before the first layer was kept"
  fi
}

layers=$(sed -n 's/.*"num_hidden_layers": \([0-9]*\).*/\1/p' "$model/config.json" | head -n 1)
hashes >source.sha256
for name in whole again; do
  (calibrate "${ranks[0]}" --state none) || { cat run.log; exit 1; }
  mv out $name
done
diff -r whole again >/dev/null || fail "two whole runs differ"
rm -r again
# The check is of use only if it sees what it is for.
cp -r whole changed
printf x | dd of=changed/kvcal_manifest.json bs=1 seek=200 conv=notrunc status=none
diff -r whole changed >/dev/null && fail "a byte that differs is not noticed"
rm -r changed

rows=() hits=0
for ((i = 0; i < KILLS; i++)); do
  rm -rf out out.kvcal-state
  first=${ranks[i % ${#ranks[@]}]} then=${ranks[(i + 1) % ${#ranks[@]}]}
  place_of "$i"
  kill_at "${place[@]}" -- "$first"
  found=$(where) at=${place[*]}
  [[ $found == after* ]] && hits=$((hits + 1))
  times=1
  if ((i % 3 == 2)) && [[ $found != done ]]; then  # once more, on its way on
    look
    kill_at keeps_layer $((kept + 1)) -- "$then" --resume
    times=2
  fi
  hashes | cmp -s source.sha256 - || fail "killed at $at: the source has changed"
  if [[ -d out ]]; then
    diff -r whole out >/dev/null || fail "killed at $at: the output is not whole"
    rm -rf out
  fi
  begin=$(now)
  (calibrate "$then" --resume) || fail "killed at $at: the run that goes on fails: $(<run.log)"
  resumed_ms=$((($(now) - begin) / 1000000))
  diff -r whole out >/dev/null || fail "killed at $at ($found): the output differs"
  [[ ! -e out.kvcal-state ]] || fail "killed at $at: state is left"
  rows+=("| $((i + 1)) | $at | $times | $first | $found | $then | $resumed_ms | same |")
  echo "killed at $at ($found), $times time(s): went on with $then rank(s) in $resumed_ms ms"
done
rm -rf out
(calibrate "${ranks[0]}") || fail "a run in a folder of killed ones: $(<run.log)"
[[ -z $(find . -maxdepth 1 -name '.out.partial-*' -mmin +1) ]] || fail "old scratch folders are left"

echo "$KILLS kills: $hits within the layers; $failed checks failed"
((hits * 4 >= KILLS)) || fail "only $hits of $KILLS kills met a run whose state was kept, a quarter is needed"
if [[ -n $table ]]; then
  {
    printf '| kill | at | kills | ranks | kept | ranks that went on | ms to the end | bytes |\n'
    printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
    printf '%s\n' "${rows[@]}"
  } >"$table"
fi
[[ $failed -eq 0 ]]
