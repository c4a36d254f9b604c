"""transformers: what the modules hold after from_pretrained, and whether their K and V are quantized ("fp8" where a module has a scheme for
them, "auto" where not). Modules are those that hold a k_scale. A layer that reads another one's cache has that one's. Scales of the file that no
module took are 1.0 in what runs, so they are none."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from .checkpoint import is_scale
from .common import layer_of, numbers, set_environment

set_environment(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")

import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

STOOD_IN = ("the CPU for a GPU",)


def start() -> ModuleType:
    return transformers


def held(module: Any, side: str) -> Any:
    scale = getattr(module, f"{side}_scale", None)
    return None if scale is None else numbers(scale)


def observe(folder: str, _: Any) -> dict[str, Any]:
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
    dropped = sorted(name for name in loading["unexpected_keys"] if is_scale(name))
    return {"cache_dtype": "fp8" if quantized else "auto", "layers": layers, "dropped": dropped}
