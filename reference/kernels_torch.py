"""Expected results of the backend's operations, from PyTorch in float64.

    python reference/kernels_torch.py tests/fixtures/kernels

Needs torch 2.13.0, transformers 5.24 and what kimi_k3.py names. Attention is torch.nn.functional.scaled_dot_product_attention; with a
soft-cap or sinks, which that function does not have, a softmax over the capped scores and one column more for the
sinks; ALiBi's slopes are its float mask, or added to the capped scores. Attention with logits by distance is transformers 5.24's Inkling. Norms and activations are torch.nn.functional's, xIELU is transformers', SiTU and attend_streams llm-compressor's Kimi-K3, rope the usual rotate-half (Llama)
and rotate-every-two (GPT-J) written with complex numbers, FP8 codes torch's own dtypes. Inputs are multiples of
1/1024, exact in float32; outputs are rounded to 11 digits.
"""

import json
import pathlib
import sys
import types

import torch
import torch.nn.functional as F
from kimi_k3 import kimi
from transformers.activations import XIELUActivation
from transformers.models.inkling.modeling_inkling import InklingRelativeLogits, eager_attention_forward

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


def attention(q_count, kv_count, heads, kv_heads, head_dim, window, v_head_dim=0, softcap=0.0, sinks=False,
              slopes=False):
    q = values(q_count, heads, head_dim)
    k, v = values(kv_count, kv_heads, head_dim), values(kv_count, kv_heads, v_head_dim or head_dim)
    shared = heads // kv_heads
    queries = q.transpose(0, 1)
    keys, rows = (x.transpose(0, 1).repeat_interleave(shared, 0) for x in (k, v))
    mask = visible(q_count, kv_count, window)
    sink = values(heads, deviation=2.0) if sinks else None
    slope = values(heads).abs() if slopes else torch.zeros(0, dtype=torch.float64)
    distance = torch.arange(kv_count)[None, :] - torch.arange(kv_count - q_count, kv_count)[:, None]
    bias = slope[:, None, None] * distance if slopes else torch.zeros(1, 1, 1, dtype=torch.float64)
    if softcap or sinks:
        scores = queries @ keys.transpose(1, 2) * 0.3
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        scores = (scores + bias).masked_fill(~mask, -torch.inf)
        if sinks:
            scores = torch.cat((scores, sink[:, None, None].expand(heads, q_count, 1)), -1)
        out = torch.softmax(scores, -1)[..., :kv_count] @ rows
    else:
        mask = bias.expand(heads, q_count, kv_count).masked_fill(~mask, -torch.inf) if slopes else mask
        out = F.scaled_dot_product_attention(queries, keys, rows, attn_mask=mask, scale=0.3)
    return {"q_count": q_count, "kv_count": kv_count, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
            "v_head_dim": v_head_dim, "sliding_window": window, "softmax_scale": 0.3, "softcap": softcap,
            "sinks": listed(sink) if sinks else [], "q": listed(q), "k": listed(k), "v": listed(v),
            "out": listed(out.transpose(0, 1))} | ({"slopes": listed(slope)} if slopes else {})


def relative_attention(q_count, kv_count, heads, kv_heads, head_dim, window, rank, extent):
    """Inkling's own functions; its table is [rank, extent], ours [extent, rank]."""
    q = values(q_count, heads, head_dim)
    k, v = values(kv_count, kv_heads, head_dim), values(kv_count, kv_heads, head_dim)
    states, logits = values(q_count, heads, rank), InklingRelativeLogits(rank, extent).double()
    logits.proj.data = values(rank, extent)
    queries = torch.arange(kv_count - q_count, kv_count)
    bias = logits(states[None], queries, torch.arange(kv_count)).detach()
    hidden = torch.zeros(q_count, kv_count, dtype=torch.float64).masked_fill(~visible(q_count, kv_count, window), -torch.inf)
    module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, training=False)
    given = (x.transpose(0, 1)[None] for x in (q, k, v))
    out, _ = eager_attention_forward(module, *given, hidden, 0.3, position_bias=bias)
    return {"q_count": q_count, "kv_count": kv_count, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
            "sliding_window": window, "softmax_scale": 0.3, "rank": rank, "extent": extent, "q": listed(q), "k": listed(k),
            "v": listed(v), "states": listed(states), "table": listed(logits.proj.data.T), "out": listed(out)}


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


def norm(rows, width, epsilon, centered=False, biased=False):
    x, weight = values(rows, width) + (2.0 if centered else 0.0), values(width)
    bias = values(width) if biased else None
    if centered:
        out = F.layer_norm(x, (width,), weight, bias, epsilon)
    else:
        out = F.rms_norm(x, (width,), weight, epsilon) + (bias if biased else 0.0)
    return {"rows": rows, "width": width, "epsilon": epsilon, "centered": centered, "x": listed(x),
            "weight": listed(weight), "bias": listed(bias) if biased else [], "out": listed(out)}


def norm_heads(tokens, heads, head_dim, centered, per_head, biased=False):
    x = values(tokens, heads, head_dim) + 0.5
    weight = values(heads, head_dim) if per_head else values(head_dim)
    bias = torch.zeros(()) if not biased else values(heads, head_dim) if per_head else values(head_dim)
    normed = F.layer_norm(x, (head_dim,), eps=1e-5) if centered else F.rms_norm(x, (head_dim,), eps=1e-5)
    return {"tokens": tokens, "heads": heads, "head_dim": head_dim, "epsilon": 1e-5, "centered": centered,
            "weight_per_head": per_head, "x": listed(x), "weight": listed(weight), "bias": listed(bias) if biased else [],
            "out": listed(normed * weight + bias)}


XIELU = {"alpha_p": 0.8, "alpha_n": 1.1, "beta": 0.5, "eps": -1e-6}
ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x).square(),
    "xielu": lambda x: XIELUActivation(XIELU["alpha_p"], XIELU["alpha_n"], XIELU["beta"], XIELU["eps"],
                                       dtype=torch.float64)(x).detach(),
}


def activate(name, gated, limit=0.0):
    gate, up = values(3, 40, deviation=4.0), values(3, 40)
    x = torch.cat((gate, up), -1) if gated else gate
    if limit:  # as gpt-oss's experts do
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit) + 1
    out = ACTIVATIONS[name](gate)
    return {"activation": name, **XIELU, "gated": gated, "limit": limit, "rows": 3, "width": 40, "x": listed(x),
            "out": listed(out * up if gated else out)}


def situ(gated, beta, up_softcap=None):
    x = values(3, 80, deviation=4.0)
    gate, up = x.chunk(2, -1)
    out = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    if gated:
        theirs = kimi.SituAndMul(beta, up_softcap)(x)
        out = out * (up_softcap * torch.tanh(up / up_softcap) if up_softcap else up)
        torch.testing.assert_close(out, theirs.double(), rtol=2e-6, atol=1e-6)
    return {"activation": "situ", "beta": beta, "up_softcap": up_softcap or 0.0, "gated": gated, "rows": 3, "width": 40,
            "x": listed(x if gated else gate), "out": listed(out)}


def attend_streams(streams, rows, width, epsilon, deviation=1.0):
    x, norm, vector = values(streams, rows, width, deviation=deviation), values(width), values(width)
    scores = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * norm * vector).sum(-1)
    out = (scores.softmax(0)[..., None] * x).sum(0)
    theirs = kimi._apply_attn_res(
        x[0].float(), x[1:].transpose(0, 1).float(), types.SimpleNamespace(weight=vector[None].float()),
        types.SimpleNamespace(weight=norm.float(), variance_epsilon=epsilon))
    torch.testing.assert_close(out, theirs.double(), rtol=2e-5, atol=2e-6)
    return {"streams": streams, "rows": rows, "width": width, "epsilon": epsilon, "x": listed(x),
            "weight": listed(norm * vector), "out": listed(out)}


def embed(rows, hidden, multiplier):
    table, positions = values(rows, hidden), values(rows, hidden)
    ids = [(3 * i + 1) % rows for i in range(rows)]
    out = F.embedding(torch.tensor(ids), table) * multiplier + positions
    return {"vocab": rows, "hidden": hidden, "multiplier": multiplier, "ids": ids, "table": listed(table),
            "positions": listed(positions), "out": listed(out)}


def scatter_add(rows, count, width):
    x, out, weights = values(count, width), values(rows, width), values(count)
    chosen = torch.randperm(rows)[:count]
    return {"count": count, "width": width, "rows": chosen.tolist(), "weights": listed(weights), "x": listed(x),
            "before": listed(out), "out": listed(out.index_add(0, chosen, x * weights[:, None]))}


def load_kv(name, dtype):
    """All codes of a format, as two heads with a scale each; NaN is null."""
    codes = torch.arange(256, dtype=torch.uint8)
    scales = torch.tensor([0.75, 3.0], dtype=torch.float64)
    numbers = codes.view(dtype).double().view(2, 128) * scales[:, None]
    return {"dtype": name, "scales": listed(scales),
            "out": [None if x != x else x if abs(x) != float("inf") else str(x) for x in numbers.flatten().tolist()]}


def matmul(rows, width, out):
    x, weight, bias = values(rows, width), values(out, width), values(out)
    return {"rows": rows, "in": width, "out": out, "x": listed(x), "weight": listed(weight), "bias": listed(bias),
            "result": listed(F.linear(x, weight, bias))}


cases = {
    "attention": [attention(*case) for case in (
        (7, 7, 4, 2, 6, 0), (1, 9, 2, 1, 8, 0), (5, 12, 3, 3, 4, 0), (11, 11, 2, 1, 4, 3), (4, 10, 6, 2, 5, 6))] + [
        attention(5, 8, 4, 2, 12, 0, v_head_dim=7), attention(4, 4, 2, 1, 4, 0, v_head_dim=9),
        attention(6, 9, 4, 2, 8, 0, softcap=0.75), attention(9, 9, 2, 2, 8, 4, softcap=20.0),
        attention(6, 9, 4, 2, 8, 0, sinks=True), attention(9, 9, 4, 1, 8, 3, sinks=True),
        attention(4, 7, 4, 2, 10, 3, v_head_dim=6, softcap=1.5, sinks=True)],
    "rope": [rope(3, 2, 8, 8, False), rope(3, 2, 8, 8, True), rope(2, 1, 10, 6, False), rope(2, 1, 10, 6, True)],
    "norm": [norm(3, 20, 1e-5), norm(1, 7, 1e-2), norm(2, 19, 1e-5, biased=True), norm(3, 20, 1e-5, centered=True),
             norm(2, 37, 1e-2, centered=True, biased=True)],
    "norm_heads": [norm_heads(3, 2, 10, centered, per_head) for centered in (False, True) for per_head in (False, True)] + [
        norm_heads(2, 3, 9, centered, per_head, biased=True) for centered in (False, True) for per_head in (False, True)],
    "activate": [activate(name, gated) for name in ACTIVATIONS for gated in (True, False)] + [
        activate("quick_gelu", True, limit=1.5), activate("silu", True, limit=0.75)],
    "embed": [embed(5, 19, 1.0), embed(4, 18, 0.25)],
    "scatter_add": [scatter_add(7, 4, 21)],
    "load_kv": [load_kv("fp8_e4m3", torch.float8_e4m3fn), load_kv("fp8_e4m3fnuz", torch.float8_e4m3fnuz),
                load_kv("fp8_e5m2", torch.float8_e5m2)],
    "matmul": [matmul(4, 19, 7)],
    "alibi": [attention(7, 7, 4, 2, 6, 0, slopes=True), attention(1, 9, 2, 1, 8, 0, slopes=True),
              attention(5, 12, 3, 3, 4, 4, slopes=True),
              attention(6, 9, 4, 2, 10, 0, v_head_dim=6, softcap=1.5, sinks=True, slopes=True)],
    "relative_attention": [relative_attention(*case) for case in (
        (7, 7, 4, 2, 6, 0, 3, 4), (1, 9, 2, 1, 8, 0, 2, 20), (5, 12, 3, 3, 4, 0, 4, 9), (11, 11, 2, 1, 4, 3, 2, 3))],
}
cases["attend_streams"] = [attend_streams(3, 4, 19, 1e-5), attend_streams(1, 2, 8, 1e-6), attend_streams(9, 3, 40, 0.125, 0.01)]
cases["situ"] = [situ(True, 2.0), situ(True, 1.0, 3.0), situ(False, 0.5)]  # last: the cases before keep their numbers
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "torch.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")
