#!/usr/bin/env bash
# Checkpoints of every quantized form that is read (tests/fixtures/quantized), each broken in several ways, x all commands that
# take a checkpoint: none that writes succeeds and leaves one that inspect refuses, and none that reads succeeds with one that
# inspect refuses.
#   tests/cli/broken_forms.sh [FORM...]      KVCAL names the program

source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

find_program ""
make_scratch
FORMS=$SOURCE_FOLDER/tests/fixtures/quantized
cd "$SCRATCH_ROOT" || exit 1
for i in 1 2 3; do
  echo '{"input_ids": [1, 9, 33, 61, 2, 8, 17, 17, 40, 5]}'
done >data.jsonl
quiet=(--device reference --compute-dtype float32)
# A token for each of the fixtures' 64 numbers.
TOKENIZER=$SCRATCH_ROOT/tokenizer.json
python3 -B - >"$TOKENIZER" <<'PY'
import json, string
print(json.dumps({"version": "1.0", "added_tokens": [],
                  "model": {"type": "BPE", "merges": [], "vocab": {c: i for i, c in enumerate(string.printable[:64])}}}))
PY

cat >break.py <<'PY'
"""break.py FOLDER HOW: breaks the checkpoint in the folder; prints what was done, nothing where HOW does not apply."""
import json, struct, sys
from pathlib import Path

folder, how = Path(sys.argv[1]), sys.argv[2]
weights = folder / "model.safetensors"
data = weights.read_bytes()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
config_path, other_path = folder / "config.json", folder / "hf_quant_config.json"
config = json.loads(config_path.read_text())
SCALES = (".weight_scale", ".weight_scale_inv", ".scales", "_scales", ".SCB", ".weight.absmax")


def write():
    packed, parts, end = {}, [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            packed[name] = entry
            continue
        begin, stop = entry["data_offsets"]
        parts.append(body[begin:stop])
        packed[name] = {**entry, "data_offsets": [end, end + stop - begin]}
        end += stop - begin
    text = json.dumps(packed).encode()
    text += b" " * (-len(text) % 8)
    weights.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    config_path.write_text(json.dumps(config, indent=2))


if how == "none":
    print("whole")
elif how == "scale":
    name = next((name for name in header if name.endswith(SCALES)), None)
    if name is None:
        sys.exit()
    del header[name]
    write()
    print("without", name)
elif how == "excluded":
    # A module with codes, in every list of exceptions that the form has.
    ends = (*SCALES, ".weight_packed", ".qweight")
    name = next((name for name in header if name.endswith(ends) and ".layers.1." in name), None)
    if name is None:
        sys.exit()
    module = name.rsplit(".", 1)[0].removesuffix(".weight")
    found = config.get("quantization_config")
    if found is not None:
        key = {"compressed-tensors": "ignore", "fp8": "ignored_layers", "quark": "exclude", "modelopt": "ignore",
               "bitsandbytes": "llm_int8_skip_modules"}.get(found["quant_method"], "modules_to_not_convert")
        found[key] = [*(found.get(key) or []), module]
    if other_path.exists():
        other = json.loads(other_path.read_text())
        other["quantization"]["exclude_modules"] = [*(other["quantization"].get("exclude_modules") or []), module]
        other_path.write_text(json.dumps(other))
    write()
    print("excludes", module)
elif how == "bare":
    if config.pop("quantization_config", None) is None and not other_path.exists():
        sys.exit()
    other_path.unlink(missing_ok=True)
    write()
    print("without a config")
elif how == "other":
    method = (config.get("quantization_config") or {}).get("quant_method")
    other_path.unlink(missing_ok=True)
    if method == "fp8":
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}
    else:
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    write()
    print("with the config of", config["quantization_config"]["quant_method"])
elif how == "truncated":
    weights.write_bytes(data[:-100])
    print("cut")
PY

# Counts a command that ended well and whose output is a checkpoint that inspect refuses; formats of one file are none.
try() {  # OUTPUT COMMAND...
  local output=$1
  shift
  checks=$((checks + 1))
  rm -rf "$output"
  if ! "$@" >log.out 2>log.err; then
    [[ -z ${VERBOSE:-} ]] || echo "$form, $done, $2 $*: $(grep -m1 -A1 ^error log.err)" >&2
    [[ -s log.err ]] || fail "$form, $done, $2: ended with an error and said nothing"
    [[ ! -e $output ]] || fail "$form, $done, $2: failed, and left $output"
    return
  fi
  [[ -f $output/config.json ]] || return 0
  written=$((written + 1))
  [[ -z ${VERBOSE:-} ]] || echo "$form, $done, $2: written" >&2
  "$KVCAL" inspect "$output" >inspect.out 2>inspect.err ||
    fail "$form, $done, $2: wrote what inspect refuses: $(head -3 inspect.err)"
}

# Runs a command that writes nothing: it ends well or says why, and does not end well where inspect refuses the checkpoint.
ask() {  # COMMAND...
  checks=$((checks + 1))
  if "$@" >log.out 2>log.err; then
    $accepted || fail "$form, $done, $2: ended well with what inspect refuses: $(head -1 inspect.err)"
    return
  fi
  grep -q '^error: ' log.err || fail "$form, $done, $2: ended with an error and said nothing: $(cat log.err)"
}

written=0
for folder in "${@:-$FORMS/*/}"; do
  for place in $folder; do
    [[ -d $place ]] || place=$FORMS/$place
    form=$(basename "$place")
    rm -rf whole statistics overlay scales
    cp -r "$place" whole
    # Scales of K and V for the commands that take some.
    "$KVCAL" calibrate whole --dataset data.jsonl --output scales --format scales-json --state none --kv-forward exact \
      --save-statistics statistics "${quiet[@]}" >log.out 2>log.err || { fail "$form: $(cat log.err)"; continue; }
    "$KVCAL" calibrate whole --dataset data.jsonl --output overlay --state none --scales-only "${quiet[@]}" >log.out 2>log.err
    for how in none scale excluded bare other truncated; do
      rm -rf model
      cp -r "$place" model
      done=$(python3 -B break.py model "$how")
      [[ -n $done ]] || continue
      accepted=false
      if "$KVCAL" inspect model >inspect.out 2>inspect.err; then accepted=true; fi
      cp "$TOKENIZER" model/
      ask "$KVCAL" generate model --prompt ab --max-new-tokens 1 "${quiet[@]}"
      ask "$KVCAL" eval model --task perplexity --dataset data.jsonl "${quiet[@]}"
      ask "$KVCAL" verify model --engine all --allow-16-bit
      ask "$KVCAL" verify model --engine vllm --allow-16-bit
      try out "$KVCAL" calibrate model --dataset data.jsonl --output out --state none "${quiet[@]}"
      for format in compressed-tensors modelopt; do
        try out "$KVCAL" convert model --scales scales --format "$format" --output out
      done
      [[ ! -d overlay ]] || try out "$KVCAL" apply overlay model --output out
      try out "$KVCAL" scales --statistics statistics --model model --output out
      try out "$KVCAL" quantize model --scheme FP8_DYNAMIC --output out --ignore 're:.*layers.1.*'
      try out "$KVCAL" smooth model --dataset data.jsonl --output out "${quiet[@]}"
    done
  done
done
echo "$checks commands, $written checkpoints written, $failed failures"
[[ $failed -eq 0 && $written -gt 0 ]]
