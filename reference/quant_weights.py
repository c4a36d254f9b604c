#!/usr/bin/env python3
"""Makes tests/fixtures/quant/weights.{json,bin}: FP8 scales and codes of small weights.

Run with Python 3.11, llmcompressor 0.14.0.1, compressed-tensors 0.19.0, torch 2.13:
    python reference/quant_weights.py

Each case is a weight, a strategy and an arithmetic.
  model    scales of llm-compressor's memoryless_minmax observer, codes of compressed-tensors' quantize with
           the zero point that exists while it compresses, both in the weight's own dtype.
  float32  the definition in float32, written below, of a 16-bit weight the better of two scales (docs/numerics.md).
           "error" is the relative reconstruction error in float64.
weights.bin holds the bytes; weights.json says where. "patterns": the weight is every finite bit pattern of the
dtype in ascending order and not stored; of its codes only the SHA-256 is.
"""

import hashlib
import json
import pathlib

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from llmcompressor.observers import Observer

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant"
DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
STRATEGIES = {
    "tensor": {"strategy": "tensor"},
    "channel": {"strategy": "channel"},
    "block": {"strategy": "block", "block_structure": [16, 32]},
}
E4M3 = torch.float8_e4m3fn


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def finite_patterns(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    values = torch.cat([values[32768:], values[:32768]])  # bits 0 to 65535
    return values[torch.isfinite(values.float())].reshape(-1, 256)


def weights(dtype: torch.dtype):
    """(name, weight) pairs."""
    generator = torch.Generator().manual_seed(20261)

    def normal(rows, columns, deviation):
        return (torch.randn(rows, columns, generator=generator, dtype=torch.float64) * deviation).to(dtype)

    info = torch.finfo(dtype)
    yield "normal", normal(33, 70, 0.02)
    yield "one_block", normal(7, 5, 3.0)
    yield "one_column", normal(19, 1, 0.5)
    yield "one_row", normal(1, 65, 0.1)
    zeros = normal(20, 40, 0.01)
    zeros[3] = 0.0
    zeros[4] = -0.0
    zeros[16:, 32:] = 0.0
    zeros[0, ::3] = -0.0
    zeros[1, ::7] = 0.0
    yield "zero_rows", zeros
    yield "zeros", torch.tensor([[0.0, -0.0, 0.0], [-0.0, -0.0, 0.0]], dtype=dtype)
    # Every power of two that the dtype has, both signs: the largest beside subnormals.
    exponents = torch.arange(-149, 128, dtype=torch.float64)
    powers = torch.cat([2.0**exponents, -1.75 * 2.0**exponents]).to(dtype)
    powers = powers[torch.isfinite(powers.float())]
    yield "powers", powers[: len(powers) // 2 * 2].reshape(2, -1)
    wide = torch.exp2(torch.rand(20, 50, generator=generator, dtype=torch.float64) * 30 - 20)
    yield "wide", (wide * (1 - 2 * (torch.rand(20, 50, generator=generator) < 0.5))).clamp(-6e4, 6e4).to(dtype)
    extremes = normal(17, 33, 1.0)
    extremes[0, 0], extremes[1, 1], extremes[16, 32] = info.max, info.min, info.tiny
    extremes[2] = info.smallest_normal / 4
    extremes[3] = -info.smallest_normal
    yield "extremes", extremes
    yield "subnormals", (torch.randint(-9, 10, (18, 34), generator=generator) * (info.tiny / 16)).to(dtype)
    # Quotients at and beside every tie between codes: the largest code fixes the scale at a power of two.
    codes = torch.arange(0, 127, dtype=torch.uint8).view(E4M3).double()
    ties = torch.cat([codes, (codes[1:] + codes[:-1]) / 2, -codes])
    ties = torch.cat([ties, ties * (1 + info.eps), ties * (1 - info.eps)]).to(dtype) * (2.0**-6)
    ties = torch.cat([ties, torch.full((1140 - len(ties),), 7.0, dtype=dtype)])
    yield "ties", ties.reshape(20, 57)


def by_llm_compressor(weight, args):
    observer = Observer.load_from_registry("memoryless_minmax", base_name="weight", args=args)
    observer(weight)
    qparams = observer.get_qparams()
    scale, zero_point = qparams["scale"], qparams["zero_point"]
    return scale, quantize(weight, scale, zero_point, args, dtype=E4M3)


def blocks_of(weight, args):
    """(rows, columns) slices, row-major."""
    rows, columns = weight.shape
    height, width = {"tensor": (rows, columns), "channel": (1, columns)}.get(
        args["strategy"], args.get("block_structure"))
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield slice(row, row + height), slice(column, column + width)


def codes_at(values, scale):
    """Float32 values and scale: one float32 division, +0 for -0, clamp, cast."""
    return (values / scale + 0.0).clamp(-448.0, 448.0).to(E4M3)


def squared_error(values, scale):
    real = codes_at(values, scale).double() * scale.double()
    return ((real - values.double()) ** 2).sum().item()


def by_definition(weight, args):
    values = weight.float()
    codes = torch.zeros(weight.shape, dtype=E4M3)
    scales, squares = [], 0.0
    for block in blocks_of(weight, args):
        amax = values[block].abs().max()
        scale = amax / torch.tensor(448.0)
        if scale == 0:
            scale = torch.tensor(torch.finfo(torch.float32).eps)
        if weight.dtype != torch.float32:
            rounded = (amax / torch.tensor(448.0)).to(weight.dtype).float()
            if rounded == 0:
                rounded = torch.tensor(torch.finfo(weight.dtype).eps)
            plain, other = squared_error(values[block], scale), squared_error(values[block], rounded)
            # The sums are good to about 1e-14: no case may hang on less.
            assert plain == 0 or other == 0 or abs(plain / other - (1 - 1e-12)) > 1e-13, (plain, other)
            if plain > 0 and plain >= other * (1 - 1e-12):
                scale = rounded
        scales.append(scale)
        codes[block] = codes_at(values[block], scale)
        squares += squared_error(values[block], scale)
    total = (values.double() ** 2).sum().item()
    return torch.stack(scales), codes, (squares / total) ** 0.5 if squares else 0.0


def main() -> None:
    blob, cases, places = bytearray(), [], {}

    def store(data: bytes) -> list:
        if data not in places:
            places[data] = [len(blob), len(data)]
            blob.extend(data)
        return places[data]

    def add(name, dtype_name, weight, place, strategy):
        for arithmetic in ("model", "float32"):
            args = STRATEGIES[strategy]
            case = {"name": name, "dtype": dtype_name, "shape": list(weight.shape), "weight": place,
                    "args": args, "arithmetic": arithmetic}
            if arithmetic == "model":
                scale, codes = by_llm_compressor(weight, QuantizationArgs(num_bits=8, type="float", **args))
                case["scale_shape"] = list(scale.shape)
            else:
                scale, codes, case["error"] = by_definition(weight, args)
            case["scales"] = store(bytes_of(scale.float()))
            if place is None:
                case["patterns"], case["sha256"] = True, hashlib.sha256(bytes_of(codes)).hexdigest()
            else:
                case["codes"] = store(bytes_of(codes))
            cases.append(case)

    for dtype_name, dtype in DTYPES.items():
        for name, weight in weights(dtype):
            place = store(bytes_of(weight))
            for strategy in STRATEGIES:
                add(name, dtype_name, weight, place, strategy)
        if dtype != torch.float32:
            for strategy in STRATEGIES:
                add("patterns", dtype_name, finite_patterns(dtype), None, strategy)
    (OUTPUT / "weights.bin").write_bytes(blob)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUTPUT / "weights.json").write_text("[\n" + lines + "\n]\n")
    print(len(cases), "cases,", len(blob), "bytes")


if __name__ == "__main__":
    main()
