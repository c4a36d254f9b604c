#!/usr/bin/env python3
"""Makes tests/fixtures/quant/cache_formats.json: what engines read of K and V that they stored.

Run with Python 3.11 to 3.13, torch, triton and numpy (made with torch 2.13.0, triton 3.7.1), and the unpacked wheels of
vLLM 0.33.0 and SGLang 0.5.23 (`pip download --no-deps`, unzipped; nothing of them is installed):
    python reference/cache_formats.py VLLM SGLANG

The engines' own kernels run: Triton's in its interpreter (TRITON_INTERPRET=1), PyTorch code on the CPU. Only the modules
around them that ask for a GPU or a config are replaced. So these are the codes and scales that the kernels' text gives in
float32, without fused multiply-adds and approximate divisions, which compilers for chips may put there.

  fp8_per_token_head, int8_per_token_head   `_reshape_cache_per_token_head`; read as codes times the stored scale
  int4_per_token_head   `reshape_and_cache_int4`; read as `_attn_packed` and `single_rht(inverse=True)` have it
  nvfp4                 `ref_nvfp4_quant`, whose reciprocals are exact; read as e2m1 times (block scale times scale)
  nvfp4_4over6          vLLM has it in CUDA alone (nvfp4_kv_cache_kernels.cu), which does not run here. Its two candidates are
                        `ref_nvfp4_quant` with 6 and with 4 as largest value; the choice follows the kernel's text, read
  mxfp8                 `quant_store_kv_mxfp8`; read as codes times the stored power of two
  fp4_mx_block16        `FP4MXBlock16KVQuantizeUtil`, both ways
  turboquant_*          `triton_turboquant_store` with `get_centroids` and `_build_hadamard`; read as `_tq_decode_stage1` has it.
                        K is rotated back in float64
  octave_*              `reference_quantize`, `reference_dequantize`
  ultraquant_4bit       `ultraquant_store`, `ultraquant_dequant`; K is rotated back by the steps of the kernel's rotation
  fp8_ds_mla, nvfp4_ds_mla   `fused_norm_rope`; read as codes times stored scales. Of the latter, the PTX instruction that
                        rounds to E2M1 (cvt.rn.satfinite.e2m1x2) is computed here by its definition

The interpreter's conversion to FP8 (triton 3.7.1) loses the carry of a mantissa that rounds up to 2 and rounds halves up,
that to bfloat16 cuts off; chips round to nearest even, and saturate FP8 (cvt.rn.satfinite), which is torch's cast of
limited values here.

INT8 has no kernel in Python (TensorRT-LLM); the test computes it by definition.
"""

import ast
import functools
import json
import math
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


def function_of(folder, name, function):
    """One function of a module whose surroundings are too many to replace."""
    path = pathlib.Path(folder, *name.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text())
    [found] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    members = {"torch": torch, "math": math, "functools": functools}
    exec(compile(ast.Module([found], []), str(path), "exec"), members)
    return members[function]


def round_as_chips_do():
    own = interpreter._convert_float
    def convert(values, source, target, rounding):
        if source == tl.float32 and target == tl.float8e4nv:
            limited = torch.from_numpy(np.ascontiguousarray(values)).clamp(-448, 448)
            codes = limited.to(torch.float8_e4m3fn)
            return codes.view(torch.uint8).numpy()
        if source == tl.float32 and target == tl.bfloat16:
            return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16).view(torch.uint16).numpy()
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
    module("vllm.v1.kv_cache_interface", KVQuantMode=KVQuantMode, is_quantized_kv_cache=lambda dtype: True)
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


def nvfp4(folder, x, largest=6.0):
    """largest: the value that becomes the amax of a block."""
    e2m1 = types.SimpleNamespace(max=lambda: largest)
    module("vllm.scalar_type", scalar_types=types.SimpleNamespace(float4_e2m1f=e2m1))
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

def nvfp4_4over6(folder, x):
    """The candidate of each block whose squared error is less; the first one, of amax / 6, where they are equal."""
    six, four = nvfp4(folder, x, 6.0), nvfp4(folder, x, 4.0)
    blocks = [(one - x).reshape(-1, 8, 2) for one in (six, four)]
    errors = [torch.zeros(len(blocks[0])) for _ in blocks]
    for pair in range(8):  # as the kernel adds them
        errors = [error + (block[:, pair, 0] * block[:, pair, 0] + block[:, pair, 1] * block[:, pair, 1])
                  for error, block in zip(errors, blocks)]
    takes_four = (errors[1] < errors[0])[:, None]
    return torch.where(takes_four, four.reshape(-1, 16), six.reshape(-1, 16)).reshape(x.shape)


def fp4_mx_block16(folder, x):
    torch.compile = lambda function: function
    util = load(folder, "sglang.srt.layers.quantization.kvfp4_tensor").FP4MXBlock16KVQuantizeUtil
    codes, scales = util.batched_quantize(x)
    return util.batched_dequantize(codes, scales).float()  # bfloat16 holds them exactly


def nibbles(packed):
    return torch.stack([packed & 15, packed >> 4], dim=-1).reshape(*packed.shape[:-1], -1)


def unpacked(packed, bits, count):
    """Codes of bits, lowest first, of a row of bytes."""
    planes = torch.stack([packed >> i & 1 for i in range(8)], dim=-1).reshape(*packed.shape[:-1], -1)[..., :bits * count]
    return (planes.reshape(*packed.shape[:-1], count, bits).int() << torch.arange(bits)).sum(-1)


def half(packed):
    return packed.contiguous().view(torch.float16).float()


def turboquant_tables(folder):
    for name in ("vllm.model_executor.layers.quantization.turboquant", "vllm.v1.attention.backends"):
        module(name)
    centroids = load(folder, "vllm.model_executor.layers.quantization.turboquant.centroids")
    config = load(folder, "vllm.model_executor.layers.quantization.turboquant.config")
    return centroids.get_centroids, config.TurboQuantConfig


def without_ties(folder, x):
    """Rows whose rotated values are not so near the middle of two codes that the order of sums decides."""
    get_centroids, _ = turboquant_tables(folder)
    size = x.shape[-1]
    rotation = function_of(folder, "vllm.v1.attention.backends.turboquant_attn", "_build_hadamard_cached")(size, "cpu")
    rows = x.reshape(-1, size).double()
    unit = rows / (rows.norm(dim=1, keepdim=True) + 1e-8)
    books = [get_centroids(size, bits).double() for bits in (3, 4)]
    middles = torch.cat([(book[:-1] + book[1:]) / 2 for book in books])
    nearest = ((unit @ rotation.double())[..., None] - middles).abs().amin((1, 2))
    return rows[(nearest > 1e-6) | (rows == 0).all(1)].float()[:, None]


def turboquant(folder, name, k, v):
    get_centroids, config_class = turboquant_tables(folder)
    config = config_class.from_cache_dtype(name, k.shape[-1])
    stand_in = module("vllm.v1.attention.ops.triton_decode_attention")
    stand_in._fwd_kernel_stage2 = None
    load(folder, "vllm.v1.attention.ops.triton_turboquant_decode")
    store = load(folder, "vllm.v1.attention.ops.triton_turboquant_store").triton_turboquant_store
    tokens, heads, size = k.shape
    build = function_of(folder, "vllm.v1.attention.backends.turboquant_attn", "_build_hadamard_cached")
    rotation = None if config.key_fp8 else build(size, "cpu")
    centroids = None if config.key_fp8 else get_centroids(size, config.centroid_bits)
    midpoints = None if centroids is None else (centroids[:-1] + centroids[1:]) / 2
    cache = torch.zeros(1, tokens, heads, config.slot_size_aligned, dtype=torch.uint8)
    store(k, v, cache, torch.arange(tokens), rotation, midpoints, mse_bits=config.key_mse_bits,
          key_packed_size=config.key_packed_size, value_quant_bits=config.effective_value_quant_bits,
          key_fp8=config.key_fp8)
    slots = cache[0]
    key, value = slots[..., :config.key_packed_size], slots[..., config.key_packed_size:config.slot_size]
    bits = config.effective_value_quant_bits
    scale_and_zero = half(value[..., -4:])
    read_v = unpacked(value[..., :-4], bits, size).float() * scale_and_zero[..., :1] + scale_and_zero[..., 1:]
    if config.key_fp8:
        return key.contiguous().view(torch.float8_e4m3fn).float(), read_v
    codes = unpacked(key[..., :-2], config.key_mse_bits, size)
    values = centroids[codes].double()
    assert config.norm_correction
    values = values / torch.sqrt((values * values).sum(-1, keepdim=True) + 1e-16)
    return (values * half(key[..., -2:]).double()) @ rotation.double(), read_v


def octave(folder, name, k, v, rotary):
    octave = load(folder, "vllm.v1.attention.ops.rocm_octave")
    layout = octave.OctaveFormat.from_cache_dtype(name, k.shape[-1], rotary)
    return octave.reference_dequantize(octave.reference_quantize(k, v, layout), layout)


def rotated(x):
    """By the steps of `_ultraquant_store_kernel`: the matrix is its own inverse."""
    places = torch.arange(x.shape[-1])
    stage = 1
    while stage < x.shape[-1]:
        sign = torch.where(places & stage == 0, 1.0, -1.0)
        x = (sign * x + x[..., places ^ stage]) * torch.tensor(0.7071067811865476)
        stage *= 2
    return x


def ultraquant(folder, k, v):
    module("vllm.v1.attention.ops.ultraquant")
    layout = load(folder, "vllm.v1.attention.ops.ultraquant.format")
    reference = load(folder, "vllm.v1.attention.ops.ultraquant.reference")
    store = load(folder, "vllm.v1.attention.ops.ultraquant.triton_store")
    store._SUPPORTED_DTYPES.add(torch.float32)
    tokens, heads, size = k.shape
    cache = torch.zeros(1, tokens, heads, layout.slot_size(size), dtype=torch.uint8)
    store.ultraquant_store(k, v, cache, torch.arange(tokens))
    read = []
    for codes, scales in ((layout.k_codes_offset(size), layout.k_scales_offset(size)),
                          (layout.v_codes_offset(size), layout.v_scales_offset(size))):
        encoded = reference.UltraQuantEncoded(cache[0, ..., codes:codes + size // 2],
                                              cache[0, ..., scales:scales + size // 32])
        read.append(reference.ultraquant_dequant(encoded, size))
    return rotated(read[0]), read[1]


class Assembly(types.ModuleType):
    """triton.language whose inline PTX, rounding two values to E2M1, is computed here."""

    def __getattr__(self, name):
        return getattr(tl, name)

    def inline_asm_elementwise(self, text, constraints, values, **keywords):
        assert "cvt.rn.satfinite.e2m1x2.f32" in text
        low, high = (torch.from_numpy(e2m1_codes(value.handle.data)) for value in values)
        return tl.core.tensor(interpreter.TensorHandle((low | high << 4).numpy(), tl.int32),
                              tl.block_type(tl.int32, list(low.shape)))


def e2m1_codes(x):
    """Nearest code, ties to even."""
    magnitude = np.minimum(np.abs(x), 6)
    step = np.where(magnitude < 2, 0.5, np.where(magnitude < 4, 1, 2))
    rounded = np.rint(magnitude / step) * step
    return (np.searchsorted([0, 0.5, 1, 1.5, 2, 3, 4, 6], rounded) | np.signbit(x) << 3).astype(np.int32)


def ds_mla(folder, name, latents, keys):
    """Latents and rotated keys as they were before the store, and as they are read."""
    module("vllm.models"), module("vllm.models.deepseek_v32"), module("vllm.models.deepseek_v32.common")
    module("vllm.utils.deep_gemm", mqa_logits_use_mx_scales=lambda: False)
    module("vllm.v1.attention.ops.common", pack_ue8m0_x4=None)
    kernels = load(folder, "vllm.models.deepseek_v32.common.kernels")
    kernels.language, kernels.tl = tl, Assembly("triton.language with PTX")
    tokens, rank, rotary = len(latents), latents.shape[-1], keys.shape[-1]
    cache = torch.zeros(1, tokens, {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}[name], dtype=torch.uint8)
    stored = torch.empty_like(latents), torch.empty_like(keys)
    angles = torch.arange(tokens)[:, None] * 10000.0 ** -(torch.arange(rotary // 2) * 2 / rotary)
    kernels.fused_norm_rope(
        torch.arange(tokens), torch.zeros(tokens, 16), torch.ones(16), 1e-6, latents, torch.full((rank,), 1.5), 1e-6,
        keys, torch.cat([angles.cos(), angles.sin()], -1), None, None, None, 1e-6, None,
        torch.zeros(tokens, 16, dtype=torch.int32), slot_mapping=torch.arange(tokens), mla_kv_cache=cache,
        mla_kv_cache_dtype=name, has_indexer=False, kv_c_out=stored[0], k_pe_out=stored[1])
    e4m3 = lambda packed: packed.contiguous().view(torch.float8_e4m3fn).float()
    slots = cache[0]
    if name == "fp8_ds_mla":
        tiles = e4m3(slots[:, :rank]).reshape(tokens, -1, 128) * slots[:, rank:rank + 16].contiguous().view(
            torch.float32)[..., None]
        return stored, (tiles.reshape(tokens, rank), slots[:, rank + 16:].contiguous().view(torch.bfloat16).float())
    block = torch.arange(rank // 16)
    steps = e4m3(slots[:, rank // 2 + rotary:])[:, 8 * (block % 4) + block // 4]
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[(nibbles(slots[:, :rank // 2]) & 7).long()]
    values = torch.where(nibbles(slots[:, :rank // 2]) > 7, -values, values)
    return stored, ((values.reshape(tokens, -1, 16) * steps[..., None]).reshape(tokens, rank),
                    e4m3(slots[:, rank // 2:rank // 2 + rotary]))


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
    """Float32 bits in hexadecimal, eight digits a value."""
    return x.float().contiguous().numpy().astype(">f4").tobytes().hex()


def both(read):
    return {"k": bits(read[0]), "v": bits(read[1])}


def formats_of_heads(vllm, sglang, x):
    size = x.shape[-1]
    found = {
        "x": bits(x),
        "fp8_per_token_head": bits(per_token_head(vllm, x, torch.float8_e4m3fn)),
        "int8_per_token_head": bits(per_token_head(vllm, x, torch.int8)),
        "int4_per_token_head": bits(int4(vllm, x)),
        "nvfp4": bits(nvfp4(vllm, x)),
        "nvfp4_4over6": bits(nvfp4_4over6(vllm, x)),
        "fp4_mx_block16": bits(fp4_mx_block16(sglang, x)),
        "turboquant_k8v4": both(turboquant(vllm, "turboquant_k8v4", x, x)),
    }
    if size // 32 in (1, 2, 4, 8):  # the kernel has no other heads
        found["mxfp8"] = bits(mxfp8(sglang, x))
    if size & size - 1 == 0:
        found["ultraquant_4bit"] = both(ultraquant(vllm, x, x))
    return found


def turboquant_of_heads(vllm, x):
    x = without_ties(vllm, x)
    names = ("turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
    return {"x": bits(x)} | {name: both(turboquant(vllm, name, x, x)) for name in names}


def octave_of_heads(vllm, x, rotary):
    names = ["octave_k3v4", "octave_k3v3"] + ["octave_k3v3_compact"] * (x.shape[-1] & x.shape[-1] - 1 == 0)
    return {"x": bits(x), "rotary": rotary} | {name: both(octave(vllm, name, x, x, rotary)) for name in names}


def latents_of(vllm):
    rows = [0, 3, 8, 9, 10]  # normal, zero, with outliers, wide, tiny; the kernel norms latents before
    latents, keys = cases(512).reshape(-1, 512)[rows], cases(64).reshape(-1, 64)[rows] * 0.3
    found = {}
    for name in ("fp8_ds_mla", "nvfp4_ds_mla"):
        entered, read = ds_mla(vllm, name, latents, keys)
        assert found.setdefault("x", both(entered)) == both(entered)
        found[name] = both(read)
    return found


def main():
    vllm, sglang = sys.argv[1:3]
    round_as_chips_do()
    surround_vllm(vllm)
    for name in ("sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.kvcache", "sglang.srt",
                 "sglang.srt.layers", "sglang.srt.layers.quantization"):
        module(name)
    module("sglang.srt.runtime_context", get_platform=None)
    get_centroids, _ = turboquant_tables(vllm)
    found = {
        "nvfp4_scale": bits(torch.tensor([NVFP4_SCALE])),
        "sizes": {str(size): formats_of_heads(vllm, sglang, cases(size)) for size in (64, 96)},
        "turboquant": {str(size): turboquant_of_heads(vllm, cases(size)) for size in (64, 128)},
        # Heads that RoPE rotates in part, whole, and that have no power of two; few rows, as they are long.
        "octave": [octave_of_heads(vllm, cases(size)[:4], rotary) for size, rotary in ((128, 64), (64, 64), (192, 128))],
        "latents": latents_of(vllm),
        "centroids": {str(size): {count: bits(get_centroids(size, count)) for count in (3, 4)}
                      for size in (16, 32, 64, 128, 256, 512)},
    }
    OUTPUT.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
