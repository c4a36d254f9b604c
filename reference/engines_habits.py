#!/usr/bin/env python3
"""engines_habits.py OUT.json   or   engines_habits.py KVCAL ENGINE ANSWERS.json

More variants for the engines_*.py scripts, after other people's habits: names, dtypes, shapes, what is missing or there twice, files
and indexes that contradict, configurations that do. As engines_variants.VARIANTS, of the same Llama; besides

  "files"  other files of tensors: {file: {name: tensor}}
  "index"  model.safetensors.index.json's weight_map; the weights lie in model-00001-of-00002.safetensors then
  "raw"    keys of config.json that are left out ("absent"), or taken as they are

First form: writes them to OUT.json (tests/fixtures/engines/habits.json): {"config", "variants": {name: what describes it}}, without the
weights. engines_ENGINE.py --habits ANSWERS.json records what an engine makes of them. Second form: where `kvcal verify --engine ENGINE`
says something else than these answers, a line each.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch

from engines_mixtures import MIXTURES
from engines_variants import (CONFIG, HEAD_DIM, HIDDEN, KV_HEADS, MODELOPT, OUTPUT, ct, described, fp8, modelopt, module, quark,
    scales,
                              weights, without, write, write_record)

MAIN, OTHER = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def changed(config, **keys):
    """Keys of a quantization_config; a key of value "absent" is left out."""
    return {key: value for key, value in (config | keys).items() if not isinstance(value, str) or value != "absent"}


def scheme(**keys):
    """compressed-tensors whose kv_cache_scheme has these keys."""
    config = ct()
    return config | dict(kv_cache_scheme=changed(config["kv_cache_scheme"], **keys))


def of_ct(tensors=None, config=None, **more):
    return dict(quantization_config=ct() if config is None else config, tensors=scales() if tensors is None else tensors) | more


def by_name(names, **more):
    return of_ct(scales(names, **more))


def typed(dtype, **more):
    return of_ct(scales(dtype=dtype, **more))


def filled(value, dtype=torch.float32):
    return of_ct({name: torch.full(tensor.shape, value, dtype=dtype) for name, tensor in scales().items()})


def in_one_layer(value, side="k"):
    tensors = scales()
    tensors[f"{module(1)}.{side}_scale"] = torch.tensor([value])
    return of_ct(tensors)


def renamed(old, new):
    return of_ct({name.replace(old, new): tensor for name, tensor in scales().items()})


def weight_map(extra=(), place=OTHER):
    return {name: MAIN for name in weights(False)} | {name: place for name in extra}


def other_values():
    return {name: tensor * 2 for name, tensor in scales().items()}


def modelopt_of(names=MODELOPT, config=None, **more):
    return dict(hf_quant_config=modelopt() if config is None else config, tensors=scales(names, shape=())) | more


MODELOPT_CONFIG = dict(quant_method="modelopt", quant_algo="FP8", ignore=["*"], config_groups={},
                       kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float"))
FLAT_MODELOPT = dict(quant_algo="FP8", kv_cache_quant_algo="FP8", exclude_modules=["*"])

NAMES = {
    "attn": "{m}.attn.{s}_scale", "k_proj_k": MODELOPT, "other_proj": "{m}.v_proj.{s}_scale", "qkv_proj": "{m}.qkv_proj.{s}_scale",
    "cache_dot": "{m}.{s}_cache.scale", "cache_scale": "{m}.{s}_cache_scale", "inv": "{m}.{s}_scale_inv", "plural": "{m}.{s}_scales",
    "kv_cache": "{m}.kv_cache.{s}_scale", "scale_k": "{m}.scale_{s}", "no_underscore": "{m}.{s}scale", "upper": "{m}.{s}_Scale",
    "observer": "{m}.{s}_observer.scale", "proj_scale": "{m}.{s}_proj.scale", "input_scale": "{m}.{s}_proj.input_scale",
    "amax": "{m}.{s}_proj.output_quantizer._amax", "bmm_amax": "{m}.{s}_bmm_quantizer._amax", "bmm": "{m}.{s}_bmm_quantizer._scale",
    "trtllm": "{m}.{s}_cache_scaling_factor", "deeper": "{m}.inner.{s}_scale", "shallower": "{m}{s}_scale",
    "mla": "{m}.attn_mqa.{s}_scale",
}
PREFIXES = {"no_model": ("model.", ""), "twice_model": ("model.", "model.model."), "module": ("model.", "module.model."),
            "language_model": ("model.", "language_model.model."), "base_model": ("model.", "base_model.model.model."),
            "transformer": ("model.layers", "transformer.h"), "attention": ("self_attn", "attention"), "mixer": ("self_attn", "mixer"),
            "layers_from_one": ("layers.2", "layers.7")}

HABITS = {f"name_{key}": by_name(names) for key, names in NAMES.items()}
HABITS |= {f"prefix_{key}": renamed(*pair) for key, pair in PREFIXES.items()}
HABITS |= {f"fp8_name_{key}": dict(quantization_config=fp8(), tensors=scales(NAMES[key]), kv_cache_dtype="fp8")
           for key in ("attn", "k_proj_k", "qkv_proj", "cache_dot", "inv", "proj_scale", "bmm", "trtllm")}
HABITS |= {f"modelopt_name_{key}": modelopt_of(NAMES[key])
           for key in ("attn", "other_proj", "cache_dot", "inv", "proj_scale", "bmm", "amax", "bmm_amax", "input_scale", "trtllm")}
HABITS |= {f"quark_name_{key}": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(NAMES[key]),
    kv_cache_dtype="fp8")
           for key in ("attn", "k_proj_k", "qkv_proj", "cache_dot", "proj_scale")}
HABITS |= {f"dtype_{str(dtype).split('.')[1]}": typed(dtype) for dtype in (torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)}
HABITS |= {f"dtype_{str(dtype).split('.')[1]}": filled(2, dtype) for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64,
    torch.bool)}
HABITS |= {
    "value_inf": filled(float("inf")), "value_minus_inf": filled(float("-inf")), "value_tiny": filled(1e-42), "value_huge": filled(3e38),
    "value_one": filled(1.0), "value_f16_overflow": filled(7e4), "value_bf16_small": filled(1e-9, torch.bfloat16),
    "zero_k_in_one_layer": in_one_layer(0.0), "zero_v_in_one_layer": in_one_layer(0.0, "v"), "negative_in_one_layer": in_one_layer(-1.0),
    "nan_in_one_layer": in_one_layer(float("nan"), "v"),
    "shape_two_dims": of_ct(scales(shape=(1, 1))), "shape_four_dims": of_ct(scales(shape=(1, 1, 1, 1))), "shape_empty": of_ct(
        {name: torch.zeros(0) for name in scales()}),
    "shape_heads_of_query": of_ct(scales(shape=(4,))),
    "shape_three_for_two_heads": of_ct(scales(shape=(3, 1, 1)), ct(strategy="attn_head")),
    "shape_heads_row": of_ct(scales(shape=(1, KV_HEADS, 1)), ct(strategy="attn_head")),
    "shape_channels": of_ct(scales(shape=(KV_HEADS * HEAD_DIM,)), ct(strategy="channel")), "shape_hidden": of_ct(scales(shape=(HIDDEN,))),
    "shape_heads_for_query_heads": of_ct(scales(shape=(4, 1, 1)), ct(strategy="attn_head")),
    "shape_head_and_dim": of_ct(scales(shape=(KV_HEADS, 1, HEAD_DIM)), ct(strategy="attn_head")),
    "modelopt_shape_one": modelopt_of() | dict(tensors=scales(MODELOPT)),
    "missing_k_of_one": of_ct(without(scales(), f"{module(1)}.k_scale")), "missing_first_layer": of_ct(scales(layers=(1, 2))),
    "missing_all": of_ct({}), "missing_v_of_two": of_ct(without(scales(), f"{module(0)}.v_scale", f"{module(2)}.v_scale")),
    "missing_all_fp8": dict(quantization_config=fp8(), tensors={}, kv_cache_dtype="fp8"),
    "missing_layer_fp8": dict(quantization_config=fp8(), tensors=scales(layers=(0, 1)), kv_cache_dtype="fp8"),
    "missing_k_fp8": dict(quantization_config=fp8(), tensors=without(scales(), f"{module(1)}.k_scale"), kv_cache_dtype="fp8"),
    "missing_layer_modelopt": modelopt_of() | dict(tensors=scales(MODELOPT, layers=(1, 2), shape=())),
    "missing_layer_quark": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT, layers=(0, 1)),
        kv_cache_dtype="fp8"),
    "twice_plain_and_attn": of_ct(scales() | {name.replace("self_attn.", "self_attn.attn."): t for name, t in other_values().items()}),
    "twice_plain_and_modelopt": of_ct(other_values() | scales(MODELOPT)), "twice_plain_and_output": of_ct(other_values() | scales(OUTPUT)),
    "twice_kv_scale_and_both": dict(quantization_config=fp8(), tensors=scales() | scales("{m}.kv_scale", sides="k"), kv_cache_dtype="fp8"),
    "extra_input_scale_of_k": of_ct(scales() | {f"{module(0)}.k_proj.input_scale": torch.ones(1)}),
    "extra_q_scale": of_ct(scales(sides="qkv")), "extra_prob_scale": of_ct(scales() | {f"{module(0)}.prob_scale": torch.ones(1)}),
    "extra_zero_points": of_ct(scales() | {f"{module(0)}.{s}_zero_point": torch.zeros(1) for s in "kv"}),
    "extra_weight_scale": of_ct(scales() | {f"{module(0)}.k_proj.weight_scale": torch.ones(1)}),
    "extra_inv_freq": of_ct(scales() | {f"{module(0)}.rotary_emb.inv_freq": torch.ones(HEAD_DIM // 2)}),
    "extra_other_layer": of_ct(scales() | {"model.layers.9.self_attn.k_scale": torch.ones(1)}),
    "extra_scaling_factor": of_ct(scales() | {f"{module(0)}.kv_cache_scaling_factor": torch.ones(1)}),
    "extra_unknown": of_ct(scales() | {"model.extra": torch.ones(1)}),
    "files_no_index": of_ct({}, files={"model-kv-scales.safetensors": scales()}),
    "files_no_index_before": of_ct({}, files={"kv-scales.safetensors": scales()}),
    "files_index": of_ct({}, files={OTHER: scales()}, index=weight_map(scales())),
    "files_index_lacks_scales": of_ct({}, files={OTHER: scales()}, index=weight_map()),
    "files_index_lacks_file": of_ct({}, index=weight_map(scales())),
    "files_index_wrong_place": of_ct({}, files={OTHER: scales()}, index=weight_map(scales(), MAIN)),
    "files_twice": of_ct(files={OTHER: other_values()}, index=weight_map(scales())),
    "files_twice_index_first": of_ct(files={OTHER: other_values()}, index=weight_map(scales(), MAIN)),
    "files_twice_no_index": of_ct(files={"model-extra.safetensors": other_values()}),
    "files_consolidated": of_ct(files={"consolidated.safetensors": other_values()}),
    "files_index_empty": of_ct({}, files={OTHER: scales()}, index={}),
    "files_stale_single": of_ct({}, files={OTHER: scales(), "model.safetensors": weights(False) | other_values()},
        index=weight_map(scales())),
    "config_ignore_null": of_ct(config=changed(ct(), ignore=None)), "config_ignore_absent": of_ct(config=changed(ct(), ignore="absent")),
    "config_ignore_linear": of_ct(config=changed(ct(), ignore=["Linear"])),
    "config_ignore_all": of_ct(config=changed(ct(), ignore=["re:.*"])),
    "config_ignore_attention": of_ct(config=changed(ct(), ignore=["re:.*self_attn$"])),
    "config_ignore_attn": of_ct(config=changed(ct(), ignore=["re:.*attn.*"])),
    "config_groups_null": of_ct(config=changed(ct(), config_groups=None)),
    "config_groups_absent": of_ct(config=changed(ct(), config_groups="absent")),
    "config_format_absent": of_ct(config=changed(ct(), format="absent")),
    "config_format_float": of_ct(config=changed(ct(), format="float-quantized")),
    "config_format_odd": of_ct(config=changed(ct(), format="something")),
    "config_version_absent": of_ct(config=changed(ct(), version="absent")),
    "config_status_frozen": of_ct(config=changed(ct(), quantization_status="frozen")),
    "config_status_absent": of_ct(config=changed(ct(), quantization_status="absent")),
    "config_status_initialized": of_ct(config=changed(ct(), quantization_status="initialized")),
    "config_extra_key": of_ct(config=changed(ct(), extra=1)),
    "config_method_capitals": of_ct(config=changed(ct(), quant_method="Compressed-Tensors")),
    "config_method_underscore": of_ct(config=changed(ct(), quant_method="compressed_tensors")),
    "config_method_absent": of_ct(config=changed(ct(), quant_method="absent")),
    "config_method_null": of_ct(config=changed(ct(), quant_method=None)),
    "config_compression_config": dict(tensors=scales(), config=dict(compression_config=ct())),
    "config_both": of_ct(hf_quant_config=modelopt()), "config_both_names": of_ct(scales(MODELOPT, shape=()), hf_quant_config=modelopt()),
    "config_empty": of_ct(config={}), "config_null": dict(tensors=scales(), config=dict(quantization_config=None)),
    "scheme_empty": of_ct(config=ct() | dict(kv_cache_scheme={})), "scheme_absent": of_ct(config=changed(ct(), kv_cache_scheme="absent")),
    "scheme_minimal": of_ct(config=ct() | dict(kv_cache_scheme=dict(num_bits=8, type="float"))),
    "scheme_usual": of_ct(config=ct() | dict(kv_cache_scheme=dict(num_bits=8, type="float", strategy="tensor", dynamic=False,
        symmetric=True))),
    "scheme_extra_key": of_ct(config=scheme(extra=1)), "scheme_bits_float": of_ct(config=scheme(num_bits=8.0)),
    "scheme_bits_text": of_ct(config=scheme(num_bits="8")), "scheme_bits_4": of_ct(config=scheme(num_bits=4)),
    "scheme_bits_16": of_ct(config=scheme(num_bits=16)), "scheme_bits_absent": of_ct(config=scheme(num_bits="absent")),
    "scheme_type_absent": of_ct(config=scheme(type="absent")), "scheme_type_capitals": of_ct(config=scheme(type="FLOAT")),
    "scheme_type_fp8": of_ct(config=scheme(type="fp8")), "scheme_strategy_null": of_ct(config=scheme(strategy=None)),
    "scheme_strategy_absent": of_ct(config=scheme(strategy="absent")), "scheme_strategy_token": of_ct(config=scheme(strategy="token")),
    "scheme_strategy_group": of_ct(config=scheme(strategy="group", group_size=32)),
    "scheme_strategy_capitals": of_ct(config=scheme(strategy="Tensor")), "scheme_dynamic_local": of_ct(config=scheme(dynamic="local")),
    "scheme_dynamic_null": of_ct(config=scheme(dynamic=None)), "scheme_dynamic_absent": of_ct(config=scheme(dynamic="absent")),
    "scheme_dynamic_true": of_ct(config=scheme(dynamic=True)), "scheme_symmetric_null": of_ct(config=scheme(symmetric=None)),
    "scheme_symmetric_absent": of_ct(config=scheme(symmetric="absent")), "scheme_observer": of_ct(config=scheme(observer="minmax")),
    "scheme_actorder": of_ct(config=scheme(actorder="weight")), "scheme_zp_dtype": of_ct(config=scheme(zp_dtype="torch.int8")),
    "dtype_of_model_f16": of_ct(config=ct(), raw=dict(torch_dtype="float16")),
    "dtype_of_model_f32": of_ct(raw=dict(torch_dtype="float32")), "dtype_of_model_absent": of_ct(raw=dict(torch_dtype="absent")),
    "dtype_of_model_auto": of_ct(raw=dict(torch_dtype="auto")),
    "dtype_of_model_new_key": of_ct(raw=dict(torch_dtype="absent", dtype="bfloat16")),
    "fp8_model_f16": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8", raw=dict(torch_dtype="float16")),
    "fp8_model_f32": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8", raw=dict(torch_dtype="float32")),
    "fp8_model_absent": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8", raw=dict(torch_dtype="absent")),
    "fp8_capitals": dict(quantization_config=fp8() | dict(quant_method="FP8"), tensors=scales(), kv_cache_dtype="fp8"),
    "fp8_dynamic": dict(quantization_config=fp8() | dict(activation_scheme="dynamic"), tensors=scales(), kv_cache_dtype="fp8"),
    "fp8_no_scheme": dict(quantization_config=changed(fp8(), kv_cache_scheme="absent"), tensors=scales(), kv_cache_dtype="fp8"),
    "fp8_algo": dict(quantization_config=fp8() | dict(kv_cache_quant_algo="FP8"), tensors=scales()),
    "fp8_modules_key": dict(quantization_config=changed(fp8(), ignored_layers="absent", modules_to_not_convert=fp8()["ignored_layers"]),
                            tensors=scales(), kv_cache_dtype="fp8"),
    "told_bf16_ct": of_ct(kv_cache_dtype="bfloat16"), "told_e5m2_modelopt": modelopt_of(kv_cache_dtype="fp8_e5m2"),
    "told_fp8_modelopt": modelopt_of(kv_cache_dtype="fp8"), "told_bf16_modelopt": modelopt_of(kv_cache_dtype="bfloat16"),
    "modelopt_no_producer": modelopt_of(config=changed(modelopt(), producer="absent")),
    "modelopt_producer_without_name": modelopt_of(config=modelopt() | dict(producer=dict(version="0.47.0"))),
    "modelopt_flat": modelopt_of(config=FLAT_MODELOPT),
    "modelopt_flat_method": modelopt_of(config=FLAT_MODELOPT | dict(quant_method="modelopt")),
    "modelopt_lower_case": modelopt_of(config=modelopt(kv_cache_quant_algo="fp8")),
    "modelopt_kv_int8": modelopt_of(config=modelopt(kv_cache_quant_algo="INT8")),
    "modelopt_kv_nvfp4": modelopt_of(config=modelopt(kv_cache_quant_algo="NVFP4")), "modelopt_kv_absent": modelopt_of(
        config=modelopt() | dict(quantization=changed(modelopt()["quantization"], kv_cache_quant_algo="absent"))),
    "modelopt_mixed": modelopt_of(config=modelopt(quant_algo="MIXED_PRECISION")),
    "modelopt_mixed_map": modelopt_of(config=modelopt(quant_algo="MIXED_PRECISION", quantized_layers={})),
    "modelopt_no_algo": modelopt_of(config=modelopt() | dict(quantization=changed(modelopt()["quantization"], quant_algo="absent"))),
    "modelopt_algo_nvfp4": modelopt_of(config=modelopt(quant_algo="NVFP4", group_size=16)),
    "modelopt_exclude_null": modelopt_of(config=modelopt(exclude_modules=None)), "modelopt_exclude_attention": modelopt_of(
        config=modelopt(exclude_modules=["*", "*self_attn*"])),
    "modelopt_exclude_all_layers": modelopt_of(config=modelopt(exclude_modules=["model.layers.*", "lm_head"])),
    "modelopt_exclude_linears": modelopt_of(config=modelopt(exclude_modules=["*_proj", "lm_head"])),
    "modelopt_in_config": dict(quantization_config=MODELOPT_CONFIG, tensors=scales(MODELOPT, shape=())),
    "modelopt_in_config_no_algo": dict(quantization_config=changed(MODELOPT_CONFIG, quant_algo="absent"), tensors=scales(MODELOPT,
        shape=())),
    "modelopt_in_config_algo_key": dict(quantization_config=changed(MODELOPT_CONFIG, kv_cache_scheme="absent", kv_cache_quant_algo="FP8"),
                                        tensors=scales(MODELOPT, shape=())),
    "modelopt_in_config_no_scheme": dict(quantization_config=changed(MODELOPT_CONFIG, kv_cache_scheme="absent"), tensors=scales(MODELOPT,
        shape=())),
    "modelopt_in_config_nested": dict(quantization_config=dict(quant_method="modelopt") | modelopt(), tensors=scales(MODELOPT, shape=())),
    "modelopt_in_config_plain_names": dict(quantization_config=MODELOPT_CONFIG, tensors=scales()),
    "modelopt_plain_names": modelopt_of("{m}.{s}_scale"),
    "quark_plain_names": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(), kv_cache_dtype="fp8"),
    "quark_no_export": dict(quantization_config=changed(quark(["re:.*_proj$", "lm_head"]), export="absent"), tensors=scales(OUTPUT),
        kv_cache_dtype="fp8"),
    "quark_no_group": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]) | dict(
        export=dict(kv_cache_group=[], min_kv_scale=0.0, pack_method="reorder")), tensors=scales(OUTPUT), kv_cache_dtype="fp8"),
    "quark_k_only": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT, sides="k"), kv_cache_dtype="fp8"),
    "quark_v_only": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT, sides="v"), kv_cache_dtype="fp8"),
    "other_method_fbgemm": dict(quantization_config=dict(quant_method="fbgemm_fp8", modules_to_not_convert=["lm_head"],
        activation_scale_ub=1200.0),
                                tensors=scales(), kv_cache_dtype="fp8"),
    "other_method_unknown": dict(quantization_config=dict(quant_method="mine"), tensors=scales()),
    "plain_names_fp8": dict(tensors=scales(), kv_cache_dtype="fp8"), "plain_modelopt_names": dict(tensors=scales(MODELOPT)),
    "plain_output_names": dict(tensors=scales(OUTPUT), kv_cache_dtype="fp8"),
    "key_kv_cache_torch_dtype": dict(tensors=scales("{m}.kv_scale", sides="k"), config=dict(kv_cache_torch_dtype="float8_e4m3fn")),
    "key_kv_cache_dtype": of_ct(raw=dict(kv_cache_dtype="fp8")),
    "key_kv_cache_dtype_alone": dict(tensors=scales(), raw=dict(kv_cache_dtype="fp8")),
}

HABITS |= MIXTURES


def short(loads, cache_dtype, layers):
    """One word of what is held, and the numbers."""
    if not loads:
        return "refused", None
    numbers = [layer[side] for layer in layers for side in "kv"]
    held = [1.0 if number is None else "undefined" if number == [] else number for number in numbers]
    if "fp8" not in cache_dtype:
        return "16-bit", None
    return "1.0" if all(number == 1.0 for number in held) else "held", held


def verified(kvcal, engine, variant, folder):
    write(folder, variant)
    arguments = ["verify", folder, "--engine", engine, "--json", "--kv-cache-dtype", variant.get("kv_cache_dtype", "auto")]
    done = subprocess.run([kvcal, *arguments], capture_output=True, text=True)
    if not done.stdout:
        return "refused", None, done.returncode  # kvcal itself refuses it
    report = json.loads(done.stdout)
    layers = [{side: layer[f"{side}_scale"] for side in "kv"} for layer in report["layers"]]
    return *short(report["loads"], report["kv_cache_dtype"], layers), done.returncode


def compare(kvcal, engine, seen, variants):
    """seen: the engine's answers by variant."""
    differ = trusted = 0
    for name, answer in seen.items():
        with tempfile.TemporaryDirectory() as scratch:
            told, numbers, code = verified(kvcal, engine, variants[name], os.path.join(scratch, "model"))
        is_held, held = short(answer["loads"], answer.get("cache_dtype"), answer.get("layers"))
        if (told, numbers) != (is_held, held):
            differ += 1
            trusted += code == 0 and is_held != "16-bit"
            why = answer.get("why", "") or [[layer["k"], layer["v"]] for layer in answer["layers"]]
            print(f"{name}: {engine} {is_held}, verify {told}, exit {code}: {why}"[:260])
    print(f"{len(seen)} variants, {differ} differ, in {trusted} of them verify's exit is 0")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        compare(sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))["variants"], HABITS)
    else:
        write_record(sys.argv[1], {"config": CONFIG}, {name: described(variant) for name, variant in HABITS.items()})
