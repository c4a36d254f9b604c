"""What the scripts share that ask engines under which names they read KV scales of multi-token prediction layers.

Each fixture of tests/fixtures/drafts is copied with scales of its own per layer in the compressed-tensors layout, those of the
prediction layer under one name after the other ("" for none). Output: {"ENGINE": version, "drafts": {name: {"class", "names":
{"self_attn.k_scale": {"main": true, "draft": true, or what is held or the error}}}}}. "main": the main model loads with all of
its scales; "draft": the draft loads and holds what was written for it (of "": loads).
"""
import json
import os
import re
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from scale_loading import copy_with_scales

NAMES = ["", ".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale", ".mla_attn.mla_attn.{}_scale",
         ".qkv_proj.{}_scale", ".{}_proj.output_scale"]


def with_draft_scales(source, folder, form):
    """The scales written for the main model, and for the draft (None: none)."""
    wanted = copy_with_scales(source, folder)
    config = json.load(open(os.path.join(folder, "config.json")))
    count = config.get("text_config", config)["num_hidden_layers"]
    file = os.path.join(folder, "model.safetensors")
    tensors = load_file(file)
    for name in list(tensors):  # copy_with_scales takes mtp.layers.0 for layer 0
        if name.startswith("mtp.") and name.endswith("_scale"):
            del tensors[name]
    own = next(re.match(r"(.*)\.o_proj\.weight$", name)[1] for name in tensors
               if re.search(rf"^mtp\.layers\.0\.self_attn\.o_proj|layers\.{count}\.self_attn\.o_proj", name))
    held = None
    if form:
        held = (0.4375, 0.46875)
        for side, value in zip("kv", held):
            tensors[own + form.replace("{}", side)] = torch.tensor([value])
    # Without the scales of layers that copy_with_scales did not mean to mark.
    wanted = {layer: value for layer, value in wanted.items() if any(
        re.search(rf"(?<!mtp\.)layers\.{layer}\.self_attn\.k_scale$", name) for name in tensors)}
    for layer, value in wanted.items():
        for name in tensors:
            if re.search(rf"layers\.{layer}\.self_attn\.[kv]_scale$", name) and not name.startswith("mtp."):
                tensors[name] = torch.tensor([0.03125 * (2 * layer + 1 + (".v_" in name))])
    save_file(tensors, file, metadata={"format": "pt"})
    return {layer: (0.03125 * (2 * layer + 1), 0.03125 * (2 * layer + 2)) for layer in wanted}, held


def without_declaration(folder):
    """Of a checkpoint whose configuration an engine refuses: the same one without it."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    del config["quantization_config"]
    json.dump(config, open(path, "w"))
    return config


def layer_names(folder):
    """How names of the prediction layer begin, or the part that they have."""
    config = json.load(open(os.path.join(folder, "config.json")))
    return re.compile(rf"^mtp\.|layers\.{config.get('text_config', config)['num_hidden_layers']}\.")


def attempt(work, folder):
    try:
        return work()
    except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
        return f"{type(error).__name__}: {' '.join(str(error).replace(folder, 'MODEL').split())}"[:240]


def run(engine, version, tried):
    """tried(source, folder, form): what the main model and the draft do, and the draft's class."""
    folder, out = sys.argv[1:3]
    results = json.load(open(out))["drafts"] if sys.argv[3:] and os.path.exists(out) else {}
    for name in sys.argv[3:] or sorted(os.listdir(folder)):
        results[name] = {"class": None, "names": {}}
        for form in NAMES:
            with tempfile.TemporaryDirectory() as scratch:
                copy = os.path.join(scratch, "model")
                told = attempt(lambda: tried(os.path.join(folder, name), copy, form), copy)
            result, classes = told if isinstance(told, tuple) else ({"main": told}, [])
            results[name]["class"] = (classes or [results[name]["class"]])[0]
            results[name]["names"]["self_attn" + form.replace("{}", "k") if form else ""] = result
            print(name, form, result, flush=True)
        with open(out, "w") as file:
            json.dump({engine: version, "drafts": dict(sorted(results.items()))}, file, indent=1)
            file.write("\n")
    sys.stdout.flush()
    os._exit(0)
