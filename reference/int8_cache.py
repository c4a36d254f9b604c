#!/usr/bin/env python3
"""Makes tests/fixtures/quant/int8_cache.json: scales of an INT8 cache, and what attention reads of it, by tensor, head and channel.

usage: int8_cache.py

The codes by tensor and head are those of compressed-tensors' `fake_quantize` with the scale given, those by channel of vLLM-Ascend's cache
write (182b75ea attention_v1.py `_quantize_kv_to_int8`: clamp(round(x * (1 / scale)), -128, 127)). The two differ where x / scale and
x * (1 / scale) round to other halves: the script asserts that no value here does.

Scales are amax / 127. compressed-tensors' own rule, `calculate_qparams`, is amax / 127.5: the script asserts it, and writes its scales, too.

needs: torch 2.13, compressed-tensors 0.20.1
"""
import json
import pathlib

import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS, HEADS, DIM = 24, 3, 8


def bits(tensor):
    return "".join(f"{value:08x}" for value in tensor.contiguous().numpy().astype(np.float32).view(np.uint32).ravel())


def read_back(x, scale):
    return torch.clamp(torch.round(x * (1.0 / scale)), -128, 127) * scale


def main():
    random = torch.Generator().manual_seed(7)
    x = torch.randn(TOKENS, HEADS, DIM, generator=random) * torch.tensor([0.5, 4.0, 60.0])[:, None]
    x[:, 1, 2] *= 30  # an outlier channel
    x[:, 0, 5] = 0  # a channel without values
    cases = {}
    for strategy, axes in {"tensor": (0, 1, 2), "attn_head": (0, 2), "channel": (0,)}.items():
        amax = x.abs().amax(dim=axes, keepdim=True)
        scale = torch.where(amax == 0, torch.finfo(torch.float32).eps, amax / 127)
        args = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="tensor" if strategy == "channel" else strategy)
        own, zero = calculate_qparams(x.amin(dim=axes, keepdim=True), x.amax(dim=axes, keepdim=True), args)
        assert not zero.any() and torch.equal(own[amax != 0], (amax / 127.5)[amax != 0])
        # What is clipped with scales that are too small: half of the amax.
        for name, factor in {"whole": 1.0, "half": 0.5}.items():
            given = scale * factor
            expected = read_back(x, given)
            if strategy != "channel":
                of_heads = given.reshape(-1, 1, 1) if strategy == "attn_head" else given.reshape(1)
                theirs = fake_quantize(x.permute(1, 0, 2)[None], of_heads, None, args)[0].permute(1, 0, 2)
                assert torch.equal(theirs, expected), strategy
            rounded = torch.round(x * (1.0 / given))
            clipped = ((rounded > 127) | (rounded < -128)).sum(dim=(0, 2))
            assert name == "half" or not clipped.any()
            cases[f"{strategy}_{name}"] = {"scales": bits(given.ravel()), "read": bits(expected), "clipped": clipped.tolist()}
        cases[f"{strategy}_whole"]["compressed_tensors_scales"] = bits(own.ravel())
    fixture = {"tokens": TOKENS, "heads": HEADS, "dim": DIM, "x": bits(x), "cases": cases}
    path = ROOT / "tests" / "fixtures" / "quant" / "int8_cache.json"
    path.write_text(json.dumps(fixture, indent=1) + "\n")


main()
