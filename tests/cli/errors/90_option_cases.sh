DATA_SET=
topic "Options" "A command line that cannot be understood, or whose options contradict each other, exits with 2; a value that cannot be had with 1."

bad "An unknown command" 2 <<'CASE'
$ kvcal calibrat model
CASE

bad "An unknown option" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --max-seq-len 512
CASE

bad "A missing option" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl
CASE

bad "An option without its value" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output
CASE

bad "An empty path" 2 <<'CASE'
# As from a variable of a script that is not set.
$ kvcal calibrate model --recipe recipe.yaml --dataset "$DATA_SET" --output out
CASE

bad "A negative seed" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --shuffle-seed -1
CASE

bad "A word too many" 2 <<'CASE'
$ kvcal inspect model twice
CASE

bad "A number out of range" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --num-samples 0
CASE

bad "A number that is none" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --threads many
CASE

bad "A limit for scales that is no number" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --stop-when-stable soon
CASE

bad "A limit for scales that none exceeds" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --stop-when-stable 150%
CASE

bad "Fewer samples than scales are compared over" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --stop-when-stable 1% --num-samples 100
CASE

bad "Samples to be stable over, and no limit" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --stable-samples 16
CASE

bad "A report in the output" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --html out/report.html
CASE

bad "A report of an overlay" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --scales-only --html report.html
CASE

bad "An unknown scale dtype" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --scale-dtype float16
CASE

bad "An unknown format" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --format compressed-tensor
CASE

bad "A format given twice" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --format tgi --format tgi
CASE

bad "A format that cannot hold what is asked for" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --format tgi --scale-dtype model
CASE

bad "An ignored layer and a format that needs every layer" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: [model.layers.1.self_attn]\n&/' recipe.yaml
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --format scales-json
CASE

bad "A task by its abbreviation" 2 <<'CASE'
$ kvcal eval model --task ppl --dataset data.jsonl
CASE

bad "A task that has no data set of its own" 2 <<'CASE'
$ kvcal eval model --task gsm8k
CASE

bad "The start of the names of several recipes" <<'CASE'
$ kvcal calibrate model --recipe fp8_kv --dataset data.jsonl --output out
CASE

bad "An output that nothing says how it was made" <<'CASE'
mkdir out && printf '{}' >out/kvcal_manifest.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --if-done skip
CASE

bad "An unknown device" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device gpu
CASE

bad "A GPU in a build without its toolkit" <<'CASE'
# What is built in and which preset adds the rest is said.
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device cuda
CASE

bad "A device number of a device that is one" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device cpu:0
CASE

bad "A list of devices with a hole" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device cuda:0,,1
CASE

bad "A device twice" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device cuda:0,1,0
CASE

bad "Several devices for a command that runs on one" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt a --device cuda:0,1
CASE

bad "An unknown compute dtype" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --compute-dtype bf16
CASE

bad "A compute dtype the device does not have" <<'CASE'
# The name of the device, and whether it has bfloat16, depend on the machine.
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --device cpu --compute-dtype float16
CASE

bad "An unknown forward mode" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward quantised
CASE

bad "A memory limit that is no size" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --memory-limit lots
CASE

bad "A memory limit with an unknown unit" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --memory-limit 8Gig
CASE

bad "An unknown cache dtype" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --kv-cache-dtype int9
CASE

bad "A cache whose blocks do not divide the heads" <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --kv-cache-dtype turboquant_3bit_nc
CASE

bad "A cache of latents for a model that keeps none" <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --kv-cache-dtype fp8_ds_mla
CASE

bad "Options that exclude each other" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --unit-scales --scales scales.json
CASE

bad "A system message without --chat" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --system "Be brief."
CASE

bad "A negative temperature" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --temperature -1
CASE

bad "A top-p above 1" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --temperature 1 --top-p 1.5
CASE

bad "An empty prompt" <<'CASE'
add_tokenizer
edit_config 's/"single": \[/"single": [/' model/tokenizer.json
edit_config '/"post_processor": \{/,/^ \},$/d' model/tokenizer.json
$ kvcal generate model --prompt ""
CASE

bad "A comparison with the cache it compares with" 2 <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hi --compare --kv-cache-dtype float16
CASE

bad "Headroom that makes scales smaller" 2 <<'CASE'
$ kvcal calibrate model --dataset data.jsonl --headroom 0.5 --output out
CASE
