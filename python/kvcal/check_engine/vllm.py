"""vLLM: its configuration, its model loader and its processing of attention layers after loading, on its CPU platform; no forward is run.

Any build runs: with the one for GPUs the compiled operations are modules of nothing. The CPU is let take what no forward needs (STOOD_IN).
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from .common import Absent, AbsentModule, NoStream, absent, attention_processing, forget_model, free_port, know_config, layer_of, numbers, put, replace, set_environment

set_environment(VLLM_TARGET_DEVICE="cpu", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                VLLM_LOGGING_LEVEL="WARNING", VLLM_KIMI_K3_GEMM_AR="0", VLLM_ENABLE_GEMM_RS="0", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0", LOCAL_RANK="0",
                WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())  # fmt: skip

absent("vllm.vllm_flash_attn")

import torch
import vllm
import vllm.platforms
import vllm.vllm_flash_attn as _flash_attention

_flash_attention.is_fa_version_supported = lambda *_, **__: False  # asked where towers are imported

for _name in set(vllm.platforms.builtin_platform_plugins) - {"cpu"}:  # it stops where it finds several
    vllm.platforms.builtin_platform_plugins[_name] = lambda: None
from vllm import logger
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.model_loader import get_model
from vllm.platforms import current_platform

STOOD_IN = ("vLLM's CPU platform for a GPU, without compiled operations where the build has none for CPUs",
            "checks of what the CPU's kernels can do (head sizes, FP8 caches, FP8 weights, experts without a gate, attention of chosen tokens) pass",
            "after loading only attention layers are processed; a plain configuration class stands for remote code's")  # fmt: skip


def let_fp8_caches_through() -> None:
    """0.33 refuses FP8 caches before it loads where the processor lacks the instructions of their kernel."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    replace("vllm.v1.attention.backends.cpu_attn:CPUAttentionBackend.supports_kv_cache_dtype", lambda supports: classmethod(
        lambda cls, dtype: dtype in CPUAttentionBackend.supported_kv_cache_dtypes or supports(dtype)))  # fmt: skip


def checked_but_for_the_platform(checks: Any) -> Any:
    def check(config: Any) -> None:
        try:
            checks(config)
        except NotImplementedError:  # experts without a gate, on the CPU
            pass

    return check


def let_cpu_through() -> None:
    """No forward is run, so what the CPU lacks does not matter."""
    let_fp8_caches_through()
    put("vllm.v1.attention.backends.cpu_attn:CPUAttentionBackend.get_supported_head_sizes", classmethod(lambda cls: []))
    put("vllm.model_executor.layers.fused_moe.experts.cpu_moe:CPUUnquantizedExperts.is_supported_config", staticmethod(lambda *_: (True, None)))
    replace("vllm.model_executor.layers.fused_moe.config:FusedMoEConfig.__post_init__", checked_but_for_the_platform)
    start_processes()


def start_processes() -> None:
    """The group of one process that layers ask."""
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)


def let_attention_through(is_latent_fp8_refused: bool) -> None:
    """The CPU has no attention of chosen tokens (DSA), nor, in 0.33, of a latent cache in FP8."""
    choose = type(current_platform).get_attn_backend_cls.__func__

    def chosen(cls: Any, selected_backend: Any, attn_selector_config: Any, *rest: Any, **more: Any) -> Any:
        config = attn_selector_config._replace(use_sparse=False)
        if is_latent_fp8_refused and config.use_mla:
            config = config._replace(kv_cache_dtype=None)
        return choose(cls, selected_backend, config, *rest, **more)

    type(current_platform).get_attn_backend_cls = classmethod(chosen)


def ask_here() -> None:
    """Classes of models are asked in this process: one of its own for each takes seconds."""
    put("vllm.model_executor.models.registry:_run_in_subprocess", lambda inspect: inspect())
    torch.cpu._is_amx_tile_supported = lambda: False  # so that attention is chosen alike on every machine


def start() -> ModuleType:
    ask_here()
    let_cpu_through()
    torch.cuda.Stream = torch.cuda.Event = NoStream  # type: ignore[assignment, misc]
    has_operations = hasattr(torch.ops._C, "cpu_attention_with_kv_cache")
    put("vllm.triton_utils:triton.set_allocator", lambda _: None)  # of delta nets
    let_attention_through(is_latent_fp8_refused=not has_operations)
    kernels = importlib.import_module("vllm.v1.attention.backends.fa_utils")
    kernels.is_flash_attn_varlen_func_available = lambda: True  # asked where attention of chosen tokens is made
    kernels.__getattr__ = AbsentModule(kernels.__name__).__getattr__  # names that it has on GPUs alone
    if not has_operations:
        torch.ops._C = Absent("torch.ops._C")
        torch.ops._C.cpu_has_amx_fp8 = lambda: True
    put("vllm.model_executor.model_loader.base_loader:process_weights_after_loading", attention_processing(Attention, BaseKVCacheMethod))
    return vllm


def load(folder: str, told: str, **more: Any) -> dict[int, Any]:
    """The attention modules by layer."""
    engine = EngineArgs(model=folder, skip_tokenizer_init=not os.path.exists(os.path.join(folder, "tokenizer.json")), enforce_eager=True, max_model_len=32,
                        enable_prefix_caching=False, kv_cache_dtype=told, **more)  # fmt: skip
    vllm_config = engine.create_engine_config()
    with set_current_vllm_config(vllm_config):
        model = get_model(vllm_config=vllm_config)
    return {layer_of(name): layer for name, layer in model.named_modules()
            if hasattr(layer, "_k_scale") and hasattr(layer, "kv_cache_dtype")}  # fmt: skip


def observe(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    forget_model()
    for once in ("_print_warning_once", "_print_info_once"):
        if hasattr(logger, once):
            getattr(logger, once).cache_clear()
    config = know_config(folder)
    # Tables of n-grams lie on the device: the host's memory would be pinned for it.
    more = {"engram_config": {"cpu_offload": False}} if "ple_layer_ids" in config.get("text_config", config) else {}
    held = load(folder, job.get("kv_cache_dtype", "auto"), language_model_only=True, **more)
    return {"cache_dtype": held[min(held)].kv_cache_dtype,
            "layers": {i: {"k": numbers(layer._k_scale), "v": numbers(layer._v_scale)} for i, layer in sorted(held.items())}}  # fmt: skip
