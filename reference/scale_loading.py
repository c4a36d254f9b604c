"""What the *_scale_loading.py scripts share: fixtures copied with scales of their own, and the loop over them."""
import glob
import json
import os
import re
import sys
import tempfile

import engines_judge  # noqa: F401  first: it finds check_engine
import torch
from check_engine.common import layer_of  # noqa: F401  others import it from here
from safetensors.torch import load_file, save_file

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


def check(source, folder, load, held_scales, explain):
    """load(folder) gives a model, held_scales(model) its scales by layer; explain(error, source) says more of a refusal."""
    config = json.load(open(os.path.join(source, "config.json")))
    result = {"model_type": config["model_type"]}
    if "quantization_config" in config:
        return {**result, "why": "its weights are quantized already; not tried"}
    try:
        wanted = copy_with_scales(source, folder)
        model = load(folder)
        held = held_scales(model)
        result |= {"class": type(model).__name__, "loads": held == wanted}
        if held != wanted:
            result["why"] = f"holds {sorted(held.items())[:3]}, written were {sorted(wanted.items())[:3]}"
    except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
        result["why"] = f"{type(error).__name__}: {' '.join(str(error).replace(folder, 'MODEL').split())}"[:300]
        result |= explain(error, source)
    return result


def run(engine, version, load, held_scales, explain):
    """sys.argv: MODELS OUT.json [NAME...]; with names, OUT.json keeps what it says of the others."""
    models, out = sys.argv[1:3]
    results = json.load(open(out))["models"] if sys.argv[3:] and os.path.exists(out) else {}
    names = sys.argv[3:] or sorted(name for name in os.listdir(models) if os.path.isdir(os.path.join(models, name)))
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            results[name] = check(os.path.join(models, name), os.path.join(scratch, "model"), load, held_scales, explain)
        print(name, results[name], flush=True)
        json.dump({engine: version, "models": dict(sorted(results.items()))}, open(out, "w"), indent=1)
