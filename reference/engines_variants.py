"""What the engines_*.py scripts share: one tiny Llama, variants of its KV scales and configurations, good and broken, and the
loop that records what an engine makes of each. VARIANTS are those of engines_ENGINE.py OUT.json; with --answers before OUT.json it
holds the answers alone: {"engine", "version", "variants": {name: what is "seen" above}}; with --habits so of those of
engines_habits.py, with --keys of engines_keys.py.

A variant names its tensors beside the weights, its quantization_config (and hf_quant_config.json), and what the engine is told.
Values of layer l: K (l + 1) / 37, V (l + 1) / 41, in float32 unless the variant says otherwise: no powers of two, so a
rounding shows.
"""
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import save_file

from engines_judge import forget_model, refusal

LAYERS, KV_HEADS, HEADS, HEAD_DIM, HIDDEN, MLP, VOCAB = 3, 2, 4, 32, 128, 64, 96
CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN, num_hidden_layers=LAYERS,
              num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, intermediate_size=MLP,
              vocab_size=VOCAB, max_position_embeddings=64, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
              torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2, rope_theta=10000.0)
ARGS = dict(actorder=None, block_structure=None, dynamic=False, group_size=None, num_bits=8, observer=None,
            observer_kwargs={}, scale_dtype=None, strategy="tensor", symmetric=True, type="float", zp_dtype=None)
LINEARS = [f"{part}_proj" for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")]


def module(layer):
    return f"model.layers.{layer}.self_attn"


def ct(**scheme):
    return dict(config_groups={}, format="dense", global_compression_ratio=None, ignore=scheme.pop("ignore", []),
                kv_cache_scheme=ARGS | scheme, quant_method="compressed-tensors", quantization_status="compressed",
                sparsity_config={}, transform_config={}, version="0.19.0")


def value(layer, side):
    return (layer + 1) / {"k": 37, "v": 41, "q": 43}[side]


def scales(names="{m}.{s}_scale", layers=range(LAYERS), sides="kv", shape=(1,), dtype=torch.float32, at=value):
    """Tensors by name; heads of one layer differ by a factor."""
    made = {}
    for layer in layers:
        for side in sides:
            count = torch.Size(shape).numel()
            values = torch.tensor([at(layer, side) * (1 + head / 7) for head in range(count)], dtype=torch.float32)
            made[names.format(m=module(layer), s=side)] = values.to(dtype).reshape(shape)
    return made


def quark(exclude):
    fp8 = dict(dtype="fp8_e4m3", qscheme="per_tensor", is_dynamic=False, symmetric=None)
    entry = dict(input_tensors=None, weight=None, bias=None, target_device=None)
    return dict(quant_method="quark", algo_config=None, exclude=exclude,
                export=dict(kv_cache_group=["*k_proj", "*v_proj"], min_kv_scale=0.0, pack_method="reorder",
                            weight_format="real_quantized", weight_merge_groups=None),
                global_quant_config=entry | dict(output_tensors=None),
                layer_quant_config={"*k_proj": entry | dict(output_tensors=fp8), "*v_proj": entry | dict(output_tensors=dict(fp8))},
                layer_type_quant_config={}, quant_mode="eager_mode")


def fp8():
    ignored = [f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in LINEARS] + ["lm_head"]
    return dict(quant_method="fp8", activation_scheme="static", ignored_layers=ignored, kv_cache_scheme="static")


def modelopt(**quantization):
    return dict(producer=dict(name="modelopt", version="0.47.0"),
                quantization=dict(quant_algo="FP8", kv_cache_quant_algo="FP8", exclude_modules=["*"]) | quantization)


MODELOPT = "{m}.{s}_proj.{s}_scale"
OUTPUT = "{m}.{s}_proj.output_scale"
ZEROS = {f"{module(layer)}.{side}_zero_point": torch.zeros(1) for layer in range(LAYERS) for side in "qkv"}


def without(tensors, *names):
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def merged(layer, _):
    return value(layer, "k")


KV_SCALE = scales("{m}.kv_scale", sides="k", at=lambda layer, side: (layer + 1) / 31)
VARIANTS = {
    "ct": dict(quantization_config=ct(), tensors=scales()),
    "ct_scalar_shape": dict(quantization_config=ct(), tensors=scales(shape=())),
    "ct_f16": dict(quantization_config=ct(), tensors=scales(dtype=torch.float16)),
    "ct_bf16_tied": dict(quantization_config=ct(), tensors=scales(dtype=torch.bfloat16), config=dict(tie_word_embeddings=True)),
    "ct_v_missing": dict(quantization_config=ct(), tensors=without(scales(), f"{module(1)}.v_scale")),
    "ct_layer_missing": dict(quantization_config=ct(), tensors=scales(layers=(0, 1))),
    "ct_ignored_layer": dict(quantization_config=ct(ignore=["re:.*layers.2.self_attn$"]), tensors=scales(layers=(0, 1))),
    "ct_k_only": dict(quantization_config=ct(), tensors=scales(sides="k")),
    "ct_v_only": dict(quantization_config=ct(), tensors=scales(sides="v")),
    "ct_misnamed": dict(quantization_config=ct(), tensors=scales(layers=(0, 1)) | scales("{m}.{s}ey_scale", layers=(2,))),
    "ct_kv_scale_only": dict(quantization_config=ct(), tensors=KV_SCALE),
    "ct_and_kv_scale": dict(quantization_config=ct(), tensors=scales() | KV_SCALE, config=dict(kv_cache_torch_dtype="float8_e4m3fn")),
    "ct_modelopt_names": dict(quantization_config=ct(), tensors=scales(MODELOPT, shape=())),
    "ct_output_scale": dict(quantization_config=ct(), tensors=scales(OUTPUT)),
    "ct_vllm_names": dict(quantization_config=ct(), tensors=scales("{m}.attn.{s}_scale")),
    "ct_unknown_layer": dict(quantization_config=ct(), tensors=scales(layers=range(LAYERS + 1))),
    "ct_q_and_zero_points": dict(quantization_config=ct(), tensors=scales(sides="qkv") | ZEROS),
    "ct_attn_head": dict(quantization_config=ct(strategy="attn_head"), tensors=scales(shape=(KV_HEADS, 1, 1))),
    "ct_attn_head_flat": dict(quantization_config=ct(strategy="attn_head"), tensors=scales(shape=(KV_HEADS,))),
    "ct_attn_head_of_one": dict(quantization_config=ct(strategy="attn_head"), tensors=scales()),
    "ct_heads_for_tensor": dict(quantization_config=ct(), tensors=scales(shape=(KV_HEADS, 1, 1))),
    "ct_one_by_one": dict(quantization_config=ct(), tensors=scales(shape=(1, 1, 1))),
    "ct_zero_and_negative": dict(quantization_config=ct(), tensors=scales(at=lambda layer, side: 0.0 if side == "k" else -0.5)),
    "ct_not_a_number": dict(quantization_config=ct(), tensors=scales(at=lambda layer, side: float("nan"))),
    "ct_no_scheme": dict(quantization_config=ct() | dict(kv_cache_scheme=None), tensors=scales()),
    "ct_no_scheme_fp8": dict(quantization_config=ct() | dict(kv_cache_scheme=None), tensors=scales(), kv_cache_dtype="fp8"),
    "ct_fp8": dict(quantization_config=ct(), tensors=scales(), kv_cache_dtype="fp8_e4m3"),
    "ct_bfloat16": dict(quantization_config=ct(), tensors=scales(), kv_cache_dtype="bfloat16"),
    "ct_e5m2": dict(quantization_config=ct(), tensors=scales(), kv_cache_dtype="fp8_e5m2"),
    "ct_int8": dict(quantization_config=ct(type="int"), tensors=scales()),
    "ct_asymmetric": dict(quantization_config=ct(symmetric=False), tensors=scales()),
    "ct_channel": dict(quantization_config=ct(strategy="channel"), tensors=scales()),
    "ct_dynamic": dict(quantization_config=ct(dynamic=True), tensors={}),
    "ct_fnuz": dict(quantization_config=ct(), tensors=scales(), rocm=True),
    "plain": dict(tensors={}),
    "plain_fp8": dict(tensors={}, kv_cache_dtype="fp8"),
    "plain_scales": dict(tensors=scales()),
    "plain_kv_scale": dict(tensors=KV_SCALE, config=dict(kv_cache_torch_dtype="float8_e4m3fn"), kv_cache_dtype="fp8"),
    "modelopt": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, shape=())),
    "modelopt_null_algo": dict(hf_quant_config=modelopt(quant_algo=None, exclude_modules=[]), tensors=scales(MODELOPT, shape=())),
    "modelopt_config": dict(quantization_config=dict(quant_method="modelopt", quant_algo="FP8", ignore=["*"], config_groups={},
                                                     kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float")),
                            tensors=scales(MODELOPT, shape=())),
    "modelopt_no_kv_algo": dict(hf_quant_config=modelopt(kv_cache_quant_algo=None), tensors=scales(MODELOPT, shape=())),
    "modelopt_k_only": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, sides="k", shape=())),
    "modelopt_v_only": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, sides="v", shape=())),
    "modelopt_layer_missing": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, layers=(0, 1), shape=())),
    "modelopt_no_scales": dict(hf_quant_config=modelopt(), tensors={}),
    "modelopt_short_names": dict(hf_quant_config=modelopt(), tensors=scales()),
    "modelopt_fused_names": dict(hf_quant_config=modelopt(), tensors=scales("{m}.qkv_proj.{s}_scale")),
    "modelopt_output_scale": dict(hf_quant_config=modelopt(), tensors=scales(OUTPUT)),
    "modelopt_heads": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, shape=(KV_HEADS,))),
    "modelopt_fnuz": dict(hf_quant_config=modelopt(), tensors=scales(MODELOPT, shape=()), rocm=True),
    "fp8": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8"),
    "fp8_auto": dict(quantization_config=fp8(), tensors=scales()),
    "fp8_kv_scale": dict(quantization_config=fp8(), tensors=KV_SCALE, kv_cache_dtype="fp8"),
    "fp8_output_scale": dict(quantization_config=fp8(), tensors=scales(OUTPUT), kv_cache_dtype="fp8"),
    "fp8_v_only": dict(quantization_config=fp8(), tensors=scales(sides="v"), kv_cache_dtype="fp8"),
    "fp8_one_v_missing": dict(quantization_config=fp8(), tensors=without(scales(), f"{module(1)}.v_scale"), kv_cache_dtype="fp8"),
    "fp8_zero": dict(quantization_config=fp8(), tensors=scales(at=lambda layer, side: 0.0), kv_cache_dtype="fp8"),
    "fp8_fnuz": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8", rocm=True),
    "fp8_kv_scale_fnuz": dict(quantization_config=fp8(), tensors=KV_SCALE, kv_cache_dtype="fp8", rocm=True),
    "fp8_e5m2": dict(quantization_config=fp8(), tensors=scales(), kv_cache_dtype="fp8_e5m2"),
    "quark": dict(quantization_config=quark([]), tensors=scales(OUTPUT, at=merged)),
    "quark_excluded": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT, at=merged)),
    "quark_excluded_fp8": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(OUTPUT, at=merged),
                               kv_cache_dtype="fp8"),
    "quark_fp8_names": dict(quantization_config=quark(["re:.*_proj$", "lm_head"]), tensors=scales(), kv_cache_dtype="fp8"),
}


def weights(tied, more=None, dtype="bfloat16"):
    """more: {name: shape} beside those of the Llama."""
    torch.manual_seed(7)
    sizes = {"self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
             "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
             "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP)}
    made = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        made["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        made |= {f"model.layers.{layer}.{name}.weight": size for name, size in sizes.items()}
        made |= {f"model.layers.{layer}.{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    made |= more or {}
    return {name: (torch.randn(size, dtype=torch.bfloat16) * 0.05).to(getattr(torch, dtype)) for name, size in made.items()}


def config_of(variant):
    config = CONFIG | variant.get("config", {}) | variant.get("raw", {})
    if "quantization_config" in variant:
        config = config | {"quantization_config": variant["quantization_config"]}
    return {key: value for key, value in config.items() if value != "absent"}


def write(folder, variant):
    config = config_of(variant)
    os.makedirs(folder)

    def write_json(name, value):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(value, file)

    write_json("config.json", config)
    if "hf_quant_config" in variant:
        write_json("hf_quant_config.json", variant["hf_quant_config"])
    main = "model.safetensors"
    if "index" in variant:
        main = "model-00001-of-00002.safetensors"
        write_json("model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": variant["index"]})
    own = weights(config["tie_word_embeddings"], variant.get("weights"), variant.get("weights_dtype", "bfloat16"))
    files = {main: own | variant["tensors"]} | variant.get("files", {})
    for name, tensors in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        save_file(tensors, os.path.join(folder, name), metadata={"format": "pt"})
    for name, text in variant.get("texts", {}).items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)


DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.float8_e4m3fn: "F8_E4M3",
          torch.float8_e5m2: "F8_E5M2", torch.int8: "I8", torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64", torch.bool: "BOOL"}


def as_bytes(tensors):
    return {name: dict(dtype=DTYPES[tensor.dtype], shape=list(tensor.shape),
                       bytes=bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()).hex())
            for name, tensor in tensors.items()}


def described(variant):
    """As the C++ test makes the same folder of it: tensors as bytes. Weights, which other files and an index may hold, are left out,
    but for one in the index."""
    own = set(weights(False))
    made = {key: value for key, value in variant.items() if key != "weights"} | {"tensors": as_bytes(variant["tensors"])}
    if "files" in variant:
        made["files"] = {file: as_bytes({name: tensor for name, tensor in tensors.items() if name not in own})
                         for file, tensors in variant["files"].items()}
    if "index" in variant:
        made["index"] = {name: file for name, file in variant["index"].items() if name not in own - {"lm_head.weight"}}
    return made


def run(engine, version, observe, skips=lambda variant: False):
    """sys.argv: [--answers | --habits] OUT.json [NAME...]. observe(folder, variant) gives what the engine holds, or raises what it refuses with."""
    arguments, variants = sys.argv[1:], VARIANTS
    if arguments[0] == "--habits":
        from engines_habits import HABITS
        variants = HABITS
    if arguments[0] == "--keys":
        from engines_keys import VARIANTS as variants, compact, expanded
    has_answers_alone = arguments[0].startswith("--")
    arguments = arguments[1:] if has_answers_alone else arguments
    out, names = arguments[0], arguments[1:] or list(variants)
    recorded = json.load(open(out))["variants"] if arguments[1:] and os.path.exists(out) else {}
    is_of_keys = sys.argv[1] == "--keys"
    recorded = expanded(recorded) if is_of_keys else recorded
    forget_model()
    for name in names:
        variant = variants[name]
        if skips(variant):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "model")
            write(folder, variant)
            try:
                result = {"loads": True} | observe(folder, variant)
            except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
                result = {"loads": False, "why": refusal(error, folder, engine)}
        print(name, result, flush=True)
        recorded[name] = result if has_answers_alone else described(variant) | {"seen": result}
    recorded = compact(recorded) if is_of_keys else recorded
    head = {"engine": engine, "version": version} | ({} if has_answers_alone else {"config": CONFIG})
    write_record(out, head, {name: recorded[name] for name in variants if name in recorded})


def write_record(out, head, variants):
    """A line a variant."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(variant)}" for name, variant in variants.items())
    with open(out, "w") as file:
        file.write(json.dumps(head)[:-1] + ',\n"variants": {\n' + lines + "\n}}\n")
