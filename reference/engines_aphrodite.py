#!/usr/bin/env python3
"""engines_aphrodite.py --jobs JOBS.json OUT.jsonl   or   engines_aphrodite.py [--habits] OUT.json [NAME...]

As engines_vllm.py, for Aphrodite, which is vLLM's code with changes of its own: what its attention layers hold after its own
configuration, loader and processing of attention layers. It runs on its CPU platform, without its compiled operations; the CPU is let
take head sizes that its kernels lack, FP8 weights, delta nets (whose set_allocator of Triton does nothing), and experts without a gate; a plain PretrainedConfig stands for
remote configuration classes. Weights of parts that see and hear are neither read nor asked for.

Reference: aphrodite-engine 0.24.1 (--no-deps) in the environment of engines_vllm.py. Run with that environment's python.
"""
import os
import sys

from engines_judge import OTHER_PARTS, Absent, attention_processing, forget_model, free_port, judge, know_config, numbers, pass_over_other_parts

for key, value in dict(APHRODITE_TARGET_DEVICE="cpu", APHRODITE_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", APHRODITE_NO_USAGE_STATS="1",
                       DO_NOT_TRACK="1", APHRODITE_LOGGING_LEVEL="WARNING", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0",
                       LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()).items():
    os.environ.setdefault(key, value)

import aphrodite
import torch
from aphrodite import logger
from aphrodite.config import AphroditeConfig, ModelConfig, set_current_aphrodite_config
from aphrodite.distributed import init_distributed_environment, initialize_model_parallel
from aphrodite.engine.arg_utils import EngineArgs
from aphrodite.model_executor.layers.attention import Attention
from aphrodite.model_executor.layers.fused_moe.config import FusedMoEConfig
from aphrodite.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
from aphrodite.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from aphrodite.model_executor.model_loader import base_loader, default_loader, get_model
from aphrodite.model_executor.models import registry
from aphrodite.triton_utils import triton
from aphrodite.v1.attention.backends.cpu_attn import CPUAttentionBackend
from transformers.models.pixtral import modeling_pixtral

from scale_loading import layer_of


def let_cpu_through():
    for name in ("PixtralRotaryEmbedding", "position_ids_in_meshgrid"):  # parts of a vision tower that transformers 5.17 calls otherwise
        if not hasattr(modeling_pixtral, name):
            setattr(modeling_pixtral, name, Absent(name))
    registry._run_in_subprocess = lambda inspect: inspect()  # a process of its own for each model's class takes seconds
    torch.ops._C = Absent("torch.ops._C")
    CPUAttentionBackend.get_supported_head_sizes = classmethod(lambda cls: [])
    CPUUnquantizedExperts.is_supported_config = staticmethod(lambda *_: (True, None))
    checks = FusedMoEConfig.__post_init__

    def checked_but_for_the_platform(config):
        try:
            checks(config)
        except NotImplementedError:  # experts without a gate, on the CPU
            pass

    FusedMoEConfig.__post_init__ = checked_but_for_the_platform
    backend = ModelConfig._get_transformers_backend_cls
    ModelConfig._get_transformers_backend_cls = lambda config: backend(config) if config.architectures else ""  # asked by its CPU platform of inner models
    triton.set_allocator = lambda _: None
    base_loader.process_weights_after_loading = attention_processing(Attention, BaseKVCacheMethod)
    pass_over_other_parts(default_loader.DefaultModelLoader)
    read = default_loader.DefaultModelLoader.get_all_weights

    def read_text_model(self, *which):
        weights, size = read(self, *which)
        return (one for one in weights if not OTHER_PARTS.search(one[0])), size

    default_loader.DefaultModelLoader.get_all_weights = read_text_model
    with set_current_aphrodite_config(AphroditeConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)


def observe(folder, job):
    forget_model()
    for once in (logger._print_warning_once, logger._print_info_once):
        once.cache_clear()
    know_config(folder)
    engine = EngineArgs(model=folder, skip_tokenizer_init=not os.path.exists(os.path.join(folder, "tokenizer.json")), enforce_eager=True, max_model_len=32,
                        kv_cache_dtype=job.get("kv_cache_dtype", "auto"), limit_mm_per_prompt={"image": 0})
    config = engine.create_engine_config()
    with set_current_aphrodite_config(config):
        model = get_model(aphrodite_config=config)
    held = {layer_of(name): layer for name, layer in model.named_modules()
            if hasattr(layer, "_k_scale") and hasattr(layer, "kv_cache_dtype")}
    return {"cache_dtype": held[min(held)].kv_cache_dtype,
            "layers": {i: dict(k=numbers(layer._k_scale), v=numbers(layer._v_scale)) for i, layer in sorted(held.items())}}


def observe_variant(folder, variant):
    seen = observe(folder, variant)
    return seen | {"layers": list(seen["layers"].values())}


if __name__ == "__main__":
    let_cpu_through()
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "aphrodite", aphrodite.__version__, "aphrodite", observe)
    else:
        from engines_variants import run
        run("aphrodite", aphrodite.__version__, observe_variant, skips=lambda variant: variant.get("rocm"))
    sys.stdout.flush()
    os._exit(0)
