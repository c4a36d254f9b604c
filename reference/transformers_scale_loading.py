#!/usr/bin/env python3
"""transformers_scale_loading.py MODELS OUT.json [NAME...]

As vllm_scale_loading.py, for transformers: which fixtures of MODELS it loads KV scales for. Each is copied
with scales of its own per layer in the compressed-tensors layout that kvcal writes, loaded by
AutoModelForCausalLM, and what its attention modules hold afterwards is compared.
With names, only these are tried, and OUT.json keeps what it says of the others.
OUT.json: {"transformers": version, "models": {name: {"model_type", "class", "loads": true | false, "why"}}}.
"loads" is false also where the fixture loads only without scales and their quantization_config; it is absent
where it does not load at all.

Reference: torch 2.13, transformers 5.17, compressed-tensors 0.19.0, safetensors 0.8.0.
"""
import torch
import transformers
from transformers import AutoModelForCausalLM

from scale_loading import layer_of, run


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def held_scales(model):
    return {layer_of(name): (module.k_scale.item(), module.v_scale.item())
            for name, module in model.named_modules() if hasattr(module, "k_scale") and hasattr(module, "v_scale")}


def explain(_, source):
    try:
        load(source)
    except Exception:  # noqa: BLE001
        return {}
    return {"loads": False}


if __name__ == "__main__":
    run("transformers", transformers.__version__, load, held_scales, explain)
