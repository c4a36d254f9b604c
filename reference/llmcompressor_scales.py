#!/usr/bin/env python3
"""Writes tests/fixtures/models/<name>/llmcompressor.json: the KV scales llm-compressor makes of a fixture.

usage: llmcompressor_scales.py [NAME ...]
needs: llmcompressor 0.14.0.1 (with compressed-tensors 0.19.0, torch 2.13, transformers 5.17)

Float32 model, pipeline "basic" (its default pipeline drops the causal mask of some families), one sample a batch in the
order given. runs: observer name -> strategy -> {"k_scale": [[...] a layer], "v_scale": ...}.
"""
import json
import pathlib
import sys

import torch
from llmcompressor import oneshot
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

MODELS = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "models"
RECIPE = """
quant_stage:
  quant_modifiers:
    QuantizationModifier:
      kv_cache_scheme: {{num_bits: 8, type: float, strategy: {strategy}, dynamic: false, symmetric: true, observer: {observer}{kwargs}}}
"""
RUNS = [("static_minmax", "tensor", ""), ("static_minmax", "attn_head", ""), ("minmax", "tensor", ""),
        ("minmax", "attn_head", ""), ("minmax", "tensor", ", observer_kwargs: {averaging_constant: 0.7}"),
        ("memoryless_minmax", "tensor", "")]


def sequences(vocab_size):
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in (20, 39, 33, 9, 27, 40)]


def run(folder, ids, observer, strategy, kwargs):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = {str(i): i for i in range(model.config.vocab_size)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="0")))
    batches = [{"input_ids": torch.tensor([sample]), "attention_mask": torch.ones(1, len(sample), dtype=torch.long)}
               for sample in ids]
    loader = DataLoader(batches, batch_size=None, shuffle=False)
    oneshot(model=model, dataset=loader, tokenizer=tokenizer, pipeline="basic",
            recipe=RECIPE.format(observer=observer, strategy=strategy, kwargs=kwargs))
    result = {}
    for side in "kv":
        result[f"{side}_scale"] = [getattr(layer.self_attn, f"{side}_scale").flatten().tolist() for layer in model.model.layers]
    return result


for name in sys.argv[1:] or ["llama", "mistral_window"]:
    folder = MODELS / name
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    ids = sequences(vocab_size)
    runs = [{"observer": observer, "strategy": strategy, "averaging_constant": 0.7 if kwargs else 0.01,
             **run(folder, ids, observer, strategy, kwargs)} for observer, strategy, kwargs in RUNS]
    (folder / "llmcompressor.json").write_text(json.dumps({"reference": "llmcompressor 0.14.0.1", "ids": ids, "runs": runs}) + "\n")
    print(name, "ok")
