#!/usr/bin/env python3
"""engines_sglang.py --jobs JOBS.json OUT.jsonl   or   engines_sglang.py [--habits] OUT.json [NAME...]

What SGLang holds after it loaded a checkpoint: k and v of the RadixAttention of every layer, the dtype of its cache, its warnings, or
what it refused with. First form: folders, as engines_judge.py says; second form: the variants of engines_variants.py.

SGLang's own code runs from its arguments (ServerArgs, and their resolution) through ModelConfig and ModelRunner.initialize: its
choice of the model's class, that class's construction, its loader of safetensors, the class's load_weights, the processing after
loading, load_kv_cache_scales (--quantization-param-path) and configure_kv_cache_dtype. It runs on its own CPU platform
(SGLANG_USE_CPU_ENGINE=1). No forward is run, no cache is laid out. What stands in, all of it before any tensor is read:
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
Of latent attention, whose layers have two RadixAttention, attn_mqa is told: it is the one that reads the latent cache.

Reference: sglang 0.5.23 with requirements-sglang.txt: python3 -m venv DIR; DIR/bin/pip install -r requirements-sglang.txt;
DIR/bin/pip install --no-deps sglang==0.5.23. Run with that environment's python.
"""
import json
import os
import re
import sys
import types

for key, value in dict(SGLANG_USE_CPU_ENGINE="1", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1").items():
    os.environ.setdefault(key, value)


from engines_judge import Absent, absent, forget_model, judge, know_config, number, numbers

absent("sgl_kernel", "flashinfer", "cutlass", "tilelang", "deep_gemm")

import sglang
import torch

for name in ("fused_input_proj_cpu", "fused_qk_gemma_rmsnorm_cpu", "fused_qk_gemma_rmsnorm_with_gate_cpu",
             "fused_qkvzba_split_reshape_cat_contiguous_cpu", "fused_sigmoid_mul_cpu"):
    setattr(torch.ops.sgl_kernel, name, Absent(f"torch.ops.sgl_kernel.{name}"))

from sglang.benchmark.one_batch import _init_process_global_configs
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import bootstrap
from sglang.srt.layers import linear, parameter, rotary_embedding
from sglang.srt.layers.attention.dsa import dsa_indexer
from sglang.srt.layers.moe.fused_moe_triton import layer as fused_experts
from sglang.srt.layers.quantization import fp8
from sglang.srt.layers.quantization.kv_cache import BaseKVCacheMethod
from sglang.srt.layers.quantization.quark import quark
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache import kv_cache_dtype
from sglang.srt.model_executor import model_runner
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_loader import loader
from sglang.srt.models import dbrx, deepseek_v2, mllama4, qwen3_5, qwen3_next
from sglang.srt.runtime_context import SpawnRanks, get_resources, publish
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils import common

IS_STARTED = False
OTHER_TOWERS = {"kimi_k25": "vision_tower."}  # weights that fixtures name otherwise than published checkpoints, which it stops at: not read
ATTENTION = {"lfm2": "torch_native", "lfm2_moe": "torch_native"}  # which refuse triton's


def rope_of_gpu(*arguments, **named):
    return rotary_embedding.get_rope_wrapper(*arguments, **named | {"device": "cuda"})


class TorchOnCpu:
    """torch, whose tensors lie on the CPU whatever device is named."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *shape, **named):
        return torch.empty(*shape, **named | {"device": "cpu"})


def stand_in_for_gpu():
    for module in (linear, parameter, fp8, fused_experts, qwen3_next, qwen3_5, mllama4):
        module._is_cpu = False
    for module in (deepseek_v2, dsa_indexer):
        module.get_rope_wrapper = rope_of_gpu
    dbrx.torch = TorchOnCpu()
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    for module in (loader, quark):
        module.get_device_capability = lambda *_: (9, 0)
    model_runner.adjust_config_with_unaligned_cpu_tp = lambda config, *_: config
    kv_cache_dtype.current_platform = types.SimpleNamespace(is_cpu=lambda: False)
    read = loader.DefaultModelLoader._get_all_weights
    loader.DefaultModelLoader._get_all_weights = lambda self, config, model: (
        one for one in read(self, config, model) if not one[0].startswith(OTHER_TOWERS.get(config.hf_config.model_type, "-")))
    find = loader._modules_with_quant_method
    loader._modules_with_quant_method = lambda model: ((module, method) for module, method in find(model)
                                                       if isinstance(method, BaseKVCacheMethod))


def is_hybrid(config):
    text = config.get("text_config", config)
    return any(key in text for key in ("mamba_n_heads", "mamba_d_state", "hybrid_override_pattern", "linear_num_key_heads", "ssm_state_size"))


def run_model(folder, told):
    global IS_STARTED
    config = know_config(folder, remote=("mimo_v2_flash",))
    more = {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True} if is_hybrid(config) else {}
    if told.get("scales"):
        more["quantization_param_path"] = told["scales"]
    more |= told.get("arguments", {})
    is_draft = told.get("is_draft", False)
    arguments = ServerArgs(model_path=folder, device="cpu", attention_backend=ATTENTION.get(config["model_type"], "triton"), skip_tokenizer_init=True, disable_cuda_graph=True,
                           kv_cache_dtype=told.get("kv_cache_dtype", "auto"), **more)
    arguments.resolve_once()
    ports = PortArgs.init_new(arguments)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    _init_process_global_configs()
    model_config = ModelConfig.from_server_args(arguments, model_path=folder, is_draft_model=is_draft)
    if not IS_STARTED:
        bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=ports.nccl_port)
        IS_STARTED = True
    bootstrap.init_layer_runtime(model_config=model_config)
    return ModelRunner(model_config=model_config, mem_fraction_static=0.5, gpu_id=0, nccl_port=ports.nccl_port, server_args=arguments,
                       is_draft_worker=is_draft)


def held(layer, side):
    """The number that the attention backends take; the parameter and its copy as a float have to be the same."""
    scale, copy = getattr(layer, f"{side}_scale", None), getattr(layer, f"{side}_scale_float", None)
    if scale is None:
        return None
    value = numbers(scale) if hasattr(scale, "flatten") else number(scale)
    return value if copy is None or number(copy) == value else [value, number(copy)]


def forget_state():
    """What the process keeps of the model before."""
    forget_model()
    common.print_warning_once.cache_clear()
    get_resources().expert_location_metadata = None


def observe(folder, told):
    forget_state()
    runner = run_model(folder, told)
    layers = {}
    for name, layer in runner.model.named_modules():
        if isinstance(layer, RadixAttention) and not name.endswith(".attn_mha"):
            # Not layer_id: a layer that reads another one's cache has that one's.
            named = re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", "." + name)
            layers[int(named[1]) if named else layer.layer_id] = {side: held(layer, side) for side in "kv"}
    is_fp8 = "float8" in str(runner.kv_cache_dtype)
    return {"cache_dtype": runner.kv_cache_dtype_str if is_fp8 else "auto", "layers": layers}


def observe_variant(folder, variant):
    told = variant.get("kv_cache_dtype", "auto")
    seen = observe(folder, {"kv_cache_dtype": "fp8_e4m3" if told == "fp8" else told})  # it has no plain fp8
    return seen | {"layers": [sides for _, sides in sorted(seen["layers"].items())]}


if __name__ == "__main__":
    stand_in_for_gpu()
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "sglang", sglang.__version__, "sglang", observe)
    else:
        from engines_variants import run
        run("sglang", sglang.__version__, observe_variant, skips=lambda variant: variant.get("rocm"))
    sys.stdout.flush()
    os._exit(0)
