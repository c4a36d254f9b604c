#!/usr/bin/env python3
"""Writes tests/fixtures/attention_damage.json: what FP8 codes of K and V do to attention in the model fixtures.

usage: attention_damage.py [NAME ...]   (default: NAMES below; the file is written anew)
needs: torch, transformers (the versions are written into the file)

For each fixture its layers, and of each the scales of K and of V (the largest magnitude over 448) and, with these and
with scale 1.0, for each query head [relative error of the output, KL divergence of the softmax weights in nats] over
sixteen evenly spaced queries of the fixture's ids: K and V become E4M3 codes and real numbers again, nothing before the
layer does. null for a layer without attention. Reference: float32, eager attention; sums in float64.
"""
import sys

import torch

from probed_models import write_probed

# Grouped queries; biases of K; windows; soft-caps; norms of K; sinks; K and V of other widths; layers without attention;
# all heads with K and V of their own; queries that turn in part; logits by distance.
NAMES = ["llama", "qwen2", "mistral_window", "gemma2", "qwen3", "gpt_oss", "nemotron_h", "gpt2", "phi", "qwen3_next",
         "inkling_text"]
QUERIES = 16


def quantized(x, scale):
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32) * scale


def compared(exact, other, rows):
    """[relative error of the output, KL of the weights] by head; each of exact and other: output, weights."""
    (out, weights), (other_out, other_weights) = exact, other
    result = []
    for head in range(weights.shape[1]):
        distance = (other_out[0, rows, head] - out[0, rows, head]).double()
        error = (distance.square().sum() / out[0, rows, head].double().square().sum()).sqrt().item()
        p, q = weights[0, head, rows].double(), other_weights[0, head, rows].double()
        # What is missing from one is the sink's.
        p, q = (torch.cat([w, (1 - w.sum(-1, keepdim=True)).clamp(min=0)], -1) for w in (p, q))
        seen = (p > 1e-6) & (q > 0)
        kl = torch.where(seen, p * (p / torch.where(seen, q, 1)).clamp(min=1e-300).log(), 0).sum(-1)
        result.append([error, kl.mean().item()])
    return result


def probed(attention, seen):
    def attend(module, query, key, value, *args, **kwargs):
        exact = attention(module, query, key, value, *args, **kwargs)
        count = query.shape[2]
        rows = [(i + 1) * count // QUERIES - 1 for i in range(QUERIES)]
        scales = [(x.abs().max() / torch.tensor(448.0)).item() for x in (key, value)]
        layer = {"k_scale": scales[0], "v_scale": scales[1]}
        for name, (k, v) in {"calibrated": scales, "unit": [1.0, 1.0]}.items():
            other = attention(module, query, quantized(key, torch.tensor(k)), quantized(value, torch.tensor(v)), *args, **kwargs)
            layer[name] = compared(exact, other, rows)
        seen[module.layer_idx] = layer
        return exact
    return attend


if __name__ == "__main__":
    write_probed("attention_damage.json", sys.argv[1:] or NAMES, probed)
