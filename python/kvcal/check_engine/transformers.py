"""transformers: what the modules hold after from_pretrained, and how their K and V are quantized ("fp8" or "int8" by the scheme of a module for
them, "auto" where it has none). Modules are those that hold a k_scale. A layer that reads another one's cache has that one's. Scales of the file
that no module took are 1.0 in what runs, so they are none."""

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


def cache_of(module: Any) -> str:
    """The codes in which an attention module keeps K and V."""
    arguments = getattr(getattr(module, "quantization_scheme", None), "input_activations", None)
    return "auto" if arguments is None else f"{'fp' if arguments.type == 'float' else 'int'}{arguments.num_bits}"


def look_up_attention(model: Any) -> None:
    """What the forward pass of attention with quantized queries calls, which may be in no table."""
    if getattr(model.config, "_attn_implementation", None) == "ct_hooked_attention":
        from compressed_tensors.modeling import attention

        _ = attention.ALL_ATTENTION_FUNCTIONS[attention.QuantizedAttentionImpl._original_impl]


def observe(folder: str, _: Any) -> dict[str, Any]:
    config = transformers.AutoConfig.from_pretrained(folder)
    is_multimodal = hasattr(config, "vision_config") and type(config) in AutoModelForImageTextToText._model_mapping
    kind = AutoModelForImageTextToText if is_multimodal else AutoModelForCausalLM
    model, loading = kind.from_pretrained(folder, output_loading_info=True)
    look_up_attention(model)
    missing = set(loading["missing_keys"])
    layers: dict[int, Any] = {}
    cache = "auto"
    for name, module in model.named_modules():
        if re.search(r"\.(layers|h|blocks)\.\d+\.\w+$", name) and hasattr(module, "k_scale"):
            layers[layer_of(name)] = {side: None if f"{name}.{side}_scale" in missing else held(module, side) for side in "kv"}
            cache = cache_of(module)
    kinds = getattr(config.get_text_config(), "layer_types", None)
    for name, module in model.named_modules():
        if getattr(module, "is_kv_shared_layer", False) and layer_of(name) not in layers:
            like = [layer for layer in layers if kinds[layer] == kinds[layer_of(name)] and layer < layer_of(name)]
            layers |= {layer_of(name): layers[max(like)]} if like else {}
    dropped = sorted(name for name in loading["unexpected_keys"] if is_scale(name))
    return {"cache_dtype": cache, "layers": layers, "dropped": dropped}
