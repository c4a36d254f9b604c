#!/usr/bin/env python3
"""engines_sources.py KVCAL FAMILIES OUT.json ENGINE VERSION=PYTHON ...

Whether an engine loads what kvcal writes of quantized sources (tests/fixtures/quantized), and of families with the attention recipe, which quantizes queries,
too. FAMILIES: the checkpoints of engines_table.py. OUT.json (tests/fixtures/engines/sources_ENGINE.json): {"engine", "cases": {NAME: {"config": config.json,
"scales": {name: value}, "seen": {VERSION: true, or what it refused with}}}}; answers of other versions
stay. No forward is run.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from engines_checkpoints import RECIPES, read_sides
from engines_table import run_judge

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE.parent / "tests" / "fixtures" / "quantized"
ATTENTION = "apertus gemma2 granitemoe llama mixtral olmoe phi3 qwen3 qwen3_moe".split()


def calibrate(kvcal, scratch, name, source, recipe):
    target, ids = scratch / name, scratch / "ids.jsonl"
    ids.write_text("".join(json.dumps({"input_ids": [(31 * i * i + 7 * j * j + 13 * i * j) % 60 for i in range(16)]}) + "\n" for j in range(2)))
    arguments = ["calibrate", source, "--recipe", RECIPES / recipe, "--dataset", ids, "--num-samples", "2", "--max-seq-length", "16", "--output", target]
    for more in (["--format", "compressed-tensors"], []):
        if subprocess.run([kvcal, *arguments, *more], capture_output=True).returncode == 0:
            return target
    return None


def main():
    kvcal, families, out, engine = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    cases, before = {}, json.loads(out.read_text())["cases"] if out.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        scratch, folders = pathlib.Path(scratch), {}
        for source in sorted(SOURCES.iterdir()):
            folders[source.name] = calibrate(kvcal, scratch, source.name, source, "fp8_kv_tensor.yaml")
        for family in ATTENTION:
            folders[f"attention_{family}"] = calibrate(kvcal, scratch, f"attention_{family}", families / family / "base", "fp8_attention.yaml")
        folders = {name: folder for name, folder in folders.items() if folder and (folder / "config.json").exists()}
        for name, folder in folders.items():
            sides, shapes = read_sides(folder)
            cases[name] = dict(config=json.loads((folder / "config.json").read_text()), scales={tensor: 0.5 for tensor in sorted(shapes)},
                               seen=before.get(name, {}).get("seen", {}))
        for version, _, python in (text.partition("=") for text in sys.argv[5:]):
            jobs = [dict(name=name, folder=str(folder)) for name, folder in folders.items()]
            for name, answer in run_judge(scratch, jobs, python, engine, f"sources_{version}").items():
                cases[name]["seen"][version] = answer["loads"] or answer["why"]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    out.write_text(json.dumps(dict(engine=engine))[:-1] + ',\n"cases": {\n' + lines + "\n}}\n")


if __name__ == "__main__":
    main()
