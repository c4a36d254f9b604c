topic "Recipes" "What llm-compressor would pass over in silence is an error here, and so is what no engine can load."

bad "The recipe does not exist" <<'CASE'
$ kvcal calibrate model --recipe recpie.yaml --dataset data.jsonl --output out
CASE

bad "Neither a file nor the name of a recipe" <<'CASE'
$ kvcal calibrate model --recipe fp8_kv_tensr --output out
CASE

bad "Malformed YAML" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier: {kv_cache_scheme: {num_bits: 8\n' >recipe.yaml
CASE

bad "YAML indented with a tab" <<'CASE'
printf 'default_stage:\n\tdefault_modifiers: {}\n' >recipe.yaml
CASE

bad "An empty recipe" <<'CASE'
printf '# nothing yet\n' >recipe.yaml
CASE

bad "A recipe without modifiers" <<'CASE'
printf 'default_stage:\n  default_modifiers: {}\n' >recipe.yaml
CASE

bad "A modifier in the wrong place" <<'CASE'
printf 'default_stage:\n  QuantizationModifier:\n    kv_cache_scheme: {num_bits: 8, type: float}\n' >recipe.yaml
CASE

bad "A modifier that asks for nothing" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier: {ignore: [lm_head]}\n' >recipe.yaml
CASE

bad "A top level without stages" <<'CASE'
printf 'quant_modifiers:\n  QuantizationModifier: {kv_cache_scheme: {num_bits: 8, type: float}}\n' >recipe.yaml
CASE

bad "An unknown modifier" <<'CASE'
sed -i 's/QuantizationModifier/QuantisationModifier/' recipe.yaml
CASE

bad "A modifier that is not performed" <<'CASE'
sed -i 's/QuantizationModifier/GPTQModifier/' recipe.yaml
CASE

bad "An unknown key" <<'CASE'
write_recipe 'num_bit: 8
type: float'
CASE

bad "A key twice" <<'CASE'
write_recipe 'num_bits: 8
type: float
num_bits: 4'
CASE

bad "A value of the wrong type" <<'CASE'
write_recipe 'num_bits: "8"
type: float'
CASE

bad "An alias that contains itself" <<'CASE'
printf 'default_stage: &stage\n  default_modifiers: *stage\n' >recipe.yaml
CASE

bad "Aliases that would grow to billions" <<'CASE'
printf 'a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n' >recipe.yaml
CASE

bad "A recipe nested 100,000 levels deep" <<'CASE'
{ repeat 100000 '['; repeat 100000 ']'; } >recipe.yaml
CASE

bad "A recipe of 20 MB" <<'CASE'
yes 'default_stage: {}' | head -c 20000000 >recipe.yaml
CASE

bad "No type" <<'CASE'
# Without it llm-compressor would take int, which few engines load for a KV cache.
write_recipe 'num_bits: 8'
CASE

bad "An integer KV cache in a format that has none" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --format tgi
write_recipe 'num_bits: 8
type: int'
CASE

bad "A 4-bit KV cache" <<'CASE'
write_recipe 'num_bits: 4
type: float'
CASE

bad "Dynamic scales" <<'CASE'
write_recipe 'num_bits: 8
type: float
dynamic: true'
CASE

bad "Asymmetric quantization" <<'CASE'
write_recipe 'num_bits: 8
type: float
symmetric: false'
CASE

bad "One scale a channel" <<'CASE'
write_recipe 'num_bits: 8
type: float
strategy: channel'
CASE

bad "An unknown strategy" <<'CASE'
write_recipe 'num_bits: 8
type: float
strategy: head'
CASE

bad "An unknown observer" <<'CASE'
write_recipe 'num_bits: 8
type: float
observer: min_max'
CASE

bad "A scheme that is not there" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: FP8_BLOK\n' >recipe.yaml
CASE

bad "An integer scheme" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: W4A16\n' >recipe.yaml
CASE

bad "A scheme with scales in eight bits" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: {FP8: [Linear], MXFP8: [lm_head]}\n' >recipe.yaml
CASE

bad "A scheme and groups" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: FP8\n      config_groups: {group_0: {targets: [Linear]}}\n' >recipe.yaml
CASE

bad "Groups that quantize nothing" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups: {group_0: {targets: [Linear]}}\n' >recipe.yaml
CASE

bad "4-bit weights" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {num_bits: 4, type: float, group_size: 16}\n' >recipe.yaml
CASE

bad "Weights with scales of groups" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {type: float, group_size: 128}\n' >recipe.yaml
CASE

bad "Static scales of tokens" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {type: float}\n          input_activations: {type: float, strategy: token}\n' >recipe.yaml
CASE

bad "Static inputs of weights in blocks" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {type: float, strategy: block, block_structure: [128, 128]}\n          input_activations: {type: float}\n' >recipe.yaml
CASE

bad "Outputs to quantize" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      config_groups:\n        group_0:\n          targets: [Linear]\n          weights: {type: float}\n          output_activations: {type: float}\n' >recipe.yaml
CASE

bad "An observer with nothing to observe" <<'CASE'
# It was meant for the KV cache, which llm-compressor does not tell.
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      input_observer: mse\n      kv_cache_scheme: {type: float}\n' >recipe.yaml
CASE

bad "A setting that the observer does not have" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      kv_cache_scheme: {type: float, observer: percentile, observer_kwargs: {percentil: 99}}\n' >recipe.yaml
CASE

bad "An ignore pattern that matches nothing" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: ["re:.*layers\\\\.7\\\\..*"]\n&/' recipe.yaml
CASE

bad "An ignore list that leaves nothing" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: ["re:.*self_attn"]\n&/' recipe.yaml
CASE

bad "A malformed pattern" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: ["re:.*layers.(0"]\n&/' recipe.yaml
CASE

bad "A pattern that would take ages to match" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: ["re:([a-z_.0-9]+)+[!?]"]\n&/' recipe.yaml
CASE

bad "Targets that nothing reads" <<'CASE'
# Meant to leave out the other layers; llm-compressor calibrates them all.
sed -i 's/      kv_cache_scheme:/      targets: ["re:.*layers.0.self_attn"]\n&/' recipe.yaml
CASE

bad "A scheme without targets" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: FP8\n      targets: []\n' >recipe.yaml
CASE

bad "A target of two presets" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme:\n        FP8: [Linear]\n        FP8_DYNAMIC: [Linear]\n' >recipe.yaml
CASE

bad "An observer of dynamic inputs" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme: FP8_DYNAMIC\n      input_observer: mse\n' >recipe.yaml
CASE

bad "Weights of attention itself" <<'CASE'
printf 'default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      scheme:\n        FP8: [LlamaAttention]\n        FP8_DYNAMIC: [Linear]\n' >recipe.yaml
CASE

bad "Weights that are all ignored" <<'CASE'
sed -i 's/      kv_cache_scheme:/      scheme: FP8\n      ignore: [Linear]\n&/' recipe.yaml
CASE

bad "A group for attention and another scheme of the KV cache" <<'CASE'
sed -i 's/      kv_cache_scheme:/      config_groups: {a: {targets: [LlamaAttention], input_activations: {type: float, observer: mse}}}\n&/' recipe.yaml
CASE
