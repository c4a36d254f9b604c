#!/usr/bin/env python3
"""Writes tests/fixtures/llmcompressor/stacked.{json,safetensors}: what llm-compressor makes of experts that one tensor stacks.

usage: llmcompressor_stacked.py
needs: llmcompressor 0.14.0.1 (with compressed-tensors 0.19.0, torch 2.13, transformers 5.23)

For each fixture and each recipe, in the fixture's own dtype: recipe, the ignore list of config.json and the digest of all tensors of the
checkpoint that oneshot saves (sha256 of lines "name dtype shape sha256 of the bytes", in alphabetical order). Logits of ids in float32:
"<fixture>.weights" are those of transformers' model with its stacked tensors, in which every quantized weight is replaced by what the
checkpoint of recipe "block" decodes to; "<fixture>.inputs" those of the split model with the weights of recipe "channel" and the inputs
of quantized Linears in FP8, a scale for each token.
"""
import hashlib
import json
import pathlib
import tempfile

import torch
from llmcompressor import oneshot
from llmcompressor.modeling.moe.linearize import linearize_moe
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"
WEIGHTS = "{num_bits: 8, type: float, strategy: %s, dynamic: false, symmetric: true, observer: memoryless_minmax%s}"
RECIPE = """quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: %s
      config_groups:
        group_0:
          targets: [Linear]
          weights: %s
"""
TOKEN = "          input_activations: {num_bits: 8, type: float, strategy: token, dynamic: true, symmetric: true}\n"
ALL = "[lm_head, 're:.*router$']"
RECIPES = {
    "tensor": RECIPE % (ALL, WEIGHTS % ("tensor", "")),
    "channel": RECIPE % (ALL, WEIGHTS % ("channel", "")) + TOKEN,
    "block": RECIPE % (ALL, WEIGHTS % ("block", ", block_structure: [16, 16]")),
    "partial": RECIPE % ("[lm_head, 're:.*router$', 're:.*experts[.]1[.]', 're:.*experts[.]2[.]down_proj']", WEIGHTS % ("channel", "")),
}
BLOCK = 16


def tensors_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in sorted(file.keys())}


def digest_of(folder):
    size = int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")
    header = json.loads((folder / "model.safetensors").read_bytes()[8:8 + size])
    lines = []
    for name, tensor in tensors_of(folder).items():
        shape = ", ".join(map(str, header[name]["shape"]))
        data = hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        lines.append(f"{name} {header[name]['dtype']} [{shape}] {data}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def decoded(tensors):
    """module -> float32 weight, of those that are FP8."""
    weights = {}
    for name, scale in tensors.items():
        if not name.endswith(".weight_scale"):
            continue
        codes, scale = tensors[name.removesuffix("_scale")].float(), scale.float()
        if scale.numel() > 1 and scale.shape != (codes.shape[0], 1):
            scale = scale.repeat_interleave(BLOCK, 0)[:codes.shape[0]].repeat_interleave(BLOCK, 1)[:, :codes.shape[1]]
        weights[name.removesuffix(".weight_scale")] = codes * scale
    return weights


def replace_in_stack(experts, index, projection, weight):
    is_oss = experts.__class__.__name__ == "GptOssExperts"
    if projection == "down_proj":
        experts.down_proj[index] = weight.T if is_oss else weight
    elif is_oss:
        experts.gate_up_proj[index, :, (0 if projection == "gate_proj" else 1)::2] = weight.T
    else:
        begin = 0 if projection == "gate_proj" else weight.shape[0]
        experts.gate_up_proj[index, begin:begin + weight.shape[0]] = weight


@torch.no_grad()
def logits_of_weights(source, weights, ids):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    for module, weight in weights.items():
        if ".experts." in module:
            stack, index, projection = module.rsplit(".", 2)
            replace_in_stack(model.get_submodule(stack), int(index), projection, weight)
        else:
            model.get_submodule(module).weight.copy_(weight)
    return model(torch.tensor([ids])).logits[0].contiguous()


def quantize_input(_, inputs):
    scale = (inputs[0].abs().amax(-1, keepdim=True) / 448).clamp(min=torch.finfo(torch.float32).eps)
    return ((inputs[0] / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale,)


@torch.no_grad()
def logits_of_inputs(source, weights, ids):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    linearize_moe(model)
    for module, weight in weights.items():
        model.get_submodule(module).weight.copy_(weight)
        model.get_submodule(module).register_forward_pre_hook(quantize_input)
    return model(torch.tensor([ids])).logits[0].contiguous()


def main():
    found, logits = {}, {}
    for name in ("granitemoe", "granitemoehybrid_moe", "gpt_oss"):
        source = FIXTURES / "models" / name
        vocab_size = json.loads((source / "config.json").read_text())["vocab_size"]
        ids = torch.randint(3, vocab_size, (10,), generator=torch.Generator().manual_seed(5)).tolist()
        found[name] = {"ids": ids, "runs": {}}
        for run, recipe in RECIPES.items():
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch)
                model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
                oneshot(model=model, recipe=recipe)
                model.save_pretrained(folder)
                ignore = json.loads((folder / "config.json").read_text())["quantization_config"]["ignore"]
                found[name]["runs"][run] = {"recipe": recipe, "ignore": ignore, "digest": digest_of(folder)}
                weights = decoded(tensors_of(folder))
            print(name, run, len(weights), "weights")
            if run == "block":
                logits[f"{name}.weights"] = logits_of_weights(source, weights, ids)
            if run == "channel":
                logits[f"{name}.inputs"] = logits_of_inputs(source, weights, ids)
    target = FIXTURES / "llmcompressor" / "stacked"
    target.with_suffix(".json").write_text(json.dumps({"reference": "llmcompressor 0.14.0.1, transformers 5.23", "models": found}, indent=1) + "\n")
    save_file(logits, target.with_suffix(".safetensors"), metadata={"format": "pt"})


main()
