"""The families of multimodal models whose vision towers are run: one row a model_type."""

from __future__ import annotations

from .errors import BadInput

#: {model_type of config.json: (name of the family, path of the decoder within transformers' class for images and text)}
FAMILIES = {
    "gemma3": ("Gemma 3", "model.language_model"),
    "gemma4": ("Gemma 4", "model.language_model"),
    "idefics3": ("Idefics 3", "model.text_model"),
    "internvl": ("InternVL", "model.language_model"),
    "llama4": ("Llama 4", "language_model"),
    "llava": ("LLaVA", "model.language_model"),
    "llava_onevision": ("LLaVA-OneVision", "model.language_model"),
    "mistral3": ("Mistral 3", "model.language_model"),
    "qwen2_vl": ("Qwen2-VL", "model.language_model"),
    "qwen2_5_vl": ("Qwen2.5-VL", "model.language_model"),
    "qwen3_vl": ("Qwen3-VL", "model.language_model"),
    "qwen3_vl_moe": ("Qwen3-VL-MoE", "model.language_model"),
    "qwen3_5": ("Qwen3.5", "model.language_model"),
    "qwen3_5_moe": ("Qwen3.5-MoE", "model.language_model"),
    "smolvlm": ("SmolVLM", "model.text_model"),
}


def decoder_of(model_type: object, place: str) -> str:
    """Path of the module that is the decoder, with or without its head."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        names = ", ".join(name for name, _ in FAMILIES.values())
        raise BadInput(f"{place}: found model_type {model_type!r}, expected a family whose vision tower is run: {names}")
    return FAMILIES[model_type][1]
