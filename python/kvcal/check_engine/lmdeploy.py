"""LMDeploy's PyTorch engine: its ModelConfig, build_patched_model and load_model_weights. The dtype of its cache is what it is told
(--quant-policy fp8), whatever a checkpoint says."""

from __future__ import annotations

import re
import types
from typing import Any

from .common import absent, forget_model, know_config, numbers, put, set_environment

set_environment(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")
absent("ray", "fla", "tilelang", "peft", "rdkit", "openai_harmony")

import lmdeploy
import torch

torch.cuda.get_device_capability = lambda *_: (8, 0)
torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=8, minor=0)
torch.cuda.current_device = lambda: 0
torch.Tensor.cuda = lambda tensor, *_, **__: tensor
from lmdeploy.pytorch import config as lmdeploy_config
from lmdeploy.pytorch.model_inputs import BuildModelContext
from lmdeploy.pytorch.models.patch import build_patched_model
from lmdeploy.pytorch.nn.attention import Attention
from lmdeploy.pytorch.weight_loader import model_weight_loader

STOOD_IN = ("ray, fla, tilelang, peft, rdkit, openai_harmony: modules of nothing; a call of one of their functions raises",
            "a GPU of compute capability 8.0 that has bfloat16; tensors lie on the CPU",
            "nothing is processed after loading; a plain configuration class stands for remote code's")  # fmt: skip


def start() -> types.ModuleType:
    put("lmdeploy.pytorch.config:is_bf16_supported", lambda *_: True)
    put("lmdeploy.pytorch.weight_loader.model_weight_loader:process_weights_after_loading", lambda *_: None)
    return lmdeploy


def load(folder: str, **told: Any) -> Any:
    config = lmdeploy_config.ModelConfig.from_pretrained(folder, dist_config=lmdeploy_config.DistConfig(), device_type="cuda", **told)
    context = BuildModelContext(quant_config=config.quant_config, tie_word_embeddings=config.tie_word_embeddings)
    model = build_patched_model(config, device=torch.device("cpu"), build_model_ctx=context)
    model_weight_loader.load_model_weights(model, folder, device=torch.device("cpu"))
    return model


def observe(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    forget_model()
    know_config(folder)
    layers = {}
    for name, module in load(folder).named_modules():
        layer = re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", "." + name + ".")
        if isinstance(module, Attention) and layer and "vision" not in name:
            layers[int(layer[1])] = {"k": numbers(module.k_scale), "v": numbers(module.v_scale)}
    return {"cache_dtype": "fp8" if job.get("kv_cache_dtype", "auto") != "auto" else "auto", "layers": layers}
