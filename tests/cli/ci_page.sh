#!/usr/bin/env bash
# Runs the script and the job of docs/ci.md as they are written, on a small model: a first run makes the checkpoint, a
# second finds it done, and a gate that cannot be kept ends it with 3.

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
find_program ""
make_scratch
cd "$SCRATCH_ROOT" || exit 1
export PATH=$(dirname "$KVCAL"):$PATH

# block LANGUAGE: the first block of code in that language.
block() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {if (on) exit} on' "$SOURCE_FOLDER/docs/ci.md"; }
block sh >fp8_kv.sh
block yaml >job.yaml
[[ -s fp8_kv.sh && -s job.yaml ]] || { echo "docs/ci.md has no script or no job"; exit 1; }

copy_model llama model
cp "$DATA"/tokenizer* "$DATA/chat_template.jinja" model
cp "$DATA/small.jsonl" .
export MODEL=model DATASET=small.jsonl OUT=out MAX_KL=10
# has FILE PYTHON: whether the expression of `it`, the file's JSON, is true.
has() { checks=$((checks + 1)); python3 -c "import json, sys; it = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$1" || fail "$1: $2"; }
# expect STATUS COMMAND...
expect() {
  local wanted=$1 found=0
  shift
  checks=$((checks + 1))
  "$@" >stdout 2>stderr || found=$?
  [[ $found == "$wanted" ]] || { fail "'$*' ended with $found, expected $wanted"; cat stdout stderr; }
}

# Every step of the job that runs something, as the shell of a runner does.
while IFS= read -r command; do expect 0 bash -euo pipefail -c "$command"; done < <(sed -n 's/^ *- run: //p' job.yaml)
has calibrate.json 'it["outputs"][0]["path"] == "out" and it["outputs"][0]["format"] == "compressed-tensors"'
has calibrate.json 'any(one["verdict"] == "loaded" and "out" in one["command"] for one in it["engines"])'
has calibrate.json 'all("reason" in one for one in it["engines"] if one["verdict"] != "loaded")'
has calibrate.json 'len(it["summary"]["warnings"]) > 0'  # some 50 tokens
has verify.json 'it["verdict"] == "used" and it["problem"] is None and it["engine"] == "vllm"'
has eval.json 'len(it["gates"]) == 1 and it["gates"][0]["gate"] == "--max-kl" and it["gates"][0]["passed"]'
has eval.json 'it["gates"][0]["value"] == it["kl_mean"] and it["gates"][0]["standard_error"] == it["kl_stderr"]'

made=$(stat -c %Y.%i out/model.safetensors)
expect 0 bash fp8_kv.sh
has calibrate.json 'it["already_done"]'
[[ $(stat -c %Y.%i out/model.safetensors) == "$made" ]] || fail "the second run made the output again"

MAX_KL=0 expect 3 bash fp8_kv.sh
has eval.json 'not it["gates"][0]["passed"]'
echo '{"input_ids": [5, 9, 12]}' >>small.jsonl
expect 1 bash fp8_kv.sh
grep -q 'was made of other inputs' stderr || fail "other data was not told: $(<stderr)"
expect 2 kvcal calibrate model -o new --if-done always
expect 1 kvcal calibrate model --dataset small.jsonl -o out --if-done fail
rm out/config.json
cp "$DATA/small.jsonl" .
expect 1 kvcal calibrate model --dataset small.jsonl -o out --if-done skip
grep -q 'its files have changed' stderr || fail "a lost file was not told: $(<stderr)"
expect 0 kvcal calibrate model --dataset small.jsonl -o out --if-done redo
expect 0 kvcal calibrate model --dataset small.jsonl -o out --if-done skip
echo "$checks checks, $failed failed"
[[ $failed -eq 0 ]]
