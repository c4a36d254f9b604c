#!/usr/bin/env python3
"""engines_transformers.py OUT.json [NAME...]

As engines_vllm.py, for transformers: what the attention modules hold after AutoModelForCausalLM.from_pretrained, and whether
their K and V are quantized ("cache_dtype": "fp8" where the module has a scheme for them, "auto" where not). Tensors that it
could not place are in "unexpected", those that it did not find in "missing": their values are "undefined", since they differ from
run to run.

Reference: torch 2.13, transformers 5.17, compressed-tensors 0.19.0, safetensors 0.8.0.
"""
import transformers
from transformers import AutoModelForCausalLM

from engines_variants import number, run
from scale_loading import layer_of


def numbers(tensor):
    values = [number(x) for x in tensor.float().flatten().tolist()]
    return values[0] if len(values) == 1 else values


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


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    run("transformers", transformers.__version__, observe,
        skips=lambda variant: variant.get("rocm") or variant.get("kv_cache_dtype"))
