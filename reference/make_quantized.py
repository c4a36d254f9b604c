#!/usr/bin/env python3
"""Writes tests/fixtures/quantized/<kind>: tiny checkpoints of quantized weights, and what their own library decodes.

usage: make_quantized.py [--folder FOLDER] [--packages FOLDER] [KIND ...]
needs: torch, transformers 5.23, safetensors, numpy, compressed-tensors 0.20.1, bitsandbytes 0.50 (on the CPU), and in
the folder of --packages, unpacked and not installed, because they ask for other versions of torch: auto_gptq 0.7.1,
autoawq 0.2.9, nvidia_modelopt 0.47.0, amd_quark 0.13 (with scipy, onnx, ml_dtypes and onnxslim to be imported).

expected.json: ids; of every quantized matrix [out, in] (of stacked experts [experts, out, in]) the SHA-256 of its
float32 values, code x scale as the library decodes them with scales in float32, and the first four; per layer and head
the largest magnitude of K after RoPE and of V, from transformers in float32 with those values.
"""
import argparse
import hashlib
import importlib
import json
import pathlib
import sys
import types

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": 64,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
    "torch_dtype": "float16", "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False,
}
IDS = [1, 9, 33, 61, 2, 8, 17, 17, 40, 5]


def weight_args(**changes):
    from compressed_tensors.quantization import QuantizationArgs
    return QuantizationArgs(**changes)


def minmax(weight, args):
    """Scales and zero points of groups of columns, as a round-to-nearest quantizer chooses them."""
    group = args.group_size or weight.shape[1]
    blocks = weight.reshape(weight.shape[0], -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    levels = 2 ** args.num_bits - 1
    if args.symmetric:
        scale = torch.maximum(-low, high) * 2 / levels
        return scale.half(), torch.zeros_like(scale, dtype=torch.int8)
    scale = ((high - low) / levels).half()
    zero = torch.round(-low / scale.float()).clamp(0, levels) - 2 ** (args.num_bits - 1)
    return scale, zero.to(torch.int8)


def compressed(weight, args, format, index=None):
    """Tensors of one module by compressed-tensors, and its own decoding with float32 scales."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
    compressor = BaseCompressor.get_value_from_registry(format)
    state = {"weight": weight.float()}
    if args.type == "int":
        scale, zero = minmax(weight, args)
        state["weight_scale"] = scale.float()
        if not args.symmetric:
            state["weight_zero_point"] = zero
    elif args.strategy == "tensor_group":
        amax = weight.float().abs().amax()
        state["weight_global_scale"] = (448.0 * 6.0 / amax).reshape(1)
        blocks = weight.float().reshape(weight.shape[0], -1, 16).abs().amax(-1)
        state["weight_scale"] = (state["weight_global_scale"] * blocks / 6.0).to(torch.float8_e4m3fn).float()
    else:  # powers of two for 32 columns
        top = {4: 6.0, 6: 7.5, 8: 448.0}[args.num_bits]
        blocks = weight.float().reshape(weight.shape[0], -1, 32).abs().amax(-1)
        state["weight_scale"] = 2.0 ** torch.ceil(torch.log2(blocks / top))
    stored = compressor.compress(state, scheme)
    decoded = compressor.decompress({name: value.clone() for name, value in stored.items()}, scheme)["weight"].float()
    if args.type == "int":
        stored["weight_scale"] = stored["weight_scale"].half()
    elif args.num_bits < 8:  # its decompress rounds to bfloat16
        from compressed_tensors.compressors import mxfp6, nvfp4
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        unpack = nvfp4.helpers.unpack_fp4_from_uint8 if args.num_bits == 4 else mxfp6.helpers.unpack_fp6_from_uint8
        codes = unpack(stored["weight_packed"], *weight.shape, dtype=torch.float32)
        scales = compressor._decompress_scale(stored["weight_scale"], torch.float32)
        decoded = dequantize(codes, scales, args=args, global_scale=state.get("weight_global_scale"), dtype=torch.float32)
    if index is not None:  # columns whose groups are not in order: compressed-tensors 0.13 stores the group of each
        from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
        stored["weight_g_idx"] = index
        codes = unpack_from_int32(stored["weight_packed"], args.num_bits, weight.shape)
        groups = index.long()
        decoded = (codes.float() - zero.float()[:, groups]) * scale.float()[:, groups]
    return {f".{name}": value.contiguous() for name, value in stored.items()}, decoded


def of_compressed_tensors(args, format, ordered=True, inner=None):
    def quantize(name, weight):
        own_args, own_format = (inner or {}).get(name.split(".")[-3], (args, format))
        index = None
        if not ordered:
            index = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(3)) // args.group_size
            index = index.to(torch.int32)
        return compressed(weight, own_args, own_format, index)
    return quantize


def groups_config(*groups):
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed", "ignore": ["lm_head"],
            "format": groups[0][2] if len(groups) == 1 else "mixed-precision",
            "config_groups": {f"group_{i}": {"targets": targets, "weights": json.loads(args.model_dump_json()),
                                             "input_activations": None, "output_activations": None, "format": format}
                              for i, (targets, args, format) in enumerate(groups)}}


def compressed_kind(args, format, **how):
    return {"quantize": of_compressed_tensors(args, format, **how), "config": groups_config((["Linear"], args, format))}


def gptq(bits, desc_act=False, v2=False, packages=None, group=32):
    def quantize(name, weight):
        package = types.ModuleType("auto_gptq")
        package.__path__ = [str(packages / "x_auto_gptq" / "auto_gptq")]
        sys.modules.setdefault("auto_gptq", package)
        inner = types.ModuleType("auto_gptq.nn_modules.qlinear")
        inner.__path__ = [str(packages / "x_auto_gptq" / "auto_gptq" / "nn_modules" / "qlinear")]
        sys.modules.setdefault("auto_gptq.nn_modules.qlinear", inner)
        if not hasattr(transformers.pytorch_utils, "Conv1D"):
            raise SystemExit("transformers has no Conv1D")
        QuantLinear = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda").QuantLinear
        out, width = weight.shape
        args = types.SimpleNamespace(group_size=group, num_bits=bits, symmetric=False)
        index = torch.arange(width) // group
        if desc_act:
            index = index[torch.randperm(width, generator=torch.Generator().manual_seed(5))]
        scale, zero = minmax(weight, args)
        zero = (zero.float() + 2 ** (bits - 1)).clamp(min=1)
        layer = QuantLinear(bits, group, width, out, False, weight_dtype=torch.float16)
        linear = torch.nn.Linear(width, out, bias=False)
        # The library divides by the scale of a column's group, so codes stay in range only for weights of that group.
        codes = torch.round(weight.float() / scale.float()[:, index] + zero[:, index]).clamp(0, 2 ** bits - 1)
        linear.weight.data = ((codes - zero[:, index]) * scale.float()[:, index])
        layer.pack(linear, scale.float(), zero.clone(), index.to(torch.int32))
        layer.scales = scale.t().contiguous().float()
        layer.autogptq_cuda_available = False
        decoded = layer(torch.eye(width)).t().contiguous().float()
        stored = {".qweight": layer.qweight, ".qzeros": layer.qzeros, ".scales": scale.t().contiguous(),
                  ".g_idx": index.to(torch.int32)}
        if v2:  # the same zero points, not less one
            words = layer.qzeros.numpy().view(np.uint32)
            ones = np.uint32(sum(1 << shift for shift in range(0, 32, bits)))
            stored[".qzeros"] = torch.from_numpy((words + ones).view(np.int32))
        return stored, decoded
    return {"quantize": quantize,
            "config": {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": desc_act, "sym": False,
                       "checkpoint_format": "gptq_v2" if v2 else "gptq", "true_sequential": True,
                       "damp_percent": 0.01}}


def awq(packages):
    def quantize(name, weight):
        root = next(packages.glob("autoawq-*/awq")) / "utils" / "packing_utils.py"
        spec = importlib.util.spec_from_file_location("packing_utils", root)
        packing = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(packing)
        args = types.SimpleNamespace(group_size=32, num_bits=4, symmetric=False)
        scale, zero = minmax(weight, args)
        zero = zero.int() + 8
        groups = torch.arange(weight.shape[1]) // 32
        codes = torch.round(weight.float() / scale.float()[:, groups] + zero[:, groups]).clamp(0, 15).int()

        def pack(values):  # [lines, out], as WQLinear_GEMM.from_linear packs them
            words = torch.zeros(values.shape[0], values.shape[1] // 8, dtype=torch.int32)
            for column in range(words.shape[1]):
                for place, output in enumerate(packing.AWQ_ORDER):
                    words[:, column] |= values[:, column * 8 + output] << (4 * place)
            return words
        stored = {".qweight": pack(codes.t().contiguous()), ".qzeros": pack(zero.t().contiguous()),
                  ".scales": scale.t().contiguous()}
        decoded = packing.dequantize_gemm(stored[".qweight"], stored[".qzeros"], stored[".scales"].float(), 4, 32)
        return stored, decoded.t().contiguous().float()
    return {"quantize": quantize,
            "config": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}}


def bitsandbytes_4bit(kind):
    def quantize(name, weight):
        import bitsandbytes.functional as bnb
        codes, state = bnb.quantize_4bit(weight.half(), blocksize=64, quant_type=kind, compress_statistics=kind == "nf4")
        stored = {".weight": codes}
        for key, value in state.as_dict(packed=True).items():
            stored[f".weight.{key}"] = value
        absmax = state.absmax
        if state.nested:
            absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        flat = codes.flatten()
        nibbles = torch.stack((flat >> 4, flat & 15), -1).flatten().long()
        decoded = state.code[nibbles] * absmax.repeat_interleave(64)[: nibbles.numel()]
        library = bnb.dequantize_4bit(codes, state).float()
        assert torch.equal(decoded.reshape(weight.shape).half().float(), library)  # which rounds to half
        return stored, decoded.reshape(weight.shape).float()
    return {"quantize": quantize,
            "config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                       "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": kind == "nf4",
                       "bnb_4bit_compute_dtype": "float16", "bnb_4bit_quant_storage": "uint8"}}


def bitsandbytes_8bit():
    def quantize(name, weight):
        import bitsandbytes.functional as bnb
        codes, largest, _ = bnb.int8_vectorwise_quant(weight.half())
        decoded = bnb.int8_vectorwise_dequant(codes, largest).float()
        return {".weight": codes, ".SCB": largest, ".weight_format": torch.tensor(0, dtype=torch.uint8)}, decoded
    return {"quantize": quantize, "config": {"quant_method": "bitsandbytes", "load_in_4bit": False,
                                             "load_in_8bit": True, "llm_int8_threshold": 6.0}}


def modelopt_nvfp4(packages):
    def quantize(name, weight):
        sys.path.insert(0, str(packages / "x_nvidia_modelopt"))
        from modelopt.torch.quantization.qtensor import NVFP4QTensor
        tensor, scale, scale2 = NVFP4QTensor.quantize(weight.float(), 16)
        decoded = tensor.dequantize(torch.float32, scale=scale, double_scale=scale2, block_sizes={-1: 16})
        return {".weight": tensor._quantized_data, ".weight_scale": scale, ".weight_scale_2": scale2.reshape(()),
                ".input_scale": torch.tensor(0.01)}, decoded.float()
    return {"quantize": quantize, "config": None,
            "beside": {"producer": {"name": "modelopt", "version": "0.47.0"},
                       "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
                                        "exclude_modules": ["lm_head"]}}}


def autofp8():
    def quantize(name, weight):
        # Source: AutoFP8, auto_fp8/quantize.py `per_tensor_quantize`; the package is not on PyPI.
        low, high = weight.float().aminmax()
        amax = torch.maximum(low.abs(), high.abs())
        inverse = 448.0 / amax.clamp(min=1e-12)
        codes = (weight.float() * inverse).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        scale = inverse.reciprocal()
        stored = {".weight": codes, ".weight_scale": scale.reshape(()), ".input_scale": torch.tensor(0.02)}
        return stored, codes.float() * scale
    return {"quantize": quantize,
            "config": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}}


def make_quark(folder, packages):
    """Quantized and exported by Quark's own program, with static inputs; decoded by its kernel."""
    sys.path.insert(0, str(packages / "x_amd_quark"))
    from quark.torch import ModelQuantizer, export_safetensors
    from quark.torch.kernel import dequantize
    from quark.torch.quantization.config.config import FP8E4M3PerTensorSpec, QConfig, QLayerConfig
    spec = FP8E4M3PerTensorSpec(observer_method="min_max", is_dynamic=False).to_quantization_spec()
    layers = QLayerConfig(weight=spec, input_tensors=spec)
    quantizer = ModelQuantizer(QConfig(global_quant_config=layers, exclude=["lm_head"]))
    ids = torch.utils.data.DataLoader([torch.tensor(IDS)])
    export_safetensors(quantizer.freeze(quantizer.quantize_model(tiny_model(CONFIG), ids)), str(folder))
    stored = {name: value.half() if value.ndim and value.dtype == torch.float32 else value
              for name, value in load_file(folder / "model.safetensors").items()}
    model, expected = tiny_model(CONFIG), {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.removesuffix(".weight")
            scale = stored.get(f"{module}.weight_scale")
            if scale is None:
                continue
            parameter.copy_(dequantize("fp8_e4m3", stored[name].float(), scale, None, -1, -1, "per_tensor"))
            expected[module] = entry(parameter.data)
    written = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").unlink()
    config = {**CONFIG, "quantization_config": written["quantization_config"]}
    write(folder, stored, config, {"weights": expected, **extremes(model)})


def kinds(packages):
    int4 = dict(num_bits=4, type="int", strategy="group", group_size=32)
    channel8 = weight_args(num_bits=8, type="int", strategy="channel", symmetric=True)
    int4_symmetric = weight_args(**int4, symmetric=True)
    nvfp4 = weight_args(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
    mx = dict(type="float", strategy="group", group_size=32, symmetric=True, scale_dtype="torch.uint8")
    packed = "pack-quantized"
    mixed = of_compressed_tensors(int4_symmetric, packed, inner={"self_attn": (channel8, "int-quantized")})
    return {
        "packed_int4": compressed_kind(int4_symmetric, packed),
        "packed_int4_zeros": compressed_kind(weight_args(**int4, symmetric=False), packed),
        "packed_int4_index": compressed_kind(weight_args(**int4, symmetric=False), packed, ordered=False),
        "packed_int3_zeros": compressed_kind(weight_args(num_bits=3, type="int", strategy="channel", symmetric=False), packed),
        "packed_int8": compressed_kind(channel8, packed),
        "int8": compressed_kind(channel8, "int-quantized"),
        "mixed": {"quantize": mixed, "config": groups_config(
            (["re:.*self_attn.*"], channel8, "int-quantized"), (["re:.*mlp.*"], int4_symmetric, packed))},
        "nvfp4": compressed_kind(nvfp4, "nvfp4-pack-quantized"),
        "mxfp4": compressed_kind(weight_args(num_bits=4, **mx), "mxfp4-pack-quantized"),
        "mxfp6": compressed_kind(weight_args(num_bits=6, **mx), "mxfp6-pack-quantized"),
        "mxfp8": compressed_kind(weight_args(num_bits=8, **mx), "mxfp8-quantized"),
        "gptq_2": gptq(2, packages=packages), "gptq_3": gptq(3, packages=packages),
        "gptq_4": gptq(4, desc_act=True, packages=packages), "gptq_8": gptq(8, packages=packages),
        "gptq_v2": gptq(4, v2=True, packages=packages),
        "awq": awq(packages),
        "bnb_nf4": bitsandbytes_4bit("nf4"), "bnb_fp4": bitsandbytes_4bit("fp4"), "bnb_int8": bitsandbytes_8bit(),
        "modelopt_nvfp4": modelopt_nvfp4(packages),
        "autofp8": autofp8(),
        "awq_moe": lambda folder: make_moe(folder, awq(packages)),
        "gptq_moe": lambda folder: make_moe(folder, gptq(4, packages=packages)),
        "gpt_oss": make_gpt_oss,
        "quark": lambda folder: make_quark(folder, packages),
    }


def entry(values):
    values = values.contiguous().float()
    return {"sha256": hashlib.sha256(values.numpy().tobytes()).hexdigest(), "first": values.flatten()[:4].tolist()}


def extremes(model):
    with torch.no_grad():
        cache = model(torch.tensor([IDS]), use_cache=True).past_key_values
    heads = lambda values: values[0].abs().amax((1, 2)).tolist()
    return {"k": [heads(layer.keys) for layer in cache.layers], "v": [heads(layer.values) for layer in cache.layers]}


def write(folder, tensors, config, expected, beside=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "expected.json").write_text(json.dumps({"ids": IDS, **expected}, indent=1) + "\n")
    if beside:
        (folder / "hf_quant_config.json").write_text(json.dumps(beside, indent=2) + "\n")


def tiny_model(config):
    torch.manual_seed(7)
    transformers.logging.set_verbosity_error()
    inner = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "torch_dtype"})
    inner._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(inner).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((torch.randn_like(parameter) * 0.2 + (1.0 if "norm" in name else 0.0)).half().float())
    return model


def make_llama(folder, kind):
    model = tiny_model(CONFIG)
    tensors, expected = {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" not in name:
                tensors[name] = parameter.half()
                continue
            stored, decoded = kind["quantize"](name, parameter.data)
            module = name.removesuffix(".weight")
            tensors.update({module + end: value for end, value in stored.items()})
            expected[module] = entry(decoded)
            parameter.copy_(decoded)
    config = dict(CONFIG)
    if kind["config"]:
        config["quantization_config"] = kind["config"]
    write(folder, tensors, config, {"weights": expected, **extremes(model)}, kind.get("beside"))


def expert_matrices(name, stacked, inner):
    """(name, values) of each expert's Linear of a parameter of stacked experts, by the names of checkpoints."""
    module = name.rsplit(".", 1)[0]
    for expert, values in enumerate(stacked):
        if name.endswith("down_proj"):
            yield f"{module}.{expert}.down_proj", values
        else:
            yield f"{module}.{expert}.gate_proj", values[:inner]
            yield f"{module}.{expert}.up_proj", values[inner:]


def make_moe(folder, kind):
    """A Qwen3 MoE whose experts are Linears of their own, as AutoAWQ and AutoGPTQ write them; its router stays."""
    config = {**CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4,
              "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1,
              "mlp_only_layers": [], "use_sliding_window": False}
    del config["mlp_bias"]
    model = tiny_model(config)
    tensors, expected = {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" not in name:
                tensors[name] = parameter.half()
                continue
            matrices = [(name.removesuffix(".weight"), parameter.data)]
            if parameter.dim() == 3:
                matrices = expert_matrices(name, parameter.data, config["moe_intermediate_size"])
            for module, values in matrices:
                stored, decoded = kind["quantize"](name, values)
                tensors.update({module + end: value for end, value in stored.items()})
                expected[module] = entry(decoded)
                values.copy_(decoded)
    config["quantization_config"] = {**kind["config"], "modules_to_not_convert": ["mlp.gate"]}
    write(folder, tensors, config, {"weights": expected, **extremes(model)})


def make_gpt_oss(folder):
    """The experts in E2M1 with powers of two, as OpenAI stores them; decoded by transformers."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    models = pathlib.Path(__file__).parent.parent / "tests/fixtures" / "models"
    config = json.loads((models / "gpt_oss" / "config.json").read_text())
    config.update(hidden_size=64, num_attention_heads=4, intermediate_size=32, vocab_size=64, num_hidden_layers=2,
                  layer_types=["sliding_attention", "full_attention"])
    config.pop("experts_per_token")
    model = tiny_model(config)
    generator = torch.Generator().manual_seed(11)
    tensors, expected = {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                tensors[name] = parameter.bfloat16()
                parameter.copy_(tensors[name].float())
                continue
            experts, width, out = parameter.shape
            blocks = torch.randint(0, 256, (experts, out, width // 32, 16), generator=generator, dtype=torch.uint8)
            scales = torch.randint(121, 125, (experts, out, width // 32), generator=generator, dtype=torch.uint8)
            decoded = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
            expected[name] = entry(decoded.transpose(1, 2))
            parameter.copy_(decoded)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    write(folder, tensors, config, {"weights": expected, **extremes(model)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "tests/fixtures" / "quantized")
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("kinds", nargs="*")
    arguments = parser.parse_args()
    for name, kind in kinds(arguments.packages.resolve()).items():
        if arguments.kinds and name not in arguments.kinds:
            continue
        kind(arguments.folder / name) if callable(kind) else make_llama(arguments.folder / name, kind)
        print(name)


if __name__ == "__main__":
    main()
