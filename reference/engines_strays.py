#!/usr/bin/env python3
"""engines_strays.py FAMILIES ENGINE=PYTHON OUT.json [--family NAME ...]

What an engine makes of a tensor for which the model has no place, in every family. FAMILIES: the checkpoints of engines_table.py, whose base, without scales,
gets a tensor "stray.weight" in its first layer. OUT.json (tests/fixtures/engines/
strays_RECORDS.json): {"engine", "version", "refused": [families whose loader stops there], "passed": [families that load with it]}. Families that do not load
without it are in neither. Of families that were not named OUT.json keeps what it has.
"""
import json
import pathlib
import re
import shutil
import tempfile

from engines_checkpoints import add_numbers, header
from engines_names import homes_of, parse
from engines_table import run_judge

PLACE = re.compile(r"(.*?\.\d+)\..*k_scale$")


def add_stray(home, target):
    layers = [place[1] for place in map(PLACE.match, header(home / "compressed-tensors" / "model.safetensors")[0]) if place]
    if not layers:
        return False
    shutil.copytree(home / "base", target)
    add_numbers(target / "model.safetensors", {f"{min(layers)}.stray.weight": 1.0})
    return True


def main():
    families, engine, python, out, options = parse(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        jobs, scratch = [], pathlib.Path(scratch)
        for home in homes_of(families, options.families):
            if not (home / "compressed-tensors" / "model.safetensors").exists():
                continue
            if not add_stray(home, scratch / home.name):
                continue
            jobs += [{"name": f"{home.name}/base", "folder": str(home / "base")}, {"name": f"{home.name}/stray", "folder": str(scratch / home.name)}]
        seen = run_judge(scratch, jobs, python, engine, "strays")
    found = {"refused": [], "passed": []}
    if options.families and out.exists():
        before = json.loads(out.read_text())
        found = {outcome: [name for name in before[outcome] if name not in options.families] for outcome in found}
    for job in jobs:
        name, _, kind = job["name"].partition("/")
        if kind == "stray" and seen[f"{name}/base"]["loads"]:
            found["passed" if seen[job["name"]]["loads"] else "refused"].append(name)
    version = next(answer["version"] for answer in seen.values() if answer["version"])
    out.write_text(json.dumps(dict(engine=engine.partition("@")[0], version=version) | {outcome: sorted(names) for outcome, names in found.items()}, indent=0) + "\n")


if __name__ == "__main__":
    main()
