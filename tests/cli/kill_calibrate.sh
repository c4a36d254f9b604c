#!/usr/bin/env bash
# Kills a calibration (SIGKILL) at KILLS places spread over the time that a whole one takes, every third of them twice.
# After each the source has the same bytes and the output is absent or whole; the run that goes on with --resume gives
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

kill_after() {  # MILLISECONDS RANKS ARGUMENT...
  local delay=$1
  shift
  set -m
  (calibrate "$@") &
  local pid=$!
  set +m
  pause "$delay"
  kill -9 -- -$pid 2>/dev/null
  wait $pid 2>/dev/null
  pause 20
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

hashes >source.sha256
whole_ms=
for name in whole again; do
  begin=$(now)
  (calibrate "${ranks[0]}" --state none) || { cat run.log; exit 1; }
  ms=$((($(now) - begin) / 1000000))
  [[ -n $whole_ms && $whole_ms -lt $ms ]] || whole_ms=$ms
  mv out $name
done
diff -r whole again >/dev/null || fail "two whole runs differ"
rm -r again
# The check is of use only if it sees what it is for.
cp -r whole changed
printf x | dd of=changed/kvcal_manifest.json bs=1 seek=200 conv=notrunc status=none
diff -r whole changed >/dev/null && fail "a byte that differs is not noticed"
rm -r changed
echo "a whole run takes $whole_ms ms"

rows=() hits=0
for ((i = 0; i < KILLS; i++)); do
  rm -rf out out.kvcal-state
  first=${ranks[i % ${#ranks[@]}]} then=${ranks[(i + 1) % ${#ranks[@]}]}
  delay=$((whole_ms * (2 * i + 1) / (2 * KILLS)))
  kill_after "$delay" "$first"
  place=$(where)
  [[ $place == after* ]] && hits=$((hits + 1))
  times=1
  if ((i % 3 == 2)) && [[ $place != done ]]; then  # once more, on its way on
    kill_after $((whole_ms / 4)) "$then" --resume
    times=2
  fi
  hashes | cmp -s source.sha256 - || fail "killed after $delay ms: the source has changed"
  if [[ -d out ]]; then
    diff -r whole out >/dev/null || fail "killed after $delay ms: the output is not whole"
    rm -rf out
  fi
  begin=$(now)
  (calibrate "$then" --resume) || fail "killed after $delay ms: the run that goes on fails: $(<run.log)"
  resumed_ms=$((($(now) - begin) / 1000000))
  diff -r whole out >/dev/null || fail "killed after $delay ms ($place): the output differs"
  [[ ! -e out.kvcal-state ]] || fail "killed after $delay ms: state is left"
  rows+=("| $((i + 1)) | $delay | $times | $first | $place | $then | $resumed_ms | same |")
  echo "killed after $delay ms ($place), $times time(s): went on with $then rank(s) in $resumed_ms ms"
done
rm -rf out
(calibrate "${ranks[0]}") || fail "a run in a folder of killed ones: $(<run.log)"
[[ -z $(find . -maxdepth 1 -name '.out.partial-*' -mmin +1) ]] || fail "old scratch folders are left"

echo "$KILLS kills: $hits within the layers; $failed checks failed"
((hits * 4 >= KILLS)) || fail "only $hits of $KILLS kills met a run whose state was kept, a quarter is needed"
if [[ -n $table ]]; then
  {
    printf '| kill | ms of %s | kills | ranks | kept | ranks that went on | ms to the end | bytes |\n' "$whole_ms"
    printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
    printf '%s\n' "${rows[@]}"
  } >"$table"
fi
[[ $failed -eq 0 ]]
