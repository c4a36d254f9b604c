#!/usr/bin/env python3
"""Makes tests/fixtures/quant/cache_formats.json: what engines read of K and V that they stored.

Run with Python 3.11 to 3.13, torch, triton and numpy (made with torch 2.15.0, triton 3.9.0), and the unpacked wheels of
vLLM 0.32.0 and SGLang 0.5.23 (`pip download --no-deps`, unzipped; nothing of them is installed):
    python reference/cache_formats.py VLLM SGLANG

The engines' own kernels run: Triton's in its interpreter (TRITON_INTERPRET=1), PyTorch code on the CPU. Only the modules
around them that ask for a GPU or a config are replaced. So these are the codes and scales that the kernels' text gives in
float32, without fused multiply-adds and approximate divisions, which compilers for chips may put there.

  fp8_per_token_head, int8_per_token_head   `_reshape_cache_per_token_head`; read as codes times the stored scale
  int4_per_token_head   `reshape_and_cache_int4`; read as `_attn_packed` and `single_rht(inverse=True)` have it
  nvfp4                 `ref_nvfp4_quant`, whose reciprocals are exact; read as e2m1 times (block scale times scale)
  mxfp8                 `quant_store_kv_mxfp8`; read as codes times the stored power of two

The interpreter's conversion to FP8 (triton 3.9.0) loses the carry of a mantissa that rounds up to 2 and rounds halves up;
chips round to nearest even (cvt.rn.satfinite), which is torch's cast here.

INT8 has no kernel in Python (TensorRT-LLM); the test computes it by definition.
"""

import json
import os
import pathlib
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant" / "cache_formats.json"
HEADS = 2
NVFP4_SCALE = 0.0123  # a layer's, float32


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    made.__path__ = []
    sys.modules[name] = made
    return made


class Platform:
    """vllm.platforms.current_platform of a CPU without any of the chips' branches."""

    def fp8_dtype(self):
        return torch.float8_e4m3fn

    def __getattr__(self, name):
        return lambda *args, **keywords: False


def load(folder, name):
    """A module from its file, with what was put in place of its surroundings."""
    path = pathlib.Path(folder, *name.split(".")).with_suffix(".py")
    made = module(name)
    made.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), made.__dict__)
    return made


def round_as_chips_do():
    own = interpreter._convert_float
    def convert(values, source, target, rounding):
        if source == tl.float32 and target == tl.float8e4nv:
            codes = torch.from_numpy(np.ascontiguousarray(values)).to(torch.float8_e4m3fn)
            return codes.view(torch.uint8).numpy()
        return own(values, source, target, rounding)
    interpreter._convert_float = convert


def surround_vllm(folder):
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops", "vllm.utils", "vllm.model_executor",
                 "vllm.model_executor.layers", "vllm.model_executor.layers.quantization",
                 "vllm.model_executor.layers.quantization.utils"):
        module(name)
    module("vllm.platforms", current_platform=Platform())
    module("vllm.triton_utils", tl=tl, triton=triton)
    module("vllm.utils.torch_utils", is_quantized_kv_cache=lambda dtype: True, direct_register_custom_op=lambda **_: None)
    module("vllm.model_executor.layers.quantization.utils.quant_utils", FP8_DTYPE=torch.float8_e4m3fn,
           get_fp8_min_max=lambda: (-448.0, 448.0))
    class KVQuantMode:
        INT8_PER_TOKEN_HEAD, FP8_PER_TOKEN_HEAD, INT4_PER_TOKEN_HEAD = 2, 3, 4
    module("vllm.v1.kv_cache_interface", KVQuantMode=KVQuantMode)
    load(folder, "vllm.utils.math_utils")
    # Attention kernels are not run here.
    anything = types.ModuleType("anything")
    anything.__getattr__ = lambda name: (lambda *args: None)
    for name in ("triton_attention_helpers", "triton_unified_attention"):
        stand_in = module("vllm.v1.attention.ops." + name)
        stand_in.__getattr__ = anything.__getattr__


def per_token_head(folder, x, dtype):
    writer = load(folder, "vllm.v1.attention.ops.triton_reshape_and_cache_flash")
    tokens, heads, size = x.shape
    codes = torch.zeros(2, 1, tokens, heads, size, dtype=dtype)
    scales = torch.zeros(2, 1, tokens, heads)
    writer.triton_reshape_and_cache_flash_per_token_head_quant(
        x, x.flip(0).contiguous(), codes[0], codes[1], scales[0], scales[1], torch.arange(tokens), 3)
    read = codes.float() * scales[..., None]
    assert torch.equal(read[0, 0], read[1, 0].flip(0)), "K and V are stored alike"
    return read[0, 0]


def int4(folder, x):
    writer = load(folder, "vllm.v1.attention.ops.int4_per_token_head")
    tokens, heads, size = x.shape
    codes = torch.zeros(2, 1, tokens, heads, size // 2, dtype=torch.uint8)
    scales = torch.zeros(2, 1, tokens, heads)
    writer.reshape_and_cache_int4(x, x, codes[0], codes[1], torch.arange(tokens), k_scale_cache=scales[0],
                                  v_scale_cache=scales[1])
    assert torch.equal(codes[0], codes[1]) and torch.equal(scales[0], scales[1]), "K and V are stored alike"
    bits = scales[0, 0].view(torch.int32)
    zero, scale = (bits & 15).float()[..., None], (bits & -16).view(torch.float32)[..., None]
    packed = codes[0, 0]
    values = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(x.shape).float()
    norm = sys.modules["vllm.utils.math_utils"].largest_power_of_2_divisor(size)
    return writer.single_rht((values - zero) * scale, inverse=True) / norm


def nvfp4(folder, x):
    module("vllm.scalar_type", scalar_types=types.SimpleNamespace(float4_e2m1f=types.SimpleNamespace(max=lambda: 6.0)))
    emulation = load(folder, "vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils")
    scale = torch.tensor(NVFP4_SCALE)
    rows = x.reshape(-1, x.shape[-1])
    values, block_scales = emulation.ref_nvfp4_quant(rows, 1.0 / scale, 16)
    steps = block_scales.float() * scale
    return (values.reshape(*steps.shape[:2], 16) * steps.reshape(*steps.shape[:2], 1)).reshape(x.shape)


def mxfp8(folder, x):
    writer = load(folder, "sglang.kernels.ops.kvcache.mxfp8_quant_store_kv")
    tokens, heads, size = x.shape
    page = 128
    caches = [torch.zeros(page, heads, size, dtype=torch.float8_e4m3fn) for _ in range(2)]
    scales = [torch.zeros(1, heads, 32, page // 32, size // 32, dtype=torch.uint8) for _ in range(2)]
    places = torch.arange(1, tokens + 1)  # 0 is not written
    writer.quant_store_kv_mxfp8(x, x, places, caches[0], caches[1], scales[0], scales[1], page)
    stored = scales[0][0].permute(2, 1, 0, 3).reshape(page, heads, size // 32)  # position = 32 * chunk + row
    steps = torch.exp2(stored.float() - 127)
    return (caches[0].float().reshape(page, heads, size // 32, 32) * steps[..., None]).reshape(page, heads, size)[1:tokens + 1]


def cases(size):
    """K and V as models have them: outliers, zeros, ties, one sign, equal values, magnitudes of all octaves."""
    generator = torch.Generator().manual_seed(size)
    def normal(*shape):
        return torch.randn(*shape, generator=generator)
    rows = [normal(size), normal(size) * 1e-3, normal(size) * 300, torch.zeros(size), torch.full((size,), 3.0),
            normal(size).abs() + 20, normal(size).round() / 2 + 0.0, torch.arange(size) * 0.125 - 2]
    outlier = normal(size)
    outlier[3], outlier[size // 2] = 778.0, -431.5
    wide = normal(size) * torch.exp2(torch.arange(size).float() % 30 - 15)
    tiny = normal(size) * 1e-9
    edge = torch.ones(size) * 448 * 2.0 ** -5
    edge[1] = torch.nextafter(torch.tensor(448 * 2.0 ** -5), torch.tensor(1000.0))
    rows += [outlier, wide, tiny, edge]
    return torch.stack(rows).float().reshape(-1, HEADS, size).contiguous()


def bits(x):
    return x.float().contiguous().numpy().view(np.uint32).ravel().tolist()


def main():
    vllm, sglang = sys.argv[1:3]
    round_as_chips_do()
    surround_vllm(vllm)
    for name in ("sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.kvcache"):
        module(name)
    found = {"nvfp4_scale": bits(torch.tensor([NVFP4_SCALE]))[0], "sizes": {}}
    for size in (64, 96):
        x = cases(size)
        found["sizes"][str(size)] = {
            "x": bits(x),
            "fp8_per_token_head": bits(per_token_head(vllm, x, torch.float8_e4m3fn)),
            "int8_per_token_head": bits(per_token_head(vllm, x, torch.int8)),
            "int4_per_token_head": bits(int4(vllm, x)),
            "nvfp4": bits(nvfp4(vllm, x)),
        }
        if size // 32 in (1, 2, 4, 8):  # the kernel has no other heads
            found["sizes"][str(size)]["mxfp8"] = bits(mxfp8(sglang, x))
    OUTPUT.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
