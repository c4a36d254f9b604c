# A reader's largest input, and the command that reads it. Titles of data sets begin with their reader.

# Data sets. Their files have no limit; these take seconds.
large "jsonl: lines" calibrate <<'CASE'
yes '{"text": "a"}' | head -n 3000000 >data.jsonl
CASE
large "jsonl: packed lines" 'calibrate data.jsonl.gz' <<'CASE'
yes '{"text": "a"}' | head -n 4000000 | gzip -1 >data.jsonl.gz
CASE
large "jsonl: lines that Zstandard packed" 'calibrate data.jsonl.zst' <<'CASE'
yes '{"text": "a"}' | head -n 4000000 | zstd -q -1 >data.jsonl.zst
CASE
large "jsonl: records near the limit" calibrate <<'CASE'
add_tokenizer
for i in $(seq 8); do printf '{"text": "'; many 4000000 'a '; echo '"}'; done >data.jsonl
CASE
large "plain_text: paragraphs" 'calibrate data.txt' <<'CASE'
yes $'a line of text\n' | head -n 4000000 >data.txt
CASE
large "json_array: one value" 'calibrate data.json' <<'CASE'
{ printf '[{"text": "a"}'; many 2000000 ',{"text": "a"}'; echo ']'; } >data.json
CASE
large "json_array: deep records" 'calibrate data.json' <<'CASE'
{ printf '[{"text": "a"}'; many 300000 ',{"text": "a", "x": [[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]}'; echo ']'; } >data.json
CASE
large "json_array: token ids" 'calibrate data.json' <<'CASE'
{ printf '{"input_ids":[[1,2,3]'; many 3000000 ',[1,2,3]'; echo ']}'; } >data.json
CASE
large "delimited: rows" 'calibrate data.csv' <<'CASE'
{ echo text,id; yes '"a ""line"" of text",1' | head -n 2000000; } >data.csv
CASE
large "delimited: a header of 8 MB of names" 'calibrate data.csv' <<'CASE'
{ { echo text; seq 1000000; } | paste -sd ,; { echo a; yes a | head -n 1000000; } | paste -sd ,; } >data.csv
CASE
large "file_set: a folder of 20,000 files" 'calibrate data' data <<'CASE'
mkdir data
yes '{"text": "a"}' | head -n 20000 | split -l 1 -a 4 --additional-suffix=.jsonl - data/f
CASE
large "described: a file that a descriptor names" 'calibrate d.yaml' copy.jsonl <<'CASE'
yes '{"text": "a"}' | head -n 3000000 >copy.jsonl
printf 'path: copy.jsonl\nrecord: {text: "{text}"}\n' >d.yaml
CASE
large "parquet: 30,000,000 rows" 'calibrate data.parquet' <<'CASE'
cp "$SOURCE_FOLDER/tests/fixtures/data/bombs/rows.parquet" data.parquet
CASE
large "arrow: 30,000,000 rows" 'calibrate data.arrow' <<'CASE'
cp "$SOURCE_FOLDER/tests/fixtures/data/bombs/rows.arrow" data.arrow
CASE
large "saved: 30,000,000 rows" 'calibrate data' data/rows.arrow <<'CASE'
mkdir data
cp "$SOURCE_FOLDER/tests/fixtures/data/bombs/rows.arrow" data
echo '{}' >data/dataset_info.json
echo '{"_data_files": [{"filename": "rows.arrow"}]}' >data/state.json
CASE
large "embedded: an index of 190,000 samples" 'calibrate data' data/index.json <<'CASE'
mkdir data
cp "$SOURCE_FOLDER/tests/fixtures/images/gemma3/samples/00000.safetensors" data/a
{
  echo '{"kvcal_samples": 1, "model": {"model_type": "gemma3", "hidden_size": 32}, "samples": ['
  many 189999 '{"file":"a","sha256":"a","tokens":8,"embedded":4},'
  echo '{"file":"a","sha256":"a","tokens":8,"embedded":4}]}'
} >data/index.json
CASE

# Configurations and the files beside a model's weights: 16 MiB and 500,000 values.
large "config.json with 450,000 architectures" 'inspect model' <<'CASE'
sed -i '/"architectures": \[/,/\]/d' model/config.json
{ printf '{"architectures": ["LlamaForCausalLM"'; seq -f ',"a%.0f"' 450000 | tr -d '\n'; printf '],'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with 450,000 keys" 'inspect model' <<'CASE'
{ printf '{'; seq -f '"key_%.0f":1,' 450000 | tr -d '\n'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with 450,000 keys that is calibrated" calibrate <<'CASE'
{ printf '{'; seq -f '"key_%.0f":1,' 450000 | tr -d '\n'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with a text of 15 MB" 'inspect model' <<'CASE'
{ printf '{"x": "'; many 15000000 a; printf '",'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with 400,000 ignored modules" 'inspect model' <<'CASE'
{ printf '{"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}, "ignore": ["lm_head"'
  seq -f ',"model.layers.%.0f.x"' 400000 | tr -d '\n'; printf ']},'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with 100,000 ignored modules that is verified" 'verify model --engine vllm' <<'CASE'
{ printf '{"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "kv_cache_scheme": {"num_bits": 8, "type": "float"}, "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}, "ignore": ["lm_head"'
  seq -f ',"re:.*%.0f.x"' 100000 | tr -d '\n'; printf ']},'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "config.json with 400,000 unquantized modules in ModelOpt's way" 'verify model --engine vllm' <<'CASE'
{ printf '{"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"'
  seq -f ',"model.layers.%.0f*"' 400000 | tr -d '\n'; printf ']},'; tail -c +2 model/config.json; } >config
mv config model/config.json
CASE
large "An index of 450,000 tensors" 'inspect model' <<'CASE'
mv model/model.safetensors model/a.safetensors
{ printf '{"weight_map": {'; seq -f '"t%.0f":"a.safetensors"' 450000 | paste -sd ,; echo '}}'; } >model/model.safetensors.index.json
CASE
large "An index of 450,000 keys of metadata" 'inspect model' <<'CASE'
mv model/model.safetensors model/a.safetensors
{ printf '{"metadata": {"total_size": 1'; seq -f ',"t%.0f":"a"' 450000 | tr -d '\n'; echo '}, "weight_map": {"a": "a.safetensors"}}'; } >model/model.safetensors.index.json
CASE
large "generation_config.json of 450,000 keys" 'generate model --prompt hi' <<'CASE'
add_tokenizer
{ printf '{"a": 1'; seq -f ',"t%.0f":0' 450000 | tr -d '\n'; echo '}'; } >model/generation_config.json
CASE
large "generation_config.json of 450,000 ends" 'generate model --prompt hi' <<'CASE'
add_tokenizer
{ printf '{"eos_token_id": [1'; seq -f ',%.0f' 2 450000 | tr -d '\n'; echo ']}'; } >model/generation_config.json
CASE

# Tensors.
large "A safetensors header of 1,000,000 names in __metadata__" 'inspect model' <<'CASE'
{ printf '{"__metadata__":{'; seq -f '"k%.0f":"v"' 1000000 | paste -sd , | tr -d '\n'; printf '}}'; } >header
safetensors_of model/model.safetensors header 0
rm header
CASE
large "A safetensors header of 200,000 tensors" 'inspect model' <<'CASE'
seq -f '"t%.0f":{"dtype":"U8","shape":[],"data_offsets":[0,0]}' 200000 | paste -sd , | sed 's/.*/{&}/' >header
safetensors_of model/model.safetensors header 0
rm header
CASE
large "A checkpoint of 200,000 more tensors that is quantized" 'quantize model -o out --scheme FP8_DYNAMIC' <<'CASE'
header_of model/model.safetensors | sed 's/}$//; s/^{\("__metadata__":{[^}]*},\)\?/{/' >header
size=$(($(stat -c %s model/model.safetensors) - 8 - $(header_length model/model.safetensors)))
tail -c $size model/model.safetensors >data
seq -f ",\"t%.0f\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[$size,$size]}" 200000 | tr -d '\n' >>header
echo -n '}' >>header
{ le64 "$(stat -c %s header)"; cat header data; } >model/model.safetensors
rm header data
CASE
large "A safetensors header of shapes of many dimensions" 'inspect model' <<'CASE'
{ printf '{"a":{"dtype":"U8","shape":[1'; many 1400000 ',1'; printf '],"data_offsets":[0,1]}}'; } >header
safetensors_of model/model.safetensors header 1
rm header
CASE
# Tokenizers: 128 MiB and 4,000,000 values.
large "tokenizer.json of 1,000,000 merges" calibrate <<'CASE'
use_text 'hi hi'
python3 - <<'PY'
import json
n = 1000
vocab = {f"{i}a": i for i in range(n)}
merges = []
for i in range(n):
    for j in range(n):
        vocab[f"{i}a{j}a"] = len(vocab)
        merges.append(f"{i}a {j}a")
json.dump({"model": {"type": "BPE", "vocab": vocab, "merges": merges}}, open("model/tokenizer.json", "w"))
PY
CASE
large "tokenizer.json of 450,000 added tokens" calibrate model/tokenizer.json <<'CASE'
use_text "$(many 1000000 t)"
{ printf '{"model": {"type": "BPE", "vocab": {"t": 0}, "merges": []}, "added_tokens": [{"id": 1, "content": "x"'
  flags='"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false'
  printf ',%s}' "$flags"; seq 2 450000 | sed "s/.*/,{\"id\":&,\"content\":\"t&\",$flags}/" | tr -d '\n'; echo ']}'; } >model/tokenizer.json
CASE
large "tokenizer.json of 1,300,000 Unigram pieces" calibrate <<'CASE'
use_text "$(many 4000000 t)"
{ printf '{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0]'; seq -f ',["t%.0f",-1.0]' 1300000 | tr -d '\n'; echo ']}}'; } >model/tokenizer.json
CASE
large "tokenizer.json of 3,000,000 words" calibrate <<'CASE'
use_text "$(many 4000000 t)"
{ printf '{"model": {"type": "WordLevel", "unk_token": "0", "vocab": {"0": 0'; seq 3000000 | sed 's/.*/,"&":&/' | tr -d '\n'; echo '}}}'; } >model/tokenizer.json
CASE
large "tokenizer.json of 3,000,000 WordPieces" calibrate <<'CASE'
use_text "$(many 4000000 't ')"
{ printf '{"model": {"type": "WordPiece", "unk_token": "0", "max_input_chars_per_word": 100, "vocab": {"0": 0'; seq 3000000 | sed 's/.*/,"##&":&/' | tr -d '\n'; echo '}}}'; } >model/tokenizer.json
CASE
large "tokenizer.json with 500,000 replacements" calibrate <<'CASE'
use_text "$(many 4000000 't ')"
{ printf '{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}'; seq -f ',{"type":"Replace","pattern":{"String":"%.0f"},"content":"a"}' 500000 | tr -d '\n'
  printf ']}, "model": {"type": "WordLevel", "unk_token": "0", "vocab": {"0": 0'; echo '}}}'; } >model/tokenizer.json
CASE
large "vocab.json of 1,000,000 tokens and its merges" calibrate <<'CASE'
use_text hi
rm model/tokenizer.json
echo '{"tokenizer_class": "GPT2Tokenizer"}' >model/tokenizer_config.json
seq 0 1500000 | sed 's/.*/"&":&/' | paste -sd , | sed 's/.*/{&}/' >model/vocab.json
seq 1500000 | sed 's/\(.*\)\(.\)/\1 \2/' | grep -v '^ ' >model/merges.txt
CASE
large "tekken.json of 1,000,000 tokens" calibrate <<'CASE'
use_text "$(many 1000000 'a ')"
rm model/tokenizer.json
python3 - <<'PY'
import base64, json
vocab = [{"rank": i, "token_bytes": base64.b64encode(bytes([i]) if i < 256 else str(i).encode()).decode(), "token_str": ""} for i in range(900000)]
json.dump({"config": {"pattern": r"\\S+|\\s+", "default_num_special_tokens": 10, "default_vocab_size": 900010, "num_vocab_tokens": 900000}, "vocab": vocab}, open("model/tekken.json", "w"))
PY
CASE
large "tokenizer.model of 500,000 pieces" calibrate <<'CASE'
use_text "$(many 1000000 'a ')"
rm model/tokenizer.json
python3 - <<'PY'
def piece(text, score):
    import struct
    body = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + bytes([len(body)]) + body
with open("model/tokenizer.model", "wb") as f:
    f.write(b"\x0a\x09\x0a\x05<unk>\x18\x02")
    f.write(b"".join(piece(b"%d" % i, -float(i)) for i in range(500000)))
PY
CASE
large "tokenizer_config.json of 90,000 added tokens" calibrate <<'CASE'
use_text hi
rm model/tokenizer.json
echo '{"a": 0, "b": 1}' >model/vocab.json; echo >model/merges.txt
{ printf '{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"2": {"content": "x"}'; seq 3 90000 | sed 's/.*/,"&":{"content":"t&"}/' | tr -d '\n'; echo '}}'; } >model/tokenizer_config.json
CASE
large "A long text and regular expressions" calibrate <<'CASE'
add_tokenizer
cat >model/tokenizer.json <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"},
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?=(a|b)*c)a|[ab]{1,9}b{90}"}, "behavior": "Isolated", "invert": false}}
JSON
{ printf '{"text": "'; many 2000000 ab; echo '"}'; } >data.jsonl
CASE
large "A long text and a slow regular expression" calibrate <<'CASE'
add_tokenizer
cat >model/tokenizer.json <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"},
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a*)*.{1000}c"}, "behavior": "Isolated", "invert": false}}
JSON
{ printf '{"text": "'; many 4000000 ab; echo '"}'; } >data.jsonl
CASE
large "A long text to normalize" calibrate <<'CASE'
add_tokenizer
cat >model/tokenizer.json <<'JSON'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"},
 "normalizer": {"type": "NFKC"}}
JSON
{ printf '{"text": "'; many 1200000 '\u0301'; echo '"}'; } >data.jsonl
CASE
large "A long word and its merges" calibrate <<'CASE'
add_tokenizer
echo '{"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2, "b": 3}, "merges": ["a a", "aa aa"], "unk_token": "b"}}' >model/tokenizer.json
{ printf '{"text": "'; many 8000000 a; echo '"}'; } >data.jsonl
CASE
large "A chat template of 1 MB" calibrate <<'CASE'
use_template "$(many 30000 '{{ 1 + 1 }}{% if a %}{% endif %}')"
CASE
large "A chat template that loops" calibrate <<'CASE'
use_template '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}'
CASE
large "Messages that are all calls" calibrate <<'CASE'
use_template '{% for m in messages %}{{ m.role }}{% endfor %}'
{ printf '{"messages": [{"role": "user", "content": "Hi"}'; many 150000 ',{"role": "user", "content": "Hi"}'; echo ']}'; } >data.jsonl
CASE

# YAML: 1 MiB.
large "A recipe of 1 MB of targets" calibrate <<'CASE'
{ printf 'default_stage: {default_modifiers: {QuantizationModifier: {ignore: ["a"'; seq -f ',"re:.*x%.0fy"' 70000 | tr -d '\n'; echo '], targets: ["Linear"], scheme: FP8_DYNAMIC}}}'; } >recipe.yaml
CASE
large "A recipe of 1 MB of keys" calibrate <<'CASE'
{ printf 'default_stage:\n'; seq -f '  k%.0f: 1' 45000; } >recipe.yaml
CASE
large "A recipe of 1 MB of lists" calibrate <<'CASE'
{ printf 'a: ['; many 99000 '1, '; echo '1]'; } >recipe.yaml
CASE
large "A sweep of 90,000 cells" 'sweep sweep.yaml -o out --dry-run' sweep.yaml <<'CASE'
{ printf '{"name": "many", "models": ["model"], "recipes": [{"max": "recipe.yaml"}], "calibration": {"dataset": "data.jsonl", "max_seq_length": 16},
 "evaluation": {"dataset": "data.jsonl", "num_samples": 2}, "grid": [{"recipes": "max", "num_calibration_samples": [1'
  seq -f ',%.0f' 2 90000 | tr -d '\n'; echo ']}]}'; } >sweep.yaml
CASE
large "A family file of 1 MB" 'inspect model --family-file family.yaml' <<'CASE'
{ echo 'name: x'; seq -f 'k%.0f: 1' 45000; } >family.yaml
CASE
large "A card of 1 MB" 'quantize model -o out --scheme FP8_DYNAMIC' <<'CASE'
{ echo ---; seq -f 'k%.0f: 1' 90000; echo ---; } >model/README.md
CASE
large "A card of 1 MB of tags" 'quantize model -o out --scheme FP8_DYNAMIC' <<'CASE'
{ echo ---; echo tags:; seq -f '- k%.0f' 90000; echo ---; } >model/README.md
CASE

# Scales.
large "kv_cache_scales.json of 1,000,000 layers" 'convert model --scales scales.json --format compressed-tensors --output out' <<'CASE'
{ printf '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {"0": 1.0'; seq 1000000 | sed 's/.*/,"&":1.0/' | tr -d '\n'; echo '}}}}'; } >scales.json
CASE
large "kv_cache_scales.json of 7,000,000 numbers" 'convert model --scales scales.json --format compressed-tensors --output out' <<'CASE'
{ printf '{"model_type": "llama", "x": [0'; many 7000000 ',1'; echo '], "kv_cache": {}}'; } >scales.json
CASE
large "kv_cache_calib.json of 7,000,000 numbers" 'eval model --scales scales.json --text x.txt' <<'CASE'
echo hi >x.txt
add_tokenizer
{ printf '{"version": "1.0", "architectures": "LlamaForCausalLM", "qmin": -448, "qmax": 448, "num_layers": 2, "num_head": 2, "scales_shape": [2, 4], "scales": [[1'; many 7000000 ',1'; echo ']]}'; } >scales.json
CASE

large "A manifest of 3,000,000 numbers" 'convert model --format modelopt --output out' model/kvcal_manifest.json <<'CASE'
{ printf '{"x": [0'; many 3000000 ',1'; echo ']}'; } >model/kvcal_manifest.json
CASE
large "A state of 3,000,000 numbers" 'calibrate data.jsonl --state kept --resume' kept/state.json <<'CASE'
mkdir kept
{ printf '{"x": [0'; many 3000000 ',1'; echo ']}'; } >kept/state.json
CASE
large "Statistics of a header of 1,000,000 names" 'scales --model model --statistics stats.safetensors -o out' stats.safetensors <<'CASE'
{ printf '{"__metadata__":{'; seq -f '"k%.0f":"v"' 1000000 | paste -sd , | tr -d '\n'; printf '}}'; } >header
safetensors_of stats.safetensors header 0
rm header
CASE

# Folders.
large "A checkpoint's folder of 100,000 files" 'quantize model -o out --scheme FP8_DYNAMIC' model <<'CASE'
(cd model && seq -f 'f%.0f.txt' 100000 | xargs touch)
CASE
