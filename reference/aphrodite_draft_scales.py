#!/usr/bin/env python3
"""aphrodite_draft_scales.py DRAFTS OUT.json [NAME...]

Under which names Aphrodite reads KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS: tests/fixtures/drafts.
As vllm_draft_scales.py: the main model, then the draft, are built and loaded by Aphrodite's own loader on its CPU platform, as
engines_aphrodite.py says. OUT.json is committed as tests/fixtures/engines/drafts_aphrodite.json.

Reference: aphrodite-engine 0.24.1, as engines_aphrodite.py. Run with that environment's python.
"""
import gc

import engines_aphrodite  # sets the environment first
import aphrodite
from aphrodite.config import set_current_aphrodite_config
from aphrodite.engine.arg_utils import EngineArgs
from aphrodite.model_executor.model_loader import base_loader, get_model

from draft_scales import attempt, run, with_draft_scales
from scale_loading import layer_of


def scales_of(model):
    return {name: tuple(getattr(module, side).item() if hasattr(module, side) else 1.0 for side in ("k_scale", "v_scale"))
            for name, module in model.named_modules() if hasattr(module, "_k_scale") and hasattr(module, "kv_cache_dtype")}


def tried(source, folder, form):
    gc.collect()
    main_scales, draft_scales = with_draft_scales(source, folder, form)
    engine = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_model_len=32,
                        load_format="safetensors", limit_mm_per_prompt={"image": 0, "video": 0},
                        speculative_config={"method": "mtp", "num_speculative_tokens": 1})
    config = engine.create_engine_config()
    result, classes = {}, []

    def main():
        held = {layer_of(name): one for name, one in scales_of(get_model(aphrodite_config=config)).items()}
        return True if held == main_scales else f"holds {held}, written were {main_scales}"

    def draft():
        model = get_model(aphrodite_config=config, model_config=config.speculative_config.draft_model_config)
        classes.append(type(model).__name__)
        held = scales_of(model)
        return True if draft_scales is None or set(held.values()) == {draft_scales} else f"holds {held}"

    with set_current_aphrodite_config(config):
        result["main"] = attempt(main, folder)
        result["draft"] = attempt(draft, folder)
    return result, classes


if __name__ == "__main__":
    engines_aphrodite.let_cpu_through()
    base_loader.process_weights_after_loading = lambda *_: None
    run("aphrodite", aphrodite.__version__, tried)
