#!/usr/bin/env python3
"""engines_vllm_ascend.py WHEEL_FOLDER --jobs JOBS.json OUT.jsonl

What vLLM-Ascend holds of an INT8 cache by channel (C8) after vLLM loaded a checkpoint: k_cache_scale and v_cache_scale of every layer, or what it refused with;
folders as engines_judge.py says, with "is_plain" where vLLM runs them without the method "ascend". WHEEL_FOLDER: where the wheel was unpacked, which is for another processor. Its own reading of quant_model_description.json,
its choice of a method for each layer, its loaders of Qwen3, GLM-4 MoE and MiniMax-M2 and its processing after loading run unchanged, in vLLM's own code on the CPU.
What stands in: torch_npu and triton are modules of nothing; the platform is vLLM's for CPUs, which takes the method "ascend"; Linears without quantization are vLLM's.

Reference: vllm 0.23.0 (--no-deps) in the environment of engines_vllm.py, with vllm-ascend 0.23.0:
  pip download --no-deps --only-binary=:all: --platform manylinux_2_34_aarch64 --python-version 3.11 vllm-ascend==0.23.0; python -m zipfile -e WHEEL WHEEL_FOLDER
"""
import os
import runpy
import sys

WHEEL_FOLDER = sys.argv.pop(1)
sys.path.insert(0, WHEEL_FOLDER)
os.environ["VLLM_PLUGINS"] = ""

from engines_judge import forget_model, judge, know_config, numbers  # first: it finds check_engine
from check_engine.common import Absent, absent, layer_of

absent("torch_npu", "torchair")

import torch
import vllm.platforms

vllm.platforms.builtin_platform_plugins["cpu"] = lambda: "vllm.platforms.cpu.CpuPlatform"  # which this build has, and does not take by itself
from check_engine import vllm as on_cpu
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader import get_model
from vllm.platforms import current_platform

VERSION = "0.23.0"


def start():
    on_cpu.start()
    torch.npu = Absent("torch.npu")
    type(current_platform).supported_quantization = [*current_platform.supported_quantization, "ascend"]
    import vllm_ascend.quantization.modelslim_config  # noqa: F401  registers the method
    runpy.run_path(os.path.join(WHEEL_FOLDER, "vllm_ascend", "patch", "worker", "patch_gqa_c8.py"))  # changes the loaders; its package would run all other changes


def observe(folder, job):
    from vllm_ascend.ascend_config import init_ascend_config

    forget_model()
    know_config(folder)
    arguments = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=32, enable_prefix_caching=False,
                           quantization=None if job.get("is_plain") else "ascend", language_model_only=True)
    config = arguments.create_engine_config()
    init_ascend_config(config)
    with set_current_vllm_config(config):
        model = get_model(vllm_config=config)
    held = {layer_of(name): layer for name, layer in model.named_modules() if isinstance(layer, Attention)}
    is_int8 = {getattr(layer, "kv_cache_torch_dtype", None) == torch.int8 for layer in held.values()}
    return {"cache_dtype": "int8" if True in is_int8 else "auto",
            "layers": {i: {side: numbers(getattr(layer, f"{side}_cache_scale")) if hasattr(layer, "k_cache_scale") else None for side in "kv"} for i, layer in sorted(held.items())}}


if __name__ == "__main__":
    start()
    judge(*sys.argv[2:4], "vllm-ascend", VERSION, "vllm_ascend", observe)
    sys.stdout.flush()
    os._exit(0)
