#!/usr/bin/env python3
"""engines_lmdeploy.py --jobs JOBS.json OUT.jsonl

What LMDeploy's PyTorch engine holds after it loaded a checkpoint: the k_scale and v_scale of every Attention, or what it refused with;
folders as engines_judge.py says. Its own ModelConfig, build_patched_model and load_model_weights run. The dtype of its cache is what it
is told (--quant-policy fp8), whatever a checkpoint says. What stands in:
- ray, fla, tilelang, peft, rdkit, openai_harmony: modules of nothing; a call of one of their functions would raise.
- The GPU counts as one of compute capability 8.0 that has bfloat16; tensors lie on the CPU, and nothing is processed after loading, which needs kernels.
- A plain PretrainedConfig stands for remote configuration classes.

Reference: lmdeploy 0.18.0 (--no-deps) with fire, mmengine-lite, shortuuid and accelerate in the environment of engines_sglang.py. Run
with that environment's python.
"""
import os
import re
import sys
import types

for key, value in dict(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1").items():
    os.environ.setdefault(key, value)

from engines_judge import absent, forget_model, judge, know_config, numbers

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


def load(folder, **told):
    config = lmdeploy_config.ModelConfig.from_pretrained(folder, dist_config=lmdeploy_config.DistConfig(), device_type="cuda", **told)
    context = BuildModelContext(quant_config=config.quant_config, tie_word_embeddings=config.tie_word_embeddings)
    model = build_patched_model(config, device=torch.device("cpu"), build_model_ctx=context)
    model_weight_loader.load_model_weights(model, folder, device=torch.device("cpu"))
    return model


def observe(folder, job):
    forget_model()
    know_config(folder)
    layers = {}
    for name, module in load(folder).named_modules():
        layer = re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", "." + name + ".")
        if isinstance(module, Attention) and layer and "vision" not in name:
            layers[int(layer[1])] = {"k": numbers(module.k_scale), "v": numbers(module.v_scale)}
    return {"cache_dtype": "fp8" if job.get("kv_cache_dtype", "auto") != "auto" else "auto", "layers": layers}


def stand_in():
    lmdeploy_config.is_bf16_supported = lambda *_: True
    model_weight_loader.process_weights_after_loading = lambda *_: None


if __name__ == "__main__":
    stand_in()
    judge(*sys.argv[2:4], "lmdeploy", lmdeploy.__version__, "lmdeploy", observe)
    sys.stdout.flush()
    os._exit(0)
