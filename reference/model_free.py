#!/usr/bin/env python3
"""Writes tests/fixtures/model_free/cases.json and sources/: what llm-compressor's model_free_ptq makes of small checkpoints.

usage: model_free.py [CASE ...]
needs: llmcompressor 0.14.0.1, compressed-tensors 0.20.1, torch 2.13 (CPU)

A source is a checkpoint of random weights with names of one architecture and without a model: only names and shapes count. It also has
rows of zeros, -0, large outliers and values that lie between two codes. A case is a source, a scheme and the modules that stay as they
are. For each: the quantization_config, and of each tensor name, dtype, shape and the first 16 digits of the sha256 of its bytes, which tells them as well as
the bytes do and is small. The source's own quantization_config is none.
"""
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from llmcompressor import model_free_ptq
from llmcompressor.entrypoints import model_free
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "model_free"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def matrix(rows, columns, seed, spread=0.02):
    """Values with the shapes of trouble: a row of zeros, a row of -0 but one, outliers, halves of steps, subnormals."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * spread
    weight[rows // 3] = 0.0
    weight[rows // 2] = -0.0
    weight[rows // 2, 0] = spread
    weight[1, :: 7] *= 40
    weight[2] = (torch.arange(columns) % 31 - 15) / 15 * spread * 8
    weight[3] *= 1e-5
    weight[4] = weight[4].abs()
    weight[5] = -weight[5].abs()
    weight[:, 1] = -0.0
    return weight


def llama(width, inner, rows, dtype, layers=1):
    tensors = {"model.embed_tokens.weight": matrix(8, width, 1), "lm_head.weight": matrix(8, width, 2),
               "model.norm.weight": torch.ones(width)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        tensors[f"{at}.input_layernorm.weight"] = torch.ones(width)
        for seed, name in enumerate(("q_proj", "k_proj", "v_proj")):
            tensors[f"{at}.self_attn.{name}.weight"] = matrix(rows, width, 10 * layer + seed, 0.02 * (seed + 1))
        tensors[f"{at}.self_attn.o_proj.weight"] = matrix(rows, width, 10 * layer + 4)
        tensors[f"{at}.self_attn.q_proj.bias"] = torch.zeros(rows)
        tensors[f"{at}.mlp.gate_proj.weight"] = matrix(rows, width, 10 * layer + 5, 0.05)
        tensors[f"{at}.mlp.up_proj.weight"] = matrix(rows, width, 10 * layer + 6)
        tensors[f"{at}.mlp.down_proj.weight"] = matrix(rows, inner, 10 * layer + 7)
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def experts(dtype):
    """Stacked experts beside single ones, a router, and w1, w3 of Mixtral."""
    tensors = {"model.embed_tokens.weight": matrix(8, 128, 1), "lm_head.weight": matrix(8, 128, 2)}
    at = "model.layers.0"
    tensors[f"{at}.self_attn.q_proj.weight"] = matrix(16, 128, 3)
    tensors[f"{at}.self_attn.k_proj.weight"] = matrix(8, 128, 4, 0.1)
    tensors[f"{at}.self_attn.v_proj.weight"] = matrix(8, 128, 5)
    tensors[f"{at}.mlp.gate.weight"] = matrix(8, 128, 6)
    tensors[f"{at}.mlp.experts.gate_up_proj"] = torch.stack([matrix(256, 32, 7 + i, 0.02 * (i + 1)) for i in range(2)])
    tensors[f"{at}.mlp.experts.down_proj"] = torch.stack([matrix(32, 128, 9 + i) for i in range(2)])
    at = "model.layers.1"
    tensors[f"{at}.block_sparse_moe.gate.weight"] = matrix(8, 128, 11)
    for i in range(2):
        for seed, name in enumerate(("w1", "w2", "w3")):
            tensors[f"{at}.block_sparse_moe.experts.{i}.{name}.weight"] = matrix(16, 128, 20 + 3 * i + seed, 0.01 * (seed + 1))
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def state_space(dtype):
    """A mixer that no table of families knows, with a convolution and parameters that are no matrices, below other names."""
    tensors = {"backbone.embeddings.weight": matrix(8, 128, 1), "backbone.norm_f.weight": torch.ones(128)}
    at = "backbone.layers.0.mixer"
    tensors[f"{at}.in_proj.weight"] = matrix(40, 128, 2)
    tensors[f"{at}.out_proj.weight"] = matrix(136, 16, 3)
    tensors[f"{at}.conv1d.weight"] = torch.randn(16, 1, 4, generator=torch.Generator().manual_seed(4))
    tensors[f"{at}.A_log"] = torch.ones(8)
    tensors["visual.blocks.0.attn.qkv.weight"] = matrix(16, 128, 5)
    tensors["visual.patch_embed.proj.weight"] = torch.randn(8, 3, 2, 4, 4, generator=torch.Generator().manual_seed(6))
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


SOURCES = {
    "llama_bf16": lambda: llama(128, 256, 32, torch.bfloat16),
    "llama_f16": lambda: llama(128, 128, 24, torch.float16, 2),
    "llama_f32": lambda: llama(128, 128, 24, torch.float32),
    "partial_bf16": lambda: llama(200, 144, 136, torch.bfloat16),  # no multiple of 128
    "experts_bf16": lambda: experts(torch.bfloat16),
    "state_space_bf16": lambda: state_space(torch.bfloat16),
}
SHARDED = {"llama_f16"}
LLAMA_IGNORE = ["model.embed_tokens", "lm_head"]
IGNORE = {
    "experts_bf16": LLAMA_IGNORE + ["model.layers.0.mlp.gate", "model.layers.1.block_sparse_moe.gate"],
    "state_space_bf16": ["backbone.embeddings", "backbone.norm_f", "backbone.layers.0.mixer.conv1d", "visual.blocks.0.attn.qkv", "visual.patch_embed.proj"],
}
ALL = ["FP8_DYNAMIC", "FP8_BLOCK", "W8A8", "INT8", "W4A16", "W4A16_ASYM", "W4AFP8", "W2A16", "W3A16", "W5A16", "W6A8", "W7A16", "W8A16",
       "W4A4", "W4A8", "NVFP4A16", "MXFP4", "MXFP4A16", "MXFP4XFP8", "MXFP6A8", "MXFP6A16", "MXFP8", "MXFP8A16", "FP8", "NVFP4", "UNQUANTIZED"]
SOME = ["FP8_DYNAMIC", "FP8_BLOCK", "W8A8", "W4A16", "W4A16_ASYM", "NVFP4A16", "MXFP4", "MXFP6A16", "MXFP8"]
# Groups of 128 do not fit inputs of 32 or 16.
CASES = {"llama_bf16": ALL, "llama_f16": SOME, "llama_f32": SOME, "partial_bf16": ["FP8_DYNAMIC", "FP8_BLOCK", "W8A8", "W4A16"],
         "experts_bf16": ["FP8_DYNAMIC", "W8A8", "NVFP4A16", "MXFP4"], "state_space_bf16": ["FP8_BLOCK", "NVFP4A16"]}


def write_source(name, folder):
    tensors = SOURCES[name]()
    config = {"architectures": ["UnknownForCausalLM"], "model_type": "unknown", "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if name not in SHARDED:
        return save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    # Q, K and V of a layer lie in different files.
    shards = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    first, second = shards
    for key, tensor in tensors.items():
        shards[second if ".1." in key or "k_proj" in key or "up_proj" in key else first][key] = tensor
    for file, part in shards.items():
        save_file(part, folder / file, {"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
             "weight_map": {key: file for file, part in shards.items() for key in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def tensors_of(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            digest = hashlib.sha256(data[8 + size + begin:8 + size + end]).hexdigest()[:16]
            found[name] = [entry["dtype"], entry["shape"], digest]
    return found


def save_contiguous(tensors, path):
    """Weights with partial blocks are cut from padded ones, which save_file refuses."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def run_case(source, scheme, ignore, folder):
    model_free.save_file = save_contiguous
    if source in SHARDED:  # Q, K and V in different files end it ("Matched ... twice before completing set")
        save_file(SOURCES[source](), folder / "model.safetensors")
        for path in (*folder.glob("model-*"), folder / "model.safetensors.index.json"):
            path.unlink()
    try:
        model_free_ptq(folder, folder.parent / "out", scheme=scheme, ignore=ignore, device="cpu")
    except Exception as error:  # noqa: BLE001: whatever it says is recorded
        return {"error": str(error).splitlines()[0]}
    out = folder.parent / "out"
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    return {"quantization_config": config, "tensors": tensors_of(out)}


def main():
    wanted = sys.argv[1:] or list(SOURCES)
    path = FOLDER / "cases.json"
    cases = json.loads(path.read_text()) if path.exists() and sys.argv[1:] else {}
    for source in wanted:
        kept = FOLDER / "sources" / source
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        write_source(source, kept)
        for scheme in CASES[source]:
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch) / "source"
                shutil.copytree(kept, folder)
                ignore = IGNORE.get(source, LLAMA_IGNORE)
                cases[f"{source}.{scheme}"] = {"source": source, "scheme": scheme, "ignore": ignore,
                                               **run_case(source, scheme, ignore, folder)}
            print(source, scheme, cases[f"{source}.{scheme}"].get("error", "ok"), flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in sorted(cases.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
