#!/usr/bin/env python3
"""scales_files.py LIGHTLLM            writes tests/fixtures/scales_files.json
   scales_files.py LIGHTLLM OUT MODEL  what the consumers hold of the files in OUT, which kvcal wrote for the checkpoint MODEL

What ONNX Runtime GenAI and LightLLM make of their files of KV scales, by their own code: the scales that they hold, or the error that they
stop with. LIGHTLLM is a clone of ModelTC/LightLLM.

- ONNX Runtime GenAI: Model.make_kv_cache_scale_initializers of the builder, on an object with the sizes of the model; no graph is made.
- LightLLM: FP8StaticPerTensorQuantMemManager and FP8StaticPerHeadQuantMemManager, whole but for the base class, which would allocate the
  cache: a class with the sizes stands in. "cuda" is the CPU. get_model_architectures is LightLLM's.

The fixture has the files that our writers must make of cases in tests/fixtures/export/cases.json ("written"), and others that the readers
must take or refuse as the consumers do. Python's json wrote them.

Versions: Python 3.11, torch 2.13, onnxruntime-genai 0.18.0, onnx-ir 1.1.0; LightLLM 87881ae (2026-08-21).
"""
import copy
import importlib.util
import json
import logging
import pathlib
import sys
import tempfile
import types

import numpy as np
import onnxruntime_genai
import torch

sys.path.insert(0, str(pathlib.Path(onnxruntime_genai.__file__).parent / "models"))
from builders.base import Model
from quantization import KV_CACHE_CALIBRATION_QMAX

logging.disable(logging.WARNING)
ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPORT = ROOT / "tests" / "fixtures" / "export"
LIGHTLLM = pathlib.Path(sys.argv[1])
ARGUMENTS = types.SimpleNamespace()
TORCH_TENSOR = torch.tensor
FLOAT32 = lambda values: [float(np.float32(value)) for value in values]


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


def source(name, path):
    spec = importlib.util.spec_from_file_location(name, LIGHTLLM / path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Sizes:
    """LightLLM's MemoryManager without the cache."""

    def __init__(self, size, dtype, head_num, head_dim, layer_num, *_):
        self.head_num, self.layer_num = head_num, layer_num


def lightllm_managers():
    for package in ("lightllm", "lightllm.utils", "lightllm.common", "lightllm.common.kv_cache_mem_manager"):
        module(package, __path__=[])
    module("lightllm.utils.log_utils", init_logger=logging.getLogger)
    module("lightllm.utils.envs_utils", get_env_start_args=lambda: ARGUMENTS)
    module("lightllm.utils.dist_utils", get_dp_world_size=lambda: 1, get_current_rank_in_dp=lambda: 0)
    module("lightllm.common.kv_cache_mem_manager.mem_manager", MemoryManager=Sizes)
    module("lightllm.common.kv_cache_mem_manager.operator", FP8StaticPerHeadQuantMemOperator=None, FP8StaticPerTensorQuantMemOperator=None)
    source("lightllm.utils.config_utils", "lightllm/utils/config_utils.py")
    managers = {}
    for kind, title in (("per_tensor", "FP8StaticPerTensorQuantMemManager"), ("per_head", "FP8StaticPerHeadQuantMemManager")):
        stem = f"fp8_static_{kind}_quant_mem_manager"
        loaded = source(f"lightllm.common.kv_cache_mem_manager.{stem}", f"lightllm/common/kv_cache_mem_manager/{stem}.py")
        managers[kind] = getattr(loaded, title)
    return managers


def text_config(model):
    config = json.loads((model / "config.json").read_text())
    return config.get("text_config", config)


def lightllm_held(managers, path, model, kind):
    config = text_config(model)
    ARGUMENTS.kv_quant_calibration_config_path, ARGUMENTS.model_dir = str(path), str(model)
    torch.tensor = lambda *values, device=None, **named: TORCH_TENSOR(*values, **named)
    try:
        heads = config["num_key_value_heads"]
        scales = managers[kind](1, None, heads, 0, config["num_hidden_layers"]).scales
    finally:
        torch.tensor = TORCH_TENSOR
    assert scales.dtype == torch.float32
    half = scales.shape[1] // 2
    return {"k": scales[:, :half].tolist(), "v": scales[:, half:].tolist()}


def genai_held(path, model, scheme):
    config = text_config(model)
    builder = Model.__new__(Model)
    builder.num_kv_heads = config["num_key_value_heads"]
    builder.head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    builder.num_layers, builder.use_paged_attention = config["num_hidden_layers"], False
    builder.input_names = {"past_key_values.key": {layer: "" for layer in range(builder.num_layers)}}
    per_channel = scheme.endswith("per_channel")
    builder.kv_cache_attrs = {"quant_scheme": scheme, "quant_mode": "PER_CHANNEL" if per_channel else "PER_TENSOR", "scales_path": str(path)}
    made = {}
    builder.make_initializer = lambda value, name: made.__setitem__(name, value)
    builder.make_kv_cache_scale_initializers()
    sides = {}
    for side in "kv":
        rows = [made[builder.get_kv_cache_scale_names(layer)["kv".index(side)]] for layer in range(builder.num_layers)]
        assert all(row.dtype == np.float32 for row in rows)
        sides[side] = [row.tolist() for row in rows]
    return sides


def is_per_channel(document):
    return np.asarray(document["scales"]["k_scales"][0]).size > 1


def held(managers, form, document, model, kind=None, path=None):
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = pathlib.Path(folder) / "file.json"
            path.write_text(json.dumps(document))
        try:
            if form == "lightllm":
                return {"held": lightllm_held(managers, path, model, kind or document["quant_type"])}
            return {"held": genai_held(path, model, kind or ("fp8_per_channel" if is_per_channel(document) else "fp8_per_tensor"))}
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}".replace(str(path), "FILE")[:160]}


def lightllm_document(case, config):
    """As LightLLM's own files of test/advanced_config have it, whose keys are asserted."""
    heads = case["args"]["strategy"] == "attn_head"
    kind = "head" if heads else "tensor"
    sample = json.loads((LIGHTLLM / f"test/advanced_config/fp8_calibration_per_{kind}/test_kv_cache_calib_per_{kind}_qwen2.5_14b.json").read_text())
    rows = [layer["k"] + layer["v"] for layer in case["layers"]]
    document = {"version": "1.0", "architectures": config["architectures"][0], "quant_type": f"per_{kind}",
                "qmin": torch.finfo(torch.float8_e4m3fn).min, "qmax": torch.finfo(torch.float8_e4m3fn).max, "num_layers": len(rows),
                "num_head": config["num_key_value_heads"], "scales_shape": [len(rows), len(rows[0])], "scales": rows}
    assert list(document) == list(sample) and all(document[key] == sample[key] for key in ("version", "quant_type", "qmin", "qmax"))
    return document


def genai_document(case, config):
    """As kv_cache_calibration.py writes it; a scale of a head is that of its channels."""
    def side(scales):
        return scales[0] if len(scales) == 1 else [scale for scale in scales for _ in range(config["head_dim"])]

    return {"scales": {f"{name}_scales": [side(layer[name]) for layer in case["layers"]] for name in "kv"},
            "qmax": KV_CACHE_CALIBRATION_QMAX["fp8"], "layer_ids": [layer["layer"] for layer in case["layers"]]}


def changed(document, change):
    document = copy.deepcopy(document)
    change(document)
    return document


def set_key(key, value):
    return lambda document: document.__setitem__(key, value)


def without(key):
    return lambda document: document.pop(key)


def swap_layers(document):
    document["layer_ids"].reverse()
    for side in document["scales"].values():
        side.reverse()


def set_scale(value, *place):
    def change(document):
        rows = document["scales"]
        for key in place[:-1]:
            rows = rows[key]
        rows[place[-1]] = value
    return change


LIGHTLLM_CHANGES = {
    "qmin": set_key("qmin", -240.0), "qmax": set_key("qmax", 240.0), "no qmax": without("qmax"), "layers": set_key("num_layers", 3),
    "kind": set_key("quant_type", "per_token"), "shape": set_key("scales_shape", [2, 3]), "no shape": without("scales_shape"),
    "row": set_scale([0.5, 0.25, 0.125], 1), "rows": lambda document: document["scales"].pop(), "text": set_scale("0.5", 0, 0),
    "integers": lambda document: document.update(qmin=-448, qmax=448),
}
GENAI_CHANGES = {
    "no layer_ids": without("layer_ids"), "layers in another order": swap_layers, "section": None,
    "layer twice": set_key("layer_ids", [0, 0]), "layer of no model": set_key("layer_ids", [0, 2]), "one layer": set_key("layer_ids", [0]),
    "no layers": set_key("layer_ids", []), "layers as text": set_key("layer_ids", ["0", "1"]), "qmax of INT8": set_key("qmax", 128.0),
    "qmax as text": set_key("qmax", "448"), "qmax of 0": set_key("qmax", 0), "no V": lambda document: document["scales"].pop("v_scales"),
    "zero": set_scale(0.0, "k_scales", 0), "negative": set_scale(-0.5, "v_scales", 1), "text": set_scale("scale", "k_scales", 1),
    "scales that qmax makes infinite": lambda document: (document.update(qmax=1e6), document["scales"].update(k_scales=[1e38, 1e38])),
    "lists of one": lambda document: document["scales"].update(k_scales=[[0.5], [[0.25]]]), "no scales": without("scales"),
    "short": lambda document: document["scales"]["k_scales"].pop(), "three": set_scale([0.5, 0.5, 0.5], "v_scales", 0),
}


def fixture(managers):
    cases = json.loads((EXPORT / "cases.json").read_text())
    rows = []

    def add(form, name, case, document, kind=None, **more):
        model = EXPORT / "source" / case["source"]
        rows.append({"format": form, "name": name, "source": case["source"], "document": document, **more,
                     **held(managers, form, document, model, kind)})

    for name in ("scales_json", "scales_json_tp2"):
        case = cases[name]
        config = text_config(EXPORT / "source" / case["source"])
        for form, make, changes in (("lightllm", lightllm_document, LIGHTLLM_CHANGES), ("onnxruntime-genai", genai_document, GENAI_CHANGES)):
            document = make(case, config)
            add(form, name, case, document, written=name)
            if name != "scales_json":
                continue
            for change, make_change in changes.items():
                other = changed(document, make_change) if make_change else {"model": document}
                add(form, change, case, other, **({"kind": "fp8_per_tensor"} if form != "lightllm" else {"kind": "per_tensor"}))
    return rows


def main():
    managers = lightllm_managers()
    if len(sys.argv) > 2:
        out, model = map(pathlib.Path, sys.argv[2:4])
        for form, name in (("lightllm", "kv_cache_calib.json"), ("onnxruntime-genai", "kv_scales.json")):
            for path in sorted(out.rglob(name)):
                print(path, json.dumps(held(managers, form, json.loads(path.read_text()), model, path=path))[:400])
        return
    rows = fixture(managers)
    for row in rows:
        assert "written" not in row or "held" in row, row
        row.pop("kind", None)
    text = ",\n".join(json.dumps(row) for row in rows)
    (ROOT / "tests" / "fixtures" / "scales_files.json").write_text(f"[\n{text}\n]\n")
    for row in rows:
        print(row["format"], row["name"], row.get("refused", "held"))


main()
