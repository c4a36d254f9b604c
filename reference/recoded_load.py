#!/usr/bin/env python3
"""Loads checkpoints whose weights `kvcal convert` gave compressed-tensors' form in transformers, and compares every weight.

usage: recoded_load.py KVCAL [KIND ...]
needs: transformers 5.23, compressed-tensors 0.20, torch

Each fixture of tests/fixtures/quantized has the float32 values that its own library decodes, as SHA-256 in expected.json (made by
make_quantized.py). They must be the values that compressed-tensors decodes from the conversion. It multiplies in the dtype of the scales,
so that they are given in float32, which holds F16 exactly. INT8 of bitsandbytes, whose library rounds twice, is compared with its first
values within one part in 2^22.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "quantized"
KINDS = ["awq", "gptq_2", "gptq_3", "gptq_8", "gptq_v2", "bnb_int8"]


def widen_scales(file):
    tensors = load_file(file)
    save_file({name: tensor.float() if name.endswith("weight_scale") else tensor for name, tensor in tensors.items()}, file,
              metadata={"format": "pt"})


def differences(kind, folder):
    """Names of modules whose weights differ, and the number of compared ones."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 quantization_config=CompressedTensorsConfig(run_compressed=False))
    expected = json.loads((FIXTURES / kind / "expected.json").read_text())["weights"]
    modules = dict(model.named_modules())
    wrong = []
    for name, entry in expected.items():
        values = modules[name].weight.detach().float().numpy()
        first = np.array(entry["first"], np.float32)
        same = hashlib.sha256(values.tobytes()).hexdigest() == entry["sha256"]
        near = np.all(np.abs(values.ravel()[:len(first)] - first) <= np.abs(first) * 2.0**-22)
        if not (near if kind == "bnb_int8" else same):
            wrong.append(name)
    return wrong, len(expected)


def main(kvcal, kinds):
    failed = False
    for kind in kinds:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "out"
            subprocess.run([kvcal, "convert", FIXTURES / kind, "--format", "compressed-tensors", "--output", folder],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            widen_scales(folder / "model.safetensors")
            wrong, count = differences(kind, folder)
        print(f"{kind}: {count} weights, {len(wrong)} differ {' '.join(wrong[:3])}")
        failed = failed or bool(wrong) or count == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or KINDS))
