#!/usr/bin/env python3
"""engines_table.py KVCAL SCRATCH --engine NAME=PYTHON ... [--family NAME ...] [--case NAME ...] [--missing] [--out DIR] [--table FILE.md]

What serving engines do with the KV scales of every family in every form that kvcal writes, by their own code, and whether `kvcal
verify` says the same. Each family is a checkpoint of kvcal synth (tests/fixtures/models/NAME/config.json, with what CONFIGS changes),
calibrated on a few tokens and converted; SCRATCH keeps the folders and the engines' answers, so a second call goes on.
NAME=PYTHON: the judge engines_NAME.py and the python of its environment, as its head says; "-" takes recorded answers alone. Where there
are several versions: NAME@VERSION=PYTHON, which is families_NAME_VERSION.json then.
--out DIR (tests/fixtures/engines) writes families.json and families_NAME.json there. Families and cases that these hold and that were not
asked for stay in them. Without --family, an engine is not asked for those of NOT_RUN (engines_families.py). --missing asks for those alone that
DIR's answers lack, and not for forms of which kvcal writes another checkpoint now than DIR's answers are of: these need all engines anew.

families.json, what the checkpoints were: {"configs": [..], "families": {NAME: {"config": what differs from models/NAME/config.json,
  "forms": {FORM: [index of its quantization_config in configs, of its hf_quant_config.json or null, {name of scales with {} for the
  layer: [dtype, shape, [layers], of kv_scale beside k_scale: [layers with another number]]}]}}}}
families_NAME.json, the answers: {"engine", "version", "reasons": [..], "families": {NAME: {CASE: [answer, index of its reason or
  null]}}}. A case is FORM or FORM@fp8, where the engine is told an FP8 cache. Answers:
  loaded   the cache is FP8, and the attention of every layer holds the numbers of the file
  rounded  as loaded, but rounded by less than a hundredth
  partly   as loaded, but not of every layer, or other numbers
  lost     the cache is FP8, and every scale 1.0
  16-bit   the cache is not FP8
  refused  it does not start; where the model without scales does not start either, the answer is "no model" of every case
Reasons: the engine's error and where in its source it came from, or its warning; null for a loss without a word.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

from engines_families import CONFIGS, CROSS_LAYERS, LEFT_OUT, MODELS, NO_FP8_WEIGHTS, NOT_RUN, OUTSIDE, WITHOUT
from engines_processors import add_processor

HERE = pathlib.Path(__file__).parent
RECIPES = HERE.parents[1] / "recipes"
RECIPE = {"compressed-tensors": "fp8_kv_tensor.yaml", "head": "fp8_kv_head.yaml", "weights": "fp8_w8a8_kv.yaml"}
# Not written by kvcal: other configurations and names that engines may take, of the scales of compressed-tensors.
# ignore-none: as llm-compressor writes it; quark-own: Quark's names where kvcal writes plain ones; names-v5: of multimodal checkpoints, as
# transformers 5 writes them.
TRIED = {"ignore-none": "compressed-tensors", "ignore-all": "compressed-tensors", "modelopt-plain": "modelopt", "quark-plain": "quark",
         "quark-own": "quark", "names-v5": "compressed-tensors"}
# form: (the form it is converted from, kvcal convert's --format)
CONVERTED = {form: ("compressed-tensors", form) for form in
             ("modelopt", "quark", "tgi", "scales-json", "compressed-tensors+tgi", "compressed-tensors+modelopt", "compressed-tensors+scales-json")}
CONVERTED |= {f"weights-{form}": ("weights", form) for form in ("fp8", "modelopt", "quark")}
CASES = ["compressed-tensors", "compressed-tensors@fp8", "head", "modelopt", "modelopt@fp8", "quark", "quark@fp8", "tgi", "tgi@fp8",
         "scales-json@fp8", "compressed-tensors+scales-json@fp8", "compressed-tensors+tgi", "compressed-tensors+modelopt", "weights", "weights-fp8@fp8", "weights-modelopt",
         "weights-quark@fp8", "ignore-none", "ignore-all", "modelopt-plain", "quark-plain@fp8", "quark-own@fp8", "names-v5"]
FILES = {"scales-json", "compressed-tensors+scales-json"}
READS_FILE = {"sglang"}  # have an argument for kv_cache_scales.json
NOT_ASKED = {"vllm": {"compressed-tensors@fp8", "modelopt@fp8", "tgi"}, "aphrodite": {"compressed-tensors@fp8", "modelopt@fp8", "tgi"},
             "tgi": {"compressed-tensors@fp8"},
             "transformers": {case for case in CASES if "@" in case}}
FP8 = {"sglang": "fp8_e4m3", "tgi": "fp8_e4m3fn"}  # each engine's word for such a cache; others: fp8
LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")
SIDES = {"k": re.compile(r"\.(k_scale|k_proj\.output_scale)$"), "v": re.compile(r"\.(v_scale|v_proj\.output_scale)$"),
         "kv": re.compile(r"\.kv_scale$")}
MARKS = {"loaded": "ok", "no model": "–"}


# --- the checkpoints ---

def kvcal(options, *arguments):
    return subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)


def make_family(options, name):
    """Folders SCRATCH/NAME/FORM, those that kvcal writes; a refusal of kvcal is in FORM.refused."""
    home = options.scratch / name
    if (home / "made").exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    config = json.loads((MODELS / name / "config.json").read_text()) | CONFIGS.get(name, {})
    config = {key: value for key, value in config.items() if key not in WITHOUT.get(name, ())}
    (home / "config.json").write_text(json.dumps(config))
    made = kvcal(options, "synth", home / "base", "--config", home / "config.json", "--seed", 1)
    if made.returncode:
        raise SystemExit(f"{name}: {made.stderr}")
    add_other_parts(home / "base" / "model.safetensors", name)
    vocab = config.get("text_config", config)["vocab_size"]
    add_processor(home / "base", name, vocab)
    ids = [[(31 * i * i + 7 * j * j + 13 * i * j) % vocab for i in range(24)] for j in range(4)]
    (home / "ids.jsonl").write_text("".join(json.dumps({"input_ids": line}) + "\n" for line in ids))
    for form, recipe in RECIPE.items():
        note(home, form, kvcal(options, "calibrate", home / "base", "--recipe", RECIPES / recipe, "--dataset", home / "ids.jsonl",
                               "--num-samples", 4, "--max-seq-length", 24, "--reproducible", "--output", home / form))
    for form, (source, to) in CONVERTED.items():
        if (home / source).exists():
            note(home, form, kvcal(options, "convert", home / source, "--format", to, "--output", home / form))
    for form, source in TRIED.items():
        if form == "names-v5" and not any(name.startswith("language_model.model.") for name in header(home / "base" / "model.safetensors")[0]):
            continue
        if (home / source / "config.json").exists() and (home / "compressed-tensors").exists():
            try_form(home, form, source)
    (home / "made").touch()


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
    text = json.dumps(ours).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


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
    data = path.read_bytes()[start:]
    text = json.dumps({name if name == "__metadata__" else name_of(name): entry for name, entry in tensors.items()}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def note(home, form, done):
    if done.returncode:
        (home / f"{form}.refused").write_text(done.stderr.strip().splitlines()[-1])


def header(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), 8 + size


def read_sides(folder):
    """{layer: {"k", "v", "kv"}} of what a folder's files hold, lists for heads; and {name: [dtype, shape]} of these tensors."""
    found, shapes = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors, start = header(path)
        for name, entry in tensors.items():
            for side, pattern in SIDES.items():
                layer = LAYER.search("." + name)
                if pattern.search(name) and layer:
                    begin, end = entry["data_offsets"]
                    with open(path, "rb") as file:
                        file.seek(start + begin)
                        values = unpack(file.read(end - begin), entry["dtype"])
                    found.setdefault(int(layer[1]), {})[side] = values[0] if len(values) == 1 else values
                    shapes[name] = [entry["dtype"], entry["shape"]]
    if (folder / "kv_cache_scales.json").exists():
        ranks = json.loads((folder / "kv_cache_scales.json").read_text())["kv_cache"]["scaling_factor"]
        found |= {int(layer): {"kv": to_float32(value)} for layer, value in ranks["0"].items()}
    return found, shapes


def read_scales(folder):
    """{layer: {"k", "v"}} of a folder's files; and the tensors."""
    found, shapes = read_sides(folder)
    return {layer: {"k": sides.get("k", sides.get("kv")), "v": sides.get("v", sides.get("kv"))} for layer, sides in found.items()}, shapes


def unpack(data, dtype):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    code, size = {"F32": ("f", 4), "F16": ("e", 2)}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))


def to_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


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
    if case == "weights" and name in NO_FP8_WEIGHTS.get(engine, ()):
        return False
    return case not in NOT_ASKED.get(engine, ()) and (engine in READS_FILE or split(case)[0] not in FILES)


def judged(options, engine, python):
    """The engine's answers by name of the job; a judge that dies is started again after the job it died of."""
    old = recorded(options.out / answers_file(engine))["families"] if options.missing else {}
    jobs = []
    for name in options.families:
        if options.is_all and name in NOT_RUN[engine]:
            continue
        cases = [job_of(options, engine, name, case) for case in options.cases
                 if is_asked(engine, name, case) and (options.scratch / name / split(case)[0]).exists() and case not in old.get(name, {})
                 and (name, split(case)[0]) not in options.changed]
        if cases:
            jobs += [{"name": f"{name}/base", "folder": str(options.scratch / name / "base")}, *cases]
    listed, out = options.scratch / f"jobs_{engine}.json", options.scratch / f"seen_{engine}.jsonl"
    listed.write_text(json.dumps(jobs))
    out.touch()
    while True:
        seen = {answer["name"]: answer for answer in map(json.loads, out.read_text().splitlines())}
        left = [job for job in jobs if job["name"] not in seen]
        if not left or python == "-":
            return seen
        with open(options.scratch / f"{engine}.log", "a") as log:
            judge = HERE / f"engines_{engine.partition('@')[0]}.py"
            died = subprocess.run([python, judge, "--jobs", listed, out], stdout=log, stderr=log).returncode
        if died > 0:
            raise SystemExit(f"{judge} does not run: see {options.scratch / engine}.log")
        if died and left[0]["name"] not in out.read_text():
            with open(out, "a") as file:
                file.write(json.dumps({"name": left[0]["name"], "engine": engine, "version": "", "loads": False,
                                       "why": f"died of signal {-died}", "warnings": []}) + "\n")


def same(a, b, within=0.0):
    """One number stands for all heads."""
    if isinstance(a, list) or isinstance(b, list):
        a, b = (x if isinstance(x, list) else [x] for x in (a, b))
        heads = max(len(a), len(b))
        a, b = (x * heads if len(x) == 1 else x for x in (a, b))
        return len(a) == len(b) and all(same(x, y, within) for x, y in zip(a, b))
    a, b = (1.0 if x is None else x for x in (a, b))
    return a == b or (not isinstance(a, str) and not isinstance(b, str) and math.isclose(a, b, rel_tol=within))


def answer_of(wanted, loads, cache_dtype, layers):
    if not loads:
        return "refused"
    if "fp8" not in cache_dtype and "float8" not in cache_dtype:
        return "16-bit"
    pairs = [(sides[side], layers.get(layer, {}).get(side)) for layer, sides in wanted.items() for side in "kv"]
    if all(same(a, b) for a, b in pairs):
        return "loaded"
    if all(same(1.0, b) for _, b in pairs):
        return "lost"
    return "rounded" if all(same(a, b, 0.01) for a, b in pairs) else "partly"


def reason_of(seen, answer):
    if not seen["loads"]:
        return seen["why"]
    said = [text for text in seen["warnings"] if re.search(r"scale|not found|gnoring|not supported", text) and "LOAD REPORT" not in text]
    return said[0] if said and answer != "loaded" else None


def verified(options, engine, job, wanted):
    """verify's answer, its exit code, and the numbers by layer."""
    engine = engine.partition("@")[0]
    if engine not in options.known:
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
    table, version = {}, ""
    for name in options.families:
        row = table[name] = {}
        base = seen.get(f"{name}/base")
        for case in options.cases:
            answer = seen.get(f"{name}/{case}")
            if answer is None:
                continue
            version = answer["version"] or version
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
            row[case] = dict(answer=said, reason=reason, verify=told, exit=code, agrees=agrees)
    return table, version


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
    path.write_text("{" + head + '"families": {\n' + lines + "\n}}\n")


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
        forms = rows.get(name, {}).get("forms", {}) if options.missing else {}
        for form in [*RECIPE, *CONVERTED, *TRIED]:
            if not (home / form / "config.json").exists():
                continue
            hf_quant = home / form / "hf_quant_config.json"
            row = [configs.of(json.loads((home / form / "config.json").read_text()).get("quantization_config")),
                   configs.of(json.loads(hf_quant.read_text())) if hf_quant.exists() else None, by_layer(*read_sides(home / form))]
            if forms.setdefault(form, row) != row:
                options.changed.add((name, form))
        rows[name] = dict(config=CONFIGS.get(name, {}), forms=forms)
    if options.changed:
        print("not asked, as it is another checkpoint now:", *sorted(f"{name}/{form}" for name, form in options.changed), file=sys.stderr)
    write_json(path, {"configs": configs.values}, rows)


def answers_file(engine):
    return f"families_{engine.replace('@', '_')}.json"


def write_answers(options, engine, version, table):
    path = options.out / answers_file(engine)
    old = recorded(path)
    reasons, rows = Interned(old.get("reasons", [])), old["families"]
    for name, row in table.items():
        rows[name] = rows.get(name, {}) | {case: [cell["answer"], reasons.of(cell["reason"] and general(cell["reason"]))] for case, cell in row.items()}
    write_json(path, {"engine": engine, "version": version, "reasons": reasons.values}, rows)


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
        options.families = [path.parent.name for path in sorted(MODELS.glob("*/config.json")) if not path.parent.name.startswith(LEFT_OUT)]
    options.known = [engine["name"] for engine in json.loads(kvcal(options, "engines", "--json").stdout)]
    for name in options.families:
        make_family(options, name)
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
