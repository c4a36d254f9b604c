"""Expected results of the backend's operations, from PyTorch in float64.

    python tests/reference/kernels.py tests/fixtures/kernels

Needs torch 2.13.0. Attention is torch.nn.functional.scaled_dot_product_attention, the norm
torch.nn.functional.rms_norm, activations torch.nn.functional's, rope the usual rotate-half (Llama) and
rotate-every-two (GPT-J) written with complex numbers. Inputs are multiples of 1/1024,
exact in float32; outputs are rounded to 11 digits.
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(20240611)


def values(*shape, deviation=1.0):
    return (torch.randn(*shape, dtype=torch.float64) * deviation * 1024).round() / 1024


def listed(tensor):
    return [float(f"{x:.11g}") for x in tensor.double().flatten().tolist()]


def visible(q_count, kv_count, window):
    """[q_count, kv_count]: which keys each query sees; the last query is the sequence's last token."""
    position = torch.arange(kv_count - q_count, kv_count)[:, None]
    key = torch.arange(kv_count)[None, :]
    mask = key <= position
    return mask & (key > position - window) if window else mask


def attention(q_count, kv_count, heads, kv_heads, head_dim, window):
    q = values(q_count, heads, head_dim)
    k, v = values(kv_count, kv_heads, head_dim), values(kv_count, kv_heads, head_dim)
    shared = heads // kv_heads
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1).repeat_interleave(shared, 0), v.transpose(0, 1).repeat_interleave(shared, 0),
        attn_mask=visible(q_count, kv_count, window), scale=0.3).transpose(0, 1)
    return {"q_count": q_count, "kv_count": kv_count, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
            "sliding_window": window, "softmax_scale": 0.3, "q": listed(q), "k": listed(k), "v": listed(v),
            "out": listed(out)}


def rope(tokens, heads, head_dim, rotary_dim, interleaved):
    x = values(tokens, heads, head_dim)
    positions = torch.tensor([(5 * t + 1) % 9 for t in range(tokens)])
    inverse = 10000.0 ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    angles = torch.arange(9, dtype=torch.float64)[:, None] * inverse
    cos, sin = angles.cos().float().double(), angles.sin().float().double()
    turned, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    half = rotary_dim // 2
    if interleaved:
        pairs = torch.complex(turned[..., 0::2], turned[..., 1::2])
    else:
        pairs = torch.complex(turned[..., :half], turned[..., half:])
    pairs = pairs * torch.complex(cos, sin)[positions][:, None]
    if interleaved:
        turned = torch.stack((pairs.real, pairs.imag), -1).flatten(-2)
    else:
        turned = torch.cat((pairs.real, pairs.imag), -1)
    return {"tokens": tokens, "heads": heads, "head_dim": head_dim, "rotary_dim": rotary_dim,
            "interleaved": interleaved, "positions": positions.tolist(), "x": listed(x), "cos": listed(cos),
            "sin": listed(sin), "out": listed(torch.cat((turned, rest), -1))}


def rms_norm(rows, width, epsilon):
    x, weight = values(rows, width), values(width)
    return {"rows": rows, "width": width, "epsilon": epsilon, "x": listed(x), "weight": listed(weight),
            "out": listed(F.rms_norm(x, (width,), weight, epsilon))}


def gated(name, function):
    gate, up = values(3, 40, deviation=4.0), values(3, 40)
    return {"activation": name, "width": 40, "gate_up": listed(torch.cat((gate, up), -1)),
            "out": listed(function(gate) * up)}


def matmul(rows, width, out):
    x, weight, bias = values(rows, width), values(out, width), values(out)
    return {"rows": rows, "in": width, "out": out, "x": listed(x), "weight": listed(weight), "bias": listed(bias),
            "result": listed(F.linear(x, weight, bias))}


cases = {
    "attention": [attention(*case) for case in (
        (7, 7, 4, 2, 6, 0), (1, 9, 2, 1, 8, 0), (5, 12, 3, 3, 4, 0), (11, 11, 2, 1, 4, 3), (4, 10, 6, 2, 5, 6))],
    "rope": [rope(3, 2, 8, 8, False), rope(3, 2, 8, 8, True), rope(2, 1, 10, 6, False), rope(2, 1, 10, 6, True)],
    "rms_norm": [rms_norm(3, 20, 1e-5), rms_norm(1, 7, 1e-2)],
    "gated_activation": [
        gated("silu", F.silu), gated("gelu", F.gelu), gated("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
    "matmul": [matmul(4, 19, 7)],
}
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "torch.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")
