#!/usr/bin/env python3
"""Loads what `kvcal quantize` writes of small models in transformers, and compares every weight and the logits.

usage: quantize_load.py KVCAL [SCHEME ...]
needs: transformers 5.23, compressed-tensors 0.20 (or 0.19), torch

For each scheme and model: from_pretrained with the weights decompressed as compressed-tensors does, or in Linears that decompress as
they run. Each quantized weight is compared with code x scale, computed here from the bytes of the file, in float32; then each must be near the
source's weight. Missing or unexpected tensors are failures.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

MODELS = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "models"
SCHEMES = ["FP8_DYNAMIC", "FP8_BLOCK", "W8A8", "W8A16", "W4A16", "W4A16_ASYM", "NVFP4A16", "MXFP4A16", "MXFP8A16"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
# Largest error of a weight, as a share of the largest decoded one: E2M1's widest step is from 4 to 6, and where scales are powers of two
# the largest code may be 4.
NEAR = {"MXFP4A16": 0.26}
NEAR_ELSE = 0.17


def model_of(folder, tied):
    """A Llama whose inputs are whole groups of 128."""
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, tie_word_embeddings=tied, dtype=torch.bfloat16)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def unpacked(words, bits, count):
    """Codes of rows of little-endian words, lowest bits first."""
    bytes_ = words.contiguous().view(torch.uint8).reshape(words.shape[0], -1).numpy()
    all_bits = np.unpackbits(bytes_, axis=1, bitorder="little")[:, :count * bits].reshape(words.shape[0], count, bits)
    return (all_bits * (1 << np.arange(bits))).sum(2)


def decoded(tensors, module, args):
    """code x scale in float32."""
    scale = tensors[module + ".weight_scale"]
    if scale.dtype == torch.uint8:
        scale = torch.exp2(scale.float() - 127)
    scale = scale.float()
    if module + ".weight_global_scale" in tensors:
        scale = scale / tensors[module + ".weight_global_scale"].float()
    if module + ".weight" in tensors:
        codes = tensors[module + ".weight"].float()
    elif module + ".weight_shape" in tensors:
        rows, columns = tensors[module + ".weight_shape"].tolist()
        codes = torch.from_numpy(unpacked(tensors[module + ".weight_packed"], args["num_bits"], columns)).float()
        zero = 2.0 ** (args["num_bits"] - 1)
        if module + ".weight_zero_point" in tensors:
            packed = tensors[module + ".weight_zero_point"].T
            zeros = torch.from_numpy(unpacked(packed, args["num_bits"], rows).T.copy()).float()
            zero = zeros.repeat_interleave(columns // zeros.shape[1], 1)
        codes = codes - zero
    else:
        packed = tensors[module + ".weight_packed"]
        codes = torch.from_numpy(E2M1[unpacked(packed, 4, packed.shape[1] * 2)])
    if scale.ndim == 2 and scale.shape[0] != codes.shape[0]:
        scale = scale.repeat_interleave(128, 0)[:codes.shape[0]]
    if scale.ndim == 2 and scale.shape[1] > 1:
        scale = scale.repeat_interleave(-(-codes.shape[1] // scale.shape[1]), 1)[:, :codes.shape[1]]
    return codes * scale


def main():
    kvcal, *wanted = sys.argv[1:]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for tied, scheme in [(False, scheme) for scheme in wanted or SCHEMES] + [(True, "FP8_DYNAMIC"), (True, "W4A16")]:
            source = pathlib.Path(scratch) / f"source_{tied}"
            if not source.exists():
                model_of(source, tied)
            plain = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).state_dict()
            out = pathlib.Path(scratch) / f"{scheme}_{tied}"
            subprocess.run([kvcal, "quantize", source, "--scheme", scheme, "--output", out], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            with safe_open(out / "model.safetensors", "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            config = json.loads((out / "config.json").read_text())["quantization_config"]
            args = config["config_groups"][scheme]["weights"]
            model, report = AutoModelForCausalLM.from_pretrained(
                out, dtype=torch.bfloat16, output_loading_info=True, quantization_config=CompressedTensorsConfig(run_compressed=False))
            lost = {kind: names for kind, names in report.items() if names and kind.endswith("keys")}
            weights, worst, far = model.state_dict(), 0.0, 0.0
            modules = sorted({name.rsplit(".", 1)[0] for name in tensors if name.endswith("weight_scale")})
            for module in modules:
                value = decoded(tensors, module, args)
                loaded = weights[module + ".weight"].float()
                largest = value.abs().max()
                # compressed-tensors multiplies in 16 bits.
                worst = max(worst, ((loaded - value).abs() / largest).max().item())
                far = max(far, ((plain[module + ".weight"].float() - value).abs() / largest).max().item())
            logits = model(torch.arange(8)[None]).logits
            good = not lost and worst <= 2.0 ** -8 and far <= NEAR.get(scheme, NEAR_ELSE) and bool(torch.isfinite(logits).all()) and len(modules) == 14
            print(f"{scheme}{', tied' if tied else ''}: {len(modules)} weights, loaded within {worst:.1e}, of the source within {far:.1e}, lost {lost or 'none'}: "
                  f"{'ok' if good else 'FAILED'}", flush=True)
            if not good:
                failed.append(scheme)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
