"""Expected results of FP8 attention, from plain PyTorch.

    python reference/kernels_fp8_attention.py tests/fixtures/kernels [--vllm FOLDER]

Needs torch 2.13.0. Queries, keys and values are torch.float8_e4m3fn codes of x / scale. A query reads its keys in tiles of
32; softmax weights are relative to the largest score so far, and weight * 256 becomes a code before it multiplies the codes
of V. The sum of weights stays unrounded. Source: vLLM 0.32, v1/attention/ops/triton_unified_attention.py,
`kernel_unified_attention` with USE_FP8_Q_DESCALE.

--vllm FOLDER: an unpacked wheel of vLLM 0.32.0. The script then runs that kernel itself in Triton's interpreter, on the
CPU, and checks that it says the same. (The interpreter of Triton 3.9 cuts FP8's digits off where a GPU rounds to nearest,
so its conversion to FP8 is replaced by torch's.) Seeds are refused where a weight lies so near the middle of two codes that float32
may round it the other way.
"""

import argparse
import json
import os
import pathlib
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"
import torch

E4M3 = torch.float8_e4m3fn
TILE, WEIGHT_SCALE = 32, 1 / 256
NEAR = 3e-6  # distance of a weight from a middle, relative to the weight


def values(generator, *shape, deviation=1.0):
    return ((torch.randn(*shape, generator=generator) * deviation * 64).round() / 64).float()


def codes(x, scale):
    return (x / scale).clamp(-448, 448).to(E4M3)


def is_near_a_middle(scaled):
    """Of any weight: in units of the code's last place, how far it is from a half."""
    step = torch.exp2(torch.floor(torch.log2(scaled.clamp(min=2.0**-6))) - 3)
    units = scaled / step
    return bool(((units - units.floor() - 0.5).abs() * step < NEAR * scaled).any())


def attend(case, q, k, v, sinks):
    """[tokens, heads, dim] float64; None where a weight is near a middle."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    out = torch.zeros(tokens, heads, v.shape[2], dtype=torch.float64)
    factor = case["softmax_scale"] * case["q_scale"] * case["k_scale"]
    for head in range(heads):
        scores = q[:, head].double() @ k[:, head // group].double().T * factor
        if case["softcap"]:
            scores = case["softcap"] * torch.tanh(scores / case["softcap"])
        row, column = torch.arange(tokens)[:, None], torch.arange(tokens)[None]
        hidden = column > row
        if case["sliding_window"]:
            hidden |= column <= row - case["sliding_window"]
        scores[hidden] = -torch.inf
        largest = torch.full((tokens,), -torch.inf, dtype=torch.float64)
        total, sums = torch.zeros(tokens, dtype=torch.float64), torch.zeros(tokens, v.shape[2], dtype=torch.float64)
        if sinks is not None:
            largest, total = sinks[head].double().expand(tokens), torch.ones(tokens, dtype=torch.float64)
        for begin in range(0, tokens, TILE):
            tile = scores[:, begin:begin + TILE]
            now = torch.maximum(largest, tile.amax(1))
            now = torch.where(now > -torch.inf, now, 0.0)
            weights = torch.exp(tile - now[:, None])
            correction = torch.exp(largest - now)
            if is_near_a_middle(weights[weights > 0] / WEIGHT_SCALE):
                return None
            rounded = (weights / WEIGHT_SCALE).float().to(E4M3).double() * WEIGHT_SCALE
            total = total * correction + weights.sum(1)
            sums = sums * correction[:, None] + rounded @ v[begin:begin + TILE, head // group].double()
            largest = now
        out[:, head] = sums / total[:, None] * case["v_scale"]
    return out


def module(name, **members):
    made = types.ModuleType(name)
    made.__path__ = []
    for key, value in members.items():
        setattr(made, key, value)
    sys.modules[name] = made
    return made


def round_in_interpreter():
    import numpy
    import triton.language as tl
    from triton.runtime import interpreter
    convert = interpreter._convert_float

    def rounded(data, source, target, rounding_mode):
        if source != tl.float32 or target != tl.float8e4nv:
            return convert(data, source, target, rounding_mode)
        codes = torch.from_numpy(numpy.ascontiguousarray(data)).clamp(-448, 448).to(E4M3)
        return codes.view(torch.uint8).numpy()

    interpreter._convert_float = rounded


def kernel_of(folder):
    """vLLM's unified_attention, without the rest of vLLM."""
    import enum
    import importlib.util
    import triton
    import triton.language as tl
    platform = types.SimpleNamespace(fp8_dtype=lambda: E4M3, is_cuda=lambda: False, is_xpu=lambda: False, is_rocm=lambda: False,
                                     is_device_capability_family=lambda family: False)
    logger = types.SimpleNamespace(**{name: lambda *a, **k: None for name in ("info", "warning", "debug", "warning_once",
                                                                              "info_once")})
    mode = enum.IntEnum("KVQuantMode", {"NONE": 0, "FP8_PER_TENSOR": 1, "INT8_PER_TOKEN_HEAD": 2, "FP8_PER_TOKEN_HEAD": 3,
                                        "INT4_PER_TOKEN_HEAD": 4, "NVFP4": 5})
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops"):
        module(name)
    sys.modules["vllm"].envs = module("vllm.envs", VLLM_BATCH_INVARIANT=False)
    module("vllm.logger", init_logger=lambda name: logger)
    module("vllm.platforms", current_platform=platform)
    module("vllm.triton_utils", tl=tl, triton=triton)
    module("vllm.v1.kv_cache_interface", KVQuantMode=mode)
    loaded = None
    for name in ("triton_attention_helpers", "triton_unified_attention"):
        full = f"vllm.v1.attention.ops.{name}"
        spec = importlib.util.spec_from_file_location(full, f"{folder}/vllm/v1/attention/ops/{name}.py")
        sys.modules[full] = loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    return loaded.unified_attention, mode.FP8_PER_TENSOR


def check_with_vllm(folder, case, q, k, v, sinks, expected):
    unified_attention, mode = kernel_of(folder)
    tokens, block = q.shape[0], 16
    blocks = -(-tokens // block)

    def paged(x):
        cache = torch.zeros(blocks * block, *x.shape[1:], dtype=torch.uint8)
        cache[:tokens] = x.view(torch.uint8)
        return cache.view(blocks, block, *x.shape[1:]).view(E4M3)

    out = torch.zeros(expected.shape, dtype=torch.float32)
    window = case["sliding_window"]
    unified_attention(q=q, k=paged(k), v=paged(v), out=out, cu_seqlens_q=torch.tensor([0, tokens], dtype=torch.int32),
                      max_seqlen_q=tokens, seqused_k=torch.tensor([tokens], dtype=torch.int32), max_seqlen_k=tokens,
                      softmax_scale=case["softmax_scale"], causal=True, window_size=(window - 1 if window else -1, 0),
                      block_table=torch.arange(blocks, dtype=torch.int32)[None], softcap=case["softcap"],
                      q_descale=torch.tensor(case["q_scale"]), k_descale=torch.tensor(case["k_scale"]),
                      v_descale=torch.tensor(case["v_scale"]), sinks=sinks, kv_quant_mode=mode)
    error = (out.double() - expected).abs().max().item()
    assert error < 1e-5 * expected.abs().max().item(), (case["what"], error)
    print(case["what"], "vLLM's kernel says the same, largest difference", error)


def listed(tensor):
    return [float(f"{x:.7g}") for x in tensor.double().flatten().tolist()]


def made(what, vllm, tokens=70, heads=2, kv_heads=1, dim=8, deviation=1.0, softcap=0.0, sliding_window=0, has_sinks=False):
    case = {"what": what, "tokens": tokens, "heads": heads, "kv_heads": kv_heads, "head_dim": dim, "q_scale": 0.015625,
            "k_scale": 0.0078125, "v_scale": 0.01171875, "softmax_scale": 0.375, "softcap": softcap,
            "sliding_window": sliding_window, "weight_scale": WEIGHT_SCALE}
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        x = {side: values(generator, tokens, count, dim, deviation=deviation)
             for side, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))}
        sinks = values(generator, heads, deviation=2.0) if has_sinks else None
        coded = {side: codes(x[side], case[f"{side}_scale"]) for side in x}
        expected = attend(case, coded["q"], coded["k"], coded["v"], sinks)
        if expected is not None:
            break
    else:
        raise SystemExit(f"{what}: every seed has a weight near a middle")
    if vllm:
        check_with_vllm(vllm, case, coded["q"], coded["k"], coded["v"], sinks, expected)
    for side in x:
        case[side] = listed(x[side])
    case["sinks"] = [] if sinks is None else listed(sinks)
    case["result"] = listed(expected)
    return case


parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--vllm", type=pathlib.Path)
given = parser.parse_args()
if given.vllm:
    round_in_interpreter()
cases = [made("plain", given.vllm), made("sharp", given.vllm, heads=1, deviation=2.0),
         made("window and sinks", given.vllm, tokens=40, sliding_window=20, has_sinks=True),
         made("softcap", given.vllm, tokens=40, softcap=3.0)]
(given.folder / "fp8_attention.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
