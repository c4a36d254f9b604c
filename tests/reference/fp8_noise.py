#!/usr/bin/env python3
"""How far transformers is from itself on a checkpoint: KL between its eager and its sdpa attention, float32, FP8 cache where there are scales.

usage: fp8_noise.py TOKENS.json CHECKPOINT...    TOKENS: {"ids": [[...], ...]}, the first two are run
needs: transformers 5.17, compressed-tensors 0.19.0, torch 2.13

Both compute the same function, some 1e-7 apart. Where inputs are FP8 a value near the border of two codes falls to either side, and every
layer makes more of it: what comes out is the least that any other program can agree with transformers on that checkpoint.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, DynamicCache


def log_probabilities(path, ids, attention):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=attention).eval()
    with torch.no_grad():
        runs = [model(torch.tensor([sample]), past_key_values=DynamicCache(config=model.config), use_cache=True) for sample in ids]
    return torch.cat([run.logits[0].double().log_softmax(-1) for run in runs])


ids = json.load(open(sys.argv[1]))["ids"][:2]
for path in sys.argv[2:]:
    eager, sdpa = (log_probabilities(path, ids, attention) for attention in ("eager", "sdpa"))
    kl = (eager.exp() * (eager - sdpa)).sum(-1)
    print(f"{path}: mean KL {kl.mean().item():.3e}, largest {kl.max().item():.3e}, {len(kl)} tokens", flush=True)
