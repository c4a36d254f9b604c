#!/usr/bin/env python3
"""lmdeploy_draft_scales.py DRAFTS OUT.json [NAME...]

Under which names LMDeploy's PyTorch engine reads KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS:
tests/fixtures/drafts. Both models that a server with `--speculative-algorithm` loads are built and loaded by LMDeploy's own code, as
engines_lmdeploy.py says: the main model, then the draft. It refuses the scales of the main model, and any configuration that declares an
FP8 cache, so the copies have neither: "main" says what becomes of the draft layer's alone. OUT.json is committed as
tests/fixtures/engines/drafts_lmdeploy.json.

Reference: as engines_lmdeploy.py. Run with that environment's python.
"""
import gc
import json
import os

import engines_lmdeploy as lmdeploy  # sets the environment first
import torch
from safetensors.torch import load_file, save_file

from draft_scales import attempt, layer_names, run, with_draft_scales, without_declaration

METHODS = {"qwen3_5": "qwen3_5_mtp"}


def without_main_scales(folder):
    without_declaration(folder)
    file, own = os.path.join(folder, "model.safetensors"), layer_names(folder)
    held = {name: tensor for name, tensor in load_file(file).items() if not name.endswith("_scale") or own.search(name)}
    save_file(held, file, metadata={"format": "pt"})


def scales_of(model):
    return [(module.k_scale.item(), module.v_scale.item()) for name, module in model.named_modules()
            if isinstance(module, lmdeploy.Attention) and "vision" not in name]


def tried(source, folder, form):
    gc.collect()
    _, draft_scales = with_draft_scales(source, folder, form)
    without_main_scales(folder)
    result, classes = {}, []
    method = METHODS.get(json.load(open(os.path.join(folder, "config.json")))["model_type"], "deepseek_mtp")

    def main():
        held = scales_of(lmdeploy.load(folder, spec_method=method, num_spec_tokens=1))
        return True if set(held) == {(1.0, 1.0)} else f"holds {held}"

    def draft():
        model = lmdeploy.load(folder, is_draft_model=True, spec_method=method)
        classes.append(type(model).__name__)
        held = scales_of(model)
        return True if held and (draft_scales is None or set(held) == {draft_scales}) else f"holds {held}"

    result["main"] = attempt(main, folder)
    result["draft"] = attempt(draft, folder)
    return result, classes


if __name__ == "__main__":
    lmdeploy.start()
    run("lmdeploy", lmdeploy.lmdeploy.__version__, tried)
