#!/usr/bin/env bash
# No output takes the place of what its command reads, whatever name it goes by: each command must end with an error that
# names the file, and every file must stay as it was.
#   tests/cli/inputs_stay.sh     KVCAL names the program

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
source "$CLI_FOLDER/errors/bad_files.sh"

find_program ""
make_scratch
CALIBRATE='calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite'

state_of() {
  find . -printf '%p %y %l\n' | sort
  find . -type f -print0 | sort -z | xargs -0 sha256sum
}

# stays WORDS COMMAND <<CASE: lines that prepare a folder with model/, recipe.yaml and data.jsonl. The error has WORDS.
stays() {
  local words=$1 command=$2 setup status said changes
  setup=$(cat)
  checks=$((checks + 1))
  rm -rf "$SCRATCH_ROOT/room"
  cp -r "$SCRATCH_ROOT/base" "$SCRATCH_ROOT/room"
  pushd "$SCRATCH_ROOT/room" >/dev/null || exit 1
  (set -e; eval "$setup") || fail "kvcal $command: its setup failed"
  state_of >"$SCRATCH_ROOT/before"
  eval "\"\$KVCAL\" $command" >/dev/null 2>"$SCRATCH_ROOT/stderr" </dev/null
  status=$?
  said=$(grep -a '^error: ' "$SCRATCH_ROOT/stderr")
  changes=$(state_of | diff "$SCRATCH_ROOT/before" -) || fail "kvcal $command: a file was changed: $changes"
  [[ $status -eq 1 && $said == *"$words"* ]] || fail "kvcal $command: exit code $status, expected '$words': $said"
  popd >/dev/null || exit 1
}

make_base "$SCRATCH_ROOT/base"
(cd "$SCRATCH_ROOT/base" && add_tokenizer)

for read in data.jsonl recipe.yaml model/config.json model/model.safetensors; do
  stays "$read" "$CALIBRATE --html $read" <<<''
  stays "hard-link" "$CALIBRATE --html hard-link" <<<"ln $read hard-link"
done
stays hard-link "calibrate model --recipe recipe.yaml --dataset text.jsonl -o out --html hard-link --overwrite" <<'CASE'
echo '{"text": "The sea was calm."}' >text.jsonl
ln model/tokenizer.json hard-link
CASE
stays data.jsonl "calibrate model --recipe recipe.yaml --dataset 'd*.jsonl' -o out --html data.jsonl --overwrite" <<<''
stays data/a.jsonl "calibrate model --recipe recipe.yaml --dataset data -o out --html data/a.jsonl --overwrite" <<'CASE'
mkdir data
mv data.jsonl data/a.jsonl
CASE
stays target.jsonl "calibrate model --recipe recipe.yaml --dataset data -o out --html data/target.jsonl --overwrite" <<'CASE'
mkdir data
mv data.jsonl data/target.jsonl
ln -s target.jsonl data/link.jsonl
CASE
stays copy.jsonl "calibrate model --recipe recipe.yaml --dataset d.yaml -o out --html copy.jsonl --overwrite" <<'CASE'
mv data.jsonl copy.jsonl
printf 'path: copy.jsonl\nrecord: {input_ids: input_ids}\n' >d.yaml
CASE
stays gsm8k-train.jsonl "calibrate model --recipe recipe.yaml --dataset gsm8k -o out --html gsm8k-train.jsonl --overwrite" <<'CASE'
echo '{"question": "The sea?", "answer": "Calm."}' >gsm8k-train.jsonl
CASE
# link/.. lies above the folder that the link leads to.
stays data.jsonl "calibrate model --recipe recipe.yaml --dataset e/data.jsonl -o out --html link/../data.jsonl --overwrite" <<'CASE'
mkdir -p e/f
mv data.jsonl e/data.jsonl
ln -s e/f link
CASE
stays model "quantize e/model -o link/../model --scheme FP8_DYNAMIC --overwrite" <<'CASE'
mkdir -p e/f
mv model e/model
ln -s e/f link
touch e/model/.kvcal-output
CASE
stays family.yaml "inspect model --family-file family.yaml --html family.yaml --overwrite" <<'CASE'
"$KVCAL" families --template >family.yaml
sed -i 's/"model_type": "llama"/"model_type": "odd"/' model/config.json
CASE
stays scales.json "eval model --scales scales.json --task perplexity --dataset data.jsonl --html scales.json --overwrite" <<'CASE'
"$KVCAL" calibrate model --recipe recipe.yaml --dataset data.jsonl -o scales.json --format scales-json >/dev/null 2>&1
CASE
stays "something else than a sweep's results" "sweep sweep.yaml -o swept" <<'CASE'
mkdir swept
mv data.jsonl swept
echo '{"name": "s", "models": ["model"], "recipes": [{"max": "recipe.yaml"}], "calibration": {"dataset": "swept/data.jsonl"},
 "evaluation": {"dataset": "swept/data.jsonl", "num_samples": 2}, "grid": [{"recipes": "max", "num_calibration_samples": [1]}]}' >sweep.yaml
CASE

echo "$checks commands, $failed failed"
[[ $failed -eq 0 ]]
