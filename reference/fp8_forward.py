#!/usr/bin/env python3
"""Writes tests/fixtures/fp8/<kind>: small FP8 checkpoints and the logits transformers computes with them.

usage: fp8_forward.py [--folder FOLDER] [KIND ...]    (default: tests/fixtures/fp8, all kinds)
       fp8_forward.py --logits CHECKPOINT OUT.safetensors [IDS.json]
needs: llmcompressor 0.14.0.1 (with compressed-tensors 0.19.0, torch 2.13, transformers 5.17)

A random float16 Llama (Phi-3, Mixtral) is quantized by llm-compressor's oneshot with the kind's recipe, saved, and loaded again by
transformers in float32, where weights are dequantized and inputs, K, V and queries quantized and dequantized as the
config says. The logits of one sequence, [tokens, vocab], go to expected.safetensors; moved is how far the same weights
without any quantization are from them, the largest difference of a logit. Experts are an exception: transformers leaves
their inputs as they are (its integrations/compressed_tensors.py), so the logits of kind "moe" are those of the model in
llm-compressor's memory, which quantizes them. --logits: of any checkpoint, for comparisons by hand.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "fp8"
STATIC = "{num_bits: 8, type: float, strategy: tensor, dynamic: false, symmetric: true, observer: static_minmax}"
WEIGHTS = "{num_bits: 8, type: float, strategy: %s, dynamic: false, symmetric: true, observer: memoryless_minmax%s}"
TENSOR, CHANNEL = WEIGHTS % ("tensor", ""), WEIGHTS % ("channel", "")
BLOCK = WEIGHTS % ("block", ", block_structure: [32, 32]")
TOKEN = "{num_bits: 8, type: float, strategy: token, dynamic: true, symmetric: true}"
GROUP = "{num_bits: 8, type: float, strategy: group, group_size: 16, dynamic: true, symmetric: true}"
HEAD = STATIC.replace("tensor", "attn_head")


def group(targets, weights=None, inputs=None):
    parts = [f"targets: {targets}"] + [f"weights: {weights}"] * bool(weights) + [f"input_activations: {inputs}"] * bool(inputs)
    return "{" + ", ".join(parts) + "}"


def recipe(groups, ignore="[lm_head]", kv=None):
    lines = ["quant_stage:", "  quant_modifiers:", "    QuantizationModifier:", f"      ignore: {ignore}", "      config_groups:"]
    lines += [f"        group_{i}: {text}" for i, text in enumerate(groups)]
    return "\n".join(lines + [f"      kv_cache_scheme: {kv}"] * bool(kv)) + "\n"


KINDS = {
    "static_kv": recipe([group("[Linear]", TENSOR, STATIC)], kv=STATIC),
    "token_kv_heads": recipe([group("[Linear]", CHANNEL, TOKEN)], kv=HEAD),
    "block": recipe([group("[Linear]", BLOCK, GROUP)]),
    "weights_only": recipe([group("[Linear]", CHANNEL)]),
    "mixed": recipe([group('["re:.*q_proj$", "re:.*gate_proj$"]', TENSOR, STATIC), group('["re:.*down_proj$", lm_head]', CHANNEL, TOKEN),
                     group("[Embedding]", CHANNEL)], ignore="[]"),
    "attention": recipe([group("[LlamaAttention]", None, HEAD)], ignore="[]"),
    "moe": recipe([group("[Linear]", TENSOR, STATIC)], ignore='[lm_head, "re:.*gate$"]'),
}
FUSED = {"static_kv"}


def new_model(kind):
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Phi3Config, Phi3ForCausalLM
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1 if kind == "moe" else 2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=8, max_position_embeddings=64, initializer_range=0.25, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(3)
    if kind == "moe":
        return MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, sliding_window=None))
    if kind in FUSED:
        sizes.pop("head_dim")
        return Phi3ForCausalLM(Phi3Config(**sizes, sliding_window=None))
    return LlamaForCausalLM(LlamaConfig(**sizes))


def sequences():
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(3, 64, (length,), generator=generator).tolist() for length in (20, 18, 17)]


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=True).logits[0].float().contiguous()


def load(folder, dtype=torch.float32):
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def quantize(model, text):
    from llmcompressor import oneshot
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from torch.utils.data import DataLoader
    from transformers import PreTrainedTokenizerFast
    words = {str(i): i for i in range(model.config.vocab_size)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="0")))
    batches = [{"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)} for ids in sequences()]
    needs_data = "dynamic: false" in text.replace(TENSOR, "").replace(CHANNEL, "").replace(BLOCK, "")
    data = dict(dataset=DataLoader(batches, batch_size=None, shuffle=False), tokenizer=tokenizer, pipeline="basic") if needs_data else {}
    oneshot(model=model, recipe=text, **data)


def set_query_scales(folder):
    """llm-compressor 0.14 leaves q_scale as it found the memory."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        if name.endswith(".q_scale"):
            heads = torch.arange(tensors[name].numel(), dtype=torch.float32)
            tensors[name] = (0.005 * (1 + heads)).reshape(tensors[name].shape).to(tensors[name].dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def make(kind, target):
    with tempfile.TemporaryDirectory() as scratch:
        saved, source = pathlib.Path(scratch) / "saved", pathlib.Path(scratch) / "source"
        new_model(kind).half().save_pretrained(source)
        plain = logits_of(load(source), sequences()[0])
        model = load(source, torch.float32 if kind == "moe" else torch.float16)
        quantize(model, KINDS[kind])
        in_memory = logits_of(model, sequences()[0])  # before saving, which compresses it
        model.save_pretrained(saved, save_compressed=True)
        if kind == "attention":
            set_query_scales(saved)
        logits = in_memory if kind == "moe" else logits_of(load(saved), sequences()[0])
        target.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(saved / name, target / name)
    save_file({"logits": logits}, target / "expected.safetensors")
    moved = float((logits - plain).abs().max())
    (target / "expected.json").write_text(json.dumps({"reference": "transformers 5.17, llmcompressor 0.14.0.1", "ids": sequences()[0], "moved": moved}) + "\n")
    print(kind, "moved", moved, "largest", float(logits.abs().max()), sum(f.stat().st_size for f in target.iterdir()), "bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, default=FIXTURES)
    parser.add_argument("--logits", nargs="+")
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    if options.logits:
        checkpoint, out, *ids_file = options.logits
        ids = json.loads(pathlib.Path(ids_file[0]).read_text())["ids"] if ids_file else sequences()[0]
        save_file({"logits": logits_of(load(checkpoint), ids)}, out)
        return
    for kind in options.kinds or KINDS:
        make(kind, options.folder / kind)


if __name__ == "__main__":
    sys.exit(main())
