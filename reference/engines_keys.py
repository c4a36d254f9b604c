#!/usr/bin/env python3
"""engines_keys.py OUT.json   or   engines_keys.py KVCAL ENGINE ANSWERS.json

Variants for the engines_*.py scripts in which one key of a configuration is missing or of another kind: every key of every method's
configuration (KEYS), each with every value of VALUES. As engines_variants.VARIANTS, of the same Llama.

First form: writes them to OUT.json (tests/fixtures/engines/keys.json): {"config", "bases": {name: what describes it}, "variants":
{name: {"like": a base, "patch": JSON patch of its description}}}. engines_ENGINE.py --keys ANSWERS.json records what an engine makes of them and of the
bases, "as base" where that is the same.
Second form: as engines_habits.py's.
"""
import copy
import json
import sys

import torch

from engines_variants import CONFIG, MODELOPT, OUTPUT, config_of, ct, described, fp8, modelopt, quark, scales, write_record

VALUES = {"null": None, "true": True, "false": False, "zero": 0, "one": 1, "text": "text", "empty": "", "list": [], "texts": ["text"], "object": {}}
NO_TEXT = {"true", "false", "zero", "one", "list", "texts", "object"}  # of quant_method: kvcal itself refuses them
MODELOPT_CONFIG = dict(quant_method="modelopt", quant_algo="FP8", ignore=["*"], kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float"))
CONFIG_PATH, FILE_PATH = "/quantization_config", "/hf_quant_config"

BASES = {
    "ct": dict(quantization_config=ct(), tensors=scales()),
    "fp8": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8"),
    "modelopt": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, shape=())),
    "modelopt_config": dict(quantization_config=MODELOPT_CONFIG, tensors=scales(MODELOPT, shape=())),
    "quark": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT), kv_cache_dtype="fp8"),
    # Tensors for which the model has no place.
    "ct_expert": dict(quantization_config=ct(), tensors=scales() | {"model.layers.0.mlp.experts.0.up_proj.weight": torch.ones(1)}),
    "ct_scale_of_experts": dict(quantization_config=ct(), tensors=scales() | {"model.layers.0.mlp.experts.k_scale": torch.ones(1)}),
}
# Paths of keys; of an object every key that it has, and these that it has not.
KEYS = {
    "ct": [(CONFIG_PATH, ["producer"]), (CONFIG_PATH + "/kv_cache_scheme", []),
           ("/config", ["text_config", "compression_config", "vision_config", "architectures"])],
    "fp8": [(CONFIG_PATH, ["weight_block_size", "modules_to_not_convert", "kv_cache_quant_algo", "fmt"])],
    "modelopt": [(FILE_PATH, []), (FILE_PATH + "/producer", []), (FILE_PATH + "/quantization", ["group_size", "quantized_layers", "kv_cache_scheme"])],
    "modelopt_config": [(CONFIG_PATH, ["config_groups", "producer", "quantization", "kv_cache_quant_algo", "quantized_layers"]),
                        (CONFIG_PATH + "/kv_cache_scheme", [])],
    "quark": [(CONFIG_PATH, []), (CONFIG_PATH + "/export", []), (CONFIG_PATH + "/layer_quant_config", ["*q_proj"]),
              (CONFIG_PATH + "/layer_quant_config/*k_proj/output_tensors", [])],
}
# Further ones, each {path: value}, "absent" for a key that is taken away.
BLOCK, METHOD = CONFIG_PATH + "/weight_block_size", CONFIG_PATH + "/quant_method"
FURTHER = {
    "fp8_block_static": ("fp8", {BLOCK: [128, 128]}),
    "fp8_block_dynamic": ("fp8", {BLOCK: [128, 128], CONFIG_PATH + "/activation_scheme": "dynamic"}),
    "fp8_block_of_one": ("fp8", {BLOCK: [128], CONFIG_PATH + "/activation_scheme": "dynamic"}),
    "fp8_block_of_three": ("fp8", {BLOCK: [128, 128, 1], CONFIG_PATH + "/activation_scheme": "dynamic"}),
    "fp8_block_null": ("fp8", {BLOCK: None}),
    "ct_tensor_group_size": ("ct", {CONFIG_PATH + "/kv_cache_scheme/group_size": 128}),
    "ct_tensor_group_size_minus": ("ct", {CONFIG_PATH + "/kv_cache_scheme/group_size": -1}),
    "ct_head_group_size": ("ct", {CONFIG_PATH + "/kv_cache_scheme/group_size": 128, CONFIG_PATH + "/kv_cache_scheme/strategy": "attn_head"}),
    "ct_block_structure": ("ct", {CONFIG_PATH + "/kv_cache_scheme/block_structure": [128, 128]}),
    "ct_block_structure_text": ("ct", {CONFIG_PATH + "/kv_cache_scheme/block_structure": "128x128"}),
    "modelopt_flat": ("modelopt", {FILE_PATH + "/quantization": "absent", FILE_PATH + "/quant_algo": "FP8", FILE_PATH + "/kv_cache_quant_algo": "FP8",
                                   FILE_PATH + "/exclude_modules": ["*"]}),
    "modelopt_flat_method": ("modelopt", {FILE_PATH + "/quantization": "absent", FILE_PATH + "/quant_algo": "FP8", FILE_PATH + "/quant_method": "modelopt",
                                          FILE_PATH + "/kv_cache_quant_algo": "FP8", FILE_PATH + "/exclude_modules": ["*"]}),
    "modelopt_config_of_file": ("modelopt_config", {CONFIG_PATH + "/" + key: value for key, value in modelopt().items()}),
    "modelopt_mixed_layers": ("modelopt", {FILE_PATH + "/quantization/quant_algo": "MIXED_PRECISION", FILE_PATH + "/quantization/quantized_layers": {
        "model.layers.9.mlp.up_proj": dict(quant_algo="FP8")}}),
    "modelopt_config_mixed": ("modelopt_config", {CONFIG_PATH + "/quant_algo": "MIXED_PRECISION", CONFIG_PATH + "/quantized_layers": {
        "model.layers.9.mlp.up_proj": dict(quant_algo="FP8")}}),
    "modelopt_config_mixed_none": ("modelopt_config", {CONFIG_PATH + "/quant_algo": "MIXED_PRECISION"}),
    "modelopt_scheme_dynamic": ("modelopt_config", {CONFIG_PATH + "/kv_cache_scheme/dynamic": True}),
    "quark_group_of_one": ("quark", {CONFIG_PATH + "/export/kv_cache_group": ["*k_proj"]}),
    "quark_group_text": ("quark", {CONFIG_PATH + "/export/kv_cache_group": "*k_proj"}),
    "quark_group_other": ("quark", {CONFIG_PATH + "/export/kv_cache_group": ["*o_proj"]}),
    "quark_dtype_fp8_e5m2": ("quark", {CONFIG_PATH + f"/layer_quant_config/*{side}_proj/output_tensors/dtype": "fp8_e5m2" for side in "kv"}),
    "quark_dtype_int8": ("quark", {CONFIG_PATH + f"/layer_quant_config/*{side}_proj/output_tensors/dtype": "int8" for side in "kv"}),
    "quark_channel": ("quark", {CONFIG_PATH + f"/layer_quant_config/*{side}_proj/output_tensors/qscheme": "per_channel" for side in "kv"}),
    "text_config_of_text": ("ct", {"/config": dict(text_config=dict(model_type="llama", hidden_size=64))}),
    "text_config_same": ("ct", {"/config": dict(text_config=CONFIG)}),
    "architecture_alias": ("ct", {"/config": dict(architectures=["LLaMAForCausalLM"])}),
    "architecture_other": ("ct", {"/config": dict(architectures=["MistralForCausalLM"])}),
    "architecture_unknown_first": ("ct", {"/config": dict(architectures=["MyForCausalLM", "LlamaForCausalLM"])}),
    "symmetric_one_dynamic_zero": ("ct", {CONFIG_PATH + "/kv_cache_scheme/symmetric": 1, CONFIG_PATH + "/kv_cache_scheme/dynamic": 0}),
    "scale_dtype_of_torch": ("ct", {CONFIG_PATH + "/kv_cache_scheme/scale_dtype": "torch.float32"}),
    "scale_dtype_without_torch": ("ct", {CONFIG_PATH + "/kv_cache_scheme/scale_dtype": "float32"}),
    "sparsity_dense": ("ct", {CONFIG_PATH + "/sparsity_config": dict(format="dense")}),
    "transform_of_groups": ("ct", {CONFIG_PATH + "/transform_config": dict(config_groups={})}),
    "ratio_in_text": ("ct", {CONFIG_PATH + "/global_compression_ratio": "1.5"}),
    "modelopt_algo_with_fp8": ("modelopt_config", {CONFIG_PATH + "/quant_algo": "MY_FP8"}),
    "files_in_original": ("ct", {"/texts": {"original/consolidated.00.safetensors": "none"}}),
    "told_bf16_of_f16": ("ct", {"/raw": dict(torch_dtype="float16"), "/kv_cache_dtype": "bfloat16"}),
    "told_bf16_of_f32": ("ct", {"/raw": dict(torch_dtype="float32"), "/kv_cache_dtype": "bfloat16"}),
    "told_f16_of_bf16": ("ct", {"/kv_cache_dtype": "float16"}),
    "told_f16_of_f16": ("ct", {"/raw": dict(torch_dtype="float16"), "/kv_cache_dtype": "float16"}),
    "told_f16_of_bf16_modelopt": ("modelopt", {"/kv_cache_dtype": "float16"}),
    "told_fp8_e4m3_of_fp8": ("fp8", {"/kv_cache_dtype": "fp8_e4m3"}),
}


def parts_of(path):
    return path.strip("/").split("/")


def patched(base, changes):
    variant = copy.deepcopy(BASES[base])
    for path, value in changes.items():
        *outer, last = parts_of(path)
        place = variant
        for part in outer:
            place = place.setdefault(part, {})
        if isinstance(value, str) and value == "absent":
            place.pop(last, None)
        else:
            place[last] = value
    return variant


def object_at(base, path):
    place = BASES[base]
    for part in parts_of(path):
        place = place.get(part, {})
    return place


def named(base, path, key):
    return "_".join([base, *parts_of(path)[1:], key]).replace("*", "")


CHANGES = {}
for base, places in KEYS.items():
    for path, others in places:
        for key in [*object_at(base, path), *others]:
            values = VALUES | ({"absent": "absent"} if key in object_at(base, path) else {})
            CHANGES |= {f"{named(base, path, key)}_is_{name}": (base, {f"{path}/{key}": value}) for name, value in values.items()
                        if key != "quant_method" or name not in NO_TEXT}
CHANGES |= FURTHER
VARIANTS = BASES | {name: patched(*change) for name, change in CHANGES.items()}


def compact(answers):
    """"as base" stands for the answer about the variant's base."""
    return {name: "as base" if name in CHANGES and answer == answers[CHANGES[name][0]] else answer for name, answer in answers.items()}


def expanded(answers):
    return {name: answers[CHANGES[name][0]] if answer == "as base" else answer for name, answer in answers.items()}


def operations(base, changes):
    """As JSON patches say it."""
    made = []
    for path, value in changes.items():
        is_there = parts_of(path)[-1] in object_at(base, path.rpartition("/")[0]) if path.count("/") > 1 else parts_of(path)[0] in BASES[base]
        if path.startswith("/config/") and "config" not in BASES[base] and not made:
            made.append(dict(op="add", path="/config", value={}))
        op = "remove" if isinstance(value, str) and value == "absent" else "replace" if is_there else "add"
        made.append(dict(op=op, path=path) | ({} if op == "remove" else dict(value=value)))
    return made


def write_keys(out):
    head = {"config": CONFIG, "bases": {name: described(base) for name, base in BASES.items()}}
    write_record(out, head, {name: dict(like=base, patch=operations(base, changes)) for name, (base, changes) in CHANGES.items()})


if __name__ == "__main__":
    if len(sys.argv) > 2:
        from engines_habits import compare
        kvcal, engine, answers = sys.argv[1:4]
        compare(kvcal, engine, expanded(json.load(open(answers))["variants"]), VARIANTS)
    else:
        write_keys(sys.argv[1])
