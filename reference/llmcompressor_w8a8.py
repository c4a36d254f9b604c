#!/usr/bin/env python3
"""Writes tests/fixtures/llmcompressor/<name>.json: the input, K, V and weight scales llm-compressor makes of a fixture.

usage: llmcompressor_w8a8.py [NAME ...]
needs: llmcompressor 0.14.0.1 (with compressed-tensors 0.19.0, torch 2.13, transformers 5.17; granitemoehybrid_moe 5.23)

Float32 model, FP8 weights and static inputs of every Linear but lm_head, KV cache; pipeline "basic" (its default pipeline drops the
causal mask of some families), one sample a batch in the order given. Experts see all tokens, as is its default. Modules are named as
in the checkpoint. runs: observer -> {"input_scale": {module: number}, "weight_scale": ..., "k_scale": ..., "v_scale": ...}.
"""
import json
import pathlib
import sys

import torch
from llmcompressor import oneshot
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"
RECIPE = """
quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: [lm_head, 're:.*mlp.gate$', 're:.*block_sparse_moe.gate$', 're:.*router$']
      config_groups:
        group_0:
          targets: [Linear]
          weights: {{num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true}}
          input_activations: {{num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true, observer: {observer}}}
      kv_cache_scheme: {{num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true, observer: {observer}}}
"""
# Experts of Mixtral in transformers 5, and in the checkpoint.
RENAMED = {".mlp.experts.": ".block_sparse_moe.experts.", ".gate_proj": ".w1", ".down_proj": ".w2", ".up_proj": ".w3"}


def sequences(vocab_size):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in (25, 40, 8, 33)]


def checkpoint_name(name, model_type):
    if model_type == "mixtral" and ".experts." in name:
        for ours, theirs in RENAMED.items():
            name = name.replace(ours, theirs)
    return name


def run(folder, config, ids, observer):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = {str(i): i for i in range(config["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="0")))
    batches = [{"input_ids": torch.tensor([sample]), "attention_mask": torch.ones(1, len(sample), dtype=torch.long)} for sample in ids]
    oneshot(model=model, dataset=DataLoader(batches, batch_size=None, shuffle=False), tokenizer=tokenizer, pipeline="basic",
            recipe=RECIPE.format(observer=observer))
    scales = {"observer": observer}
    for kind in ("input_scale", "weight_scale", "k_scale", "v_scale"):
        scales[kind] = {checkpoint_name(name, config["model_type"]): getattr(module, kind).item()
                        for name, module in model.named_modules() if getattr(module, kind, None) is not None}
    return scales


for name in sys.argv[1:] or ["llama", "phi3", "qwen3", "mixtral", "gemma2", "granitemoe", "granitemoehybrid_moe", "gpt_oss"]:
    folder = FIXTURES / "models" / name
    config = json.loads((folder / "config.json").read_text())
    ids = sequences(config["vocab_size"])
    runs = [run(folder, config, ids, observer) for observer in ("static_minmax", "minmax")]
    (FIXTURES / "llmcompressor" / f"{name}.json").write_text(json.dumps({"reference": "llmcompressor 0.14.0.1", "ids": ids, "runs": runs}) + "\n")
    print(name, len(runs[0]["input_scale"]), "inputs", len(runs[0]["k_scale"]), "layers")
