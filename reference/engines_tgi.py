#!/usr/bin/env python3
"""engines_tgi.py --jobs JOBS.json OUT.jsonl   or   engines_tgi.py [--habits] OUT.json [NAME...]

What TGI holds after it loaded a checkpoint: the KVScales of every attention layer and the dtype of its cache, or what it refused
with; folders as engines_judge.py says, or the variants of engines_variants.py. TGI_SERVER names the folder server/ of its repository at db931fcf (2026-01).

TGI's own get_model runs with dtype float16, which is its default on CUDA: its choice of the quantization and of the cache, the model's class, its
configuration, its weights loader, and the construction of the model, which reads all weights. It ends there. Families that TGI has no
model of run as transformers' (TransformersFlashCausalLM, CausalLM), whose cache is not FP8 whatever is told. What stands in:
- The system counts as CUDA with flashinfer while modules are imported; tensors lie on the CPU.
- Kernels (paged_attention, moe, quantization, flash_attn, flashinfer, punica, marlin, vllm, exllama ..) and generated gRPC code: modules of
  nothing; a call of one of their functions would raise. FP8 weights are taken as they are stored (their requantization needs a kernel), and 16-bit weights that it quantizes with scale 1.
- The tokenizer and the processor are not read, the towers of Mllama and LLaVA-NeXT are not built; a plain PretrainedConfig stands for remote configuration classes.

Reference: TGI db931fcf with requirements-tgi.txt in its environment. Run with that environment's python.
"""
import os
import re
import sys
import types

for key, value in dict(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", ATTENTION="flashinfer", PREFIX_CACHING="0", RANK="0", WORLD_SIZE="1",
                       LOG_LEVEL="WARNING").items():
    os.environ.setdefault(key, value)
sys.path.insert(0, os.environ["TGI_SERVER"])

import torch

from engines_judge import Absent, absent, forget_model, judge, know_config

absent("paged_attention", "moe", "quantization", "quantization_eetq", "flash_attn", "flash_attn_2_cuda", "flash_attn_cuda", "flashinfer", "punica_sgmv",
       "marlin_kernels", "gptq_kernels", "vllm", "exllamav2_kernels", "exllama_kernels", "attention_kernels", "rotary", "kernels", "mamba_ssm",
       "causal_conv1d", "peft", "outlines", "layer_norm", "dropout_layer_norm", "EETQ", "awq_inference_engine", "custom_kernels", "rotary_emb",
       "text_generation_server.pb")

import quantization

quantization.cutlass_scaled_mm_supports_fp8 = lambda *_: True
quantization.scaled_fp8_quant = lambda weight, **_: (weight.to(torch.float8_e4m3fn), torch.ones(1))
IS_AVAILABLE = torch.cuda.is_available
torch.cuda.is_available = lambda: True
torch.cuda.graph_pool_handle = lambda: None
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_name = lambda *_: "NVIDIA H100"
from text_generation_server import models
from text_generation_server.layers import fp8
from text_generation_server.models import causal_lm, flash_causal_lm, transformers_flash_causal_lm, transformers_flash_vlm
from text_generation_server.models.custom_modeling import llava_next, mllama
from transformers import AutoModelForCausalLM, AutoProcessor, AutoTokenizer, Llama4ForConditionalGeneration

torch.cuda.is_available = IS_AVAILABLE


class Built(Exception):
    """Carries the model out of get_model."""


class TorchWithGpu:
    """torch, for a module that asks whether there is a GPU before it reads a checkpoint."""
    cuda = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 1)

    def __getattr__(self, name):
        return getattr(torch, name)

    def device(self, *_):
        return torch.device("cpu")


def build_model(from_pretrained, *arguments, **named):
    raise Built(from_pretrained(*arguments, **{**named, "attn_implementation": None, "device_map": None}), None)


class Transformers(AutoModelForCausalLM):
    @classmethod
    def from_pretrained(cls, *arguments, **named):
        build_model(AutoModelForCausalLM.from_pretrained, *arguments, **named)


def stop_before_serving(_, model_id, model, *rest, **named):
    raise Built(model, None)


def stop_after_construction():
    for module in (flash_causal_lm, transformers_flash_causal_lm, transformers_flash_vlm):
        module.SYSTEM = "ipex"  # its word for tensors on the CPU
    for module in (causal_lm, transformers_flash_causal_lm):
        module.AutoModelForCausalLM = Transformers
    causal_lm.torch = TorchWithGpu()
    causal_lm.Model.__init__ = stop_before_serving  # of models whose cache is that of transformers
    read = Llama4ForConditionalGeneration.from_pretrained
    Llama4ForConditionalGeneration.from_pretrained = lambda *arguments, **named: build_model(read, *arguments, **named)
    AutoTokenizer.from_pretrained = lambda *_, **__: Absent("tokenizer")
    for processor in (AutoProcessor, models.Gemma3Processor, models.Qwen2_5_VLProcessor):
        processor.from_pretrained = lambda *_, **__: Absent("processor")
    mllama.MllamaVisionModel = llava_next.load_vision_model = lambda *_, **__: None
    flash_causal_lm.init_cpu_threads_env = lambda *_, **__: None
    construct = flash_causal_lm.FlashCausalLM.__init__

    def stop(self, model_id, model_class, *rest, **named):
        def build(*arguments):
            raise Built(model_class(*arguments), named.get("kv_cache_dtype"))
        construct(self, model_id, build, *rest, **named)

    flash_causal_lm.FlashCausalLM.__init__ = stop


def observe(folder, job, speculate=None):
    forget_model()
    know_config(folder)
    told = job.get("kv_cache_dtype", "auto")
    try:
        models.get_model(folder, None, None, False, None, speculate, "float16", None if told == "auto" else told, False, 32)
        raise RuntimeError("TGI built no model of it")
    except Built as built:
        model, cache = built.args
    layers = {}
    for name, module in model.named_modules():
        scales = getattr(module, "kv_scales", None)
        if scales is not None:
            layer = int(re.search(r"\.(?:layers|h)\.(\d+)\.", "." + name + ".")[1])
            layers[layer] = {"k": scales.key_scale_cpu, "v": scales.value_scale_cpu}
    return {"cache_dtype": str(cache).split(".")[1].replace("float8", "fp8") if "float8" in str(cache) else "auto", "layers": layers}


def observe_variant(folder, variant):
    told = {"fp8": "fp8_e4m3fn", "fp8_e4m3": "fp8_e4m3fn", "fp8_e5m2": "fp8_e5m2"}.get(variant.get("kv_cache_dtype"), "auto")
    seen = observe(folder, {"kv_cache_dtype": told})
    return seen | {"layers": [sides for _, sides in sorted(seen["layers"].items())]}


if __name__ == "__main__":
    stop_after_construction()
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "tgi", "db931fcf", "text_generation_server", observe)
    else:
        from engines_variants import run
        run("text_generation_server", "db931fcf", observe_variant, skips=lambda variant: variant.get("rocm"))
    sys.stdout.flush()
    os._exit(0)
