#!/usr/bin/env python3
"""engines_c8.py KVCAL FAMILIES WHEEL_FOLDER PYTHON OUT.json [--family NAME ...]

What vLLM-Ascend does with every family's INT8 cache by channel, as kvcal writes it (`--format ascend`). FAMILIES: the checkpoints of engines_table.py, whose base,
without scales, is calibrated. WHEEL_FOLDER, PYTHON: see engines_vllm_ascend.py. Forms and answers are kept in FAMILIES/c8, so a second call goes on.
OUT.json (tests/fixtures/engines/c8_vllm_ascend.json): {"engine", "version", "families": {NAME: {"answer", "why"}}}, answers as engines_table.py says, of scales by
channel. Families of which kvcal writes no such form, and those that this vLLM does not start without the method "ascend", are not in it.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from engines_checkpoints import LAYER, RECIPES, header
from check_engine.checkpoint import unpack  # which the line before finds
from engines_table import answer_of, general

HERE = pathlib.Path(__file__).resolve().parent


def make_form(kvcal, home, target):
    if not target.exists():
        subprocess.run([kvcal, "calibrate", home / "base", "--recipe", RECIPES / "int8_kv_channel.yaml", "--dataset", home / "ids.jsonl", "--num-samples", "4",
                        "--max-seq-length", "24", "--format", "ascend", "--output", target], capture_output=True)
    return (target / "quant_model_description.json").exists()


def scales_of(folder):
    """{layer: {"k", "v"}}, a number for each channel."""
    found, (tensors, start) = {}, header(folder / "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()[start:]
    for name, entry in tensors.items():
        if name.endswith("_proj.kv_cache_scale"):
            begin, end = entry["data_offsets"]
            found.setdefault(int(LAYER.search("." + name)[1]), {})[name[-len("k_proj.kv_cache_scale")]] = unpack(data[begin:end], entry["dtype"])
    return found


def judged(options, jobs):
    listed, out = options.scratch / "jobs.json", options.scratch / "seen.jsonl"
    listed.write_text(json.dumps(jobs))
    with open(options.scratch / "log", "a") as log:
        subprocess.run([options.python, HERE / "engines_vllm_ascend.py", options.wheel, "--jobs", listed, out], stdout=log, stderr=log, check=True)
    return {seen["name"]: seen for seen in map(json.loads, out.read_text().splitlines())}


def row_of(name, folder, seen):
    answer = seen[f"{name}/c8"]
    layers = {int(layer): sides for layer, sides in answer.get("layers", {}).items()}
    said = answer_of(scales_of(folder), answer["loads"], answer.get("cache_dtype", ""), layers)
    return dict(answer=said, why=general(answer["why"])) if not answer["loads"] else dict(answer=said)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("kvcal", "families", "wheel", "python", "out"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--family", nargs="+")
    options = parser.parse_args()
    options.scratch = options.families / "c8"
    options.scratch.mkdir(exist_ok=True)
    folders = {home.name: options.scratch / home.name for home in sorted(options.families.iterdir()) if (home / "compressed-tensors").exists()
               and (not options.family or home.name in options.family)}
    folders = {name: folder for name, folder in folders.items() if make_form(options.kvcal.resolve(), options.families / name, folder)}
    jobs = [job for name, folder in folders.items() for job in (dict(name=f"{name}/base", folder=str(options.families / name / "base"), is_plain=True),
                                                                dict(name=f"{name}/c8", folder=str(folder)))]
    seen = judged(options, jobs)
    rows = json.loads(options.out.read_text())["families"] if options.out.exists() else {}
    rows |= {name: row_of(name, folder, seen) for name, folder in folders.items() if seen[f"{name}/base"]["loads"]}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    head = json.dumps(dict(engine="vllm-ascend", version=next(iter(seen.values()))["version"]))
    options.out.write_text(head[:-1] + ', "families": {\n' + lines + "\n}}\n")


if __name__ == "__main__":
    main()
