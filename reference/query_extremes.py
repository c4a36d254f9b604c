#!/usr/bin/env python3
"""Writes tests/fixtures/query_extremes.json: what attention is handed as queries in the model fixtures.

usage: query_extremes.py [NAME ...]   (default: NAMES below; the file is written anew)
needs: torch 2.13, transformers 5.17 (the versions are written into the file)

For each fixture a list of its layers; of each layer [min, max] of every query head over the fixture's ids, after Q's norm
and RoPE and before the softmax's scale; null for a layer without attention. Reference: float32, eager attention.
"""
import sys

import torch

from probed_models import write_probed

# Grouped queries; norms of each head and of the whole; latent attention with and without a rank of Q; turned in part;
# interleaved; scaled by position; sinks; a gate; experts; layers without attention.
NAMES = ["llama", "mistral_window", "qwen3", "olmo2", "deepseek_v2", "deepseek_v3", "phi", "glm4", "ministral3", "gpt_oss",
         "qwen3_next", "gemma2", "mixtral", "nemotron_h", "llama_rope_yarn", "gpt2", "inkling_text"]


def probed(attention, seen):
    def attend(module, query, *args, **kwargs):
        heads = query[0].flatten(1)
        seen[module.layer_idx] = torch.stack([heads.amin(1), heads.amax(1)], 1).tolist()
        return attention(module, query, *args, **kwargs)
    return attend


if __name__ == "__main__":
    write_probed("query_extremes.json", sys.argv[1:] or NAMES, probed)
