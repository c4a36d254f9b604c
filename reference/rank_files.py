#!/usr/bin/env python3
"""Writes tests/fixtures/rank_scales: TensorRT-LLM checkpoints as AMMO and ModelOpt export them, with
the KV scales of each rank and next to nothing else, written by numpy and safetensors themselves.

Each folder is one export; expected.json has of each `layers`, the number of layers of the model, and
`ranks`, the float32 scale of each layer of each tensor-parallel rank. Names, dtypes and files are
those of vLLM's examples/fp8/extract_scales.py, TensorRT-LLM's docs/source/architecture/checkpoint.md,
and AMMO's and ModelOpt's torch/export (`weights_to_npz`, `split_config_and_weights`).

arrays.npz and arrays.json are for the reader of .npz alone: shapes, dtypes and orders of arrays.

Versions: Python 3.11, numpy 2.4.6, safetensors 0.8.0, torch 2.13.0. Run: python rank_files.py
"""
import json
import pathlib
import shutil
import zipfile

import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "rank_scales"
rng = np.random.default_rng(448)
expected = {}


def random_scales(ranks, layers):
    """float32 [ranks, layers]: amax / 448 of magnitudes as K and V have them."""
    return (rng.uniform(2, 60, (ranks, layers)) / 448).astype(np.float32)


def expect(name, scales):
    expected[name] = {"layers": scales.shape[1], "ranks": scales.astype(np.float64).tolist()}


def new_folder(name):
    folder = OUT / name
    folder.mkdir(parents=True)
    return folder


def write_config(folder, layers, tp=1, pp=1, algorithm="FP8"):
    """config.json as ModelOpt writes it, without what a reader of scales does not ask for."""
    (folder / "config.json").write_text(json.dumps({
        "producer": {"name": "modelopt", "version": "0.15.0"},
        "architecture": "LlamaForCausalLM", "dtype": "float16",
        "num_hidden_layers": layers, "num_attention_heads": 4, "hidden_size": 32,
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": algorithm,
                         "exclude_modules": ["lm_head"]},
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp},
    }, indent=4) + "\n")


def tensors_of(scales, convert):
    """The tensors of a rank with these layers, numbered from 0."""
    tensors = {"transformer.vocab_embedding.weight": torch.ones(2, 3, dtype=torch.float16)}
    for layer, scale in enumerate(scales):
        prefix = f"transformer.layers.{layer}.attention"
        tensors[f"{prefix}.qkv.weights_scaling_factor"] = torch.tensor([9.0])
        tensors[f"{prefix}.kv_cache_scaling_factor"] = convert(scale)
        tensors[f"{prefix}.kv_cache_rcp_scaling_factor"] = torch.tensor([1 / scale])
    return tensors


def one_float32(scale):
    return torch.tensor([scale], dtype=torch.float32)


def safetensors_exports():
    folder, scales = new_folder("tp1"), random_scales(1, 2)
    save_file(tensors_of(scales[0], one_float32), folder / "rank0.safetensors")
    write_config(folder, 2)
    expect("tp1", scales)

    # Rank 0 in F16 scalars, rank 1 in BF16: the expected values are what these hold.
    folder, scales = new_folder("tp2"), random_scales(2, 2)
    for rank, dtype in enumerate((torch.float16, torch.bfloat16)):
        scales[rank] = torch.from_numpy(scales[rank]).to(dtype).float().numpy()
        save_file(tensors_of(scales[rank], lambda scale: torch.tensor(scale, dtype=dtype)),
                  folder / f"rank{rank}.safetensors")
    write_config(folder, 2, tp=2, algorithm=None)
    expect("tp2", scales)

    # Three layers on two stages: the first has two of them.
    folder, scales = new_folder("tp2_pp2"), random_scales(2, 3)
    for rank in range(4):
        stage, tp_rank = divmod(rank, 2)
        save_file(tensors_of(np.array_split(scales[tp_rank], 2)[stage], one_float32),
                  folder / f"rank{rank}.safetensors")
    write_config(folder, 3, tp=2, pp=2)
    expect("tp2_pp2", scales)

    folder, scales = new_folder("pp2"), random_scales(1, 4)
    for rank in range(2):
        save_file(tensors_of(scales[0][2 * rank: 2 * rank + 2], one_float32),
                  folder / f"rank{rank}.safetensors")
    write_config(folder, 4, pp=2)
    expect("pp2", scales)

    # Later ModelOpt releases: K and V apart. Their larger one, as a third tensor, came in between.
    folder, k, v = new_folder("k_and_v"), random_scales(1, 2), random_scales(1, 2)
    tensors = {}
    for layer in range(2):
        prefix = f"transformer.layers.{layer}.attention"
        tensors[f"{prefix}.k_cache_scaling_factor"] = one_float32(k[0][layer])
        tensors[f"{prefix}.v_cache_scaling_factor"] = one_float32(v[0][layer])
    tensors["transformer.layers.1.attention.kv_cache_scaling_factor"] = one_float32(max(k[0][1], v[0][1]))
    save_file(tensors, folder / "rank0.safetensors")
    write_config(folder, 2)
    expect("k_and_v", np.maximum(k, v))


def write_ammo_config(folder, layers, tp, dtype="FP8"):
    """<decoder>_tp<N>.json: the export's dataclasses as a dictionary."""
    (folder / f"llama_tp{tp}.json").write_text(json.dumps({
        "version": 0.8, "dtype": "float16", "rank": 0, "tensor_parallel": tp, "pipeline_parallel": 1,
        "layers": [{"decoder_type": "llama", "attention": {
            "kv_cache_scaling_factor": f"transformer.layers.{layer}.attention.kv_cache_scaling_factor",
            "kv_cache_dtype": dtype}} for layer in range(layers)],
    }, indent=4) + "\n")


def arrays_of(scales, name, dtype):
    arrays = {"_np:vocab_embedding:weight": np.ones((2, 3), np.float16)}
    for layer, scale in enumerate(scales):
        arrays[f"_np:layers:{layer}:attention:qkv:q:weights_scaling_factor"] = np.array([9], np.float32)
        arrays[name.format(layer)] = np.array([scale], dtype)
    return arrays


def npz_exports():
    colons = "_np:layers:{}:attention:kv_cache_scaling_factor"
    folder, scales = new_folder("npz_tp2"), random_scales(2, 2)
    for rank in range(2):
        np.savez(folder / f"llama_tp2_rank{rank}.npz", **arrays_of(scales[rank], colons, "<f4"))
    write_ammo_config(folder, 2, tp=2)
    expect("npz_tp2", scales)

    # Dots, F64, no JSON.
    folder, scales = new_folder("npz_dots"), random_scales(1, 2)
    np.savez(folder / "llama_tp1_rank0.npz",
             **arrays_of(scales[0], "transformer.layers.{}.attention.kv_cache_scaling_factor", "<f8"))
    expect("npz_dots", scales)

    # What zipfile writes once the archive is over 2 GB, with a limit that is reached earlier.
    folder, scales = new_folder("npz_zip64"), random_scales(1, 2)
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 64
    np.savez(folder / "llama_tp1_rank0.npz", **arrays_of(scales[0], colons, "<f4"))
    zipfile.ZIP64_LIMIT = limit
    expect("npz_zip64", scales)

    folder = new_folder("npz_compressed")
    np.savez_compressed(folder / "llama_tp1_rank0.npz", **arrays_of([0.5, 0.5], colons, "<f4"))


def arrays():
    """arrays.npz: {name: array}; arrays.json: shape, dtype in safetensors' words, and bytes."""
    listed = {
        "scalar": np.float32(0.5), "one": np.array([1.5], np.float16),
        "double": np.array([[1e-30, 2.5]], np.float64), "empty": np.zeros((0, 3), np.float32),
        "cube": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "fortran vector": np.asfortranarray(np.arange(3, dtype=np.float32)),
        "a name: with [brackets] é": np.array([7], np.float32),
    }
    np.savez(OUT / "arrays.npz", **listed)
    words = {"<f2": "F16", "<f4": "F32", "<f8": "F64"}
    (OUT / "arrays.json").write_text(json.dumps({
        name: {"shape": list(array.shape), "dtype": words[array.dtype.str], "hex": array.tobytes().hex()}
        for name, array in listed.items()}, indent=1) + "\n")
    refused = {"int": np.array([1], "<i4"), "big endian": np.array([1], ">f4"),
               "fortran": np.asfortranarray(np.ones((2, 2), np.float32)),
               "bfloat16 as AMMO writes it": np.array([0], np.int16).view("V2"),
               "struct": np.zeros(1, [("a", "<f4")])}
    np.savez(OUT / "refused.npz", **refused)


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    safetensors_exports()
    npz_exports()
    arrays()
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for path in OUT.rglob("*.safetensors"):
        path.chmod(0o644)  # the package makes them for their owner alone
