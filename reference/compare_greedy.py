#!/usr/bin/env python3
"""Compares `kvcal generate`'s greedy tokens with transformers' in float32. Exit 1 where one differs.

usage: compare_greedy.py KVCAL MODEL_FOLDER [--tokens 64]
needs: torch 2.13, transformers 5.17
"""
import argparse
import json
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "Water boils at a lower temperature on high mountains because",
    "def fibonacci(n):\n",
    "Die wichtigsten Unterschiede zwischen Wetter und Klima sind",
]

parser = argparse.ArgumentParser()
parser.add_argument("kvcal")
parser.add_argument("model")
parser.add_argument("--tokens", type=int, default=64)
arguments = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation="eager").eval()
differing = 0
for prompt in PROMPTS:
    command = [arguments.kvcal, "generate", arguments.model, "--prompt", prompt, "--json", "--ignore-eos", "--max-new-tokens",
               str(arguments.tokens), "--compute-dtype", "float32", "--kv-cache-dtype", "float32"]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    with torch.no_grad():
        ids = model.generate(torch.tensor([ours["prompt_ids"]]), max_new_tokens=arguments.tokens, do_sample=False,
                             eos_token_id=None, pad_token_id=0)[0, len(ours["prompt_ids"]):].tolist()
    same = ids == ours["ids"]
    differing += not same
    print(f"{'same' if same else 'DIFFERS'}  {len(ids)} tokens  {prompt!r}")
sys.exit(1 if differing else 0)
