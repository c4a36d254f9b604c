#!/usr/bin/env python3
"""transformers_draft_scales.py DRAFTS OUT.json [NAME...]

What transformers makes of KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS: tests/fixtures/drafts. It has no
class of such a layer: "draft" is true where the model takes a tensor of the layer from the file, and else null; where it refuses the
configuration, that is asked of the checkpoint without it. OUT.json is committed as
tests/fixtures/engines/drafts_transformers.json, drafts_transformers_5.23.json and drafts_transformers_5.24.json.

Reference: as engines_transformers.py. Run with that environment's python.
"""
import os
import re

import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from draft_scales import attempt, layer_names, run, with_draft_scales, without_declaration
from engines_transformers import held
from scale_loading import layer_of


def load(folder):
    config = AutoConfig.from_pretrained(folder)
    kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    return kind.from_pretrained(folder)


def scales_of(model):
    return {layer_of(name): (held(module, "k"), held(module, "v")) for name, module in model.named_modules()
            if re.search(r"\.layers\.\d+\.self_attn$", name) and hasattr(module, "k_scale")}


def tried(source, folder, form):
    main_scales, _ = with_draft_scales(source, folder, form)
    models = []

    def main():
        models.append(load(folder))
        found = scales_of(models[0])
        return True if found == main_scales else f"holds {found}, written were {main_scales}"

    def draft():
        if not models:
            without_declaration(folder)
            models.append(load(folder))
        own = layer_names(folder)
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
            assert any(own.search(name) for name in file.keys())
        return True if any(own.search(name) for name in models[0].state_dict()) else None

    return {"main": attempt(main, folder), "draft": attempt(draft, folder)}, []


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    run("transformers", transformers.__version__, tried)
