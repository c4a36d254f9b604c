#!/usr/bin/env python3
"""Writes tests/fixtures/quantized/<kind> for quantized checkpoints that a library's own export writes.

usage: make_exported.py [--folder FOLDER] [--packages FOLDER] [KIND ...]
needs: torch 2.13, transformers 5.24, safetensors, numpy, and in the folder of --packages, unpacked and not installed
(x_NAME/...): what each kind names below. Files are as make_quantized.py writes them.
"""
import argparse
import copy
import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import load_file

from make_published import keys_error, with_small_blocks
from make_quantized import CONFIG, IDS, entry, extremes, gptq, tiny_model, write


def write_decoded(folder, stored, config, decode, beside=None):
    """Writes stored with the values that decode(module, its tensors by the ends of their names) gives; None: as stored."""
    model, expected = tiny_model(CONFIG), {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            own = {key[len(module):]: value for key, value in stored.items() if key.startswith(f"{module}.")}
            decoded = decode(module, own)
            if decoded is None:
                parameter.copy_(stored[name].float())
                continue
            parameter.copy_(decoded)
            expected[module] = entry(decoded)
    assert expected
    write(folder, stored, config, {"weights": expected, **extremes(model)}, beside)
    return model


def modelopt_decoded(algorithm, own):
    """A module's float32 weight, as ModelOpt's own tensors decode it."""
    from modelopt.torch.quantization.qtensor import INT8QTensor, MXFP4QTensor, NVFP4QTensor
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor
    codes, scale = own[".weight"], own[".weight_scale"]
    if algorithm == "MXFP8":
        return MXFP8QTensor(codes.shape, torch.float32, codes).dequantize(torch.float32, scale=scale)
    shape = torch.Size((codes.shape[0], codes.shape[1] * 2))
    if "MXFP4" in algorithm:
        return MXFP4QTensor(shape, torch.float32, codes).dequantize(torch.float32, scale=scale, block_sizes={-1: 32})
    if "NVFP4" in algorithm:
        group = shape[1] // scale.shape[1]
        return NVFP4QTensor(shape, torch.float32, codes).dequantize(
            torch.float32, scale=scale, double_scale=own[".weight_scale_2"], block_sizes={-1: group}).float()
    decoded = INT8QTensor(codes.shape, torch.float32, codes).dequantize(torch.float32, scale=scale[:, None])
    return decoded * own[".pre_quant_scale"] if ".pre_quant_scale" in own else decoded


def modelopt(folder, packages, preset):
    """Quantized and exported by ModelOpt itself. Inputs run in 16 bits here."""
    sys.path.insert(0, str(packages / "x_nvidia_modelopt"))
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    model = tiny_model(CONFIG)
    mtq.quantize(model, with_small_blocks(copy.deepcopy(getattr(mtq, preset))), lambda one: one(torch.tensor([IDS])))
    export_hf_checkpoint(model, dtype=torch.float32, export_dir=folder)
    stored = load_file(folder / "model.safetensors")
    beside = json.loads((folder / "hf_quant_config.json").read_text())
    for file in folder.glob("*"):
        file.unlink()
    algorithm = beside["quantization"]["quant_algo"].upper()
    model = write_decoded(folder, stored, CONFIG, lambda module, tensors: modelopt_decoded(algorithm, tensors)
                          if ".weight_scale" in tensors else None, beside)
    assert keys_error(model) < 0.5, keys_error(model)  # of the 16-bit model; codes that are read wrongly give 1 and more


def quark_decoded(spec, own):
    """A module's float32 weight as Quark unpacks and dequantizes it, spec: that of the weight in its config."""
    from quark.torch.kernel import dequantize
    from quark.torch.utils.pack import create_pack_method
    dtype, qscheme = spec["dtype"], spec["qscheme"]
    packer = create_pack_method(qscheme, dtype)
    codes, scale, zero = packer.unpack(own[".weight"], True).float(), own[".weight_scale"], own.get(".weight_zero_point")
    if spec["scale_format"] == "e8m0":
        scale = torch.exp2(scale.float() - 127)
    elif qscheme == "per_group":  # stored with groups first
        scale, zero = scale.t().contiguous(), packer.unpack(zero, True)
    zero = None if zero is None else zero.float()
    return dequantize(dtype, codes, scale, zero, spec["ch_axis"], spec["group_size"] or -1, qscheme).float()


def quark(folder, packages, weight, inputs=None, **more):
    """Quantized and exported by Quark's own program. weight, inputs: names of its specs. more: of the weight's."""
    sys.path.insert(0, str(packages / "x_amd_quark"))
    import quark.torch.quantization.config.config as quark_config
    from quark.torch import ModelQuantizer, export_safetensors

    def spec_of(name, is_dynamic=False, **more):
        if name.startswith("OCP"):
            own = {"ch_axis": -1, "is_dynamic": is_dynamic, "scale_calculation_mode": "even"}
        else:
            own = {"is_dynamic": is_dynamic, "scale_type": "float", "round_method": "half_even"}
        if name == "Int8PerTensorSpec":
            own["observer_method"] = "min_max"
        return getattr(quark_config, name)(**own, **more).to_quantization_spec()
    layers = quark_config.QLayerConfig(weight=spec_of(weight, **more), input_tensors=spec_of(inputs[0], **inputs[1]) if inputs else None)
    quantizer = ModelQuantizer(quark_config.QConfig(global_quant_config=layers, exclude=["lm_head"]))
    ids = torch.utils.data.DataLoader([torch.tensor(IDS)])
    export_safetensors(quantizer.freeze(quantizer.quantize_model(tiny_model(CONFIG), ids)), str(folder))
    stored = {name: value.half() if "layernorm" in name or name.endswith((".embed_tokens.weight", ".norm.weight")) else value
              for name, value in load_file(folder / "model.safetensors").items()}
    written = json.loads((folder / "config.json").read_text())["quantization_config"]
    for file in folder.glob("*"):
        file.unlink()
    spec = written["global_quant_config"]["weight"]
    model = write_decoded(folder, stored, {**CONFIG, "quantization_config": written},
                          lambda module, own: quark_decoded(spec, own) if ".weight_scale" in own else None)
    assert keys_error(model) < 0.5, keys_error(model)


def gptqmodel_part(packages, name):
    """A module of GPTQModel without its packages' __init__, which want a GPU's libraries."""
    root = next(packages.glob("gptqmodel-*/gptqmodel"))
    for outer in ("gptqmodel", "gptqmodel.quantization", "gptqmodel.quantization.awq", "gptqmodel.quantization.awq.utils", "gptqmodel.utils"):
        package = types.ModuleType(outer)
        package.__path__ = [str(root.joinpath(*outer.split(".")[1:]))]
        sys.modules.setdefault(outer, package)
    return importlib.import_module(name)


DYNAMIC = {"-:.*layers\\.0\\.mlp\\.up_proj": {}, "+:.*\\.mlp\\.down_proj": {"group_size": 64},
           "model\\.layers\\.1\\.self_attn": {"group_size": 16}}


def gptqmodel(folder, packages, config_class, dynamic, quantize):
    """A config that GPTQModel writes, whose own code says what its key `dynamic` means for a module.
    quantize(weight, the settings of its module): its tensors, and their values."""
    source = gptqmodel_part(packages, "gptqmodel.quantization.config")
    config = getattr(source, config_class)(bits=4, group_size=32, dynamic=dynamic)
    written = json.loads(json.dumps(config.to_dict(), default=str))
    del written["meta"]["offload_to_disk_path"]  # of this machine
    model, tensors, expected = tiny_model(CONFIG), {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            own = config.dynamic_get(module) if "proj" in name else False
            if own is False:
                tensors[name] = parameter.half()
                continue
            settings = {key: config.dynamic_get(module, key, written[key]) for key in ("bits", "group_size", "desc_act")}
            stored, decoded = quantize(name, parameter.data, settings)
            tensors.update({module + end: value for end, value in stored.items()})
            expected[module] = entry(decoded)
            parameter.copy_(decoded)
    write(folder, tensors, {**CONFIG, "quantization_config": written}, {"weights": expected, **extremes(model)})


def gptqmodel_awq(folder, packages):
    """Symmetric AWQ, GPTQModel's default: zero_point is false, and zero points of 8 are stored."""
    packing = gptqmodel_part(packages, "gptqmodel.quantization.awq.utils.packing_utils")

    def quantize(name, weight, settings):
        group = settings["group_size"]
        blocks = weight.reshape(weight.shape[0], -1, group)
        scale = (blocks.abs().amax(-1).clamp(min=1e-5) / 7).half()
        codes = (torch.round(blocks / scale.float()[..., None]) + 8).clamp(0, 15).int().reshape(weight.shape)
        zeros = torch.full_like(scale, 8).int()
        qweight, qzeros = packing.pack_awq(codes.t().contiguous(), zeros.t().contiguous(), 4)
        stored = {".qweight": qweight, ".qzeros": qzeros, ".scales": scale.t().contiguous()}
        decoded = packing.dequantize_gemm(qweight, qzeros, stored[".scales"].float(), 4, group)
        return stored, decoded.t().contiguous().float()
    gptqmodel(folder, packages, "AWQConfig", DYNAMIC, quantize)


def gptqmodel_gptq(folder, packages):
    """Packed and decoded by AutoGPTQ's Linear, whose layout GPTQModel's format gptq is."""
    dynamic = {**DYNAMIC, ".*k_proj": {"bits": 8, "group_size": -1}, "+:.*v_proj": {"desc_act": True}}

    def quantize(name, weight, settings):
        group = settings["group_size"] if settings["group_size"] > 0 else weight.shape[1]
        return gptq(settings["bits"], settings["desc_act"], packages=packages, group=group)["quantize"](name, weight)
    gptqmodel(folder, packages, "GPTQConfig", dynamic, quantize)


def kinds(packages):
    groups = {"ch_axis": -1, "group_size": 32}
    return {
        # gptqmodel 7.7.0, and auto_gptq 0.7.1
        "gptqmodel_awq": lambda folder: gptqmodel_awq(folder, packages),
        "gptqmodel_gptq": lambda folder: gptqmodel_gptq(folder, packages),
        # amd_quark 0.13
        "quark_mxfp6": lambda folder: quark(folder, packages, "OCP_MXFP6E2M3Spec"),
        "quark_mxfp6_e3m2": lambda folder: quark(folder, packages, "OCP_MXFP6E3M2Spec", ("OCP_MXFP6E3M2Spec", {"is_dynamic": True})),
        "quark_int8": lambda folder: quark(folder, packages, "Int8PerChannelSpec", ("Int8PerTensorSpec", {"symmetric": True}),
                                           ch_axis=0, symmetric=True),
        "quark_int8_tensor": lambda folder: quark(folder, packages, "Int8PerTensorSpec", symmetric=False),
        "quark_int4": lambda folder: quark(folder, packages, "Int4PerGroupSpec", symmetric=True, **groups),
        "quark_uint4": lambda folder: quark(folder, packages, "Uint4PerGroupSpec", symmetric=False, **groups),
        # nvidia_modelopt 0.47.0
        **{f"modelopt_{name}": lambda folder, preset=preset: modelopt(folder, packages, preset)
           for name, preset in (("mxfp8", "MXFP8_DEFAULT_CFG"), ("mxfp4", "MXFP4_DEFAULT_CFG"),
                                ("w4a8_mxfp4_fp8", "W4A8_MXFP4_FP8_CFG"), ("w4a8_nvfp4_fp8", "W4A8_NVFP4_FP8_CFG"),
                                ("w8a16", "INT8_WEIGHT_ONLY_CFG"), ("w8a8_sq", "INT8_SMOOTHQUANT_CFG"))},
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
