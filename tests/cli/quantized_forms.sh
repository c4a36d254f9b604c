#!/usr/bin/env bash
# Every command on checkpoints of every quantized form that is read (tests/fixtures/quantized), as a table that
# quantized_forms.txt keeps: "runs" and what was written, or the error.
#   tests/cli/quantized_forms.sh [--update]      KVCAL names the program
# --update rewrites the table.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

update=false
[[ ${1:-} == --update ]] && update=true
find_program ""
make_scratch
FORMS=$SOURCE_FOLDER/tests/fixtures/quantized
TABLE=$CLI_FOLDER/quantized_forms.txt
cd "$SCRATCH_ROOT" || exit 1
for i in 1 2 3; do
  echo '{"input_ids": [1, 9, 33, 61, 2, 8, 17, 17, 40, 5]}'
done >data.jsonl
cp "$SOURCE_FOLDER/recipes/fp8_kv_tensor.yaml" recipe.yaml
cat >sweep.yaml <<'YAML'
name: forms
models: [model]
recipes: [recipe.yaml]
calibration: {dataset: data.jsonl}
evaluation: {dataset: data.jsonl}
grid: {num_samples: 3}
YAML
# A token for each of the fixtures' 64 numbers.
{
  printf '{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "merges": [], "vocab": {'
  for ((i = 0; i < 64; ++i)); do
    printf '%s"%s": %d' "${i:+$([[ $i -gt 0 ]] && echo ', ')}" "$(printf "\\u$(printf %04x $((0x4e00 + i)))")" "$i"
  done
  printf '}}}'
} >tokenizer.json

run() {  # COLUMN DESCRIPTION-OF-SUCCESS COMMAND...
  local column=$1 success=$2 status
  shift 2
  "$@" >log.out 2>log.err
  status=$?
  if [[ $status -eq 0 ]]; then
    echo "$form $column: $($success)"
  else
    echo "$form $column: exit $status: $(grep -m1 '^error' log.err)"
  fi
}

runs() { echo runs; }

formats_written() { sed -n 's/^wrote \([^:]*\):.*/runs, writes \1/p' log.out; }
verdict() {  # "vLLM 0.33: KV cache fp8,layer 0 has 0.0114009 0.0136649"
  sed -n -e 's/ (run [0-9-]*)//' -e 's/^\([^,]*\), [^:]*: \(KV cache.*\)/\1: \2/p' -e 's/^  *0  *\([0-9.e-]*\)  *\([0-9.e-]*\) .*/layer 0 has \1 \2/p' log.out | paste -sd,
}

# The source's own where it is a format; compressed-tensors may hold the codes of others, and apply says where it does not.
overlay_format() {
  case $form in
    modelopt*) echo modelopt ;;
    autofp8 | fp8_*) echo fp8 ;;
    quark*) echo quark ;;
    *) echo compressed-tensors ;;
  esac
}

for folder in "$FORMS"/*/; do
  form=$(basename "$folder")
  rm -rf model out* statistics overlay
  cp -r "$folder" model
  cp tokenizer.json model/
  quiet=(--device reference --compute-dtype float32)
  run calibrate formats_written "$KVCAL" calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --state none \
    --kv-forward exact --save-statistics statistics "${quiet[@]}"
  run generate runs "$KVCAL" generate model --prompt 一丁丂 --max-new-tokens 3 "${quiet[@]}"
  run eval runs "$KVCAL" eval model --task perplexity --dataset data.jsonl "${quiet[@]}"
  run inspect runs "$KVCAL" inspect model
  if [[ -f out/config.json ]]; then
    run verify verdict "$KVCAL" verify --verbose out --engine vllm --kv-cache-dtype fp8
  else
    run verify verdict "$KVCAL" verify --verbose model --engine sglang --kv-cache-dtype fp8_e4m3 --scales out/kv_cache_scales.json
  fi
  run scales formats_written "$KVCAL" scales --statistics statistics --recipe recipe.yaml --model model --output out_scales
  run convert formats_written "$KVCAL" convert model --scales out --format compressed-tensors --output out_convert
  "$KVCAL" calibrate model --recipe recipe.yaml --dataset data.jsonl --output overlay --state none --scales-only \
    --format "$(overlay_format)" "${quiet[@]}" >/dev/null 2>&1
  run apply formats_written "$KVCAL" apply overlay model --output out_apply
  run sweep runs "$KVCAL" sweep sweep.yaml --output out_sweep "${quiet[@]}"
done >found.txt

if $update; then
  cp found.txt "$TABLE"
  chmod 644 "$TABLE"
  echo "updated $TABLE"
elif ! diff -u --label quantized_forms.txt --label found "$TABLE" found.txt; then
  echo "the commands do other things with quantized checkpoints; tests/cli/quantized_forms.sh --update writes them down"
  exit 1
fi
