"""Expected codes and products of the FP8 operations, from PyTorch.

    python reference/kernels_fp8.py tests/fixtures/kernels

Needs torch 2.13.0. Codes are torch.float8_e4m3fn's of x / scale, in float32; a token's scale is its largest magnitude
divided by 448. Products are float64 sums of the codes as numbers, times the scales, plus the bias; where torch has the
product itself (torch._scaled_mm with one scale a matrix), the script checks that it says the same. Inputs are multiples
of 1/1024, exact in float32; scales are written so that float32 reads them back; products are rounded to 11 digits.
"""

import json
import pathlib
import sys

import torch

torch.manual_seed(20241121)
E4M3 = torch.float8_e4m3fn


def values(*shape, deviation=1.0):
    return ((torch.randn(*shape, dtype=torch.float64) * deviation * 1024).round() / 1024).float()


def listed(tensor):
    return [float(f"{x:.11g}") for x in tensor.double().flatten().tolist()]


def codes(x, scale):
    return (x / scale).clamp(-448, 448).to(E4M3)


def bits(x):
    return x.view(torch.uint8).flatten().tolist()


def check_with_torch(x, w, x_scale, w_scale, sums):
    """_scaled_mm of one scale a matrix, which has no float64 and no bias."""
    product = torch._scaled_mm(x, w.t(), scale_a=x_scale, scale_b=w_scale, out_dtype=torch.float32).double()
    assert torch.allclose(product, sums, rtol=1e-5, atol=1e-5 * sums.abs().max().item()), (product - sums).abs().max()


def product(rows, width, out, per_token, per_channel):
    x, weight, bias = values(rows, width, deviation=3.0), values(out, width, deviation=0.1), values(out)
    x[1] *= 16  # a token unlike the others
    x_scale = x.abs().amax(1, keepdim=True) / 448 if per_token else torch.tensor(0.03125)
    w_scale = weight.abs().amax(1) / 448 if per_channel else weight.abs().amax() / 448
    x_codes = codes(x, x_scale)
    w_codes = codes(weight, w_scale[:, None] if per_channel else w_scale)
    sums = x_codes.double() @ w_codes.double().t() * x_scale.double() * w_scale.double()
    if not per_token and not per_channel:
        check_with_torch(x_codes, w_codes, x_scale, w_scale, sums)
    return {"rows": rows, "in": width, "out": out, "scale_per_row": per_token, "x": listed(x),
            "x_scales": listed(x_scale), "x_codes": bits(x_codes), "weight_codes": bits(w_codes),
            "weight_scales": listed(w_scale), "bias": listed(bias), "result": listed(sums + bias)}


cases = [product(5, 48, 16, per_token, per_channel) for per_token in (False, True) for per_channel in (False, True)]
cases.append(product(3, 19, 7, True, True))
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "fp8.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")
