#!/usr/bin/env python3
"""engines_transformers.py [--habits] OUT.json [NAME...]   or   engines_transformers.py --jobs JOBS.json OUT.jsonl

As engines_vllm.py, for transformers: what the attention modules hold after AutoModelForCausalLM.from_pretrained, and whether
their K and V are quantized ("cache_dtype": "fp8" where the module has a scheme for them, "auto" where not). Tensors that it
could not place are in "unexpected", those that it did not find in "missing": their values are "undefined", since they differ from
run to run.

Second form: folders of any family, as engines_judge.py says. Their modules are those that hold a k_scale, and where none does every
layer is told as without one. A layer that reads another one's cache
has that one's. Scales of the file that no module took are 1.0 in what runs, so they are told as none.

Reference: torch 2.13, accelerate, transformers 5.17, compressed-tensors 0.19.0 (or 5.23 and 0.20.0, 5.24 and 0.20.1), safetensors 0.8.0.
"""
import re
import sys

import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from engines_judge import judge, numbers
from engines_variants import run
from scale_loading import layer_of


def held(module, side):
    scale = getattr(module, f"{side}_scale", None)
    return None if scale is None else numbers(scale)


def observe(folder, _):
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    attention = {layer_of(name): layer for name, layer in model.named_modules() if name.endswith(".self_attn")}
    missing = set(loading["missing_keys"])
    layers = [{side: "undefined" if f"model.layers.{i}.self_attn.{side}_scale" in missing else held(attention[i], side)
               for side in "kv"} for i in sorted(attention)]
    quantized = hasattr(attention[0], "kv_cache") or hasattr(attention[0], "quantization_scheme")
    return {"cache_dtype": "fp8" if quantized else "auto", "layers": layers,
            "unexpected": sorted(loading["unexpected_keys"]), "missing": sorted(missing)}


def observe_job(folder, _):
    config = transformers.AutoConfig.from_pretrained(folder)
    is_multimodal = hasattr(config, "vision_config") and type(config) in AutoModelForImageTextToText._model_mapping
    kind = AutoModelForImageTextToText if is_multimodal else AutoModelForCausalLM
    model, loading = kind.from_pretrained(folder, output_loading_info=True)
    missing = set(loading["missing_keys"])
    layers, quantized = {}, False
    for name, module in model.named_modules():
        if re.search(r"\.(layers|h|blocks)\.\d+\.\w+$", name) and hasattr(module, "k_scale"):
            layers[layer_of(name)] = {side: None if f"{name}.{side}_scale" in missing else held(module, side) for side in "kv"}
            quantized = quantized or hasattr(module, "kv_cache") or hasattr(module, "quantization_scheme")
    kinds = getattr(config.get_text_config(), "layer_types", None)
    for name, module in model.named_modules():
        if getattr(module, "is_kv_shared_layer", False) and layer_of(name) not in layers:
            like = [layer for layer in layers if kinds[layer] == kinds[layer_of(name)] and layer < layer_of(name)]
            layers |= {layer_of(name): layers[max(like)]} if like else {}
    return {"cache_dtype": "fp8" if quantized else "auto", "layers": layers}


if __name__ == "__main__":
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "transformers", transformers.__version__, "transformers", observe_job)
        sys.exit()
    transformers.logging.set_verbosity_error()
    run("transformers", transformers.__version__, observe,
        skips=lambda variant: variant.get("rocm") or variant.get("kv_cache_dtype"))
