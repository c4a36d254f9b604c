#!/usr/bin/env python3
"""engines_table.py KVCAL SCRATCH --engine NAME@VERSION=PYTHON ... [--family NAME ...] [--case NAME ...] [--missing] [--out DIR] [--table FILE.md]

What serving engines do with the KV scales of every family in every form that kvcal writes, by their own code, and whether `kvcal
verify` says the same. Each family is a checkpoint of kvcal synth (tests/fixtures/models/NAME/config.json, with what CONFIGS changes),
calibrated on a few tokens and converted; SCRATCH keeps the folders and the engines' answers, so a second call goes on.
NAME@VERSION=PYTHON: the judge engines_NAME.py and the python of its environment; "-" takes recorded answers alone. The version is one of
engines_versions.json, which names its answers, families_RECORDS.json, and the families that it is not asked for without --family.
--out DIR (tests/fixtures/engines) writes families.json and families_NAME.json there. Families and cases that these hold and that were not
asked for stay in them. --missing asks for those alone that
DIR's answers lack, and not for forms of which kvcal writes another checkpoint now than DIR's answers are of: these need all engines anew.

families.json, what the checkpoints were: {"configs": [..], "families": {NAME: {"model": MODEL, where it is not NAME, "config": what differs
  from models/MODEL/config.json,
  "forms": {FORM: [index of its quantization_config in configs, of its hf_quant_config.json or null, {name of scales with {} for the
  layer: [dtype, shape, [layers], of kv_scale beside k_scale: [layers with another number]]}]}}}}
families_NAME.json, the answers: {"engine", "version", "date": of the last answer (one of some families alone leaves it), "reasons": [..], "families": {NAME: {CASE: [answer, index of
  its reason or null]}}}. A case is FORM or FORM@fp8, where the engine is told an FP8 cache. Answers:
  loaded   the cache is FP8, and the attention of every layer holds the numbers of the file
  rounded  as loaded, but rounded by less than a hundredth
  partly   as loaded, but not of every layer, or other numbers
  lost     the cache is FP8, and every scale 1.0
  16-bit   the cache is not FP8
  refused  it does not start; where the model without scales does not start either, the answer is "no model" of every case
Reasons: the engine's error and where in its source it came from, or its warning; null for a loss without a word.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from engines_checkpoints import CONVERTED, LAYER, RECIPE, TRIED, kvcal, make_families, read_scales, read_sides
from check_engine.verdict import answer_of, same  # which the line before finds
from engines_families import CONFIGS, NO_FP8_WEIGHTS, SAME_AS, all_families
from engines_versions import not_run, row_of

HERE = pathlib.Path(__file__).parent
CASES = ["compressed-tensors", "compressed-tensors@fp8", "head", "modelopt", "modelopt@fp8", "quark", "quark@fp8", "tgi", "tgi@fp8",
         "scales-json@fp8", "compressed-tensors+scales-json@fp8", "compressed-tensors+tgi", "compressed-tensors+modelopt", "weights", "weights-fp8@fp8", "weights-modelopt",
         "weights-quark@fp8", "ignore-none", "ignore-all", "modelopt-plain", "quark-plain@fp8", "quark-own@fp8", "names-v5", "attention"]
FILES = {"scales-json", "compressed-tensors+scales-json"}
READS_FILE = {"sglang"}  # have an argument for kv_cache_scales.json
NOT_ASKED = {"vllm": {"compressed-tensors@fp8", "modelopt@fp8", "tgi"}, "aphrodite": {"compressed-tensors@fp8", "modelopt@fp8", "tgi"},
             "tgi": {"compressed-tensors@fp8"},
             "transformers": {case for case in CASES if "@" in case}}
FP8 = {"sglang": "fp8_e4m3", "tgi": "fp8_e4m3fn"}  # each engine's word for such a cache; others: fp8
MARKS = {"loaded": "ok", "no model": "–"}


# --- what engines and verify say of them ---

def split(case):
    form, _, told = case.partition("@")
    return form, told


def job_of(options, engine, name, case):
    form, told = split(case)
    home = options.scratch / name
    folder = home / ("base" if form == "scales-json" else form)
    job = {"name": f"{name}/{case}", "folder": str(folder), "kv_cache_dtype": FP8.get(engine.partition("@")[0], told) if told else "auto"}
    if form in FILES:
        job["scales"] = str(home / form / "kv_cache_scales.json")
    return job


def is_asked(engine, name, case):
    engine = engine.partition("@")[0]
    if (case == "weights" and name in NO_FP8_WEIGHTS.get(engine, ())) or (case == "attention" and engine != "transformers"):
        return False
    return case not in NOT_ASKED.get(engine, ()) and (engine in READS_FILE or split(case)[0] not in FILES)


def seen_file(options, engine):
    return options.scratch / f"seen_{engine}.jsonl"


def judged(options, engine, python):
    """The engine's answers by name of the job; a judge that dies is started again after the job it died of."""
    old = recorded(options.out / answers_file(engine))["families"] if options.missing else {}
    jobs = []
    for name in options.families:
        if options.is_all and name in not_run(engine):
            continue
        cases = [job_of(options, engine, name, case) for case in options.cases
                 if is_asked(engine, name, case) and (options.scratch / name / split(case)[0]).exists() and case not in old.get(name, {})
                 and not (options.missing and (name, split(case)[0]) in options.changed)]
        if cases:
            jobs += [{"name": f"{name}/base", "folder": str(options.scratch / name / "base")}, *cases]
    return run_judge(options.scratch, jobs, python, engine, engine)


def run_judge(scratch, jobs, python, engine, name):
    """Its answers by name of the job, which SCRATCH/seen_NAME.jsonl keeps."""
    listed, out = scratch / f"jobs_{name}.json", scratch / f"seen_{name}.jsonl"
    listed.write_text(json.dumps(jobs))
    out.touch()
    while True:
        seen = {answer["name"]: answer for answer in map(json.loads, out.read_text().splitlines())}
        left = [job for job in jobs if job["name"] not in seen]
        if not left or python == "-":
            return seen
        with open(scratch / f"{name}.log", "a") as log:
            judge = HERE / f"engines_{engine.partition('@')[0]}.py"
            died = subprocess.run([python, judge, "--jobs", listed, out], stdout=log, stderr=log).returncode
        if died > 0:
            raise SystemExit(f"{judge} does not run: see {scratch / name}.log")
        if died and left[0]["name"] not in out.read_text():
            with open(out, "a") as file:
                file.write(json.dumps({"name": left[0]["name"], "engine": engine, "version": "", "loads": False,
                                       "why": f"died of signal {-died}", "warnings": []}) + "\n")


def reason_of(seen, answer):
    if not seen["loads"]:
        return seen["why"]
    said = [text for text in seen["warnings"] if re.search(r"scale|not found|gnoring|not supported", text) and "LOAD REPORT" not in text]
    return said[0] if said and answer != "loaded" else None


def verified(options, engine, job, wanted):
    """verify's answer, its exit code, and the numbers by layer."""
    if engine.partition("@")[0] not in options.known:
        return "not known", None, {}
    arguments = ["verify", job["folder"], "--engine", engine, "--json"]
    if job["kv_cache_dtype"] != "auto":
        arguments += ["--kv-cache-dtype", "fp8"]
    if "scales" in job:
        arguments += ["--scales", job["scales"]]
    done = kvcal(options, *arguments)
    if not done.stdout:
        return "error: " + done.stderr.strip()[-100:], done.returncode, {}
    report = json.loads(done.stdout)
    layers = {layer["layer"]: {"k": layer["k_scale"], "v": layer["v_scale"]} for layer in report["layers"]}
    return answer_of(wanted, report["loads"], report["kv_cache_dtype"], layers), done.returncode, layers


# --- the tables ---

def compare(options, engine, python):
    """{family: {case: {"answer", "reason", "verify", "exit", "agrees"}}} and the engine's version."""
    seen = judged(options, engine, python)
    cells = [(name, case) for name in options.families for case in options.cases if f"{name}/{case}" in seen]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compared = pool.map(lambda cell: compare_cell(options, engine, *cell, seen[f"{cell[0]}/{cell[1]}"], seen.get(f"{cell[0]}/base")), cells)
        table = {name: {} for name in options.families}
        for (name, case), cell in zip(cells, compared):
            table[name][case] = cell
    return table, next((answer["version"] for answer in reversed(seen.values()) if answer["version"]), "")


def compare_cell(options, engine, name, case, answer, base):
    wanted, _ = read_scales(options.scratch / name / split(case)[0])
    layers = {int(layer): sides for layer, sides in answer.get("layers", {}).items()}
    said = answer_of(wanted, answer["loads"], answer.get("cache_dtype", ""), layers)
    reason = reason_of(answer, said)
    if said == "refused" and base and not base["loads"]:
        said, reason = "no model", base["why"]
    told, code, numbers = verified(options, engine, job_of(options, engine, name, case), wanted)
    agrees = told in ("not known", "refused" if said == "no model" else said)
    if agrees and said in ("rounded", "partly"):
        agrees = all(same(layers.get(layer, {}).get(side), numbers.get(layer, {}).get(side)) for layer in wanted for side in "kv")
    return dict(answer=said, reason=reason, verify=told, exit=code, agrees=agrees)


def print_table(engine, version, table, cases, out):
    print(f"\n## {engine} {version}\nok: loaded. A cell with two answers: the engine's, then verify's and its exit code.\n", file=out)
    print("| family | " + " | ".join(cases) + " |\n|" + " --- |" * (len(cases) + 1), file=out)
    for name, row in table.items():
        cells = []
        for case in cases:
            cell = row.get(case)
            text = "" if cell is None else MARKS.get(cell["answer"], cell["answer"])
            if cell and cell["answer"] == "lost" and cell["reason"] is None:
                text += " (silent)"
            if cell and not cell["agrees"] and cell["exit"] is not None:
                text = f"**{text}** ≠ {MARKS.get(cell['verify'], cell['verify'])}, {cell['exit']}"
            cells.append(text)
        print(f"| {name} | " + " | ".join(cells) + " |", file=out)
    all_cells = [cell for row in table.values() for cell in row.values()]
    bad = [cell for cell in all_cells if cell["exit"] == 0 and cell["answer"] in ("lost", "partly", "refused", "no model")]
    print(f"\n{len(all_cells)} cases, {sum(not cell['agrees'] for cell in all_cells)} disagree; verify's exit is 0 in {len(bad)} where scales "
          "are lost or the engine does not start.\n\nReasons:\n", file=out)
    reasons = {}
    for name, row in table.items():
        for case, cell in row.items():
            if cell["answer"] not in ("loaded", "16-bit") and cell["reason"]:
                reasons.setdefault((cell["answer"], general(cell["reason"])), []).append(f"{name}/{case}")
    for (answer, reason), where in sorted(reasons.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(where[:6]) + (f" and {len(where) - 6} more" if len(where) > 6 else "")
        print(f"- {answer}: `{reason}`: {shown}", file=out)


def general(reason):
    reason = re.sub(r" The available parameters.*?(?=( \(\w+\.py:\d+\))?$)", "", reason)
    return re.sub(r"(layers|h)\.\d+\.", r"\1.N.", reason)


class Interned:
    def __init__(self, values):
        self.values = values

    def of(self, value):
        if value is None:
            return None
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def recorded(path):
    return json.loads(path.read_text()) if path.exists() else {"families": {}}


def write_json(path, head, rows):
    """A line a family."""
    rows = dict(sorted(rows.items()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    made = path.with_suffix(f".{os.getpid()}")  # several may write the same families.json at once
    made.write_text("{" + head + '"families": {\n' + lines + "\n}}\n")
    made.replace(path)


def by_layer(found, tensors):
    made = {}
    for name, (dtype, shape) in tensors.items():
        layer = LAYER.search("." + name)
        template = name[:layer.start(1) - 1] + "{}" + name[layer.end(1) - 1:]
        made.setdefault(template, [dtype, shape, []])[2].append(int(layer[1]))
    others = [layer for layer, sides in sorted(found.items()) if sides.get("k") is not None and sides.get("kv", sides["k"]) != sides["k"]]
    return {template: [dtype, shape, sorted(layers), *([others] if others and template.endswith(".kv_scale") else [])]
            for template, (dtype, shape, layers) in made.items()}


def write_inputs(options):
    """options.changed: (family, form) of which families.json holds another checkpoint, where it is kept."""
    path = options.out / "families.json"
    old = recorded(path)
    configs, rows = Interned(old.get("configs", [])), old["families"]
    options.changed = set()
    for name in options.families:
        home = options.scratch / name
        before = rows.get(name, {}).get("forms", {})
        forms = dict(before) if options.missing else {}
        for form in [*RECIPE, *CONVERTED, *TRIED]:
            if not (home / form / "config.json").exists():
                continue
            hf_quant = home / form / "hf_quant_config.json"
            row = [configs.of(json.loads((home / form / "config.json").read_text()).get("quantization_config")),
                   configs.of(json.loads(hf_quant.read_text())) if hf_quant.exists() else None, by_layer(*read_sides(home / form))]
            forms.setdefault(form, row)
            if before.get(form, row) != row:
                options.changed.add((name, form))
        rows[name] = {"model": SAME_AS[name]} if name in SAME_AS else {}
        rows[name] |= dict(config=CONFIGS.get(name, {}), forms=forms)
    if options.changed:
        said = "not asked, as it is" if options.missing else "all engines have to be recorded again of what is"
        print(f"{said} another checkpoint now:", *sorted(f"{name}/{form}" for name, form in options.changed), file=sys.stderr)
    write_json(path, {"configs": configs.values}, rows)


def answers_file(engine):
    return f"families_{row_of(engine)['records']}.json"


def write_answers(options, engine, version, table):
    path = options.out / answers_file(engine)
    old = recorded(path)
    reasons, rows = Interned(old.get("reasons", [])), old["families"]
    for name, row in table.items():
        rows[name] = rows.get(name, {}) | {case: [cell["answer"], reasons.of(cell["reason"] and general(cell["reason"]))] for case, cell in row.items()}
    date = datetime.date.fromtimestamp(seen_file(options, engine).stat().st_mtime).isoformat()
    if not options.is_all:
        date = old.get("date", date)
    write_json(path, {"engine": engine, "version": version, "date": date, "reasons": reasons.values}, rows)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kvcal", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--engine", nargs="+", default=[])
    parser.add_argument("--family", dest="families", nargs="+")
    parser.add_argument("--case", dest="cases", nargs="+", default=CASES)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    options.changed, options.is_all = set(), not options.families
    if options.is_all:
        options.families = all_families()
    options.known = [engine["name"] for engine in json.loads(kvcal(options, "engines", "--json").stdout)]
    make_families(options)
    if options.out:
        write_inputs(options)
    out = open(options.table, "w") if options.table else sys.stdout
    for engine, _, python in (text.partition("=") for text in options.engine):
        table, version = compare(options, engine, python)
        print_table(engine, version, table, options.cases, out)
        if options.out:
            write_answers(options, engine, version, table)


if __name__ == "__main__":
    main()
