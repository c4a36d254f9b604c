#!/usr/bin/env python3
"""Writes tests/fixtures/attention_choice.json: what scales of K around the running extreme do to attention's output in the model fixtures.

usage: attention_choice.py [NAME ...]   (default: NAMES below; the file is written anew)
needs: torch, transformers (the versions are written into the file)

For each fixture its layers, and of each "tried": [scale of K, error, error of each KV head] for scale 1.0 and for the largest magnitude over 448 times
2^(step / 2), steps -12 to 2. Errors are the squared distance of attention's output, over sixteen evenly spaced queries of the fixture's ids and the heads
that read K, over its squared length. K and V become E4M3 codes and real numbers again, V with its largest magnitude over 448. null for a
layer without attention. Reference: float32, eager attention; sums in float64.
"""
import sys

import torch

from attention_damage import QUERIES, quantized
from probed_models import write_probed

# Grouped queries; biases of K; a softcap; sinks; layers without attention.
NAMES = ["llama", "qwen2", "gemma2", "gpt_oss", "nemotron_h"]


def probed(attention, seen):
    def attend(module, query, key, value, *args, **kwargs):
        exact = attention(module, query, key, value, *args, **kwargs)
        rows = [(i + 1) * query.shape[2] // QUERIES - 1 for i in range(QUERIES)]
        out = exact[0][0, rows].double()  # [queries, heads, width]
        made, v_scale = ((x.abs().max() / torch.tensor(448.0)) for x in (key, value))
        read_v = quantized(value, v_scale)
        tried = []
        for scale in [torch.tensor(1.0)] + [made * 2 ** (step / 2) for step in range(-12, 3)]:
            other = attention(module, query, quantized(key, scale), read_v, *args, **kwargs)[0][0, rows].double()
            squares = (other - out).square().sum((0, 2)), out.square().sum((0, 2))
            error, length = (x.reshape(key.shape[1], -1).sum(1) for x in squares)  # [heads of K]
            tried.append([scale.item(), (error.sum() / length.sum()).item(), (error / length).tolist()])
        seen[module.layer_idx] = {"made": made.item(), "tried": tried}
        return exact
    return attend


if __name__ == "__main__":
    write_probed("attention_choice.json", sys.argv[1:] or NAMES, probed)
