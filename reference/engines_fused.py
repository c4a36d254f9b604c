#!/usr/bin/env python3
"""engines_fused.py FAMILIES ENGINE@VERSION=PYTHON OUT [--family NAME ...]

What an engine makes of FP8 weights of which it runs several Linears as one, where the configuration excepts one of these alone and its weight is in 16 bits.
FAMILIES: the checkpoints of engines_table.py with FP8 weights. OUT/fused_RECORDS.json is written, where rows of other families stay:
{"engine", "version", "date", "families": {NAME: {METHOD: {CASE: answer}}}}
CASE names the Linear and how it is excepted; METHODS are those of EXCEPTIONS, other than compressed-tensors' only of the families ALL_METHODS. Answers:
  parts    refused, because some parts of a fused Linear are excepted and others are not
  refused  for another reason; of families that do not start without exceptions either there is no row
  loaded, rounded, partly, lost, 16-bit   as engines_table.py says, of the scales of K and V
OUT/fused.json, what was excepted: {"lists": {METHOD: [its form in families.json, its list of exceptions, what the engine is told]},
  "families": {NAME: {METHOD: {CASE: entry}}}}.
Answers are kept in FAMILIES/seen_fused_ENGINE.jsonl as they come, as engines_names.py does.
"""
import contextlib
import datetime
import json
import pathlib
import re
import shutil
import tempfile

from engines_judge import OTHER_PARTS  # first: it finds check_engine
from check_engine.checkpoint import is_scale
from engines_checkpoints import header, keep_tensors, read_scales, write_tensors
from engines_names import homes_of, parse
from engines_table import FP8, answer_of, run_judge, write_json
from engines_versions import not_run, row_of

# METHOD: [its form in FAMILIES, the list of what it excepts, what the engine is told]
EXCEPTIONS = {"compressed-tensors": ["weights", "ignore", ""], "fp8": ["weights-fp8", "ignored_layers", "fp8"], "modelopt": ["weights-modelopt", "ignore", ""],
              "quark": ["weights-quark", "exclude", "fp8"]}
ALL_METHODS = "llama qwen3 gemma3_text gemma4_multimodal mixtral deepseek_v3".split()
FUSED = {"k_proj": "self_attn.k_proj", "up_proj": "mlp.up_proj", "kv_a_proj_with_mqa": "self_attn.kv_a_proj_with_mqa", "expert": "experts.0.up_proj"}
# CASE: [the Linear of FUSED, the entry], where {m} is the Linear, {e} its name for an expression, {s} without what is before its layer
SHARED = "shared"  # K of a layer that reads another layer's cache, which the checkpoint has not, beside queries in FP8
CASES = {"k_proj": ["k_proj", "{m}"], "up_proj": ["up_proj", "{m}"], "kv_a_proj_with_mqa": ["kv_a_proj_with_mqa", "{m}"], "expert": ["expert", "{m}"], SHARED: [SHARED, "{m}"]}
MORE_CASES = {"expression": ["k_proj", "re:.*{e}$"], "end": ["k_proj", "{s}"], "wildcard": ["k_proj", "*{s}"]}
OF_PARTS = re.compile(r"different quantization schemes|some but not all shards|All MoE projections")


def linear_of(folder, part):
    """The first Linear of that kind with FP8 weights; none: ""."""
    names = header(folder / "model.safetensors")[0]
    if part == SHARED:
        queries = [name.removesuffix("q_proj.weight") for name in names if re.search(r"layers\.\d+\.self_attn\.q_proj\.weight$", name) and not OTHER_PARTS.search(name)]
        without = [name + "k_proj" for name in queries if name + "k_proj.weight" not in names]
        return without[0] if 0 < len(without) < len(queries) else ""
    ending = f".{FUSED[part]}.weight"
    found = [name.removesuffix(".weight") for name in names if name.endswith(ending) and names[name]["dtype"] == "F8_E4M3" and not OTHER_PARTS.search(name)]
    return min(found, key=lambda name: (len(name), name), default="")


def entry_of(case, linear):
    short = re.sub(r".*?(?=layers\.)", "", linear)
    return (CASES | MORE_CASES)[case][1].format(m=linear, e=re.escape(short), s=short)


def to_16_bits(folder, base, linear):
    """The Linear's weight as the checkpoint without quantization has it, and no scales of it but those of the cache."""
    keep_tensors(folder / "model.safetensors", lambda name: not name.startswith(linear + ".") or is_scale(name))
    (entries, start), (theirs, their_start) = header(folder / "model.safetensors"), header(base / "model.safetensors")
    data, added = (folder / "model.safetensors").read_bytes()[start:], (base / "model.safetensors").read_bytes()[their_start:]
    for name, entry in theirs.items():
        if name.startswith(linear + "."):
            begin, end = entry["data_offsets"]
            entries[name] = entry | {"data_offsets": [len(data), len(data) + end - begin]}
            data += added[begin:end]
    write_tensors(folder / "model.safetensors", entries, data)


def except_also(folder, key, entry):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"][key].append(entry)
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "hf_quant_config.json"
    if file.exists():
        whole = json.loads(file.read_text())
        whole["quantization"].setdefault("exclude_modules", []).append(entry)
        file.write_text(json.dumps(whole))


@contextlib.contextmanager
def checkpoint(made):
    """The folder of a job's "made": {"of": FAMILIES/NAME, "method", "case"}."""
    family, (form, key, _) = pathlib.Path(made["of"]), EXCEPTIONS[made["method"]]
    linear = linear_of(family / form, (CASES | MORE_CASES)[made["case"]][0])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "model"
        shutil.copytree(family / form, folder)
        to_16_bits(folder, family / "base", linear)
        except_also(folder, key, entry_of(made["case"], linear))
        yield str(folder)


def jobs_of(families, engine, names=None):
    """By family; the first of a method is without the exception."""
    left_out = not_run(engine)
    for home in homes_of(families, names):
        if home.name in left_out:
            continue
        for method, (form, _, told) in EXCEPTIONS.items():
            if not (home / form / "model.safetensors").exists() or (method != "compressed-tensors" and home.name not in ALL_METHODS):
                continue
            cases = CASES | (MORE_CASES if home.name in ALL_METHODS else {})
            cases = [case for case, (part, _) in cases.items() if linear_of(home / form, part)]
            option = dict(kv_cache_dtype=FP8.get(engine.partition("@")[0], told) if told else "auto")
            whole = f"{home.name}/{method}/"
            if cases:
                yield dict(name=whole, base="", folder=str(home / form)) | option
            for case in cases:
                yield dict(name=whole + case, base=whole, made=dict(of=str(home), method=method, case=case)) | option


def answer_to(job, seen, families):
    if not seen["loads"]:
        return "parts" if OF_PARTS.search(seen["why"]) else "refused"
    wanted, _ = read_scales(families / job["name"].split("/")[0] / EXCEPTIONS[job["made"]["method"]][0])
    return answer_of(wanted, True, seen.get("cache_dtype", ""), {int(layer): sides for layer, sides in seen["layers"].items()})


def add_entry(rows, job):
    made, (family, method, case) = job["made"], job["name"].split("/")
    linear = linear_of(pathlib.Path(made["of"]) / EXCEPTIONS[method][0], (CASES | MORE_CASES)[case][0])
    rows.setdefault(family, {}).setdefault(method, {})[case] = entry_of(case, linear)


def families_of(path):
    return json.loads(path.read_text())["families"] if path.exists() else {}


def main():
    families, engine, python, out, options = parse(__doc__)
    jobs = list(jobs_of(families, engine, options.families))
    if not jobs:
        return
    seen = run_judge(families, jobs, python, engine, "fused_" + engine)
    path = out / f"fused_{row_of(engine)['records']}.json"
    rows, entries = families_of(path), families_of(out / "fused.json")
    for job in jobs:
        if "made" not in job or job["name"] not in seen or not seen[job["base"]]["loads"]:
            continue
        family, method, case = job["name"].split("/")
        rows.setdefault(family, {}).setdefault(method, {})[case] = answer_to(job, seen[job["name"]], families)
        add_entry(entries, job)
    version = next(answer["version"] for answer in reversed(seen.values()) if answer["version"])
    write_json(path, dict(engine=engine, version=version, date=datetime.date.today().isoformat()), rows)
    write_json(out / "fused.json", dict(lists=EXCEPTIONS), entries)


if __name__ == "__main__":
    main()
