"""SGLang's own code from its arguments (ServerArgs, and their resolution) through ModelConfig and ModelRunner.initialize: its choice of the
model's class, that class's construction, its loader of safetensors, the class's load_weights, the processing after loading,
load_kv_cache_scales (--quantization-param-path) and configure_kv_cache_dtype. It runs on its own CPU platform (SGLANG_USE_CPU_ENGINE=1). No
forward is run, no cache is laid out. What stands in, all of it before any tensor is read:
- sgl_kernel (also the operations of it that qwen3_5.py names), flashinfer, cutlass, tilelang, deep_gemm: modules of nothing; a call of one of their functions would raise (none does).
- The GPU counts as one of compute capability 9.0 where a configuration asks, and layers load their weights as for a GPU (_is_cpu is
  false in linear.py, parameter.py, fp8.py, qwen3_next.py, qwen3_5.py, mllama4.py and the fused experts, RoPE of deepseek_v2.py and of its indexer is a GPU's, adjust_config_with_unaligned_cpu_tp does nothing: the CPU's paths pad
  and pack). E5M2 is let through, which its CPU has not.
- Experts of dbrx.py, which that file makes on "cuda" by name, lie on the CPU.
- After loading only the attention's BaseKVCacheMethod is processed; of weights that needs kernels and touches no scale of the cache.
- config.json's auto_map is not followed: a plain PretrainedConfig of the keys stands for the remote code's class (exaone, internlm2,
  internlm3; mimo_v2_flash, at whose class of transformers it stops), which SGLang would import with --trust-remote-code.
- Hybrids run with --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule: the default is for GPUs, and is refused on the CPU.
- What the process keeps of the model before (the map of experts, warnings given once) is cleared between models.
Of latent attention, whose layers have two RadixAttention, attn_mqa is told: it is the one that reads the latent cache."""

from __future__ import annotations

import re
import types
from typing import Any

from .common import Absent, NoStream, absent, forget_model, know_config, number, numbers, put, replace, set_environment, undecorated

set_environment(SGLANG_USE_CPU_ENGINE="1", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")
absent("sgl_kernel", "flashinfer", "cutlass", "tilelang", "deep_gemm", "quack")

import cutlass.cute
import cutlass.cutlass_dsl
import sglang
import tilelang
import torch

tilelang.jit = cutlass.cute.jit = cutlass.cute.kernel = cutlass.cutlass_dsl.dsl_user_op = undecorated
for _name in ("fused_input_proj_cpu", "fused_qk_gemma_rmsnorm_cpu", "fused_qk_gemma_rmsnorm_with_gate_cpu",
              "fused_qkvzba_split_reshape_cat_contiguous_cpu", "fused_sigmoid_mul_cpu"):  # fmt: skip
    setattr(torch.ops.sgl_kernel, _name, Absent(f"torch.ops.sgl_kernel.{_name}"))

from sglang.benchmark.one_batch import _init_process_global_configs
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import bootstrap
from sglang.srt.layers import rotary_embedding
from sglang.srt.layers.quantization.kv_cache import BaseKVCacheMethod
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.runtime_context import SpawnRanks, get_resources, publish
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils import common

STOOD_IN = ("SGLang's CPU platform with the code paths of a GPU of compute capability 9.0",
            "sgl_kernel, flashinfer, cutlass, tilelang, deep_gemm: modules of nothing; a call of one of their functions raises",
            "after loading only attention layers are processed; a plain configuration class stands for remote code's",
            "hybrids run with --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule")  # fmt: skip
ATTENTION = {"lfm2": "torch_native", "lfm2_moe": "torch_native"}  # which refuse triton's
AS_FOR_GPU = ("layers.linear", "layers.parameter", "layers.quantization.fp8", "layers.moe.fused_moe_triton.layer", "models.qwen3_next", "models.qwen3_5",
              "models.mllama4")  # fmt: skip
is_started = False


def rope_of_gpu(*arguments: Any, **named: Any) -> Any:
    return rotary_embedding.get_rope_wrapper(*arguments, **named | {"device": "cuda"})


class TorchOnCpu:
    """torch, whose tensors lie on the CPU whatever device is named."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *shape: Any, **named: Any) -> torch.Tensor:
        return torch.empty(*shape, **named | {"device": "cpu"})


def attention_methods(find: Any) -> Any:
    return lambda model: ((module, method) for module, method in find(model) if isinstance(method, BaseKVCacheMethod))


def start() -> types.ModuleType:
    for module in AS_FOR_GPU:
        put(f"sglang.srt.{module}:_is_cpu", False)
    for module in ("models.deepseek_v2", "models.dots3_common.modeling", "layers.attention.dsa.dsa_indexer"):
        put(f"sglang.srt.{module}:get_rope_wrapper", rope_of_gpu)
    put("sglang.srt.models.dbrx:torch", TorchOnCpu())
    torch.cuda.Stream = torch.cuda.Event = NoStream  # type: ignore[assignment, misc]
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    for module in ("model_loader.loader", "layers.quantization.quark.quark"):
        put(f"sglang.srt.{module}:get_device_capability", lambda *_: (9, 0))
    put("sglang.srt.model_executor.model_runner:adjust_config_with_unaligned_cpu_tp", lambda config, *_: config)
    put("sglang.srt.models.dots3_common.modeling:_require_cuda", lambda: None)
    put("sglang.srt.arg_groups.mamba_hook:_platform_supports_mamba_cache_extra_buffer", lambda: True)
    put("sglang.srt.mem_cache.kv_cache_dtype:current_platform", types.SimpleNamespace(is_cpu=lambda: False))
    replace("sglang.srt.model_loader.loader:_modules_with_quant_method", attention_methods)
    return sglang


def is_hybrid(config: dict[str, Any]) -> bool:
    text = config.get("text_config", config)
    if "indexer_compress_ratio" in text:  # needs pages of several tokens, which no_buffer has not
        return False
    return any(key in text for key in ("mamba_n_heads", "mamba_d_state", "hybrid_override_pattern", "linear_num_key_heads", "ssm_state_size"))


def run_model(folder: str, told: dict[str, Any]) -> Any:
    global is_started
    config = know_config(folder, remote=("mimo_v2_flash",))
    more: dict[str, Any] = {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True} if is_hybrid(config) else {}
    if told.get("scales"):
        more["quantization_param_path"] = told["scales"]
    more |= told.get("arguments", {})
    is_draft = told.get("is_draft", False)
    arguments = ServerArgs(model_path=folder, device="cpu", attention_backend=ATTENTION.get(config["model_type"], "triton"), skip_tokenizer_init=True, disable_cuda_graph=True,
                           kv_cache_dtype=told.get("kv_cache_dtype", "auto"), **more)  # fmt: skip
    arguments.resolve_once()
    ports = PortArgs.init_new(arguments)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    _init_process_global_configs()
    model_config = ModelConfig.from_server_args(arguments, model_path=folder, is_draft_model=is_draft)
    if not is_started:
        bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=ports.nccl_port)
        is_started = True
    bootstrap.init_layer_runtime(model_config=model_config)
    return ModelRunner(model_config=model_config, mem_fraction_static=0.5, gpu_id=0, nccl_port=ports.nccl_port, server_args=arguments,
                       is_draft_worker=is_draft)  # fmt: skip


def held(layer: Any, side: str) -> Any:
    """The number that the attention backends take; the parameter and its copy as a float have to be the same."""
    scale, copy = getattr(layer, f"{side}_scale", None), getattr(layer, f"{side}_scale_float", None)
    if scale is None:
        return None
    value = numbers(scale) if hasattr(scale, "flatten") else number(scale)
    return value if copy is None or number(copy) == value else [value, number(copy)]


def forget_state() -> None:
    """What the process keeps of the model before."""
    forget_model()
    common.print_warning_once.cache_clear()
    get_resources().expert_location_metadata = None


def observe(folder: str, told: dict[str, Any]) -> dict[str, Any]:
    forget_state()
    runner = run_model(folder, told)
    layers = {}
    for name, layer in runner.model.named_modules():
        if isinstance(layer, RadixAttention) and not name.endswith(".attn_mha"):
            # Not layer_id: a layer that reads another one's cache has that one's.
            named = re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", "." + name)
            layers[int(named[1]) if named else layer.layer_id] = {side: held(layer, side) for side in "kv"}
    return {"cache_dtype": runner.kv_cache_dtype_str if "float8" in str(runner.kv_cache_dtype) else "auto", "layers": layers}
