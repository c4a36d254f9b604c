#!/usr/bin/env python3
"""Loads a folder that kvcal wrote (or tests/fixtures/export/expected/*) with the real readers, and compares
every scale they hold with the file's. By format:

compressed-tensors   transformers + compressed-tensors build the model; each attention module's k_scale and
                     v_scale must equal the file's, no key may be missing or unexpected, and one forward
                     with the FP8 cache must be finite
tgi                  each kv_scale is one F32 element, nothing else was added, transformers loads the weights
scales-json          the rules of QuantParamSchema of vLLM 0.6 and Aphrodite 0.6, and one float for every layer

Exit 0 when all holds. Versions: torch 2.13, transformers 5.17, compressed-tensors 0.19.0, safetensors 0.8.0.
Run: python export_check.py FOLDER [FOLDER …]
"""
import json
import math
import pathlib
import re
import struct
import sys

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM


def tensors_of(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            assert file.metadata().get("format") == "pt", path
            for name in file.keys():
                assert name not in found, f"{name} is in two files"
                found[name] = file.get_tensor(name)
    index = folder / "model.safetensors.index.json"
    assert index.exists() != (folder / "model.safetensors").exists(), "one file or an index"
    if index.exists():
        index = json.loads(index.read_text())
        assert list(index["weight_map"]) == sorted(found), "weight_map names every tensor, sorted"
        assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in found.values())
    return found


def load(folder):
    # The file's own dtype for weights, but scales as they are in the file.
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    return model.eval(), {key: sorted(map(str, value)) for key, value in info.items() if value}


def check_compressed_tensors(folder, config):
    tensors = tensors_of(folder)
    ignored = set(config["quantization_config"]["ignore"])
    model, info = load(folder)
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    missing = {name for name in info.pop("missing_keys", [])
               if re.sub(r"\.[kv]_scale$", "", name) not in ignored}
    assert not missing and not info.get("unexpected_keys"), (missing, info)
    compared = 0
    for i in range(config["num_hidden_layers"]):
        module = f"model.layers.{i}.self_attn"
        for name in (f"{module}.k_scale", f"{module}.v_scale"):
            if module in ignored:
                assert name not in tensors, name
                continue
            assert torch.equal(held[name].float(), tensors[name].float()), (name, held[name], tensors[name])
            compared += 1
    if ignored:
        return f"{compared} scales equal, {len(ignored)} layers ignored"
    with torch.no_grad():
        logits = model(torch.arange(4)[None] % config["vocab_size"], use_cache=True).logits
    assert torch.isfinite(logits).all()
    return f"{compared} scales equal, logits finite"


def check_tgi(folder, config):
    tensors = tensors_of(folder)
    assert "quantization_config" not in config
    assert config["kv_cache_torch_dtype"] in ("float8_e4m3fn", "float8_e4m3fnuz")
    scales = {name: t for name, t in tensors.items() if name.endswith("scale")}
    for name, scale in scales.items():
        assert re.fullmatch(r"model\.layers\.\d+\.self_attn\.kv_scale", name), name
        assert scale.dtype == torch.float32 and scale.numel() == 1 and 0 < scale.item() < math.inf, name
    _, info = load(folder)
    assert not info.get("missing_keys"), info
    assert set(info.get("unexpected_keys", [])) == set(scales), info
    return f"{len(scales)} scales"


def check_scales_json(folder):
    assert [p.name for p in folder.iterdir() if not p.name.startswith("kvcal_")] == ["kv_cache_scales.json"]
    document = json.loads((folder / "kv_cache_scales.json").read_text())
    assert list(document) == ["model_type", "kv_cache"] and isinstance(document["model_type"], str)
    assert list(document["kv_cache"]) == ["dtype", "scaling_factor"]
    assert document["kv_cache"]["dtype"] == "float8_e4m3fn"
    ranks = document["kv_cache"]["scaling_factor"]
    assert list(ranks) == [str(rank) for rank in range(len(ranks))]
    for layers in ranks.values():
        assert list(layers) == [str(layer) for layer in range(len(layers))]
        for value in layers.values():
            assert isinstance(value, float) and 0 < value < math.inf
            assert struct.unpack("f", struct.pack("f", value))[0] == value, "the double is not a float32"
    return f"{len(ranks)} ranks of {len(ranks['0'])} layers"


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        if (folder / "kv_cache_scales.json").exists() and not (folder / "config.json").exists():
            result = check_scales_json(folder)
        else:
            config = json.loads((folder / "config.json").read_text())
            check = check_compressed_tensors if "quantization_config" in config else check_tgi
            result = check(folder, config)
        print(f"{folder.name}: {result}")


main()
