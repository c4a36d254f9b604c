"""Scales of the vision encoder's attention in FP8, from the largest Q, K and V of its layers while transformers runs it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .errors import BadInput
from .families import EncoderLayers

#: transformers' name of the attention that `Encoder` sees.
ATTENTION = "kvcal_encoder"
E4M3_LARGEST = 448.0


class Encoder:
    """Sees what the attention of a tower's layers takes: Q and K behind their rotary embedding, where vLLM rounds them to FP8."""

    def __init__(self, layers: EncoderLayers) -> None:
        self._layers = layers
        self._largest: dict[torch.nn.Module, torch.Tensor] = {}
        AttentionInterface.register(ATTENTION, self.attention)

    def attention(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **more: Any) -> Any:
        """query, key, value: [1, heads, patches, head_dim], of one image or window."""
        seen = torch.stack([side.detach().abs().amax().float() for side in (query, key, value)])
        self._largest[module] = torch.maximum(seen, self._largest.get(module, seen))
        return sdpa_attention_forward(module, query, key, value, *rest, **more)

    def scales(self, model: torch.nn.Module, margin: float) -> dict[str, dict[str, float]]:
        """By vLLM's names of the layers: the largest magnitudes of q, k and v, over 448, times margin."""
        scales = {}
        for layer, block in enumerate(model.get_submodule(self._layers.path).children()):
            largest = self._largest.get(block.get_submodule(self._layers.attention))
            if largest is None or not largest.isfinite().all():
                raise BadInput(f"{self._layers.path}.{layer}: {'did not run' if largest is None else 'Q, K or V is not finite'}")
            # A layer of zeros gets float32's epsilon, as in a KV cache: vLLM refuses a scale of 0.
            values = torch.where(largest > 0, largest / E4M3_LARGEST * margin, torch.finfo(torch.float32).eps)
            scales[self._layers.name.format(layer)] = {side: float(f"{value:.9g}") for side, value in zip("qkv", values.tolist())}
        return scales
