#!/usr/bin/env python3
"""Seeds of the fuzz targets, made of the files that the tests have.

    make_seeds.py OUT      writes OUT/<target>/<seed>

What grew from them and is worth keeping lies in tests/fuzz/corpus/<target>/.
"""
import json
import pathlib
import re
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = TESTS / "fixtures"
BETWEEN = b"\n=====\n"
TEXT = "Hello world, it's 12345! \u00e9\u4e2d\U0001f600 <s>x</s>\n".encode()


def put(out, target, name, content):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def copy(out, target, paths, limit=16384):
    for path in sorted(paths):
        if path.stat().st_size <= limit:
            name = "_".join(path.relative_to(TESTS.parent).parts[1:])
            put(out, target, name, path.read_bytes())


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def variant(entry):
    """The tokenizer.json of a variant, as tests/tokenizers/tokenizer_fixtures.h makes it."""
    folder = FIXTURES / "text/tokenizers"
    result = json.loads((folder / f"base_{entry['base']}.json").read_text())
    for key, value in entry["patch"].items():
        if key == "model":
            result["model"].update(value)
        else:
            result[key] = value
    result["model"] = shrunk(result["model"])
    charsmap = json.loads((folder / "charsmap.json").read_text())
    return compact(result).replace("@charsmap", charsmap)


def shrunk(model, merges=24):
    """A BPE model with few merges, and of the vocabulary what is of one character or made by them."""
    if model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        return model
    kept = model["merges"][:merges]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in kept]
    pieces = {piece for pair in pairs for piece in [*pair, "".join(pair)]}
    vocab = {token: number for token, number in model["vocab"].items()
             if len(token) == 1 or token in pieces or token.startswith("<")}
    return {**model, "vocab": vocab, "merges": kept}


def tokenizers(out):
    folder = FIXTURES / "text/tokenizers"
    variants = json.loads((folder / "variants.json").read_text())
    variants.update(json.loads((folder / "families.json").read_text())["families"])
    for name, entry in variants.items():
        put(out, "tokenizer_json", name, variant(entry).encode() + BETWEEN + TEXT)
    copy(out, "sentencepiece", folder.glob("spm_*.model"))
    base = json.loads((folder / "base_bytelevel.json").read_text())["model"]
    base = shrunk(base)
    vocab, merges = compact(base["vocab"]), "#version: 0.2\n" + "\n".join(base["merges"])
    files = ["tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "config.json"]
    for name, entry in json.loads((folder / "vocabulary_files.json").read_text())["folders"].items():
        if "tekken.json" in entry["files"]:
            put(out, "tekken", name, compact(entry["files"]["tekken.json"]).encode() + BETWEEN + TEXT)
            continue
        parts = [vocab, merges] + [compact(entry["files"][f]) if f in entry["files"] else "" for f in files]
        put(out, "vocab_merges", name, BETWEEN.join(p.encode() for p in parts) + BETWEEN + TEXT)
    for i, row in enumerate(json.loads((folder / "regex.json").read_text())):
        put(out, "split_regex", f"regex_{i}", row[0] + "\n" + row[1])
    patterns = {part["pattern"]["Regex"] for entry in variants.values()
                for part in parts_with_pattern(entry["patch"]) if "Regex" in part["pattern"]}
    for i, pattern in enumerate(sorted(patterns)):
        put(out, "split_regex", f"split_{i}", pattern.encode() + b"\n" + TEXT)


def parts_with_pattern(value):
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), dict):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from parts_with_pattern(part)


def templates(out):
    folder = FIXTURES / "text/templates"
    copy(out, "chat_template", folder.glob("*.jinja"))
    expressions = json.loads((folder / "expressions.json").read_text())["cases"]
    for start in range(0, len(expressions), 20):
        text = "\n".join(case["template"] for case in expressions[start:start + 20] if "text" in case)
        put(out, "chat_template", f"expressions_{start}", text)


def safetensors_header(path):
    data = path.read_bytes()
    return data[8:8 + struct.unpack("<Q", data[:8])[0]]


def checkpoints(out):
    files = FIXTURES / "checkpoint"
    copy(out, "safetensors", [*(files / "files").glob("*"), *(TESTS / "checkpoint/bad").glob("*.safetensors")])
    copy(out, "shard_index", FIXTURES.rglob("model.safetensors.index.json"))
    copy(out, "npz", FIXTURES.rglob("*.npz"))
    copy(out, "config", (FIXTURES / "models").glob("*/config.json"))
    for name in ["llama", "mixtral", "gemma3_multimodal", "deepseek_v2"]:
        add_checkpoint(out, name, FIXTURES / "models" / name)
    for folder in [*(FIXTURES / "fp8").iterdir(), *(FIXTURES / "export/expected").iterdir()]:
        add_checkpoint(out, folder.name, folder)
    other_quantizers(out)
    copy(out, "scales_json", FIXTURES.rglob("kv_cache_scales.json"))
    for dtype in ["<f2", "<f4", "<f8"]:
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (2, 3), }}".encode()
        header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
        size = 6 * int(dtype[2])
        put(out, "npy", dtype[1:], b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * size)


def other_quantizers(out):
    """The tensors of compressed-tensors' checkpoints behind what other programs write in config.json."""
    def quark(**weight):
        inputs = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": weight["qscheme"] != "per_tensor"}
        return {"quant_method": "quark", "exclude": ["lm_head", "*gate"], "layer_quant_config": {}, "export": {},
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", **weight}, "input_tensors": inputs}}

    fp8 = {"quant_method": "fp8", "ignored_layers": ["lm_head"], "modules_to_not_convert": ["mlp.gate"]}
    blocks = {**fp8, "activation_scheme": "dynamic", "weight_block_size": [32, 32]}
    modelopt = {"quant_method": "modelopt", "ignore": ["lm_head*"], "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}
    for folder, configs in {
            "moe": [{**fp8, "activation_scheme": "static"}, {**modelopt, "quant_algo": "FP8"}, quark(qscheme="per_tensor")],
            "block": [blocks, {**modelopt, "quant_algo": "FP8_PB_WO"}, quark(qscheme="per_block", block_size=[32, 32])],
            "weights_only": [{**fp8, "activation_scheme": "dynamic"}, {**modelopt, "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
                             quark(qscheme="per_channel")]}.items():
        source = FIXTURES / "fp8" / folder
        config = json.loads((source / "config.json").read_text())
        header = safetensors_header(source / "model.safetensors")
        for quantization in configs:
            method = quantization["quant_method"]
            names = header.replace(b".weight_scale", b".weight_scale_inv") if quantization is blocks else header
            content = json.dumps({**config, "quantization_config": quantization}).encode() + BETWEEN + names
            put(out, "checkpoint", f"{folder}_{method}", content)


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "vocab_size": 8,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True}
SIZES = {"U8": 1, "I8": 1, "F8_E4M3": 1, "I16": 2, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}
LINEARS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
           "mlp.down_proj"]


def quantized(out):
    """A small model in every stored form; the Linears are 32 x 32."""
    for name, (config, tensors, fillings) in stored_forms().items():
        every = {"model.embed_tokens.weight": ("F16", [8, 32]), "model.norm.weight": ("F16", [32])}
        for norm in ["input_layernorm", "post_attention_layernorm"]:
            every[f"model.layers.0.{norm}.weight"] = ("F16", [32])
        for linear in LINEARS:
            every.update({f"model.layers.0.{linear}{end}": entry for end, entry in tensors.items()})
        put_quantized(out, name, {**LLAMA, "quantization_config": config}, every, fillings)
    gpt_oss(out)


def put_quantized(out, name, config, tensors, fillings):
    header, offset = {}, 0
    for tensor, (dtype, shape) in sorted(tensors.items()):
        size = SIZES[dtype]
        for side in shape:
            size *= side
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    parts = [compact(config), compact(header), json.dumps(fillings)]
    put(out, "quantized", name, BETWEEN.join(part.encode() for part in parts))


def of_compressed_tensors(format, **weights):
    args = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16, **weights}
    group = {"targets": ["Linear"], "weights": args, "input_activations": None, "output_activations": None, "format": format}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": format, "ignore": ["lm_head"],
            "config_groups": {"group_0": group}}


def stored_forms():
    """Of each form: its config, the tensors of a Linear and bytes of tensors."""
    forms = {}
    shape = {".weight_shape": "\x20" + "\0" * 7, ".g_idx": "\0", ".weight_g_idx": "\0"}
    pack, packed = of_compressed_tensors, {".weight_packed": ("I32", [32, 4]), ".weight_scale": ("F16", [32, 2]), ".weight_shape": ("I64", [2])}
    forms["packed_int4"] = pack("pack-quantized"), packed, shape
    zeros = {**packed, ".weight_zero_point": ("I32", [4, 2])}
    forms["packed_int4_zeros"] = pack("pack-quantized", symmetric=False), {**zeros, ".weight_g_idx": ("I32", [32])}, shape
    for words in [3, 4]:  # dense, and with spare bits
        three = {**packed, ".weight_packed": ("I32", [32, words]), ".weight_scale": ("F16", [32, 1])}
        forms[f"packed_int3_{words}"] = pack("pack-quantized", num_bits=3, strategy="channel", group_size=None), three, shape
    int8 = {".weight": ("I8", [32, 32]), ".weight_scale": ("BF16", [32, 1])}
    forms["int8"] = pack("int-quantized", num_bits=8, strategy="channel", group_size=None), int8, {}
    fp8 = {".weight": ("F8_E4M3", [32, 32]), ".weight_scale": ("BF16", [32, 1])}
    forms["fp8_channel"] = pack("float-quantized", num_bits=8, type="float", strategy="channel", group_size=None), fp8, {}
    fp4 = {".weight_packed": ("U8", [32, 16]), ".weight_scale": ("F8_E4M3", [32, 2]), ".weight_global_scale": ("F32", [1])}
    forms["nvfp4"] = pack("nvfp4-pack-quantized", type="float", strategy="tensor_group"), fp4, {}
    mx = {"type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}
    forms["mxfp4"] = (pack("mxfp4-pack-quantized", **mx),
                      {".weight_packed": ("U8", [32, 16]), ".weight_scale": ("U8", [32, 1])}, {})
    forms["mxfp8"] = (pack("mxfp8-quantized", **{**mx, "num_bits": 8}),
                      {".weight": ("F8_E4M3", [32, 32]), ".weight_scale": ("U8", [32, 1])}, {})
    forms["mxfp6"] = (pack("mxfp6-pack-quantized", **{**mx, "num_bits": 6}),
                      {".weight_packed": ("U8", [32, 24]), ".weight_scale": ("U8", [32, 1])}, {})
    for bits in [2, 3, 4, 8]:
        gptq = {".qweight": ("I32", [bits, 32]), ".qzeros": ("I32", [2, bits]), ".scales": ("F16", [2, 32]), ".g_idx": ("I32", [32])}
        config = {"quant_method": "gptq", "bits": bits, "group_size": 16, "desc_act": bits == 4, "sym": False,
                  "checkpoint_format": "gptq_v2" if bits == 2 else "gptq"}
        forms[f"gptq_{bits}"] = config, gptq, shape
    forms["awq"] = ({"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"},
                    {".qweight": ("I32", [32, 4]), ".qzeros": ("I32", [2, 4]), ".scales": ("F16", [2, 32])}, {})
    forms["awq_dynamic"] = ({**forms["awq"][0], "zero_point": False, "dynamic": {"-:.*up_proj": {}, "+:.*down_proj": {"group_size": 16}}},
                            forms["awq"][1], {})
    forms["awq_gemv"] = ({"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemv"},
                         {".qweight": ("I32", [32, 4]), ".qzeros": ("I32", [32, 4]), ".scales": ("F16", [32, 32])}, {})
    fast = {".qweight": ("I16", [8, 64]), ".qzeros": ("F16", [32, 32]), ".scales": ("F16", [32, 32])}
    forms["awq_gemv_fast"] = ({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemv_fast"}, fast, {})
    int4 = {".weight": ("U8", [16, 32]), ".weight_scale": ("F32", [32, 1]), ".weight_scale_2": ("F32", []), ".pre_quant_scale": ("F32", [32])}
    for algorithm in ["W4A16_AWQ", "W4A8_AWQ"]:
        forms[algorithm.lower()] = {"quant_method": "modelopt", "quant_algo": algorithm, "group_size": 32}, int4, {}
    forms.update(float_forms())
    forms.update(row_forms())
    forms.update(quark_forms())
    forms.update(bitsandbytes_forms())
    return forms


def row_forms():
    """Forms whose codes have a scale for each row or each 32 columns."""
    int8 = {".weight": ("I8", [32, 32]), ".weight_scale": ("F32", [32]), ".input_scale": ("F32", []), ".pre_quant_scale": ("F32", [32])}
    fp4 = {".weight": ("U8", [32, 16]), ".weight_scale": ("U8", [32, 1])}
    nvfp4 = {".weight": ("U8", [32, 16]), ".weight_scale": ("F8_E4M3", [32, 1]), ".weight_scale_2": ("F32", []), ".input_scale": ("F32", [])}
    mxfp8 = {".weight": ("F8_E4M3", [32, 32]), ".weight_scale_inv": ("U8", [32, 1])}
    modelopt = lambda algorithm, **more: {"quant_method": "modelopt", "quant_algo": algorithm, **more}
    return {
        "modelopt_w8a8_sq": (modelopt("W8A8_SQ_PER_CHANNEL"), int8, {}),
        "modelopt_mxfp4": (modelopt("W4A8_MXFP4_FP8", group_size=32), fp4, {}),
        "modelopt_nvfp4_fp8": (modelopt("W4A8_NVFP4_FP8", group_size=32), nvfp4, {}),
        "mxfp8_method": ({"quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32]}, mxfp8, {}),
        "w8a8_int8": ({"quant_method": "w8a8_int8", "ignore": ["re:.*gate$"]}, {key: int8[key] for key in (".weight", ".weight_scale")}, {}),
    }


def quark_forms():
    def config(dtype, qscheme, **weight):
        weight = {"dtype": dtype, "qscheme": qscheme, "is_dynamic": False, **weight}
        return {"quant_method": "quark", "exclude": [], "layer_quant_config": {}, "export": {"pack_method": "reorder"},
                "global_quant_config": {"weight": weight, "input_tensors": None}}
    int4 = {".weight": ("I32", [32, 4]), ".weight_scale": ("F32", [2, 32]), ".weight_zero_point": ("I32", [2, 4])}
    int8 = {".weight": ("I8", [32, 32]), ".weight_scale": ("F32", [32]), ".weight_zero_point": ("I8", [32])}
    fp6 = {".weight": ("U8", [32, 24]), ".weight_scale": ("U8", [32, 1])}
    groups = {"ch_axis": -1, "group_size": 16}
    return {
        "quark_int4": (config("int4", "per_group", **groups), int4, {}),
        "quark_uint4": (config("uint4", "per_group", **groups), int4, {}),
        "quark_int8": (config("int8", "per_channel", ch_axis=0), int8, {}),
        "quark_mxfp6": (config("fp6_e3m2", "per_group", group_size=32, scale_format="e8m0"), fp6, {}),
    }


def float_forms():
    scalar = {".weight": ("F8_E4M3", [32, 32]), ".weight_scale": ("F32", []), ".input_scale": ("F32", [])}
    blocks = {".weight": ("F8_E4M3", [32, 32]), ".weight_scale_inv": ("F32", [2, 2])}
    fp4 = {".weight": ("U8", [32, 16]), ".weight_scale": ("F8_E4M3", [32, 2]), ".weight_scale_2": ("F32", []), ".input_scale": ("F32", [])}
    quark = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
    return {
        "fp8_tensor": ({"quant_method": "fp8", "activation_scheme": "static"}, scalar, {}),
        "fp8_blocks": ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}, blocks, {}),
        "modelopt_fp8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, scalar, {}),
        "modelopt_nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, fp4, {}),
        "quark": ({"quant_method": "quark", "exclude": [], "layer_quant_config": {}, "export": {},
                   "global_quant_config": {"weight": quark, "input_tensors": quark}}, scalar, {}),
    }


def bitsandbytes_forms():
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [32, 32]}
    nested = {**state, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
    forms = {"bnb_int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True},
                          {".weight": ("I8", [32, 32]), ".SCB": ("F32", [32]), ".weight_format": ("U8", [])}, {".weight_format": "\0"})}
    for name, content in [("bnb_fp4", state), ("bnb_nf4", nested)]:
        text, key = compact(content), f".weight.quant_state.bitsandbytes__{name[4:]}"
        tensors = {".weight": ("U8", [512, 1]), ".weight.absmax": ("F32", [16]), ".weight.quant_map": ("F32", [16]), key: ("U8", [len(text)])}
        if content is nested:
            tensors.update({".weight.absmax": ("U8", [16]), ".weight.nested_absmax": ("F32", [1]), ".weight.nested_quant_map": ("F32", [256])})
        config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": name[4:]}
        forms[name] = config, tensors, {key: text}
    return forms


def gpt_oss(out):
    config = json.loads((FIXTURES / "quantized/gpt_oss/config.json").read_text())
    header = json.loads(safetensors_header(FIXTURES / "quantized/gpt_oss/model.safetensors"))
    tensors = {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    put_quantized(out, "gpt_oss", config, tensors, {})


def add_checkpoint(out, name, folder):
    weights = folder / "model.safetensors"
    if not weights.exists() or not (folder / "config.json").exists():
        return
    header = safetensors_header(weights)
    content = (folder / "config.json").read_bytes() + BETWEEN + header
    if len(content) <= 32768:
        put(out, "checkpoint", name, content)


def statistics(out):
    tensors, offset, header = b"", 0, {"__metadata__": {
        "format": "kvcal-statistics", "version": "2", "sha256": "0" * 64, "config": "{}", "model_path": "m", "model_sha256": "0",
        "dataset_path": "d", "dataset_sha256": "0", "sample_indices": "[0,1]", "num_tokens": "9",
        "compute_dtype": "float32", "kv_forward": "exact", "all_experts": "false"}}

    def add(name, dtype, shape, data):
        nonlocal tensors, offset
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        tensors, offset = tensors + data, offset + len(data)

    for name in ["m.k", "m.v", "m.q_proj.input"]:
        add(name + ".ranges", "F32", [2, 1, 2], struct.pack("<4f", -1, 2, -3, 4))
        add(name + ".histogram", "I64", [1, 384], struct.pack("<384q", *([0] * 383 + [5])))
    add("m.q_proj.input.tokens", "I64", [1], struct.pack("<q", 9))
    text = compact(header).encode()
    put(out, "statistics", "small", struct.pack("<Q", len(text)) + text + tensors)
    overlay = {"format": "compressed-tensors", "model_type": "llama", "num_hidden_layers": 2,
               "config": {"quantization_config": {"kv_cache_scheme": None}}}
    put(out, "overlay", "small", compact(overlay))


def resume_state(out):
    """state.json, journals and hidden states; the first byte says which (resume_state_fuzz.cc)."""
    def histogram(begin, counts):
        return struct.pack(f"<HH{len(counts)}Q", begin, len(counts), *counts)

    def ranges(count):
        return struct.pack("<Q", count) + struct.pack("<ffi", -1.0, 2.0, -1) * count

    def side(heads, samples):
        return struct.pack("<Q", heads) + histogram(70, [3, 0, 1]) * heads + ranges(heads * samples)

    def linear(role, index):
        return struct.pack("<BqfQQ", role, index, 2.5, 0, 9) + histogram(0, []) + ranges(2)

    def result(kind, body):
        return struct.pack("<IHH", 0x624f564b, 1, kind) + body

    def record(kind, layer, body):
        return struct.pack("<QIqQ", 0, kind, layer, len(body)) + body

    linears = struct.pack("<Q", 2) + linear(0, 0) + linear(1, 3)
    layer = result(1, side(2, 2) + side(2, 2) + b"\1" + side(4, 2) + linears)
    counts = struct.pack("<3Q", 1, 2, 3)
    journal = b"kvcal journal 2\n" + b"".join([
        record(1, 2, b""), record(2, 0, layer), record(3, 0, result(4, counts)),
        record(4, 0, result(2, counts + linears)), record(5, 1, layer), record(6, 2, result(3, linear(5, 0)))])
    hidden = b"".join(struct.pack("<QqqQQ", 0x31484c4143564b, 0, sample, 4, 0) + struct.pack("<4f", 1, 2, 3, 4)
                      for sample in [1, 0])
    for kind, content in [(1, journal), (2, journal), (3, hidden), (4, hidden)]:
        put(out, "resume_state", f"kind_{kind}", bytes([kind]) + content)
    for name, place in [("passes", None), ("layer", {"layer": 3, "slot": 1, "ranks": 2})]:
        state = {"format": "kvcal state", "format_version": 3, "fingerprint": {"model": "m"}, "journal_bytes": 16,
                 "hidden": place}
        put(out, "resume_state", f"state_{name}", b"\0" + compact(state).encode())


def texts(out):
    root = TESTS.parent
    copy(out, "recipe", [*(root / "recipes").glob("*.yaml"), *(FIXTURES / "recipe").rglob("*.yaml"),
                         *(TESTS / "recipe/bad").glob("*.yaml"), *(TESTS / "recipe/bad").glob("*.json")], 4096)
    examples = re.findall(r"```yaml\n(.*?)```", (root / "docs/families.md").read_text(), re.S)
    for number, example in enumerate(examples):
        put(out, "family_file", f"example_{number}", example)
    sweeps = [root / "sweeps/kv_observers.yaml", TESTS / "cli/data/sweep.yaml"]
    for path in sweeps:
        text = path.read_text()
        for name in ["tensor", "mse", "percentile", "entropy", "head"]:
            text = text.replace(f"../recipes/fp8_kv_{name}.yaml", "kv.yaml")
        put(out, "sweep", path.name, text)
    copy(out, "descriptor", [*(root / "datasets").glob("*.yaml"), *(FIXTURES / "text/datasets").rglob("*.yaml")])
    kinds = {".jsonl": 0, ".json": 1, ".txt": 2, ".csv": 4, ".tsv": 5}
    for path in sorted([*(FIXTURES / "text/datasets").rglob("*"), *(root / "tests/cli/data/chats").glob("*")]):
        if path.suffix in kinds and path.stat().st_size <= 4096:
            put(out, "dataset", path.name, bytes([kinds[path.suffix]]) + path.read_bytes())
    for i, pattern in enumerate([r".*self_attn.*", r"(a+)+$", r"model\.layers\.(\d+)\.mlp\.(gate|up)_proj",
                                 r"^(?!.*lm_head).*$", r"[^.]*\.(?P<x>[a-z]+)(?=\.)", r"(?i)LM_HEAD\b"]):
        put(out, "target_pattern", f"pattern_{i}", pattern + "\nmodel.layers.11.mlp.gate_proj")
    copy(out, "json", [*(FIXTURES / "models").glob("llama*/config.json"), *(FIXTURES / "text/datasets").rglob("*.json")],
         2048)


def main():
    out = pathlib.Path(sys.argv[1])
    for make in [tokenizers, templates, checkpoints, quantized, statistics, resume_state, texts]:
        make(out)


if __name__ == "__main__":
    main()
