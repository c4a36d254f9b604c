#!/usr/bin/env python3
"""Writes tests/fixtures/smollm2/expected.json: what transformers computes from the demo model in float32.

usage: smollm2.py MODEL_FOLDER CONVERSATIONS.jsonl      (the folder tools/fetch_demo_model.sh makes)
needs: torch 2.13, transformers 5.17, tokenizers

calibration: 12 lists of at most 256 token ids (conversations through the chat template) and, per layer, the extremes of K
after RoPE and of V per KV head. greedy: 10 prompts, their ids through the chat template, and 64 tokens of greedy
continuation (end-of-sequence tokens do not end it). Ids are those of tokenizer.json itself.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.cache_utils import DynamicCache

model_folder, conversations = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
OUTPUT = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "smollm2" / "expected.json"
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Translate to German: The weather is nice today.",
    "List five uses of copper.",
    "Was ist der Unterschied zwischen Wetter und Klima?",
    "If a train travels 120 km in 1.5 hours, what is its average speed?",
    "Summarise: Bread is made of flour, water, salt and yeast. It rises, then it is baked.",
    "Give me a JSON object with the keys name and age.",
]

torch.set_num_threads(1)
config = json.loads((model_folder / "tokenizer_config.json").read_text())
tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model_folder / "tokenizer.json"), bos_token=config["bos_token"],
                                    eos_token=config["eos_token"], unk_token=config["unk_token"])
tokenizer.chat_template = config["chat_template"]
model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager").eval()


def chat_ids(messages, prompt):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def calibration():
    ids = []
    for line in conversations.read_text(encoding="utf-8").splitlines()[::5][:12]:
        ids.append(chat_ids(json.loads(line)["messages"], False)[:256])
    heads = model.config.num_key_value_heads
    amax = torch.zeros(2, model.config.num_hidden_layers, heads)
    for sample in ids:
        cache = DynamicCache()
        with torch.no_grad():
            model.model(torch.tensor([sample]), past_key_values=cache, use_cache=True)
        for index, layer in enumerate(cache.layers):
            amax[0, index] = torch.maximum(amax[0, index], layer.keys[0].abs().amax((1, 2)))
            amax[1, index] = torch.maximum(amax[1, index], layer.values[0].abs().amax((1, 2)))
    return {"ids": ids, "k_head_amax": amax[0].tolist(), "v_head_amax": amax[1].tolist()}


def greedy():
    results = []
    for prompt in PROMPTS:
        ids = chat_ids([{"role": "user", "content": prompt}], True)
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)
        results.append({"prompt": prompt, "prompt_ids": ids, "ids": out[0, len(ids):].tolist()})
    return results


OUTPUT.write_text(json.dumps({
    "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
    "calibration": calibration(), "greedy": greedy()}) + "\n")
