#!/usr/bin/env python3
"""Makes tests/fixtures/quant/mse.{json,bin}: what the observer mse chooses for small weights.

Run with Python 3.11, llmcompressor 0.14.0.1, compressed-tensors 0.19.0, torch 2.13:
    python reference/quant_mse.py

  float32  scales of llm-compressor's memoryless_mse, shown the weight in float32. The definition below, whose
           sums are float64, must choose the same, or the script stops.
  model    scales by the definition, with ranges, scales and quotients rounded to the weight's dtype. llm-compressor
           adds up errors in that dtype too, where most of them vanish, so it is no judge.
mse.bin holds weights and scales; mse.json says where.
"""

import json
import pathlib

import torch
from compressed_tensors.quantization import QuantizationArgs
from llmcompressor.observers import Observer

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant"
DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
STRATEGIES = [{"strategy": "tensor"}, {"strategy": "channel"},
              {"strategy": "block", "block_structure": [16, 32]}]
OPTIONS = [{}, {"norm": 2.0, "grid": 50.0, "maxshrink": 0.6, "patience": 3}, {"expand": 1.25, "maxshrink": 0.5},
           {"norm": 1.0, "maxshrink": 0.9, "patience": 50}]


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def blocks_of(weight, args):
    rows, columns = weight.shape
    height, width = {"tensor": (rows, columns), "channel": (1, columns)}.get(
        args["strategy"], args.get("block_structure"))
    return [weight[row:row + height, column:column + width]
            for row in range(0, rows, height) for column in range(0, columns, width)]


def by_definition(weight, args, options, rounds):
    dtype = weight.dtype if rounds else torch.float32

    def rounded(value):
        return value.to(dtype).float()

    maxshrink, grid = options.get("maxshrink", 0.2), options.get("grid", 100.0)
    norm, patience, expand = options.get("norm", 2.4), options.get("patience", 5), options.get("expand", 1.0)
    blocks = [block.float() for block in blocks_of(weight, args)]
    ranges = [rounded(block.abs().max() * torch.tensor(expand)) for block in blocks]

    def scale_at(index, factor):
        scale = rounded(rounded(ranges[index] * torch.tensor(factor)) / torch.tensor(448.0))
        return scale if scale > 0 else torch.tensor(torch.finfo(dtype).eps)

    best = [(torch.finfo(torch.float32).max, 1.0)] * len(blocks)
    without_gain = 0
    for step in range(int(maxshrink * grid)):
        factor, gained = 1 - step / grid, False
        for index, block in enumerate(blocks):
            scale = scale_at(index, factor)
            codes = rounded(block / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            error = ((codes.double() * scale.double() - block.double()).abs() ** norm).sum().item()
            if error < best[index][0]:
                best[index], gained = (error, factor), True
        without_gain = 0 if gained else without_gain + 1
        if without_gain >= patience:
            break
    return torch.stack([scale_at(index, factor) for index, (_, factor) in enumerate(best)])


def by_llm_compressor(weight, args, options):
    qargs = QuantizationArgs(num_bits=8, type="float", observer_kwargs=dict(options), **args)
    observer = Observer.load_from_registry("memoryless_mse", base_name="weight", args=qargs)
    observer(weight.float())
    return observer.get_qparams()["scale"].reshape(-1)


def main() -> None:
    blob, cases = bytearray(), []

    def store(data):
        blob.extend(data)
        return [len(blob) - len(data), len(data)]

    generator = torch.Generator().manual_seed(8)
    for name, dtype in DTYPES.items():
        bell = torch.randn(40, 48, generator=generator)
        tails = torch.randn(40, 48, generator=generator).abs() + 0.05
        weight = (bell / tails * 0.01).clamp(-4, 4)
        weight[7] = 0
        weight[9, 11] = 1e-6
        weight = weight.to(dtype)
        place = store(bytes_of(weight))
        for args in STRATEGIES:
            for options in OPTIONS:
                theirs, ours = by_llm_compressor(weight, args, options), by_definition(weight, args, options, False)
                assert torch.equal(theirs, ours), (name, args, options, (theirs != ours).sum())
                case = {"dtype": name, "shape": [40, 48], "weight": place, "args": args, "options": options}
                cases.append({**case, "arithmetic": "float32", "scales": store(bytes_of(theirs))})
                cases.append({**case, "arithmetic": "model",
                              "scales": store(bytes_of(by_definition(weight, args, options, True)))})
    (OUTPUT / "mse.bin").write_bytes(blob)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUTPUT / "mse.json").write_text("[\n" + lines + "\n]\n")
    print(len(cases), "cases,", len(blob), "bytes")


if __name__ == "__main__":
    main()
