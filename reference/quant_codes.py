#!/usr/bin/env python3
"""Makes tests/fixtures/quant: what ml_dtypes and torch say about FP8 codes and 16-bit floats.

Run with Python 3.11, numpy 2.4.6, ml_dtypes 0.5.4, torch 2.13.0:
    python reference/quant_codes.py

ml_dtypes is the judge of every value; torch must agree wherever it is asked, or the script stops.
Neither library saturates every format alike, so the saturating expectation is: clamp to the largest
finite value (infinities too), then cast. For NaN the code is torch's; ml_dtypes writes another E5M2 NaN
(0x7e), and both decode to NaN.

Files, little-endian, without headers; F is in the order of FORMATS:
  decode.f32   float32[F][256]      value of every code
  bf16.u8      uint8[F][65536]      code of every BF16 bit pattern
  f16.u8       uint8[F][65536]      code of every F16 bit pattern
  f16.f32      float32[65536]       value of every F16 bit pattern
  float32.bin  {uint32 bits, uint16 f16, uint16 bf16, uint8 code[F]}[n]   a systematic set
"""

import pathlib

import ml_dtypes
import numpy as np
import torch

FORMATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"]
OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant"


def saturating_codes(values: np.ndarray, name: str) -> np.ndarray:
    """uint8 codes of float32 values: clamp, then cast."""
    largest = float(ml_dtypes.finfo(getattr(ml_dtypes, name)).max)
    clamped = np.clip(values, -largest, largest)  # NaN stays NaN
    codes = clamped.astype(getattr(ml_dtypes, name)).view(np.uint8)
    by_torch = torch.from_numpy(clamped).to(getattr(torch, name)).view(torch.uint8).numpy()
    is_nan = np.isnan(values)
    assert (codes[~is_nan] == by_torch[~is_nan]).all(), name
    return np.where(is_nan, by_torch, codes).astype(np.uint8)


def systematic_float32() -> np.ndarray:
    """Bits of both signs and every exponent with mantissas around every place where a format rounds."""
    mantissas = {0, 1, 0x7FFFFF, 0x7FFFFE}
    for kept in (0, 1, 2, 3, 7, 10):  # mantissa bits of the formats, fewer for their subnormals
        half = 1 << (22 - kept)
        for high in (0, half << 1, (0x7FFFFF >> (23 - kept)) << (23 - kept)):
            for low in (half - 1, half, half + 1):
                mantissas.add((high | low) & 0x7FFFFF)
    exponents = np.arange(256, dtype=np.uint32) << 23
    magnitudes = (exponents[:, None] | np.array(sorted(mantissas), dtype=np.uint32)[None, :]).ravel()
    return np.concatenate([magnitudes, magnitudes | np.uint32(0x80000000)])


def half_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F16, BF16) bits of float32 values; NaN as the quiet NaN with its sign."""
    with np.errstate(over="ignore", invalid="ignore"):
        f16 = values.astype(np.float16).view(np.uint16)
    bf16 = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    tensor = torch.from_numpy(values)
    is_nan = np.isnan(values)
    for bits, dtype in ((f16, torch.float16), (bf16, torch.bfloat16)):
        by_torch = tensor.to(dtype).view(torch.int16).numpy().view(np.uint16)
        assert (bits[~is_nan] == by_torch[~is_nan]).all(), dtype
    sign = (values.view(np.uint32) >> 16).astype(np.uint16) & np.uint16(0x8000)
    return (np.where(is_nan, sign | np.uint16(0x7E00), f16).astype("<u2"),
            np.where(is_nan, sign | np.uint16(0x7FC0), bf16).astype("<u2"))


def main() -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    codes = np.arange(256, dtype=np.uint8)
    decoded = np.stack([codes.view(getattr(ml_dtypes, name)).astype(np.float32) for name in FORMATS])
    decoded.astype("<f4").tofile(OUTPUT / "decode.f32")

    patterns = np.arange(65536, dtype=np.uint16)
    bf16 = patterns.view(ml_dtypes.bfloat16).astype(np.float32)
    f16 = patterns.view(np.float16).astype(np.float32)
    np.stack([saturating_codes(bf16, name) for name in FORMATS]).tofile(OUTPUT / "bf16.u8")
    np.stack([saturating_codes(f16, name) for name in FORMATS]).tofile(OUTPUT / "f16.u8")
    f16.astype("<f4").tofile(OUTPUT / "f16.f32")

    bits = systematic_float32()
    values = bits.view(np.float32)
    record = np.zeros(len(bits), dtype=[("bits", "<u4"), ("f16", "<u2"), ("bf16", "<u2"),
                                        ("code", "u1", 3)])
    record["bits"] = bits
    record["f16"], record["bf16"] = half_bits(values)
    record["code"] = np.stack([saturating_codes(values, name) for name in FORMATS], axis=1)
    record.tofile(OUTPUT / "float32.bin")
    for path in sorted(OUTPUT.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
