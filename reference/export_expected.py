#!/usr/bin/env python3
"""Writes tests/fixtures/export: two tiny checkpoints (one file float16, shards bfloat16), scales, and the
folders that our writers must produce from them, byte for byte, made without a line of ours: tensors by
safetensors, quantization_config by compressed-tensors, JSON by Python's json.

source/<name>/       the checkpoints
cases.json           per case: source, format, calibration, options
expected/<case>/     the output, recipe.yaml apart (it is the recipe's own form)

Versions: Python 3.11, torch 2.13, safetensors 0.8.0, compressed-tensors 0.19.0. Run: python export_expected.py
"""
import json
import pathlib
import shutil

import compressed_tensors
import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig
from safetensors.torch import load_file, save_file

assert compressed_tensors.__version__ == "0.19.0"
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "export"
LAYERS, HIDDEN, HEADS, KV_HEADS, VOCAB = 2, 8, 4, 2, 16
generator = torch.Generator().manual_seed(9)

CLASSIC = {
    "architectures": ["LlamaForCausalLM"], "_name_or_path": "tïny/☃", "model_type": "llama",
    "hidden_size": HIDDEN, "intermediate_size": 12, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": 2, "vocab_size": VOCAB,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "float16",
    "tie_word_embeddings": False, "eos_token_id": [2, 3], "initializer_range": 0.02, "attention_bias": False,
    "max_position_embeddings": 64,
}
VERSION_5 = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
    "intermediate_size": 12, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": 2, "vocab_size": VOCAB, "rms_norm_eps": 1e-06,
    "dtype": "bfloat16", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "tie_word_embeddings": False, "max_position_embeddings": 64,
}


def weights(dtype):
    def random(*shape):
        return (torch.randn(*shape, generator=generator) * 0.1).to(dtype)

    tensors = {"model.embed_tokens.weight": random(VOCAB, HIDDEN), "lm_head.weight": random(VOCAB, HIDDEN),
               "model.norm.weight": torch.ones(HIDDEN, dtype=dtype)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", 8, 8), ("self_attn.k_proj", 4, 8), ("self_attn.v_proj", 4, 8),
                                    ("self_attn.o_proj", 8, 8), ("mlp.gate_proj", 12, 8), ("mlp.up_proj", 12, 8),
                                    ("mlp.down_proj", 8, 12)):
            tensors[f"{p}{name}.weight"] = random(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{p}{name}.weight"] = torch.ones(HIDDEN, dtype=dtype)
    return tensors


def hf_json(value):
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_sources():
    single = OUT / "source" / "single"
    single.mkdir(parents=True)
    (single / "config.json").write_text(json.dumps(CLASSIC, indent=2, ensure_ascii=False) + "\n")
    save_file(weights(torch.float16), single / "model.safetensors", {"format": "pt"})
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (single / name).write_text(json.dumps({"name": name}) + "\n")
    (single / "chat_template.jinja").write_text("{{ messages }}\n")
    (single / "tokenizer.model").write_bytes(bytes(range(256)))
    # What must not come along: other weights, and what another run left.
    for name in ("pytorch_model.bin", "recipe.yaml", "kvcal_manifest.json", "kv_cache_scales.json"):
        (single / name).write_text("left over\n")

    sharded = OUT / "source" / "sharded"
    sharded.mkdir(parents=True)
    (sharded / "config.json").write_text(json.dumps(VERSION_5, indent=2) + "\n")
    (sharded / "generation_config.json").write_text("{}\n")
    tensors = weights(torch.bfloat16)
    names = sorted(tensors)
    parts = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for shard, members in parts.items():
        save_file({n: tensors[n] for n in members}, sharded / shard, {"format": "pt"})
    index = {"metadata": {"total_parameters": sum(t.numel() for t in tensors.values()),
                          "total_size": sum(t.numel() * t.element_size() for t in tensors.values())},
             "weight_map": {n: shard for shard, members in parts.items() for n in members}}
    (sharded / "model.safetensors.index.json").write_text(hf_json(index))


def scales(count, amax):
    """amax / 448 in float32, as doubles that hold exactly that."""
    return [float(np.float32(a) / np.float32(448)) for a in amax[:count]]


def layers(count, ignored=()):
    amax = {0: ([10.328125, 0.4375], [8.40625, 3.0]), 1: ([1.1, 25.7], [0.3333, 19.99])}
    return [{"layer": i, "module": f"model.layers.{i}.self_attn", "ignored": i in ignored,
             "k": scales(count, amax[i][0]), "v": scales(count, amax[i][1])} for i in range(LAYERS)]


def args(strategy, observer):
    return {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy,
            "observer": observer}


CASES = {
    "single_tensor": dict(source="single", format="compressed-tensors", args=args("tensor", None), layers=layers(1)),
    "single_head": dict(source="single", format="compressed-tensors", args=args("attn_head", "static_minmax"), layers=layers(2)),
    "single_model_dtype": dict(source="single", format="compressed-tensors", args=args("tensor", "static_minmax"),
                               layers=layers(1), scale_in_model_dtype=True),
    "single_ignored": dict(source="single", format="compressed-tensors", args=args("tensor", "minmax"), layers=layers(1, {1})),
    "sharded_tensor": dict(source="sharded", format="compressed-tensors", args=args("tensor", "static_minmax"), layers=layers(1)),
    "sharded_head_model_dtype": dict(source="sharded", format="compressed-tensors", args=args("attn_head", None),
                                     layers=layers(2), scale_in_model_dtype=True),
    "single_tgi": dict(source="single", format="tgi", args=args("tensor", None), layers=layers(1)),
    "single_tgi_ignored": dict(source="single", format="tgi", args=args("tensor", None), layers=layers(1, {0})),
    "sharded_tgi_head": dict(source="sharded", format="tgi", args=args("attn_head", None), layers=layers(2)),
    "single_tgi_fnuz": dict(source="single", format="tgi", args=args("tensor", None), layers=layers(1), kv_format="e4m3fnuz"),
    "single_modelopt": dict(source="single", format="modelopt", args=args("tensor", None), layers=layers(1)),
    "sharded_modelopt_head_ignored": dict(source="sharded", format="modelopt", args=args("attn_head", None), layers=layers(2, {0})),
    "single_quark_ignored": dict(source="single", format="quark", args=args("tensor", None), layers=layers(1, {1})),
    "sharded_quark_head": dict(source="sharded", format="quark", args=args("attn_head", None), layers=layers(2)),
    "scales_json": dict(source="single", format="scales-json", args=args("tensor", None), layers=layers(1)),
    "scales_json_tp2": dict(source="sharded", format="scales-json", args=args("attn_head", None), layers=layers(2), tp_size=2),
}


def quantization_config(case):
    """As ModelCompressor.update_config puts it together."""
    config = QuantizationConfig(
        config_groups={}, quant_method="compressed-tensors", kv_cache_scheme=QuantizationArgs(**case["args"]),
        format="dense", quantization_status="compressed",
        # TGI wants to find every Linear: here, where no group has it.
        ignore=[layer["module"] for layer in case["layers"] if layer["ignored"]] + ["Linear"])
    return {"version": compressed_tensors.__version__, "quant_method": "compressed-tensors", "sparsity_config": {},
            "transform_config": {}, **config.model_dump(exclude=["quant_method"])}


def modelopt_layers(case):
    """Where some layers keep 16 bits: as ModelOpt 0.48.0rc1's quant_utils.py (get_quant_config) lists the others."""
    if not any(layer["ignored"] for layer in case["layers"]):
        return {}
    return {"kv_cache_quantized_layers": {layer["module"]: {"quant_algo": "FP8"} for layer in case["layers"] if not layer["ignored"]},
            "kv_cache_schema_version": 1}


def modelopt_version(case):
    return "0.48.0rc1" if modelopt_layers(case) else "0.47.0"


def modelopt_config(case):
    """The keys of ModelOpt 0.47's (0.48.0rc1's) convert_hf_config.py that readers ask for."""
    return {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["*"],
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}, **modelopt_layers(case),
            "producer": {"name": "modelopt", "version": modelopt_version(case)}}


def modelopt_file(case):
    return {"producer": {"name": "modelopt", "version": modelopt_version(case)},
            "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*"], **modelopt_layers(case)}}


def quark_config():
    """As AMD Quark 0.13 exports KV scales alone, but for exclude."""
    outputs = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "symmetric": None, "ch_axis": None,
               "group_size": None, "observer_cls": "PerTensorMinMaxObserver", "round_method": "half_even", "scale_type": "float"}
    nothing = {"bias": None, "input_tensors": None, "output_tensors": None, "target_device": None, "weight": None}
    return {"quant_method": "quark", "quant_mode": "eager_mode", "algo_config": None, "exclude": [r"re:.*(?<!\.attn)$"],
            "export": {"kv_cache_group": ["*k_proj", "*v_proj"], "min_kv_scale": 0.0, "pack_method": "reorder",
                       "weight_format": "real_quantized", "weight_merge_groups": None},
            "global_quant_config": nothing, "layer_type_quant_config": {},
            "layer_quant_config": {name: {**nothing, "output_tensors": outputs} for name in ("*k_proj", "*v_proj")}}


def scale_tensors(case, dtype):
    tensors = {}
    for layer in case["layers"]:
        if layer["ignored"]:
            continue
        if case["format"] == "tgi":
            tensors[layer["module"] + ".kv_scale"] = torch.tensor(max(layer["k"] + layer["v"]), dtype=torch.float32)
            continue
        if case["format"] in ("modelopt", "quark"):
            for name in "kv":
                suffix = f"{name}_scale" if case["format"] == "modelopt" else "output_scale"
                tensors[f"{layer['module']}.{name}_proj.{suffix}"] = torch.tensor(max(layer[name]), dtype=torch.float32)
            continue
        for name in "kv":
            shape = [-1, 1, 1] if case["args"]["strategy"] == "attn_head" else [1]
            tensors[f"{layer['module']}.{name}_scale"] = torch.tensor(layer[name]).reshape(shape).to(dtype)
    return tensors


def write_weights(source, folder, added):
    if (source / "model.safetensors").exists():
        save_file({**load_file(source / "model.safetensors"), **added}, folder / "model.safetensors", {"format": "pt"})
        return
    for shard in source.glob("model-*.safetensors"):
        shutil.copyfile(shard, folder / shard.name)
    save_file(added, folder / "model-kv-scales.safetensors", {"format": "pt"})
    index = json.loads((source / "model.safetensors.index.json").read_text())
    index["metadata"]["total_parameters"] += sum(t.numel() for t in added.values())
    index["metadata"]["total_size"] += sum(t.numel() * t.element_size() for t in added.values())
    index["weight_map"].update({name: "model-kv-scales.safetensors" for name in added})
    (folder / "model.safetensors.index.json").write_text(hf_json(index))


def heads_of(scales, rank, ranks):
    """What a rank holds of the heads' scales: all of a tensor's one."""
    count = len(scales) // ranks if len(scales) > 1 else 1
    return scales[rank * count:(rank + 1) * count] if len(scales) > 1 else scales


def write_case(name, case):
    source, folder = OUT / "source" / case["source"], OUT / "expected" / name
    folder.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    if case["format"] == "scales-json":
        ranks = case.get("tp_size", 1)
        document = {"model_type": config["model_type"], "kv_cache": {
            "dtype": "float8_e4m3fn", "scaling_factor": {str(rank): {
                str(layer["layer"]): max(heads_of(layer["k"], rank, ranks) + heads_of(layer["v"], rank, ranks))
                for layer in case["layers"]} for rank in range(ranks)}}}
        (folder / "kv_cache_scales.json").write_text(json.dumps(document, indent=4) + "\n")
        return
    for sidecar in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.model"):
        if (source / sidecar).exists():
            shutil.copyfile(source / sidecar, folder / sidecar)
    model_dtype = torch.float16 if case["source"] == "single" else torch.bfloat16
    write_weights(source, folder, scale_tensors(case, model_dtype if case.get("scale_in_model_dtype") else torch.float32))
    if case["format"] == "tgi":
        config["kv_cache_torch_dtype"] = "float8_" + case.get("kv_format", "e4m3fn")
    else:
        make = {"modelopt": modelopt_config, "quark": lambda case: quark_config()}.get(case["format"], quantization_config)
        config["quantization_config"] = make(case)
        if case["format"] == "modelopt":
            (folder / "hf_quant_config.json").write_text(json.dumps(modelopt_file(case), indent=4) + "\n")
        ignored = [str(layer["layer"]) for layer in case["layers"] if layer["ignored"]]
        if ignored:
            (folder / "vllm.yaml").write_text("# For: vllm serve FOLDER --config FOLDER/vllm.yaml\nkv-cache-dtype: fp8\n"
                                              f"kv-cache-dtype-skip-layers: [{', '.join(ignored)}]\n")
    with open(folder / "config.json", "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)


def main():
    for name in ("source", "expected"):
        shutil.rmtree(OUT / name, ignore_errors=True)
    write_sources()
    for name, case in CASES.items():
        write_case(name, case)
    (OUT / "cases.json").write_text(json.dumps(CASES, indent=1) + "\n")


main()
