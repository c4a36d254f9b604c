"""The families of multimodal models whose vision towers are run: one row a model_type."""

from __future__ import annotations

from typing import NamedTuple

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


class EncoderLayers(NamedTuple):
    """path: of the encoder's layers within transformers' class; attention: of the attention within one; name: vLLM's of layer {}."""

    path: str
    attention: str
    name: str


#: Of model types whose vision encoders vLLM 0.33 runs with FP8 attention, on NVIDIA's GPUs and on AMD's.
ENCODERS = dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"),
                         EncoderLayers("model.visual.blocks", "attn", "visual.blocks.{}.attn.attn"))  # fmt: skip


def decoder_of(model_type: object, place: str) -> str:
    """Path of the module that is the decoder, with or without its head."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        names = ", ".join(name for name, _ in FAMILIES.values())
        raise BadInput(f"{place}: found model_type {model_type!r}, expected a family whose vision tower is run: {names}")
    return FAMILIES[model_type][1]


def encoder_of(model_type: str, place: str) -> EncoderLayers:
    if model_type not in ENCODERS:
        names = ", ".join(FAMILIES[one][0] for one in ENCODERS)
        raise BadInput(f"{place}: found model_type {model_type!r}, expected one whose vision encoder vLLM gives scales: {names}")
    return ENCODERS[model_type]
