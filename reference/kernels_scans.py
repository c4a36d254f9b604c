"""Expected results of the backend's operations for layers without attention, from PyTorch in float64.

    python reference/kernels_scans.py tests/fixtures/kernels

Needs torch 2.13.0 and transformers 5.24.0. Each recurrence is written out in float64 and compared here with the
functions of transformers that it stands for (which compute in float32): causal_conv1d_fn and causal_conv1d_update,
mamba2_chunk_scan (nemotron_h), mamba_selective_scan and mamba_selective_state_update (jamba),
torch_recurrent_gated_delta_rule and torch_chunk_gated_delta_rule (qwen3_next), recurrent_kimi_delta_attention and
chunk_kimi_delta_attention (kimi_linear), BailingHybridForgetGate (bailing_hybrid), the gated norms of zamba2 and qwen3_next,
and the hyper-connections of deepseek_v4 and glm5_next. Inputs are multiples of 1/1024, exact in float32; outputs are rounded to 9 digits.
"""

import json
import pathlib
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from transformers.models.bailing_hybrid import modeling_bailing_hybrid as ling
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
from transformers.models.glm5_next import modeling_glm5_next as glm
from transformers.models.jamba import modeling_jamba as jamba
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.nemotron_h import modeling_nemotron_h as nemotron
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers.models.zamba2.modeling_zamba2 import Zamba2RMSNormGated

torch.manual_seed(20240612)


def values(*shape, deviation=1.0):
    return (torch.randn(*shape, dtype=torch.float64) * deviation * 1024).round() / 1024


def listed(tensor):
    return [] if tensor is None else [float(f"{x:.9g}") for x in tensor.double().flatten().tolist()]


def close(ours, theirs, limit=2e-5):
    torch.testing.assert_close(ours, theirs.double().view_as(ours), rtol=limit, atol=limit)


def causal_conv(rows, channels, kernel, silu, biased, continued):
    x, weight = values(rows, channels), values(channels, kernel)
    bias = values(channels) if biased else None
    state = values(kernel - 1, channels) if continued else torch.zeros(kernel - 1, channels, dtype=torch.float64)
    longer = torch.cat((state, x))
    out = F.conv1d(longer.T[None], weight[:, None], bias, groups=channels)[0].T
    out = F.silu(out) if silu else out
    activation = "silu" if silu else None
    if continued:
        kept = state.T[None].clone()
        close(out, nemotron.causal_conv1d_update(x.T[None], kept, weight, bias, activation)[0].T)
        close(longer[rows:], kept[0].T)
    else:
        close(out, qwen.causal_conv1d_fn(x.T[None], weight, bias, activation)[0].T)
    return {"rows": rows, "channels": channels, "kernel": kernel, "silu": silu, "x": listed(x),
            "weight": listed(weight), "bias": listed(bias), "state": listed(state), "out": listed(out),
            "after": listed(longer[rows:])}


def ssm_scan(rows, heads, head_dim, groups, state_dim, limits=(0.0, float("inf")), per_state=False, skip=True,
             continued=True):
    x, dt = values(rows, heads, head_dim), values(rows, heads)
    bias = values(heads)
    a = -values(heads, state_dim).abs() if per_state else -values(heads).abs()
    b, c = values(rows, groups, state_dim), values(rows, groups, state_dim)
    d = values(heads) if skip else None
    state = values(heads, head_dim, state_dim) if continued else torch.zeros(heads, head_dim, state_dim).double()
    before = state.clone()
    steps = F.softplus(dt + bias).clamp(*limits)
    out = torch.zeros_like(x)
    for t in range(rows):
        shared = [y[t].repeat_interleave(heads // groups, 0)[:, None, :] for y in (b, c)]
        decay = torch.exp(steps[t][:, None] * (a if per_state else a[:, None]))[:, None, :]
        state = decay * state + (steps[t][:, None] * x[t])[..., None] * shared[0]
        out[t] = (state * shared[1]).sum(-1) + (d[:, None] * x[t] if skip else 0.0)
    if per_state:
        if continued:
            kept = before[None, :, 0].clone()
            for t in range(rows):
                close(out[t, :, 0], jamba.mamba_selective_state_update(
                    kept, x[None, t, :, 0], dt[None, t], a, b[None, t, 0], c[None, t, 0], d, bias, True)[0])
            close(state[:, 0], kept[0])
        else:
            theirs, kept = jamba.mamba_selective_scan(
                x[..., 0].T[None], dt.T[None], a, b[:, 0].T[None], c[:, 0].T[None], d, None, bias, True,
                return_last_state=True)
            close(out[..., 0], theirs[0].T)
            close(state[:, 0], kept[0])
    else:
        theirs, kept = nemotron.mamba2_chunk_scan(
            *(y.float() for y in (x[None], dt[None], a, b[None], c[None])), chunk_size=4, D=d.float(),
            dt_bias=bias.float(), initial_states=before[None].float(), dt_softplus=True, dt_limit=limits,
            return_final_states=True)
        close(out, theirs[0])
        close(state, kept)
    return {"rows": rows, "heads": heads, "head_dim": head_dim, "groups": groups, "state_dim": state_dim,
            "dt_min": limits[0], "dt_max": min(limits[1], 1e30), "a_per_state": per_state, "x": listed(x),
            "dt": listed(dt), "dt_bias": listed(bias), "a": listed(a), "b": listed(b), "c": listed(c), "d": listed(d),
            "state": listed(before), "out": listed(out), "after": listed(state)}


def bounded_decay(g, rate, bias, floor):
    """floor · sigmoid(-rate · (g + bias)), by the judge's module."""
    rows, heads, width = g.shape
    settings = SimpleNamespace(linear_head_dim=width, linear_num_heads=heads, hidden_size=heads * width, kda_safe_gate=True,
                               kda_lower_bound=floor)
    gate = ling.BailingHybridForgetGate(settings)
    gate.A_log.data, gate.dt_bias.data = (-rate).log().float(), bias.flatten().float()
    gate.f_proj.weight.data = torch.eye(heads * width)
    decay = floor * (-rate[:, None] * (g + bias)).sigmoid()
    close(decay, gate(g.reshape(1, rows, heads * width).float())[0].detach())
    return decay


def delta_scan(rows, k_heads, v_heads, k_dim, v_dim, normalize=True, raw=False, continued=True, by_key=False, floor=0.0):
    wide = (v_heads, k_dim) if by_key else (v_heads,)
    q, k = values(rows, k_heads, k_dim), values(rows, k_heads, k_dim, deviation=1.0 if normalize else 0.3)
    v, g, beta = values(rows, v_heads, v_dim), values(rows, *wide), values(rows, v_heads)
    rate, bias = (-values(v_heads).abs(), values(*wide)) if raw else (None, None)
    if not raw:
        g, beta = -g.abs(), beta.sigmoid().mul(1024).round() / 1024
    decay = (rate[:, None] if by_key else rate) * F.softplus(g + bias) if raw else g
    if floor < 0.0:
        decay = bounded_decay(g, rate, bias, floor) if by_key else floor * (-rate * (g + bias)).sigmoid()
    share = beta.sigmoid() if raw else beta
    state = values(v_heads, k_dim, v_dim) if continued else torch.zeros(v_heads, k_dim, v_dim).double()
    before = state.clone()
    units = [x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) if normalize else x for x in (q, k)]
    queries, keys = (x.repeat_interleave(v_heads // k_heads, 1) for x in units)
    out = torch.zeros_like(v)
    for t in range(rows):
        state = state * decay[t].exp().view(v_heads, -1, 1)
        delta = share[t][:, None] * (v[t] - (state * keys[t][..., None]).sum(1))
        state = state + keys[t][..., None] * delta[:, None, :]
        out[t] = (state * queries[t][..., None]).sum(1) * k_dim**-0.5
    for rule in ((kimi.recurrent_kimi_delta_attention, kimi.chunk_kimi_delta_attention) if by_key else
                 (qwen.torch_recurrent_gated_delta_rule, qwen.torch_chunk_gated_delta_rule)):
        repeated = [x.repeat_interleave(v_heads // k_heads, 1)[None].float() for x in (q, k)]
        theirs, kept = rule(*repeated, v[None].float(), g=decay[None].float(), beta=share[None].float(),
                            initial_state=before[None].float(), output_final_state=True,
                            use_qk_l2norm_in_kernel=normalize)
        close(out, theirs[0])
        close(state, kept)
    return {"rows": rows, "k_heads": k_heads, "v_heads": v_heads, "k_dim": k_dim, "v_dim": v_dim,
            "normalize": normalize, "logistic_beta": raw, "decay_per_key": by_key, "decay_floor": floor, "q": listed(q), "k": listed(k), "v": listed(v),
            "g": listed(g), "beta": listed(beta), "decay_rate": listed(rate), "g_bias": listed(bias),
            "state": listed(before), "out": listed(out), "after": listed(state)}


def gated_norm(rows, groups, width, per_group, gate_first, function):
    x, gate = values(rows, groups, width), values(rows, groups, width, deviation=2.0)
    weight = values(groups, width) if per_group else values(width)
    factor = F.silu(gate) if function == "silu" else gate.sigmoid()
    if gate_first:
        out = F.rms_norm(x * factor, (width,), eps=1e-3) * weight
        module = Zamba2RMSNormGated(groups * width, width, 1e-3)
    else:
        out = F.rms_norm(x, (width,), eps=1e-3) * weight * factor
        module = qwen.Qwen3NextRMSNormGated(width, 1e-3)
    if function == "silu" and per_group == gate_first:
        module.weight.data = weight.flatten().float()
        shape = (rows, groups * width) if gate_first else (rows, groups, width)
        close(out, module(x.reshape(shape).float(), gate.reshape(shape).float()).detach())
    return {"rows": rows, "groups": groups, "width": width, "weight_per_group": per_group, "gate_first": gate_first,
            "function": function, "epsilon": 1e-3, "x": listed(x), "gate": listed(gate), "weight": listed(weight),
            "out": listed(out)}


def multiply_gate(function):
    x, gate = values(3, 2, 21), values(3, 2, 21, deviation=3.0)
    out = x * (F.silu(gate) if function == "silu" else gate.sigmoid())
    return {"rows": 3, "heads": 2, "width": 21, "function": function, "x": listed(x), "gate": listed(gate),
            "out": listed(out)}


def connect_streams(rows, streams, iterations, epsilon, deviation=1.0):
    width = (2 + streams) * streams
    x, base, scale = values(rows, width, deviation=deviation), values(width), values(3).abs()
    a, b, c = (x * scale.repeat_interleave(torch.tensor([streams, streams, streams**2])) + base).split(
        [streams, streams, streams**2], -1)
    collapse, output = a.sigmoid() + epsilon, 2 * b.sigmoid()
    pairs = c.view(rows, streams, streams).softmax(-1) + epsilon
    for i in range(iterations):
        pairs = pairs / (pairs.sum(-1, keepdim=True) + epsilon) if i > 0 else pairs
        pairs = pairs / (pairs.sum(-2, keepdim=True) + epsilon)
    # Of the modules, which project and norm their input themselves, what follows.
    hidden = values(rows, streams, 3)
    config = SimpleNamespace(hc_mult=streams, hc_sinkhorn_iters=iterations, hc_eps=epsilon, rms_norm_eps=1e-6,
                             hidden_size=3)
    for kind in deepseek.DeepseekV4HyperConnection, glm.Glm5NextTextHyperConnection:
        module = kind(config)
        flat = module.input_norm(hidden.flatten(1).float()).double()
        fn = torch.linalg.lstsq(flat, x).solution.T
        module.fn.data, module.base.data, module.scale.data = fn.float(), base.float(), scale.float()
        theirs = module(hidden[None].float())
        close(output, theirs[0][0].detach(), 1e-3)
        close(pairs, theirs[1][0].detach(), 1e-3)
        close((collapse[..., None] * hidden).sum(1), theirs[2][0].detach(), 1e-3)
    return {"rows": rows, "streams": streams, "iterations": iterations, "epsilon": epsilon, "x": listed(x),
            "base": listed(base), "scale": listed(scale), "collapse": listed(collapse),
            "expand": listed(torch.cat((pairs.mT, output[..., None]), -1))}


cases = {
    "causal_conv": [causal_conv(7, 21, 4, True, True, False), causal_conv(5, 6, 3, False, True, True),
                    causal_conv(2, 19, 4, True, False, True), causal_conv(3, 5, 1, False, False, False)],
    "ssm_scan": [ssm_scan(9, 4, 3, 2, 18), ssm_scan(6, 2, 5, 1, 8, limits=(0.25, 1.0), continued=False),
                 ssm_scan(8, 12, 1, 1, 16, per_state=True, continued=False),
                 ssm_scan(5, 6, 1, 1, 5, per_state=True, skip=False)],
    "delta_scan": [delta_scan(9, 2, 4, 6, 5), delta_scan(7, 1, 1, 9, 18, raw=True),
                   delta_scan(5, 2, 2, 4, 3, continued=False), delta_scan(6, 1, 2, 5, 7, normalize=False)],
    "gated_norm": [gated_norm(2, 3, 20, per_group, gate_first, function) for per_group in (False, True)
                   for gate_first in (False, True) for function in ("silu", "sigmoid")],
    "multiply_gate": [multiply_gate("sigmoid"), multiply_gate("silu")],
}
# Last, so that the others keep their inputs.
cases["delta_scan"] += [delta_scan(9, 2, 2, 6, 5, raw=True, by_key=True), delta_scan(5, 1, 3, 9, 18, by_key=True),
                        delta_scan(8, 2, 2, 7, 5, raw=True, by_key=True, floor=-5.0), delta_scan(6, 1, 2, 9, 4, raw=True, floor=-2.0)]
cases["connect_streams"] = [connect_streams(3, 4, 20, 1e-6), connect_streams(2, 3, 1, 0.125), connect_streams(4, 2, 3, 1e-6, 4.0)]
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "scans.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")
