#!/usr/bin/env bash
# Kills a conversion, or what puts an overlay on a checkpoint, (SIGKILL) at KILLS places from its
# start to its end, counted in the bytes that it has written. After each the source has the same bytes, and the target is absent (every other time: the old
# one, which was to be replaced) or is what a whole run makes. What the killed one left, a lock and a hidden
# folder beside the target, changes nothing for a run that follows, which takes both away.
#   tests/cli/kill_output.sh convert|apply [KILLS]       KVCAL names the program; TMPDIR (/tmp) takes some 700 MB

export TMPDIR=${TMPDIR:-/tmp}  # a disk, where writing takes its time
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

COMMAND=${1:-convert}
KILLS=${2:-20}
LEAST_HITS=$((KILLS / 4))  # kills that must have met a run that had begun to write
find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1

# A sharded checkpoint of 160 MB in the form of compressed-tensors.
make_source() {
  sed -E -e 's/("hidden_size": )[0-9]+/\11024/' -e 's/("intermediate_size": )[0-9]+/\12816/' \
    -e 's/("num_hidden_layers": )[0-9]+/\16/' -e 's/("num_attention_heads": )[0-9]+/\116/' \
    -e 's/("num_key_value_heads": )[0-9]+/\14/' -e 's/("vocab_size": )[0-9]+/\18192/' "$MODELS/llama/config.json" >config.json
  "$KVCAL" synth --config config.json --seed 1 --max-shard-size 24MB source 2>/dev/null || exit 1
  printf '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {%s}}}}' \
    '"0": 0.01, "1": 0.02, "2": 0.03, "3": 0.04, "4": 0.05, "5": 0.06' >scales.json
  "$KVCAL" convert source --scales scales.json --format compressed-tensors --scales-only --output overlay >/dev/null 2>&1 || exit 1
  [[ $COMMAND == apply ]] || cp overlay/* source
}

case $COMMAND in
  convert)
    FORMATS=(modelopt compressed-tensors)  # folders in the target
    arguments=(convert source --format modelopt --format compressed-tensors --output target)
    ;;
  apply)
    FORMATS=(.)
    arguments=(apply overlay source --output target)
    ;;
  *)
    echo "unknown command '$COMMAND', expected convert or apply" >&2
    exit 2
    ;;
esac
run() {
  exec "$KVCAL" "${arguments[@]}" "$@" >run.log 2>&1
}

hashes() {
  find source overlay -type f -print0 | sort -z | xargs -0 sha256sum
}

source_is_whole() {
  diff source.sha256 <(hashes) >/dev/null
}

target_is_complete() {
  diff -r target whole >/dev/null || return 1
  local format
  for format in "${FORMATS[@]}"; do
    "$KVCAL" verify target/$format --engine vllm >/dev/null 2>&1 || return 1
  done
}

# The hidden folders of killed runs.
left_over() {
  find . -maxdepth 1 -name '.target.partial-*'
}

# The checks are of use only if they see what they are for.
check_the_checks() {
  local shard
  shard=$(find "whole/${FORMATS[0]}" -name '*-of-*' | sort | sed -n 3p)
  shard=${shard#whole/}
  cp -r whole target
  target_is_complete || fail "a copy of a whole target is taken for broken: the checks are wrong"
  truncate -s -1 "target/$shard"
  target_is_complete && fail "a shard that lacks a byte is not noticed"
  rm "target/$shard"
  target_is_complete && fail "a shard that is missing is not noticed"
  cp "whole/$shard" "target/$shard"
  rm "target/${FORMATS[0]}/model-kv-scales.safetensors"
  target_is_complete && fail "scales that are missing are not noticed"
  rm -r target
  printf x | dd of="source/${shard##*/}" bs=1 seek=10000000 conv=notrunc status=none
  source_is_whole && fail "a byte of the source that changed is not noticed"
}

make_source >made.log
hashes >source.sha256
(run) || { cat run.log; exit 1; }
mv target whole
check_the_checks
rm -rf source overlay
make_source >/dev/null
source_is_whole || fail "the same source is not made twice"

(run) || fail "a run that is not killed: $(<run.log)"
target_is_complete || fail "a run that is not killed does not make what the first one made"
rm -r target

bytes_of() {
  find "$@" -type f -printf '%s\n' 2>/dev/null | awk '{ all += $1 } END { printf "%d", all }'
}
whole_bytes=$(bytes_of whole)
has_written() {  # BYTES: into its hidden folder
  compgen -G '.target.partial-*' >/dev/null && (($(bytes_of .target.partial-*) >= $1))
}

hits=0
finished=0
for ((i = 0; i < KILLS; i++)); do
  bytes=$((i == 0 ? 0 : (whole_bytes + 1) * i / (KILLS - 1)))  # the last one is never written to a hidden folder: the end
  replaces=
  if ((i % 2)); then
    mkdir target
    echo precious >target/old
    touch target/.kvcal-output  # --overwrite replaces only what the program made
    replaces=--overwrite
  fi
  (run $replaces) &
  pid=$!
  step_until $pid has_written "$bytes"
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  status=$?
  where="killed at $bytes bytes"
  source_is_whole || fail "$where: the source changed"
  written=$(left_over | xargs -r du -sm | cut -f 1)
  if [[ -z $replaces && ! -e target ]]; then
    state="no target"
    [[ $status -eq 137 ]] || fail "$where: exit status $status and no target: $(<run.log)"
  elif [[ -n $replaces && $(ls target) == old && $(<target/old) == precious ]]; then
    state="the old target"
  elif target_is_complete; then
    finished=$((finished + 1))
    state="the finished target"
  else
    state="a target that is not whole"
    fail "$where: $state: $(ls -A target)"
  fi
  [[ -z $written || $state == *finished* ]] || hits=$((hits + 1))
  echo "$where: $state, beside it ${written:-0} MB"
  (run --overwrite) || fail "$where: the run that follows fails: $(<run.log)"
  target_is_complete || fail "$where: the run that follows makes something else"
  [[ -z $(find . -maxdepth 1 -name '.*' ! -name .) ]] || fail "$where: the run that follows leaves $(left_over)"
  left_over | xargs -r rm -r
  rm -rf target
done

# A process that has the number of one that was killed finds its folder.
bash -c 'mkdir -p .target.partial-$$/modelopt; echo old >.target.partial-$$/modelopt/old; exec "$KVCAL" "$@"' \
  bash "${arguments[@]}" >run.log 2>&1 || fail "a folder of the same process number stops it: $(<run.log)"
target_is_complete || fail "a folder of the same process number gets into the target"

echo "$KILLS kills: $hits while it was writing, $finished after its end, $((KILLS - hits - finished)) before it wrote; $failed checks failed"
[[ $hits -ge $LEAST_HITS ]] || fail "only $hits of $KILLS kills met a run that was writing, at least $LEAST_HITS are needed"
[[ $failed -eq 0 ]]
