#!/usr/bin/env python3
"""engines_names.py FAMILIES ENGINE@VERSION=PYTHON OUT [--method METHOD ...] [--family NAME ...]   or   engines_names.py --inputs OUT.json

Scales under the names of other people and engines, of every family, beside the configurations of four methods, or of those named; of the families named alone, where some are. FAMILIES: the checkpoints of
engines_table.py, of which these have all but the scales. ENGINE@VERSION=PYTHON as there, also "-"; OUT/names_RECORDS.json is written, where rows of other
families and methods stay:
{"engine", "version", "date", "families": {NAME: {METHOD: a letter for each of "names" of names.json}}}
  L loaded, r rounded, P partly, O lost, 6 16-bit, R refused, as engines_table.py says; - the model does not start without scales either; ? it is refused for one
  reason under all names: it stops at the configuration or the weights. What was not recorded has no row.
Answers are kept in FAMILIES/seen_names_ENGINE.jsonl as they come, families that people use most first: a call after one that ended early goes on, and one with "-"
tables what there is.
names.json: {"names": {NAME: tensors' name}, "methods": {METHOD: [the form of families.json whose scales are renamed; what the engine is told]}}.
In a name {m} is the attention module, {l} the layer, {s} k or v. Values of layer l: K (l + 3) / 37, V (l + 3) / 41, of names without {s} that of K.
"""
import argparse
import contextlib
import datetime
import json
import pathlib
import re
import shutil
import sys
import tempfile

from engines_checkpoints import add_numbers, header, keep_tensors
from check_engine.checkpoint import is_scale, to_float32  # which the line before finds
from engines_table import FP8, answer_of, run_judge, write_json
from engines_versions import not_run, row_of

NAMES = {"plain": "{m}.{s}_scale", "attn": "{m}.attn.{s}_scale", "modelopt": "{m}.{s}_proj.{s}_scale", "output": "{m}.{s}_proj.output_scale", "shared": "{m}.kv_scale",
         "fused": "{m}.qkv_proj.{s}_scale", "fused twice": "{m}.qkqkv_proj.{s}_scale", "cache": "{m}.{s}_cache.scale", "mla": "{m}.mla_attn.{s}_scale",
         "mqa": "{m}.attn_mqa.{s}_scale", "factor": "{m}.kv_cache_scaling_factor", "amax": "{m}.{s}_bmm_quantizer._amax", "ascend": "{m}.{s}_proj.kv_cache_scale",
         "layer": "{l}.{s}_scale", "experts": "{l}.mlp.experts.{s}_scale"}
METHODS = {"compressed-tensors": ["compressed-tensors", ""], "fp8": ["weights-fp8", "fp8"], "modelopt": ["modelopt", ""], "quark": ["quark", "fp8"]}
LETTERS = {"loaded": "L", "rounded": "r", "partly": "P", "lost": "O", "16-bit": "6", "refused": "R", "no model": "-", "refused whatever the names": "?"}
# Families in this order, then the others.
FIRST = ("llama llama4 qwen2 qwen3 qwen3_moe qwen3_next qwen3_5 qwen2_moe qwen2_5_vl qwen3_vl mistral_window ministral mixtral mistral3 gemma2 gemma3_text gemma3_multimodal gemma4_26b "
         "gpt_oss deepseek_v3 deepseek_v32 kimi_k2 glm4 glm4_moe phi3 granite granitemoe falcon_7b cohere2 olmo2 olmo3 nemotron nemotron_h exaone4 smollm3 minimax_m2").split()
PLACE = re.compile(r"(.*?\.(\d+))\.(.+)\.k_scale$")


def value(layer, side):
    return to_float32((layer + 3) / (41 if side == "v" else 37))


def modules_of(folder):
    """{layer: (the layer's name, its attention module's)} of a checkpoint of compressed-tensors."""
    found = {}
    for path in folder.glob("*.safetensors"):
        for name in header(path)[0]:
            if place := PLACE.match(name):
                found[int(place[2])] = (place[1], f"{place[1]}.{place[3]}")
    return found


def scales_of(modules, template):
    """{tensor: its number}"""
    return {template.format(m=module, l=layer, s=side): value(index, side if "{s}" in template else "k")
            for index, (layer, module) in modules.items() for side in "kv"}


@contextlib.contextmanager
def checkpoint(made):
    """The folder of a job's "made": {"of": FAMILIES/NAME, "method", "name"}."""
    families = pathlib.Path(made["of"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "model"
        shutil.copytree(families / METHODS[made["method"]][0], folder)
        keep_tensors(folder / "model.safetensors", lambda name: not is_scale(name))
        add_numbers(folder / "model.safetensors", scales_of(modules_of(families / "compressed-tensors"), NAMES[made["name"]]))
        yield str(folder)


def rank(home):
    return (FIRST.index(home.name) if home.name in FIRST else len(FIRST), home.name)


def homes_of(families, names=None):
    """The folders of these families, or of all."""
    return sorted((home for home in families.iterdir() if not names or home.name in names), key=rank)


def jobs_of(families, engine, methods, names=None):
    """By family; the first is of the model without scales."""
    left_out = not_run(engine)
    for home in homes_of(families, names):
        if home.name in left_out or not (home / "compressed-tensors").exists():
            continue
        yield dict(name=f"{home.name}/base", folder=str(home / "base"))
        for method in methods:
            form, told = METHODS[method]
            if not (home / form).exists() or (engine.startswith("transformers") and told):
                continue
            for name in NAMES:
                yield dict(name=f"{home.name}/{method}/{name}", base=f"{home.name}/base", made=dict(of=str(home), method=method, name=name),
                           kv_cache_dtype=FP8.get(engine.partition("@")[0], told) if told else "auto")


def letter(families, job, seen, base):
    if not seen["loads"] and not base["loads"]:
        return LETTERS["no model"]
    modules = modules_of(families / job["name"].split("/")[0] / "compressed-tensors")
    shared = "{s}" not in NAMES[job["made"]["name"]]
    wanted = {layer: {side: value(layer, "k" if shared else side) for side in "kv"} for layer in modules}
    layers = {int(layer): sides for layer, sides in seen.get("layers", {}).items()}
    return LETTERS[answer_of(wanted, seen["loads"], seen.get("cache_dtype", ""), layers)]


def row_of_letters(letters, reasons):
    """Of a family and a method. reasons: why it was refused, by name."""
    is_one_reason = set(letters) == {LETTERS["refused"]} and len(set(reasons)) == 1
    return LETTERS["refused whatever the names"] * len(letters) if is_one_reason else "".join(letters)


def rows_of(families, jobs, seen):
    """{family: {method: its letters}} of those with an answer for each name."""
    rows = {}
    for job in jobs:
        if "made" in job:
            rows.setdefault(job["made"]["of"], {}).setdefault(job["made"]["method"], []).append(job)
    found = {}
    for home, methods in rows.items():
        for method, asked in methods.items():
            if not all(job["name"] in seen for job in asked):
                continue
            letters = [letter(families, job, seen[job["name"]], seen[job["base"]]) for job in asked]
            found.setdefault(pathlib.Path(home).name, {})[method] = row_of_letters(letters, [seen[job["name"]].get("why") for job in asked])
    return found


def record(families, engine, python, out, options):
    jobs = list(jobs_of(families, engine, options.methods, options.families))
    seen = run_judge(families, jobs, python, engine, "names_" + engine)
    version = next(answer["version"] for answer in reversed(seen.values()) if answer["version"])
    head = dict(engine=engine, version=version, date=datetime.date.today().isoformat())
    path = out / f"names_{row_of(engine)['records']}.json"
    rows = json.loads(path.read_text())["families"] if path.exists() else {}
    for name, letters in rows_of(families, jobs, seen).items():
        rows[name] = rows.get(name, {}) | letters
    write_json(path, head, {name: {method: row[method] for method in METHODS if method in row} for name, row in rows.items()})


def parse(usage, *more):
    """Of FAMILIES ENGINE@VERSION=PYTHON OUT [--family NAME ...]: the paths, the engine, its python, and the options."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("engine")
    parser.add_argument("out", type=pathlib.Path)
    for option in ("family", *more):
        parser.add_argument(f"--{option}", dest=f"{option}s" if option != "family" else "families", nargs="+")
    options = parser.parse_args()
    engine, _, python = options.engine.partition("=")
    return options.folder, engine, python, options.out, options


def main():
    if sys.argv[1] == "--inputs":
        pathlib.Path(sys.argv[2]).write_text(json.dumps(dict(names=NAMES, methods=METHODS), indent=1) + "\n")
        return
    families, engine, python, out, options = parse(__doc__, "method")
    options.methods = options.methods or list(METHODS)
    record(families, engine, python, out, options)


if __name__ == "__main__":
    main()
