"""Samples of the file form, of what transformers hands to the decoder. What the form cannot hold is an error."""

from __future__ import annotations

from typing import Any

import torch

from .errors import BadInput
from .samples import Tensor, groups_of, int_tensor

#: Arguments that say nothing about the values that enter the decoder.
OF_CALLS = {"cache", "use_cache", "return_dict", "logits_to_keep", "output_attentions", "output_hidden_states", "output_router_logits", "labels"}
HELD = {"input_ids", "inputs_embeds", "attention_mask", "position_ids", "visual_pos_masks", "deepstack_visual_embeds", "per_layer_ids"}
DTYPES = {torch.float32: ("F32", torch.int32), torch.bfloat16: ("BF16", torch.int16)}


def sample_of(ids: list[int], given: dict[str, Any], config: Any, place: str) -> dict[str, Tensor]:
    """ids: of the tokens; given: the decoder's arguments; config: of the whole model."""
    strange = {name for name, value in given.items() if value is not None and name not in OF_CALLS | HELD}
    if strange or given.get("input_ids") is not None:
        raise BadInput(f"{place}: transformers hands the decoder {sorted(strange) or 'input_ids'}, which samples do not hold")
    rows = given["inputs_embeds"][0]
    kept = rows.isnan().any(-1)  # of the table of embeddings, which was not read
    positions = (~kept).nonzero()[:, 0].tolist()
    tokens = {getattr(config, name, None) for name in ("image_token_id", "video_token_id")}
    placeholders = [at for at, token in enumerate(ids) if token in tokens]
    if positions != placeholders or not rows[kept].isnan().all():
        raise BadInput(f"{place}: found {len(placeholders)} tokens of images and videos, of which {len(positions)} get rows without NaN from the vision tower")
    tensors = {"input_ids": int_tensor(ids), "embedded_positions": int_tensor(positions), "embeddings": float_tensor(rows[~kept], place),
               "image_groups": int_tensor(groups_of(positions, len(ids)))}  # fmt: skip
    tensors.update(injected(given, kept, config.get_text_config().num_hidden_layers, place))
    axes = given.get("position_ids")
    if axes is not None and axes.shape[0] == 3:
        tensors["position_ids"] = int_tensor(axes[:, 0].flatten().tolist(), 3)
    elif axes is not None and axes.flatten().tolist() != list(range(len(ids))):
        raise BadInput(f"{place}: found positions of the shape {list(axes.shape)}, expected 3 axes, or 0 to {len(ids) - 1}")
    if given.get("per_layer_ids") is not None:
        tensors["per_layer_ids"] = int_tensor(given["per_layer_ids"][0].tolist())
    return tensors


def float_tensor(values: torch.Tensor, place: str) -> Tensor:
    if not values.isfinite().all():
        raise BadInput(f"{place}: the vision tower gives values that are not finite")
    name, whole = DTYPES[values.dtype]
    return Tensor(name, tuple(values.shape), values.contiguous().cpu().view(whole).numpy().astype(f"<i{whole.itemsize}").tobytes())


def injected(given: dict[str, Any], kept: torch.Tensor, num_layers: int, place: str) -> dict[str, Tensor]:
    """Rows that are added to the hidden states behind the first layers."""
    features, mask = given.get("deepstack_visual_embeds"), given.get("visual_pos_masks")
    if not features:
        return {}
    if mask is None or not torch.equal(mask[0], ~kept) or len(features) > num_layers:
        raise BadInput(f"{place}: found rows for other tokens than the images', or for more than {num_layers} layers")
    return {f"injected.{layer}": float_tensor(rows, place) for layer, rows in enumerate(features)}


class MaskedLayers:
    """Which kinds of layers let the tokens of an image see each other, seen in the masks of the samples."""

    def __init__(self, config: Any) -> None:
        self._types: list[str] = list(getattr(config, "layer_types", None) or [])
        self._window: int | None = getattr(config, "sliding_window", None)
        self._is_bidirectional: dict[str, bool] = {}

    def see(self, mask: Any, groups: list[int], place: str) -> None:
        """mask: of the decoder's arguments, of one row that is 1 where there is no padding, or a mask a kind of layer."""
        if isinstance(mask, dict):
            for kind in sorted(mask):
                self._see_kind(kind, mask[kind], torch.tensor(groups), place)
        elif mask is not None and (mask.dim() != 2 or not mask.all()):
            raise BadInput(f"{place}: found a mask of the shape {list(mask.shape)}, expected one row of ones")

    def _see_kind(self, kind: str, mask: torch.Tensor, groups: torch.Tensor, place: str) -> None:
        seen = mask[0, 0] if mask.dtype == torch.bool else mask[0, 0] == 0
        at = torch.arange(len(groups))
        distance = at[:, None] - at
        causal = distance >= 0
        within = (groups[:, None] == groups) & (groups > 0)
        in_reach = distance < self._window if kind == "sliding_attention" and self._window else torch.ones_like(causal)
        fits = {False: torch.equal(seen, in_reach & causal), True: torch.equal(seen, in_reach & (causal | within))}
        if not any(fits.values()) or not fits.get(self._is_bidirectional.get(kind, fits[True]), True):
            raise BadInput(f"{place}: found a mask of {kind} layers that is neither causal nor bidirectional within images")
        if not all(fits.values()):
            self._is_bidirectional[kind] = fits[True]

    def layers(self) -> list[int]:
        return [layer for layer, kind in enumerate(self._types) if self._is_bidirectional.get(kind, False)]
