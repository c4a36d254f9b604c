#!/usr/bin/env python3
"""Writes tests/fixtures/export/quantized.json: what llm-compressor saves for fixtures of tests/fixtures/models.

usage: export_w8a8.py [CASE ...]
needs: llmcompressor 0.14.0.1 (with compressed-tensors 0.19.0, torch 2.13, transformers 5.17)

Runs `oneshot` on the CPU in the model's own dtype (pipeline "basic" where a case needs text) and keeps of the folder that
save_pretrained writes, per case: recipe, tie_word_embeddings, quantization_config, and the tensors in the order of the
file as [name, dtype, shape, first 16 digits of the SHA-256 of the bytes]. Scales that come from text are kept as values,
so that a test can hand them to our writer. Prints whether transformers loads the folder, with which keys missing.
"""
import hashlib
import json
import pathlib
import sys
import tempfile

import torch
from llmcompressor import oneshot
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
OUT = TESTS / "fixtures" / "export" / "quantized.json"
FP8 = "num_bits: 8, type: float, symmetric: true"
STATIC = f"{{{FP8}, strategy: tensor, dynamic: false, observer: static_minmax}}"
TOKEN = f"{{{FP8}, strategy: token, dynamic: true}}"
TENSOR = f"{{{FP8}, strategy: tensor, dynamic: false}}"
CHANNEL = f"{{{FP8}, strategy: channel, dynamic: false}}"
BLOCK = f"{{{FP8}, strategy: block, block_structure: [32, 32], dynamic: false}}"
KV = f"{{{FP8}, strategy: tensor, dynamic: false, observer: static_minmax}}"
HEADS = f"{{{FP8}, strategy: attn_head, dynamic: false, observer: static_minmax}}"


def groups(*entries):
    text = "      config_groups:\n"
    for i, (targets, weights, inputs) in enumerate(entries):
        text += f"        group_{i}:\n          targets: {targets}\n"
        text += f"          weights: {weights}\n" if weights else ""
        text += f"          input_activations: {inputs}\n" if inputs else ""
    return text


# name: fixture, needs text, body of the modifier
CASES = {
    "static_kv": ("llama", True, "      ignore: [lm_head]\n" + groups(("[Linear]", TENSOR, STATIC)) + f"      kv_cache_scheme: {KV}\n"),
    "dynamic": ("qwen2", False, "      ignore: [lm_head]\n      scheme: FP8_DYNAMIC\n      targets: [Linear]\n"),
    "fused": ("phi3", False, "      ignore: [lm_head]\n" + groups(("[Linear]", TENSOR, TOKEN))),
    "block": ("llama", False, "      ignore: [lm_head]\n" + groups(("[Linear]", BLOCK, TOKEN))),
    "mixed": ("llama_tied_bf16", False, "      ignore: [lm_head, 're:.*down_proj']\n"
              + groups(("['re:.*self_attn.*_proj$']", CHANNEL, TOKEN), ("['re:.*mlp.*']", TENSOR, None))),
    "attention": ("llama", True, "      ignore: [lm_head]\n"
                  + groups(("[LlamaAttention]", None, HEADS), ("['re:.*mlp.*']", CHANNEL, TOKEN))),
    "tied_head": ("llama_tied_bf16", False, groups(("[Linear]", CHANNEL, TOKEN))),
    "tied_embedding": ("llama_tied_bf16", False, groups(("[Embedding]", CHANNEL, None))),
    "tied_alike": ("llama_tied_bf16", False, groups(("[Embedding, lm_head]", CHANNEL, None))),
    "tied_different": ("llama_tied_bf16", False, groups(("[Embedding]", CHANNEL, None), ("[lm_head]", TENSOR, TOKEN))),
}


def recipe_of(body):
    return "quant_stage:\n  quant_modifiers:\n    QuantizationModifier:\n" + body


def sequences(vocab_size):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in (20, 33, 9)]


def quantized(fixture, needs_text, body, folder):
    model = AutoModelForCausalLM.from_pretrained(TESTS / "fixtures" / "models" / fixture, dtype="auto")
    options = {}
    if needs_text:
        words = {str(i): i for i in range(model.config.vocab_size)}
        batches = [{"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
                   for ids in sequences(model.config.vocab_size)]
        options = {"dataset": DataLoader(batches, batch_size=None, shuffle=False), "pipeline": "basic",
                   "tokenizer": PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="0")))}
    oneshot(model=model, recipe=recipe_of(body), **options)
    model.save_pretrained(folder)


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def described(folder):
    (path,) = folder.glob("*.safetensors")
    header_size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8:8 + header_size])
    tensors, values = [], {}
    with safe_open(path, "pt") as file:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            tensor = file.get_tensor(name)
            tensors.append([name, entry["dtype"], entry["shape"], hashlib.sha256(bytes_of(tensor)).hexdigest()[:16]])
            # Its q_scale is whatever the memory held: nothing observes queries.
            if name.endswith(("input_scale", "k_scale", "v_scale")):
                values[name] = tensor.float().flatten().tolist()
    config = json.loads((folder / "config.json").read_text())
    return {"tie_word_embeddings": config.get("tie_word_embeddings"),
            "quantization_config": config["quantization_config"], "values": values, "tensors": tensors}


def loaded(folder):
    try:
        _, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
        return {key: sorted(map(str, value)) for key, value in info.items() if value}
    except Exception as error:  # what the reference cannot read is a fact about it
        return f"{type(error).__name__}: {error}"


def main():
    cases = json.loads(OUT.read_text()) if OUT.exists() and sys.argv[1:] else {}
    for name in sys.argv[1:] or CASES:
        fixture, needs_text, body = CASES[name]
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            quantized(fixture, needs_text, body, folder)
            cases[name] = {"model": fixture, "recipe": recipe_of(body), **described(folder)}
            print(name, len(cases[name]["tensors"]), "tensors; transformers:", loaded(folder), flush=True)
    lines = []
    for name, case in cases.items():
        tensors = ",\n".join("   " + json.dumps(tensor) for tensor in case.pop("tensors"))
        lines.append(f' {json.dumps(name)}: {json.dumps(case)[:-1]}, "tensors": [\n{tensors}]}}')
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
