#!/usr/bin/env python3
"""lmdeploy_packed.py OUT.json

What LMDeploy's PyTorch engine does with KV scales beside weights in compressed-tensors' format pack-quantized, the one that it reads, by
its own code (engines_lmdeploy.py says what stands in). The checkpoints are of a Qwen3 MoE or a Llama with INT4 weights in groups of 32:
"experts" packs the experts alone and names the other Linears in ignore, "all" packs every Linear but lm_head, as most tools do.
OUT.json is committed as tests/fixtures/engines/packed_lmdeploy.json: {"engine", "version", "configs": {"qwen3_moe", "llama"}, "cases": {name:
{"config", "quantization_config", "scales": {name below the attention module: value}, "seen": {"loads", "layers": {"0": {"k", "v"}}} or
{"loads": false, "why"}}}}.

Reference: as engines_lmdeploy.py. Run with that environment's python.
"""
import json
import os
import pathlib
import sys
import tempfile

import engines_lmdeploy as lmdeploy
import torch
from engines_judge import refusal
from safetensors.torch import save_file

ATTENTION = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=96, max_position_embeddings=64,
                 rms_norm_eps=1e-5, hidden_act="silu", torch_dtype="bfloat16", tie_word_embeddings=False, rope_theta=10000.0, bos_token_id=1,
                 eos_token_id=2)
CONFIGS = {"qwen3_moe": ATTENTION | dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", intermediate_size=64, moe_intermediate_size=32,
                                         num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]),
           "llama": ATTENTION | dict(architectures=["LlamaForCausalLM"], model_type="llama", intermediate_size=64)}
IGNORED = {"experts": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.gate$"], "all": ["lm_head", "re:.*mlp\\.gate$"]}
SCHEME = dict(num_bits=8, type="float", strategy="tensor", symmetric=True, dynamic=False)
NAMES = {"": {}, "plain": {".k_scale": 0.5, ".v_scale": 0.25}, "modelopt": {".k_proj.k_scale": 0.5, ".v_proj.v_scale": 0.25},
         "quark": {".k_proj.output_scale": 0.5, ".v_proj.output_scale": 0.25}, "tgi": {".kv_scale": 0.5}}
CHANGES = {"format": dict(format="int-quantized"), "status": dict(quantization_status="frozen"), "no_status": dict(quantization_status=None),
           "bits": dict(weights=dict(num_bits=8)), "group_size": dict(weights=dict(group_size=128)), "asymmetric": dict(weights=dict(symmetric=False)),
           "channel": dict(weights=dict(strategy="channel")), "inputs": dict(group=dict(input_activations=SCHEME)),
           "targets": dict(group=dict(targets=["re:.*experts.*"])), "ignore_null": dict(ignore=None), "two_groups": dict(second=True),
           "group_name": dict(name="group_1")}


def declared(pack, is_fp8_cache=True, weights={}, group={}, name="group_0", second=False, **changes):
    of_weights = dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True, dynamic=False) | weights
    one = dict(targets=["Linear"], weights=of_weights, input_activations=None, output_activations=None) | group
    config = dict(quant_method="compressed-tensors", format="pack-quantized", quantization_status="compressed", ignore=IGNORED[pack],
                  config_groups={name: one} | ({"group_1": one} if second else {}), kv_cache_scheme=SCHEME if is_fp8_cache else None) | changes
    return {key: value for key, value in config.items() if value is not None or key == "ignore"}


def linears(config):
    """{name: (out, in)}"""
    size, heads = config["hidden_size"], config["head_dim"] * config["num_attention_heads"]
    held, found = config["head_dim"] * config["num_key_value_heads"], {"lm_head": (config["vocab_size"], size)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found |= {f"{at}.self_attn.{name}_proj": shape
                  for name, shape in dict(q=(heads, size), k=(held, size), v=(held, size), o=(size, heads)).items()}
        wide = config.get("moe_intermediate_size", config["intermediate_size"])
        parts = [f"{at}.mlp.experts.{expert}" for expert in range(config["num_experts"])] if "num_experts" in config else [f"{at}.mlp"]
        for part in parts:
            found |= {f"{part}.gate_proj": (wide, size), f"{part}.up_proj": (wide, size), f"{part}.down_proj": (size, wide)}
        if "num_experts" in config:
            found[f"{at}.mlp.gate"] = (config["num_experts"], size)
    return found


def write(folder, config, pack, scales):
    tensors = {"model.embed_tokens.weight": torch.ones(config["vocab_size"], config["hidden_size"]), "model.norm.weight": torch.ones(config["hidden_size"])}
    for name, (lines, columns) in linears(config).items():
        if name == "lm_head" or name.endswith("mlp.gate") or (pack == "experts" and ".self_attn." in name):
            tensors[f"{name}.weight"] = torch.ones(lines, columns)
        else:
            tensors |= {f"{name}.weight_packed": torch.full((lines, columns // 8), 0x12345678, dtype=torch.int32),
                        f"{name}.weight_scale": torch.full((lines, columns // 32), 0.125),
                        f"{name}.weight_shape": torch.tensor([lines, columns], dtype=torch.int32)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        tensors |= {f"{at}.{norm}.weight": torch.ones(config["hidden_size"]) for norm in ("input_layernorm", "post_attention_layernorm")}
        if config["model_type"].startswith("qwen3"):
            tensors |= {f"{at}.self_attn.{norm}.weight": torch.ones(config["head_dim"]) for norm in ("q_norm", "k_norm")}
        tensors |= {f"{at}.self_attn{name}": torch.tensor([value]) for name, value in scales.items()}
    is_16_bit = lambda name, tensor: tensor.is_floating_point() and name.endswith(("weight", "weight_scale"))
    save_file({name: tensor.bfloat16() if is_16_bit(name, tensor) else tensor for name, tensor in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})


def seen_of(name, pack, quantization, scales):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write(folder, CONFIGS[name], pack, scales)
        (folder / "config.json").write_text(json.dumps(CONFIGS[name] | {"quantization_config": quantization}))
        try:
            return {"loads": True, "layers": lmdeploy.observe(scratch, {})["layers"]}
        except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
            return {"loads": False, "why": refusal(error, scratch, "lmdeploy")}


def main():
    asked = {f"{name}_{pack}{'_' * bool(form)}{form}": (name, pack, declared(pack), scales) for name, pack in
             (("qwen3_moe", "experts"), ("qwen3_moe", "all"), ("llama", "all")) for form, scales in NAMES.items()}
    asked["qwen3_moe_experts_no_scheme"] = ("qwen3_moe", "experts", declared("experts", is_fp8_cache=False), {})
    asked |= {f"qwen3_moe_experts_{change}": ("qwen3_moe", "experts", declared("experts", **how), {}) for change, how in CHANGES.items()}
    cases = {}
    for case, (name, pack, quantization, scales) in asked.items():
        cases[case] = dict(config=name, quantization_config=quantization, scales=scales, seen=seen_of(name, pack, quantization, scales))
        print(case, cases[case]["seen"], flush=True)
    head = json.dumps({"engine": "lmdeploy", "version": lmdeploy.lmdeploy.__version__, "configs": CONFIGS})
    lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(row)}" for case, row in cases.items())
    pathlib.Path(sys.argv[1]).write_text(head[:-1] + ',\n"cases": {\n' + lines + "\n}}\n")


if __name__ == "__main__":
    lmdeploy.start()
    main()
    sys.stdout.flush()
    os._exit(0)
