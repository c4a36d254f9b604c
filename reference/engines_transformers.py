#!/usr/bin/env python3
"""engines_transformers.py [--habits] OUT.json [NAME...]   or   engines_transformers.py --jobs JOBS.json OUT.jsonl

As engines_vllm.py, for transformers: what the attention modules hold after AutoModelForCausalLM.from_pretrained, and how
their K and V are quantized ("cache_dtype": "fp8" or "int8" by the module's scheme for them, "auto" where it has none). Tensors that it
could not place are in "unexpected", those that it did not find in "missing": their values are "undefined", since they differ from
run to run.

Second form: folders of any family, as engines_judge.py and python/kvcal/check_engine/transformers.py say; where no module holds a k_scale every
layer is told as without one.

Reference: torch 2.13, accelerate, transformers 5.17, compressed-tensors 0.19.0 (or 5.23 and 0.20.0, 5.24 and 0.20.1), safetensors 0.8.0.
"""
import sys

from engines_judge import judge  # first: it finds check_engine
from check_engine.transformers import cache_of, held, observe as observe_job, transformers
from engines_variants import run
from scale_loading import layer_of


def observe(folder, _):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    attention = {layer_of(name): layer for name, layer in model.named_modules() if name.endswith(".self_attn")}
    missing = set(loading["missing_keys"])
    layers = [{side: "undefined" if f"model.layers.{i}.self_attn.{side}_scale" in missing else held(attention[i], side)
               for side in "kv"} for i in sorted(attention)]
    return {"cache_dtype": cache_of(attention[0]), "layers": layers,
            "unexpected": sorted(loading["unexpected_keys"]), "missing": sorted(missing)}


if __name__ == "__main__":
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "transformers", transformers.__version__, "transformers", observe_job)
        sys.exit()
    transformers.logging.set_verbosity_error()
    run("transformers", transformers.__version__, observe,
        skips=lambda variant: variant.get("rocm") or variant.get("kv_cache_dtype"))
