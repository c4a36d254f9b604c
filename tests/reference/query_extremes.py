#!/usr/bin/env python3
"""Writes tests/fixtures/query_extremes.json: what attention is handed as queries in the model fixtures.

usage: query_extremes.py [NAME ...]   (default: NAMES below; the file is written anew)
needs: torch 2.13, transformers 5.17 (the versions are written into the file)

For each fixture a list of its layers; of each layer [min, max] of every query head over the fixture's ids, after Q's norm
and RoPE and before the softmax's scale; null for a layer without attention. Reference: float32, eager attention.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
# Grouped queries; norms of each head and of the whole; latent attention with and without a rank of Q; turned in part;
# interleaved; scaled by position; sinks; a gate; experts; layers without attention.
NAMES = ["llama", "mistral_window", "qwen3", "olmo2", "deepseek_v2", "deepseek_v3", "phi", "glm4", "ministral3", "gpt_oss",
         "qwen3_next", "gemma2", "mixtral", "nemotron_h", "llama_rope_yarn", "gpt2"]


def probed(attention, seen):
    def attend(module, query, *args, **kwargs):
        heads = query[0].flatten(1)
        seen[module.layer_idx] = torch.stack([heads.amin(1), heads.amax(1)], 1).tolist()
        return attention(module, query, *args, **kwargs)
    return attend


def query_extremes(name):
    folder = FIXTURES / "models" / name
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    seen = {}
    code = {sys.modules[type(module).__module__] for module in model.modules()}
    for module in [module for module in code if hasattr(module, "eager_attention_forward")]:
        module.eager_attention_forward = probed(module.eager_attention_forward, seen)
    ids = json.loads((folder / "expected.json").read_text())["ids"]
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    assert seen, name
    return [seen.get(layer) for layer in range(model.config.get_text_config().num_hidden_layers)]


if __name__ == "__main__":
    reference = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    lines = [f'"{name}": {json.dumps(query_extremes(name))}' for name in sys.argv[1:] or NAMES]
    text = f'{{"reference": "{reference}",\n"models": {{\n' + ",\n".join(lines) + "}}\n"
    (FIXTURES / "query_extremes.json").write_text(text)
