"""The checkpoints of engines_table.py: each family of tests/fixtures/models in every form that kvcal writes, and in some that others write."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import engines_judge  # noqa: F401  first: it finds check_engine
from check_engine.checkpoint import LAYER, header, read_scales, read_sides  # noqa: F401  others import them from here
from engines_families import CROSS_LAYERS, MODELS, OUTSIDE, SAME_AS, config_of
from engines_processors import add_processor

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"
RECIPE = {"compressed-tensors": "fp8_kv_tensor.yaml", "head": "fp8_kv_head.yaml", "weights": "fp8_w8a8_kv.yaml", "attention": "fp8_attention.yaml"}
# Not written by kvcal: other configurations and names that engines may take, of the scales of compressed-tensors.
# ignore-none: as llm-compressor writes it; quark-own: Quark's names where kvcal writes plain ones; names-v5: of multimodal checkpoints, as
# transformers 5 writes them.
TRIED = {"ignore-none": "compressed-tensors", "ignore-all": "compressed-tensors", "modelopt-plain": "modelopt", "quark-plain": "quark",
         "quark-own": "quark", "names-v5": "compressed-tensors"}
# form: (the form it is converted from, kvcal convert's --format)
CONVERTED = {form: ("compressed-tensors", form) for form in
             ("modelopt", "quark", "tgi", "scales-json", "compressed-tensors+tgi", "compressed-tensors+modelopt", "compressed-tensors+scales-json")}
CONVERTED |= {f"weights-{form}": ("weights", form) for form in ("fp8", "modelopt", "quark")}


def kvcal(options, *arguments):
    return subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)


def make_family(options, name, forms=(*RECIPE, *CONVERTED, *TRIED)):
    """Folders SCRATCH/NAME/FORM, those of forms that kvcal writes; a refusal of kvcal is in FORM.refused."""
    home = options.scratch / name
    if (home / "made").exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    config = config_of(name)
    (home / "config.json").write_text(json.dumps(config))
    made = kvcal(options, "synth", home / "base", "--config", home / "config.json", "--seed", 1)
    if made.returncode:
        raise SystemExit(f"{name}: {made.stderr}")
    add_other_parts(home / "base" / "model.safetensors", name)
    whole = config.get("thinker_config", config)  # of Qwen's Omni models
    vocab = whole.get("text_config", whole)["vocab_size"]
    add_processor(home / "base", SAME_AS.get(name, name), vocab)
    ids = [[(31 * i * i + 7 * j * j + 13 * i * j) % vocab for i in range(24)] for j in range(4)]
    (home / "ids.jsonl").write_text("".join(json.dumps({"input_ids": line}) + "\n" for line in ids))
    for form, recipe in RECIPE.items():
        if form not in forms:
            continue
        note(home, form, kvcal(options, "calibrate", home / "base", "--recipe", RECIPES / recipe, "--dataset", home / "ids.jsonl",
                               "--num-samples", 4, "--max-seq-length", 24, "--reproducible", "--output", home / form))
    for form, (source, to) in CONVERTED.items():
        if form in forms and (home / source).exists():
            note(home, form, kvcal(options, "convert", home / source, "--format", to, "--output", home / form))
    for form, source in TRIED.items():
        if form not in forms:
            continue
        if form == "names-v5" and not any(name.startswith("language_model.model.") for name in header(home / "base" / "model.safetensors")[0]):
            continue
        if (home / source / "config.json").exists() and (home / "compressed-tensors").exists():
            try_form(home, form, source)
    (home / "made").touch()


def make_families(options):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda name: make_family(options, name), options.families):
            pass  # raises what it raised


def add_other_parts(path, family):
    """What a multimodal fixture holds beside its text model (a vision tower), which synth leaves out and engines ask for."""
    fixture, layer = MODELS / family, CROSS_LAYERS.get(family, "none")
    if not (fixture / "model.safetensors").exists():
        return
    (ours, our_start), (theirs, start) = header(path), header(fixture / "model.safetensors")
    others = {name: entry for name, entry in theirs.items() if (re.search(OUTSIDE, name) or name.startswith(layer)) and name not in ours}
    if not others:
        return
    data, added = path.read_bytes()[our_start:], (fixture / "model.safetensors").read_bytes()[start:]
    for name, entry in others.items():
        begin, end = entry["data_offsets"]
        ours[name] = entry | {"data_offsets": [len(data), len(data) + end - begin]}
        data += added[begin:end]
    write_tensors(path, ours, data)


def write_tensors(path, entries, data):
    """A safetensors file of a header's entries and the bytes that they speak of."""
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def add_numbers(path, numbers):
    """More tensors in a safetensors file, {name: its only element, in float32}."""
    entries, start = header(path)
    data = path.read_bytes()[start:]
    for name, number in numbers.items():
        entries[name] = dict(dtype="F32", shape=[1], data_offsets=[len(data), len(data) + 4])
        data += struct.pack("<f", number)
    write_tensors(path, entries, data)


def keep_tensors(path, is_kept):
    """Takes the others out of a safetensors file."""
    entries, start = header(path)
    data, kept = path.read_bytes()[start:], b""
    left = {"__metadata__": entries.pop("__metadata__")} if "__metadata__" in entries else {}
    for name, entry in entries.items():
        if is_kept(name):
            begin, end = entry["data_offsets"]
            left[name] = entry | {"data_offsets": [len(kept), len(kept) + end - begin]}
            kept += data[begin:end]
    write_tensors(path, left, kept)


def try_form(home, form, source):
    """source's configuration, changed or with the names of other tensors than kvcal's."""
    tensors = home / (source if form == "quark-own" else "compressed-tensors")
    if form == "quark-own" and not has_plain_names(tensors):
        return
    shutil.copytree(tensors, home / form)
    config = json.loads((home / source / "config.json").read_text())
    if form.startswith("ignore"):
        config["quantization_config"]["ignore"] = {"ignore-none": [], "ignore-all": ["re:.*"]}[form]
    if form in RENAMED:
        rename(home / form / "model.safetensors", RENAMED[form])
    (home / form / "config.json").write_text(json.dumps(config))
    if (home / source / "hf_quant_config.json").exists():
        shutil.copy(home / source / "hf_quant_config.json", home / form)


def has_plain_names(folder):
    return any(name.endswith((".self_attn.k_scale", ".mixer.k_scale")) for name in read_scales(folder)[1])


def name_v5(name):
    if name.startswith("language_model.lm_head"):
        return name.removeprefix("language_model.")
    return "model." + name.replace("language_model.model.", "language_model.", 1)


def name_quark(name):
    return re.sub(r"\.(k|v)_scale$", r".\1_proj.output_scale", name)


RENAMED = {"names-v5": name_v5, "quark-own": name_quark}


def rename(path, name_of):
    tensors, start = header(path)
    write_tensors(path, {name if name == "__metadata__" else name_of(name): entry for name, entry in tensors.items()}, path.read_bytes()[start:])


def note(home, form, done):
    if done.returncode:
        (home / f"{form}.refused").write_text(done.stderr.strip().splitlines()[-1])
