"""Variants for engines_habits.py in which several things come together: another model and another dtype of its weights, files and
indexes that disagree, values of null, capital letters, two configurations. As engines_habits.HABITS; besides

  "weights"        weights that the model has beside those of a Llama: {name: shape}
  "weights_dtype"  of all weights; bfloat16 otherwise
  "texts"          further files: {file: text}, also in place of config.json and the like
"""
import json

import torch

from engines_variants import (CONFIG, HEAD_DIM, HIDDEN, KV_HEADS, KV_SCALE, LAYERS, LINEARS, MODELOPT, OUTPUT, ct, fp8, modelopt, module,
                              quark, scales, weights, without)

MAIN, OTHER, THIRD = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model-00003-of-00002.safetensors"
EXCLUDED = ["re:.*_proj$", "lm_head"]
CHANNEL = dict(dynamic=False, num_bits=8, observer="minmax", strategy="channel", symmetric=True, type="float")
TOKEN = dict(dynamic=True, num_bits=8, strategy="token", symmetric=True, type="float")


def of_ct(config=None, tensors=None, **more):
    return dict(quantization_config=ct() | (config or {}), tensors=scales() if tensors is None else tensors) | more


def scheme(**keys):
    return dict(kv_cache_scheme=ct()["kv_cache_scheme"] | keys)


def of_fp8(config=None, tensors=None, **more):
    return dict(quantization_config=fp8() | (config or {}), tensors=scales() if tensors is None else tensors, kv_cache_dtype="fp8") | more


def of_modelopt(config=None, **more):
    return dict(hf_quant_config=modelopt() if config is None else config, tensors=scales(MODELOPT, shape=())) | more


def of_quark(config=None, tensors=None, **more):
    return dict(quantization_config=quark(EXCLUDED) | (config or {}), tensors=scales(OUTPUT) if tensors is None else tensors,
                kv_cache_dtype="fp8") | more


def doubled(tensors):
    return {name: tensor * 2 for name, tensor in tensors.items()}


def layer_weights(*shapes):
    return {f"model.layers.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in shapes}


def weight_map(extra, place=OTHER):
    return {name: MAIN for name in weights(False)} | {name: place for name in extra}


def text_of(index):
    return json.dumps(dict(metadata={}, weight_map=index))


# --- models: configuration and weights beside those of a Llama ---

FEED_FORWARD_NORMS = [(f"{part}_feedforward_layernorm", [HIDDEN]) for part in ("pre", "post")]
HEAD_NORMS = [(f"self_attn.{part}_norm", [HEAD_DIM]) for part in "qk"]
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True, query_pre_attn_scalar=32,
             sliding_window=32)
MODELS = {
    "gemma": (dict(architectures=["GemmaForCausalLM"], model_type="gemma") | GEMMA, {}),
    "gemma2": (dict(architectures=["Gemma2ForCausalLM"], model_type="gemma2", attn_logit_softcapping=50.0, final_logit_softcapping=30.0) |
               GEMMA, layer_weights(*FEED_FORWARD_NORMS)),
    "gemma3_text": (dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", rope_local_base_freq=10000.0) | GEMMA,
                    layer_weights(*FEED_FORWARD_NORMS, *HEAD_NORMS)),
    "mistral": (dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None), {}),
    "qwen3": (dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", attention_bias=False), layer_weights(*HEAD_NORMS)),
    "granite": (dict(architectures=["GraniteForCausalLM"], model_type="granite", attention_multiplier=0.2, embedding_multiplier=12.0,
                     logits_scaling=8.0, residual_multiplier=0.22), {}),
}
TORCH = {"f16": "float16", "f32": "float32", "bf16": "bfloat16"}


def of_model(name, method, dtype, stored=None):
    """dtype: what config.json says; stored: of the weights."""
    config, more = MODELS[name]
    made = method() | dict(config=config, weights=more, raw=dict(torch_dtype=TORCH.get(dtype, dtype)))
    return made | (dict(weights_dtype=TORCH[stored]) if stored else {})


DTYPES = {f"{name}_{dtype}_{form}": of_model(name, method, dtype) for name in ("gemma2", "gemma3_text")
          for form, method in (("fp8", of_fp8), ("ct", of_ct)) for dtype in ("f16", "f32", "absent")}
DTYPES |= {f"{name}_absent_of_{stored}_fp8": of_model(name, of_fp8, "absent", stored) for name in ("gemma2", "mistral")
           for stored in ("f16", "f32")}
DTYPES |= {f"{name}_f16_modelopt": of_model(name, of_modelopt, "f16") for name in ("gemma", "gemma2", "mistral", "qwen3", "granite")}
DTYPES |= {f"gemma_{dtype}_quark": of_model("gemma", lambda: of_quark(tensors=scales()), dtype) for dtype in ("f16", "f32", "absent")}
DTYPES |= {f"qwen3_{dtype}_ct": of_model("qwen3", of_ct, dtype) for dtype in ("f16", "f32")}
DTYPES |= {f"dtype_{name}_fp8": of_fp8(raw=dict(torch_dtype=word)) for name, word in
           dict(half="half", fp16="fp16", torch_float16="torch.float16", null=None, float64="float64", capitals="BFloat16", number=16).items()}
DTYPES |= {
    "dtype_contradicts_fp8": of_fp8(raw=dict(torch_dtype="float16", dtype="bfloat16")),
    "dtype_contradicts_ct": of_ct(raw=dict(torch_dtype="float16", dtype="float32")),
    "dtype_new_key_f16_fp8": of_fp8(raw=dict(torch_dtype="absent", dtype="float16")),
    "dtype_of_text_config_fp8": of_fp8(raw=dict(torch_dtype="absent", text_config=dict(torch_dtype="float16"))),
    "dtype_absent_f16_weights_ct": of_ct(raw=dict(torch_dtype="absent"), weights_dtype="float16"),
    "dtype_f16_weights_bf16_fp8": of_fp8(raw=dict(torch_dtype="float16"), weights_dtype="bfloat16"),
    "dtype_f16_scales_of_fp8": of_fp8(tensors=scales(dtype=torch.float16), raw=dict(torch_dtype="absent"), weights_dtype="float16"),
}

FILES = {
    "shards_third_of_two": of_ct(tensors={}, files={THIRD: scales()}, index=weight_map(scales(), THIRD)),
    "shards_other_name": of_ct(tensors={}, files={"scales.safetensors": scales()}, index=weight_map(scales(), "scales.safetensors")),
    "shards_dotted_path": of_ct(tensors={}, files={OTHER: scales()}, index=weight_map(scales(), "./" + OTHER)),
    "shards_in_folder": of_ct(tensors={}, files={"kv/scales.safetensors": scales()}, index=weight_map(scales(), "kv/scales.safetensors")),
    "shards_natural_order": of_ct(tensors={}, files={"model-9.safetensors": scales(), "model-10.safetensors": doubled(scales())}),
    "shards_capital_ending": of_ct(tensors={}, files={"KV.SAFETENSORS": scales()}),
    "shards_hidden": of_ct(tensors={}, files={".kv.safetensors": scales()}),
    "shards_halves": of_ct(tensors=scales(sides="k"), files={OTHER: scales(sides="v")}, index=weight_map(scales(sides="v"))),
    "shards_halves_half_indexed": of_ct(tensors=scales(sides="k"), files={OTHER: scales(sides="v")},
                                        index=weight_map(scales(layers=(0,), sides="v"))),
    "shards_same_twice": of_ct(files={OTHER: scales()}, index=weight_map(scales())),
    "shards_same_twice_no_index": of_ct(files={"model-kv.safetensors": scales()}),
    "shards_halves_no_index": of_ct(tensors=scales(sides="k"), files={"model-kv.safetensors": scales(sides="v")}),
    "shards_two_names": of_ct(tensors={}, files={OTHER: scales() | scales(MODELOPT, shape=())}, index=weight_map(scales())),
    "shards_names_apart": of_ct(tensors=doubled(scales(MODELOPT)), files={OTHER: scales()}, index=weight_map(scales())),
    "shards_fp8_in_other": of_fp8(tensors={}, files={OTHER: scales()}, index=weight_map(scales())),
    "shards_modelopt_in_other": of_modelopt(tensors={}, files={OTHER: scales(MODELOPT, shape=())},
                                            index=weight_map(scales(MODELOPT, shape=()))),
    "index_beside_single": of_ct(texts={"model.safetensors.index.json": text_of({name: "model.safetensors" for name in weights(False)})}),
    "index_null_map": of_ct(texts={"model.safetensors.index.json": json.dumps(dict(metadata={}, weight_map=None))}),
    "index_no_map": of_ct(texts={"model.safetensors.index.json": json.dumps(dict(metadata={}))}),
    "index_list": of_ct(texts={"model.safetensors.index.json": "[]"}),
    "index_broken": of_ct(texts={"model.safetensors.index.json": "{"}),
    "index_empty_file": of_ct(texts={"model.safetensors.index.json": ""}),
    "index_null_file": of_ct(texts={"model.safetensors.index.json": text_of({"lm_head.weight": None})}),
    "index_of_bin": of_ct(texts={"pytorch_model.bin.index.json": text_of({"lm_head.weight": "pytorch_model-00001-of-00001.bin"})}),
    "index_of_consolidated": of_ct(texts={"consolidated.safetensors.index.json": text_of({"lm_head.weight": "consolidated.safetensors"})}),
    "file_adapter": of_ct(files={"adapter_model.safetensors": {"base_model.model.lm_head.lora_A.weight": torch.zeros(1, 4)}}),
    "file_training_args": of_ct(files={"training_args.safetensors": {"lr": torch.zeros(1)}}),
    "file_scales_json": of_ct(tensors={}, texts={"kv_cache_scales.json": json.dumps(
        dict(model_type="llama", kv_cache=dict(dtype="float8_e4m3fn", scaling_factor={"0": {str(i): 0.5 for i in range(LAYERS)}})))}),
    "file_quant_config_json": dict(tensors=scales(), texts={"quantization_config.json": json.dumps(ct())}),
    "file_quantize_config_json": dict(tensors=scales(), texts={"quantize_config.json": json.dumps(ct())}),
}

NULLS = {f"null_{key}": of_ct({key: None}) for key in
         ("format", "version", "quantization_status", "sparsity_config", "transform_config", "global_compression_ratio", "quant_algo")}
NULLS |= {f"scheme_null_{key}": of_ct(scheme(**{key: None})) for key in ("num_bits", "type", "observer_kwargs")}
NULLS |= {f"scheme_{name}": of_ct(dict(kv_cache_scheme=value)) for name, value in
          dict(list=[], text="fp8", true=True, false=False, number=8).items()}
NULLS |= {f"ignore_{name}": of_ct(dict(ignore=value)) for name, value in
          dict(text="lm_head", object={}, with_null=["lm_head", None], number=0, class_name=["LlamaAttention"],
               bad_expression=["re:("]).items()}
NULLS |= {f"groups_{name}": of_ct(dict(config_groups=value)) for name, value in dict(
    list=[], null_group={"group_0": None}, empty_group={"group_0": {}}, no_targets={"group_0": dict(targets=[], weights=None)},
    unused={"group_0": dict(targets=["re:.*nothing$"], weights=None, input_activations=None, output_activations=None)},
    attention={"group_0": dict(targets=["LlamaAttention"], weights=None, input_activations=ct()["kv_cache_scheme"], output_activations=None)}).items()}
NULLS |= {
    "groups_attention_no_scheme": of_ct(dict(kv_cache_scheme=None, config_groups={"group_0": dict(
        targets=["LlamaAttention"], weights=None, input_activations=ct()["kv_cache_scheme"], output_activations=None)}), kv_cache_dtype="fp8"),
    "groups_all_ignored": of_ct(dict(ignore=["re:.*"], config_groups={"group_0": dict(targets=["Linear"], weights=CHANNEL,
                                                                                      input_activations=TOKEN)})),
    "hf_quantization_null": of_modelopt(dict(producer=dict(name="modelopt", version="0.47.0"), quantization=None)),
    "hf_producer_null": of_modelopt(modelopt() | dict(producer=None)),
    "hf_exclude_empty_text": of_modelopt(modelopt(exclude_modules="")),
    "hf_exclude_names": of_modelopt(modelopt(exclude_modules=[f"model.layers.{i}.{name}" for i in range(LAYERS) for name in LINEARS] +
                                             ["lm_head"])),
    "hf_algo_number": of_modelopt(modelopt(quant_algo=8)),
    "hf_kv_algo_null_told": of_modelopt(modelopt(kv_cache_quant_algo=None), kv_cache_dtype="fp8"),
    "hf_kv_algo_none_text": of_modelopt(modelopt(kv_cache_quant_algo="NONE")),
    "hf_broken": of_ct(texts={"hf_quant_config.json": "{"}),
    "hf_empty_object": of_modelopt({}),
    "hf_list": of_ct(texts={"hf_quant_config.json": "[]"}),
    "hf_alone_broken": dict(tensors=scales(MODELOPT, shape=()), texts={"hf_quant_config.json": ""}),
    "hf_alone_list": dict(tensors=scales(MODELOPT, shape=()), texts={"hf_quant_config.json": "[]"}),
    "quark_export_null": of_quark(dict(export=None)), "quark_exclude_null": of_quark(dict(exclude=None)),
    "quark_group_null": of_quark(dict(export=dict(kv_cache_group=None, min_kv_scale=0.0, pack_method="reorder"))),
    "quark_layers_null": of_quark(dict(layer_quant_config=None)), "quark_global_null": of_quark(dict(global_quant_config=None)),
    "quark_min_scale": of_quark(dict(export=quark([])["export"] | dict(min_kv_scale=2.0))),
    "quark_custom_mode": of_quark(dict(quant_method="quark", quant_mode="fx_graph_mode")),
    "fp8_scheme_null": of_fp8(dict(kv_cache_scheme=None)), "fp8_ignored_null": of_fp8(dict(ignored_layers=None)),
    "fp8_activation_null": of_fp8(dict(activation_scheme=None)), "fp8_scheme_object": of_fp8(scheme()),
    "fp8_scheme_dynamic": of_fp8(dict(kv_cache_scheme="dynamic")), "fp8_block": of_fp8(dict(weight_block_size=[128, 128], activation_scheme="dynamic")),
}

CAPITALS = {
    "capitals_method_fp8": of_fp8(dict(quant_method="Fp8")), "capitals_method_quark": of_quark(dict(quant_method="QUARK")),
    "capitals_method_modelopt": dict(quantization_config=dict(quant_method="ModelOpt", quant_algo="FP8", ignore=["*"], kv_cache_scheme=dict(
        dynamic=False, num_bits=8, type="float")), tensors=scales(MODELOPT, shape=())),
    "capitals_producer": of_modelopt(modelopt() | dict(producer=dict(name="ModelOpt", version="0.47.0"))),
    "capitals_algo": of_modelopt(modelopt(quant_algo="Fp8", kv_cache_quant_algo="Fp8")),
    "capitals_strategy_head": of_ct(scheme(strategy="ATTN_HEAD"), scales(shape=(KV_HEADS, 1, 1))),
    "capitals_type": of_ct(scheme(type="Float")), "capitals_format": of_ct(dict(format="Dense")),
    "capitals_status": of_ct(dict(quantization_status="Compressed")), "capitals_names": of_ct(tensors=scales("{m}.{s}_SCALE")),
    "capitals_ignore": of_ct(dict(ignore=["LM_HEAD"])), 
    "capitals_scheme_static": of_fp8(dict(kv_cache_scheme="Static")), "capitals_activation": of_fp8(dict(activation_scheme="Static")),
}

BOTH = {
    "both_ct_and_hf_without_kv": of_ct(hf_quant_config=modelopt(kv_cache_quant_algo=None)),
    "both_ct_and_hf_bad": of_ct(hf_quant_config=modelopt(quant_algo="UNKNOWN")),
    "both_fp8_and_hf": of_fp8(hf_quant_config=modelopt()), "both_quark_and_hf": of_quark(hf_quant_config=modelopt()),
    "both_modelopt_disagree": dict(quantization_config=dict(quant_method="modelopt", quant_algo="FP8", ignore=["*"]),
                                   hf_quant_config=modelopt(), tensors=scales(MODELOPT, shape=())),
    "both_config_null_and_hf": of_modelopt(raw=dict(quantization_config=None)),
    "both_config_empty_and_hf": of_modelopt(raw=dict(quantization_config={})),
    "both_keys": of_ct(raw=dict(compression_config=ct() | dict(kv_cache_scheme=None))),
    "both_in_text_config": dict(tensors=scales(), raw=dict(text_config=dict(quantization_config=ct()))),
    "both_places": of_ct(dict(kv_cache_scheme=None), raw=dict(text_config=dict(quantization_config=ct()))),
    "both_methods_names": of_ct(tensors=scales() | {name: tensor * 3 for name, tensor in scales(OUTPUT).items()}),
    "both_kv_scale_and_modelopt": of_modelopt(tensors=scales(MODELOPT, shape=()) | KV_SCALE),
    "both_scheme_and_algo": of_ct(dict(kv_cache_quant_algo="FP8")),
    "both_twice_in_json": dict(tensors=scales(), texts={"config.json": json.dumps(CONFIG)[:-1] + ', "quantization_config": {}, '
                                                        '"quantization_config": ' + json.dumps(ct()) + "}"}),
    "json_bom": dict(tensors=scales(), texts={"config.json": "\ufeff" + json.dumps(CONFIG | dict(quantization_config=ct()))}),
    "json_comment": dict(tensors=scales(), texts={"config.json": "// mine\n" + json.dumps(CONFIG | dict(quantization_config=ct()))}),
    "json_nan": of_ct(dict(global_compression_ratio=float("nan"))),
    "json_indented": dict(tensors=scales(), texts={"config.json": json.dumps(CONFIG | dict(quantization_config=ct()), indent=4) + "\n\n"}),
}

TENSORS = {
    "head_k_tensor_v": of_ct(scheme(strategy="attn_head"), scales(shape=(KV_HEADS, 1, 1), sides="k") | scales(sides="v")),
    "head_v_for_tensor": of_ct(tensors=scales(sides="k") | scales(shape=(KV_HEADS, 1, 1), sides="v")),
    "head_four_dims": of_ct(scheme(strategy="attn_head"), scales(shape=(1, KV_HEADS, 1, 1))),
    "head_one_layer_tensor": of_ct(scheme(strategy="attn_head"), scales(shape=(KV_HEADS, 1, 1), layers=(0, 1)) | scales(layers=(2,))),
    "head_missing_v": of_ct(scheme(strategy="attn_head"), without(scales(shape=(KV_HEADS, 1, 1)), f"{module(1)}.v_scale")),
    "head_fp8_method": of_fp8(tensors=scales(shape=(KV_HEADS, 1, 1))), "head_told_e5m2": of_ct(
        scheme(strategy="attn_head"), scales(shape=(KV_HEADS, 1, 1)), kv_cache_dtype="fp8_e5m2"),
    "value_minus_zero": of_ct(tensors=scales(at=lambda layer, side: -0.0)),
    "value_zero_v_fp8": of_fp8(tensors=scales(at=lambda layer, side: 0.0 if side == "v" and layer == 1 else 0.25)),
    "value_negative_v_fp8": of_fp8(tensors=scales(at=lambda layer, side: -0.5 if side == "v" and layer == 1 else 0.25)),
    "value_minus_one_modelopt": of_modelopt(tensors=scales(MODELOPT, shape=(), at=lambda layer, side: -1.0 if layer == 0 else 0.25)),
    "value_huge_f16_fp8": of_fp8(tensors=scales(at=lambda layer, side: 7e4), raw=dict(torch_dtype="float16")),
    "value_small_f16_fp8": of_fp8(tensors=scales(at=lambda layer, side: 1e-8), raw=dict(torch_dtype="float16")),
    "value_nan_v_modelopt": of_modelopt(tensors=scales(MODELOPT, shape=(), at=lambda layer, side: float("nan") if side == "v" else 0.25)),
    "tied_with_head": of_ct(raw=dict(tie_word_embeddings=True)),
    "half_of_one_layer_quark": of_quark(tensors=without(scales(OUTPUT), f"{module(1)}.v_proj.output_scale")),
    "half_of_one_layer_modelopt": of_modelopt(tensors=without(scales(MODELOPT, shape=()), f"{module(1)}.k_proj.k_scale")),
    "last_layer_missing_modelopt": of_modelopt(tensors=scales(MODELOPT, layers=(0, 1), shape=())),
    "kv_scale_two_elements": of_fp8(tensors=scales("{m}.kv_scale", sides="k", shape=(2,))),
    "told_e5m2_fp8_no_scales": of_fp8(tensors={}, kv_cache_dtype="fp8_e5m2"),
    "told_e5m2_plain": dict(tensors={}, kv_cache_dtype="fp8_e5m2"), "told_e5m2_quark": of_quark(kv_cache_dtype="fp8_e5m2"),
    "told_e4m3_modelopt": of_modelopt(kv_cache_dtype="fp8_e4m3"), "told_auto_quark": of_quark(kv_cache_dtype="auto"),
}

MIXTURES = DTYPES | FILES | NULLS | CAPITALS | BOTH | TENSORS
