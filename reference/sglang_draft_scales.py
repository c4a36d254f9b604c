#!/usr/bin/env python3
"""sglang_draft_scales.py DRAFTS OUT.json [NAME...]

Under which names SGLang reads KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS:
tests/fixtures/drafts. Both models that a server with `--speculative-algorithm NEXTN` loads are built and loaded by SGLang's
own code, as engines_sglang.py says: the main model, then the draft. OUT.json is committed as
tests/fixtures/engines/drafts_sglang.json.

Reference: sglang 0.5.23, as engines_sglang.py. Run with that environment's python.
"""
import gc

import engines_sglang  # sets the environment first
import sglang
from sglang.srt.layers.radix_attention import RadixAttention

from draft_scales import attempt, run, with_draft_scales


def scales_of(model):
    """By number of the layer; 1.0 where the layer holds none."""
    found = {}
    for name, layer in model.named_modules():
        if isinstance(layer, RadixAttention) and not name.endswith(".attn_mha"):
            sides = [engines_sglang.held(layer, side) for side in "kv"]
            found[layer.layer_id] = tuple(1.0 if side is None else side[0] if isinstance(side, list) else side for side in sides)
    return found


def tried(source, folder, form):
    gc.collect()
    main_scales, draft_scales = with_draft_scales(source, folder, form)
    told = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 1, "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 2}
    result, classes = {}, []

    def main():
        held = scales_of(engines_sglang.run_model(folder, {"arguments": told}).model)
        return True if held == main_scales else f"holds {held}, written were {main_scales}"

    def draft():
        model = engines_sglang.run_model(folder, {"arguments": told, "is_draft": True}).model
        classes.append(type(model).__name__)
        held = scales_of(model)
        return True if draft_scales is None or set(held.values()) == {draft_scales} else f"holds {held}"

    engines_sglang.forget_state()
    result["main"] = attempt(main, folder)
    result["draft"] = attempt(draft, folder)
    return result, classes


if __name__ == "__main__":
    engines_sglang.stand_in_for_gpu()
    run("sglang", sglang.__version__, tried)
