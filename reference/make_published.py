#!/usr/bin/env python3
"""Writes tests/fixtures/quantized/<kind> for quantized checkpoints with the names and configs of published ones.

usage: make_published.py [--folder FOLDER] [--packages FOLDER] [KIND ...]
needs: torch 2.15, transformers 5.24, safetensors, numpy, and in the folder of --packages, unpacked and not installed
(x_NAME/...): what each kind names below. Files are as make_quantized.py writes them.
"""
import argparse
import copy
import importlib.util
import json
import pathlib
import re
import sys
import types

import torch
import transformers
from safetensors.torch import load_file

from make_quantized import CONFIG, IDS, awq, entry, expert_matrices, extremes, gptq, make_llama, minmax, tiny_model, write

E4M3 = torch.float8_e4m3fn


def stored_by(quantize, config=CONFIG):
    """The tensors of a tiny model whose Linears quantize(weight) stores, by the ends of their names."""
    tensors = {}
    for name, parameter in tiny_model(config).named_parameters():
        if "proj" not in name:
            tensors[name] = parameter.data.half()
            continue
        module = name.removesuffix(".weight")
        tensors.update({module + end: value for end, value in quantize(parameter.data).items()})
    return tensors


def decoded_by_transformers(folder):
    """The folder as transformers decodes it to float32: every matrix of a Linear in a layer, and extremes of K and V."""
    config = transformers.FineGrainedFP8Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config,
                                                              attn_implementation="eager").eval()
    weights = {name.removesuffix(".weight"): entry(parameter.data) for name, parameter in model.named_parameters()
               if "proj" in name}
    return {"weights": weights, **extremes(model)}


def with_transformers(quantize, quantization):
    def make(folder):
        tensors = stored_by(quantize)
        config = {**CONFIG, "quantization_config": {"quant_method": "fp8", **quantization}}
        write(folder, tensors, config, {})
        write(folder, tensors, config, decoded_by_transformers(folder))
    return make


def scalar_names(weight):
    """One scale a tensor and static inputs, under the names of Ministral 3 and Devstral 2."""
    scale = (weight.float().abs().max() / 448).bfloat16()
    return {".weight": (weight / scale.float()).to(E4M3), ".weight_scale_inv": scale,
            ".activation_scale": torch.tensor(0.02).bfloat16()}


def blocks(scale_dtype, sides=(32, 32)):
    """DeepSeek's scales of blocks. scale_dtype: F32, F8_E8M0, or U8 with its exponents."""
    def quantize(weight):
        rows, columns = sides
        grid = weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
        scale = grid.abs().amax((1, 3)) / 448
        if scale_dtype != torch.float32:
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        codes = (grid / scale[:, None, :, None]).to(E4M3).reshape(weight.shape)
        stored = scale if scale_dtype == torch.float32 else scale.to(torch.float8_e8m0fnu)
        if scale_dtype == torch.uint8:
            stored = stored.view(torch.uint8)
        return {".weight": codes, ".weight_scale_inv": stored}
    return quantize


def scaled_rows(weight):
    """FBGEMM's FP8: a scale a row. torch's own product of scaled FP8 matrices decodes it."""
    scale = weight.abs().amax(1, keepdim=True) / 448
    codes = (weight / scale).to(E4M3)
    one = torch.ones(())
    product = torch._scaled_mm(torch.eye(weight.shape[1]).to(E4M3), codes.t(), one, one, out_dtype=torch.float32)
    return {".weight": codes, ".weight_scale": scale}, (product * scale.t()).t().contiguous()


def int8_rows(name, weight):
    """SGLang's INT8: a scale a row. Its kernels alone decode, so values are code x scale."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = torch.round(weight / scale).clamp(-128, 127).to(torch.int8)
    return {".weight": codes, ".weight_scale": scale}, codes.float() * scale


MOE = {**{key: value for key, value in CONFIG.items() if key != "mlp_bias"}, "architectures": ["Qwen3MoeForCausalLM"],
       "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
       "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False}


def make_moe(folder, store, quantization, beside=None):
    """A Qwen3 MoE whose Linears store(module, weight) stores; None leaves one in 16 bits. Experts are Linears of their own."""
    model = tiny_model(MOE)
    tensors, expected = {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" not in name:
                tensors[name] = parameter.half()
                continue
            matrices = [(name.removesuffix(".weight"), parameter.data)]
            if parameter.dim() == 3:
                matrices = expert_matrices(name, parameter.data, MOE["moe_intermediate_size"])
            for module, values in matrices:
                stored, decoded = store(module, values)
                tensors.update({module + end: value for end, value in stored.items()})
                expected[module] = entry(decoded)
                values.copy_(decoded)
    write(folder, tensors, {**MOE, "quantization_config": quantization}, {"weights": expected, **extremes(model)}, beside)


def modelopt_mixed(folder, packages):
    """MIXED_PRECISION as Qwen3.6 has it: experts are listed as one module, and config.json leaves the list to its file."""
    sys.path.insert(0, str(packages / "x_nvidia_modelopt"))
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor

    def fp8(weight):
        tensor, scale = FP8QTensor.quantize(weight.float())
        decoded = tensor.dequantize(torch.float32, scale=scale)
        return {".weight": tensor._quantized_data, ".weight_scale": scale.reshape(()), ".input_scale": torch.tensor(0.02)}, decoded

    def fp8_blocks(weight):
        sizes = {-1: 32, -2: 32}
        tensor, scale = FP8QTensor.quantize(weight.float(), block_sizes=sizes)
        decoded = tensor.dequantize(torch.float32, scale=scale, block_sizes=sizes)
        return {".weight": tensor._quantized_data, ".weight_scale": scale[:, None, :, None]}, decoded

    def mxfp8(weight):
        tensor, scale = MXFP8QTensor.quantize(weight.float())
        return {".weight": tensor._quantized_data, ".weight_scale": scale}, tensor.dequantize(torch.float32, scale=scale)

    def nvfp4(weight):
        tensor, scale, scale2 = NVFP4QTensor.quantize(weight.float(), 16)
        decoded = tensor.dequantize(torch.float32, scale=scale, double_scale=scale2, block_sizes={-1: 16})
        return {".weight": tensor._quantized_data, ".weight_scale": scale, ".weight_scale_2": scale2.reshape(())}, decoded.float()

    ways = {"FP8": fp8, "FP8_PB_WO": fp8_blocks, "MXFP8": mxfp8, "W4A16_NVFP4": nvfp4}
    layers = {}
    for layer in range(MOE["num_hidden_layers"]):
        attention = f"model.layers.{layer}.self_attn"
        layers.update({f"{attention}.{name}_proj": {"quant_algo": "FP8"} for name in "qk"})
        layers[f"{attention}.v_proj"] = {"quant_algo": "MXFP8", "group_size": 32}
        layers[f"{attention}.o_proj"] = {"quant_algo": "FP8_PB_WO", "group_size": 32}
        layers[f"model.layers.{layer}.mlp.experts"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}

    def store(module, weight):
        return next(ways[one["quant_algo"]](weight) for name, one in layers.items() if f"{module}.".startswith(f"{name}."))

    producer = {"name": "modelopt", "version": "0.48.0rc1"}
    make_moe(folder, store, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["lm_head"], "producer": producer},
             {"producer": producer, "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None,
                                                     "exclude_modules": ["lm_head"], "quantized_layers": layers}})


def int4_decoded(stored, module, group):
    """A module's float32 weight from the INT4 that ModelOpt exports, which its own packing must give again."""
    from modelopt.torch.export.quant_utils import pack_int4_in_uint8
    pairs, scale = stored[f"{module}.weight"].int(), stored[f"{module}.weight_scale"].float()
    codes = torch.stack((pairs & 15, pairs >> 4), 1).flatten(0, 1)
    codes = torch.where(codes < 8, codes, codes - 16).float()
    decoded = codes * scale.repeat_interleave(group, 1)
    assert torch.equal(pack_int4_in_uint8(decoded, scale, group), stored[f"{module}.weight"])
    if f"{module}.weight_scale_2" in stored:
        second = stored[f"{module}.weight_scale_2"].float()
        decoded = (decoded / second).to(E4M3).float() * second
    return decoded


def keys_error(model):
    """How far K of the last layer is from the 16-bit model's, by the largest value."""
    with torch.no_grad():
        found, wanted = (one(torch.tensor([IDS]), use_cache=True).past_key_values.layers[-1].keys for one in (model, tiny_model(CONFIG)))
    return float((found - wanted).abs().max() / wanted.abs().max())


def with_small_blocks(config):
    """The preset with blocks of 32 columns instead of 128, since rows have 64."""
    if isinstance(config, list):
        return [with_small_blocks(one) for one in config]
    if isinstance(config, dict):
        return {key: 32 if key == -1 and value == 128 else with_small_blocks(value) for key, value in config.items()}
    return config


def modelopt_awq(folder, packages, preset):
    """Quantized by AWQ's search and exported by ModelOpt itself: scales of inputs stay beside o_proj, whose heads share those of V."""
    sys.path.insert(0, str(packages / "x_nvidia_modelopt"))
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    config = with_small_blocks(copy.deepcopy(getattr(mtq, preset)))
    model = tiny_model(CONFIG)
    mtq.quantize(model, config, lambda one: one(torch.tensor([IDS])))
    for module in model.modules():  # inputs run in 16 bits here
        if hasattr(module, "input_quantizer") and "W4A8" in preset:
            module.input_quantizer._disabled = True
    own = keys_error(model)
    export_hf_checkpoint(model, dtype=torch.float32, export_dir=folder)
    stored = load_file(folder / "model.safetensors")
    model, expected = tiny_model(CONFIG), {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            if f"{module}.weight_scale" not in stored:
                parameter.copy_(stored[name].float())
                continue
            decoded = int4_decoded(stored, module, 32)
            if f"{module}.pre_quant_scale" in stored:
                decoded = decoded * stored[f"{module}.pre_quant_scale"].float()
            parameter.copy_(decoded)
            expected[module] = entry(decoded)
    assert any(name.endswith("pre_quant_scale") for name in stored)
    # The export smooths and rounds anew, so that only the distance from the 16-bit model compares.
    assert keys_error(model) < 1.5 * own, (keys_error(model), own)
    beside = json.loads((folder / "hf_quant_config.json").read_text())
    for file in folder.glob("*"):
        file.unlink()
    write(folder, stored, CONFIG, {"weights": expected, **extremes(model)}, beside)


def gptq_dynamic(folder, packages):
    """GPTQModel's key `dynamic`: one Linear in 8 bits, others in 2 bits, one in 16 bits. The first pattern that matches counts."""
    ways = {bits: gptq(bits, packages=packages) for bits in (2, 4, 8)}
    dynamic = {"-:.*layers\\.0\\.mlp\\.up_proj": {}, "+:.*\\.mlp\\.(up|down)_proj": {"bits": 8},
               "model\\.layers\\.1\\.self_attn": {"bits": 2}, ".*k_proj": {"bits": 8}}

    def bits_of(module):
        matching = [(key, value) for key, value in dynamic.items() if re.match(re.sub("^[-+]:", "", key), module)]
        if not matching:
            return 4
        key, value = matching[0]
        return 16 if key.startswith("-:") else value["bits"]

    model, tensors, expected = tiny_model(CONFIG), {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            bits = bits_of(module) if "proj" in name else 16
            if bits == 16:
                tensors[name] = parameter.half()
                continue
            stored, decoded = ways[bits]["quantize"](name, parameter.data)
            tensors.update({module + end: value for end, value in stored.items()})
            expected[module] = entry(decoded)
            parameter.copy_(decoded)
    config = {**ways[4]["config"], "dynamic": dynamic}
    write(folder, tensors, {**CONFIG, "quantization_config": config}, {"weights": expected, **extremes(model)})


def awq_rows(packages, file):
    """AutoAWQ's version gemv or gemv_fast, packed by its own Linear; its kernels alone decode, so values are code x scale plus the
    stored zero points times scales."""
    root = next(packages.glob("autoawq-*/awq"))
    for name in ("awq", "awq.utils", "awq.utils.module"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["awq.utils.module"].try_import = lambda name: (None, "")
    module = module_at(file, root / "modules" / "linear" / f"{file}.py")
    linear_class = module.WQLinear_GEMV if file == "gemv" else module.WQLinear_GEMVFast

    def quantize(name, weight):
        scale, zero = minmax(weight, types.SimpleNamespace(group_size=32, num_bits=4, symmetric=False))
        zero = zero.float() + 8
        groups = torch.arange(weight.shape[1]) // 32
        codes = torch.round(weight.float() / scale.float()[:, groups] + zero[:, groups]).clamp(0, 15)
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = (codes - zero[:, groups]) * scale.float()[:, groups]
        packed = linear_class.from_linear(linear, 4, 32, scales=scale.float(), zeros=zero.clone())
        stored = {f".{key}": value for key, value in packed.state_dict().items()}
        stored[".scales"] = stored[".scales"].half()
        added = -zero * scale.float()
        if file == "gemv_fast":
            stored[".qzeros"] = stored[".qzeros"].half()
            added = stored[".qzeros"].t().float()[:, :added.shape[1]]
            return stored, codes * scale.float()[:, groups] + added[:, groups]
        return stored, linear.weight.data
    return quantize


def quark_decoded(packages, stored, module):
    """A module's float32 weight as Quark unpacks and scales it."""
    from quark.torch.kernel import dequantize
    from quark.torch.utils.pack import create_pack_method
    codes, scale = stored[f"{module}.weight"], stored[f"{module}.weight_scale"]
    if codes.dtype == torch.uint8:
        unpacked = create_pack_method("per_group", "fp4").unpack(codes, False).float()
        powers = torch.exp2(scale.float() - 127)
        return dequantize("fp4", unpacked, powers, None, -1, 32, "per_group").float()
    kind = "per_channel" if scale.numel() > 1 else "per_tensor"
    return dequantize("fp8_e4m3", codes.float(), scale.float(), None, 0, -1, kind).float()


def make_quark(folder, packages, configure):
    """Quantized and exported by Quark's own program. configure(config module): its QConfig."""
    sys.path.insert(0, str(packages / "x_amd_quark"))
    import quark.torch.quantization.config.config as quark_config
    from quark.torch import ModelQuantizer, export_safetensors
    quantizer = ModelQuantizer(configure(quark_config))
    ids = torch.utils.data.DataLoader([torch.tensor(IDS)])
    export_safetensors(quantizer.freeze(quantizer.quantize_model(tiny_model(CONFIG), ids)), str(folder))
    stored = {name: value.half() if value.ndim and value.dtype == torch.float32 and "scale" not in name else value
              for name, value in load_file(folder / "model.safetensors").items()}
    model, expected = tiny_model(CONFIG), {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            if f"{module}.weight_scale" in stored:
                parameter.copy_(quark_decoded(packages, stored, module))
                expected[module] = entry(parameter.data)
    written = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").unlink()
    write(folder, stored, {**CONFIG, "quantization_config": written["quantization_config"]}, {"weights": expected, **extremes(model)})


def quark_mxfp4(quark):
    weight = quark.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False, scale_calculation_mode="even").to_quantization_spec()
    inputs = quark.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=True, scale_calculation_mode="even").to_quantization_spec()
    return quark.QConfig(global_quant_config=quark.QLayerConfig(weight=weight, input_tensors=inputs), exclude=["lm_head"])


def quark_schemes(quark):
    """Attention in FP8 with scales of rows and tokens, the rest with one a tensor, but for one projection in MXFP4."""
    tensor = quark.FP8E4M3PerTensorSpec(observer_method="min_max", is_dynamic=False).to_quantization_spec()
    rows = quark.FP8E4M3PerChannelSpec(ch_axis=0, is_dynamic=False).to_quantization_spec()
    tokens = quark.FP8E4M3PerChannelSpec(ch_axis=1, is_dynamic=True).to_quantization_spec()
    mxfp4 = quark.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False, scale_calculation_mode="even").to_quantization_spec()
    layers = {"*self_attn*": quark.QLayerConfig(weight=rows, input_tensors=tokens),
              "*down_proj": quark.QLayerConfig(weight=mxfp4)}
    return quark.QConfig(global_quant_config=quark.QLayerConfig(weight=tensor, input_tensors=tensor), layer_quant_config=layers,
                         exclude=["lm_head"])


def quark_moe(folder, packages, dense):
    """Experts in MXFP4, whose codes Quark's own unpacking decodes. dense: the folder with the export of a dense model."""
    sys.path.insert(0, str(packages / "x_amd_quark"))
    generator = torch.Generator().manual_seed(13)

    def store(module, weight):
        codes = torch.randint(0, 256, (weight.shape[0], weight.shape[1] // 2), generator=generator, dtype=torch.uint8)
        scale = torch.randint(121, 125, (weight.shape[0], weight.shape[1] // 32), generator=generator, dtype=torch.uint8)
        stored = {".weight": codes, ".weight_scale": scale}
        return stored, quark_decoded(packages, {module + end: value for end, value in stored.items()}, module)
    config = json.loads((dense / "config.json").read_text())["quantization_config"]
    make_moe(folder, store, {**config, "exclude": ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]})


def module_at(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def auto_round(packages, file):
    """GPTQ's tensors, packed and decoded by AutoRound's own Linear: qlinear_torch_zp stores zero points less one."""
    root = packages / "x_auto_round"
    sys.path.insert(0, str(root))
    for name in ("auto_round", "auto_round.utils"):  # whose own __init__ imports much that a Linear does not need
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules.setdefault(name, package)
    sys.modules["auto_round.utils"].get_packing_device = lambda device: "cpu"
    QuantLinear = module_at(file, root / "auto_round_extension" / "torch" / f"{file}.py").QuantLinear

    def quantize(name, weight):
        out, width = weight.shape
        scale, zero = minmax(weight, types.SimpleNamespace(group_size=32, num_bits=4, symmetric=False))
        zero = (zero.float() + 8).clamp(min=1)
        layer = QuantLinear(4, 32, width, out, False, weight_dtype=torch.float16)
        linear = torch.nn.Linear(width, out, bias=False)
        linear.weight.data = weight.clone()
        layer.device = "cpu"
        layer.pack(linear, scale.float(), zero.clone(), None, device="cpu")
        layer.scales, layer.dequant_dtype = scale.t().contiguous().float(), torch.int16
        decoded = layer(torch.eye(width)).t().contiguous().float()
        return {".qweight": layer.qweight, ".qzeros": layer.qzeros, ".scales": scale.t().contiguous()}, decoded
    return quantize


def auto_round_config(packing):
    return {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": False, "data_type": "int", "packing_format": packing,
            "autoround_version": "0.16.1", "block_name_to_quantize": "model.layers", "iters": 200, "nsamples": 128, "seqlen": 2048,
            "extra_config": {"lm_head": {"bits": 16, "data_type": "float"}}}


def old_gptq(folder, packages):
    """A folder of AutoGPTQ from before config.json had its config: quantize_config.json alone, with checkpoint_format."""
    kind = gptq(4, packages=packages)
    make_llama(folder, {**kind, "config": None})
    config = {key: value for key, value in kind["config"].items() if key != "quant_method"}
    config.update(checkpoint_format="gptq", model_name_or_path="model", model_file_base_name="model", static_groups=False)
    (folder / "quantize_config.json").write_text(json.dumps(config, indent=2) + "\n")


def kinds(packages):
    dynamic = {"activation_scheme": "dynamic", "weight_block_size": [32, 32], "modules_to_not_convert": ["lm_head"]}
    llama = lambda quantize, config: lambda folder: make_llama(folder, {"quantize": quantize(), "config": config})
    return {
        # MiniMax-M2
        "fp8_fmt": with_transformers(blocks(torch.float32), {**dynamic, "fmt": "float8_e4m3fn"}),
        # Ministral 3, Devstral 2
        "fp8_scalar_names": with_transformers(scalar_names, {
            "activation_scheme": "static", "dequantize": False, "weight_block_size": None,
            "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"]}),
        # DeepSeek-V3.1, Kimi
        "fp8_e8m0": with_transformers(blocks(torch.float8_e8m0fnu), {**dynamic, "fmt": "e4m3", "scale_fmt": "ue8m0"}),
        "fp8_e8m0_bytes": with_transformers(blocks(torch.uint8, (1, 32)), {
            **dynamic, "scale_fmt": "ue8m0", "weight_block_size": [1, 32]}),
        # Inkling 2, MiniMax
        "mxfp8_method": with_transformers(blocks(torch.uint8, (1, 32)), {
            "quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32],
            "modules_to_not_convert": ["lm_head"]}),
        # SGLang 0.5.23
        "w8a8_int8": llama(lambda: int8_rows, {"quant_method": "w8a8_int8", "is_dynamic": True, "ignore": ["lm_head"]}),
        # nvidia_modelopt 0.48.0rc1
        "modelopt_mixed": lambda folder: modelopt_mixed(folder, packages),
        # amd_quark 0.13
        "quark_mxfp4": lambda folder: make_quark(folder, packages, quark_mxfp4),
        "quark_schemes": lambda folder: make_quark(folder, packages, quark_schemes),
        "quark_mxfp4_moe": lambda folder: quark_moe(folder, packages, folder.parent / "quark_mxfp4"),
        # auto_round 0.16.1
        "auto_round_gptq": llama(lambda: auto_round(packages, "qlinear_torch_zp"), auto_round_config("auto_round:auto_gptq")),
        "auto_round_gptq_v2": llama(lambda: auto_round(packages, "qlinear_torch"), auto_round_config("auto_round:gptqmodel")),
        # autoawq 0.2.9
        "auto_round_awq": llama(lambda: awq(packages)["quantize"], auto_round_config("auto_round:auto_awq")),
        # auto_gptq 0.7.1
        "gptq_old": lambda folder: old_gptq(folder, packages),
        "gptq_dynamic": lambda folder: gptq_dynamic(folder, packages),
        # autoawq 0.2.9
        **{f"awq_{version}": llama(lambda version=version: awq_rows(packages, version), {
            "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": version})
           for version in ("gemv", "gemv_fast")},
        # nvidia_modelopt 0.48.0rc1
        **{f"modelopt_{name}": lambda folder, preset=preset: modelopt_awq(folder, packages, preset)
           for name, preset in (("w4a16_awq", "INT4_AWQ_CFG"), ("w4a8_awq", "W4A8_AWQ_BETA_CFG"))},
        # Llama 3.1 405B in FP8
        "fbgemm_fp8": llama(lambda: lambda name, weight: scaled_rows(weight), {
            "quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "tests/fixtures" / "quantized")
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("kinds", nargs="*")
    arguments = parser.parse_args()
    for name, make in kinds(arguments.packages.resolve()).items():
        if not arguments.kinds or name in arguments.kinds:
            make(arguments.folder / name)
            print(name)


if __name__ == "__main__":
    main()
