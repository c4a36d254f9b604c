#!/usr/bin/env python3
"""engines_answers.py [--check]

Writes lib/engines/answers/ENGINE_VERSION.json, what the program knows of engines that were run, from the recorded answers (tests/fixtures/engines/
families_*.json and drafts_*.json, by `reference/engines record`) and the explanations of engines_explained.py. --check: writes nothing, and fails where a file is another.
The versions are those of engines_versions.json; `reference/engines record` writes their answers, and runs this.

{"engine", "version", "recorded": the version that gave the answers, "date": on which, "records": of families_RECORDS.json,
 "like": the table that this one states its differences from, if any; all that it does not say is as there,
 "explanations": {NAME: {"effect", "why", and where it has them "methods", "names", "settings", "needs_weights", "needs_attention",
  "lacks_parameters"}},
 "types": [{"explanations": [NAMES, the first that fits a checkpoint decides], "of": [each model_type that was run and has just these]}],
 "not_run": [types of the other table that were not run here],
 "scales_file": [types of which the engine takes kv_cache_scales.json], where it reads such files,
 "drafts": {model_type: {"method" of the checkpoints that were tried, names of scales of the draft layer below the attention module, with {} for k or v: "loaded",
  "dropped", "refused"}}; empty: it runs no drafts of prediction layers,
 "tried": [names of scales below the attention module, as of drafts, and below the layer, which begin with "layer."], "names": [{"method", "seen": a letter for
  each, "of": [types]}], where they were tried: L loaded, O dropped, R refused; l loaded, o dropped, where FP8 is asked for, else the cache keeps 16 bits; 6 it does
  so whatever is asked for; ? families of the type differ, or a part is loaded,
 "inner": ["OUTER INNER ...": multimodal types and those of the text models inside with which they were run, "-" for none that is named],
 "strays": {"refused" or "passed": types whose loaders do so, other than most, with a tensor that has no place}}
"""
import collections
import difflib
import functools
import json
import pathlib
import re
import sys
import textwrap

import engines_explained as explained
from engines_versions import read_versions

HERE = pathlib.Path(__file__).parent
RECORDS = HERE.parent / "tests" / "fixtures" / "engines"
MODELS = HERE.parent / "tests" / "fixtures" / "models"
ANSWERS = HERE.parent / "lib" / "engines" / "answers"
# Engines of another one's code.
LIKE_OTHERS = {"aphrodite": ["vllm_0.32"]}
# Where they were tried with other checkpoints than those of compressed-tensors.
METHODS_OF_DRAFTS = {"lmdeploy": ""}
SCALES_FILES_READ = {"sglang_0.5.23": ["mimo", "solar"]}
# What an engine refuses whatever the model, which no explanation has to foretell.
ALWAYS_REFUSED = re.compile("No quark compatible scheme|Unable to find matching target|Cannot parse compressed-tensors|Cannot find compressed-tensors target|"
                            r"\(compressed_tensors\.py:1224\)")
HELD = ("loaded", "rounded")
STOP_AT_STRAYS = ("vllm", "aphrodite", "lmdeploy")  # by their rules
SAY_NOTHING = set("LRl6?")  # letters of names, where all have one

Case = collections.namedtuple("Case", "name answer reason method names has_weights has_attention config is_told")


def read(path):
    return json.loads(path.read_text())


def config_of(family, row):
    return read(MODELS / row.get("model", family) / "config.json") | row["config"]


def declares_weights(method, config, file):
    if method == "compressed-tensors":
        return bool(config.get("config_groups"))
    if method == "quark":
        return (config.get("global_quant_config") or {}).get("weight") is not None
    if method.startswith("modelopt"):
        left_out = file["quantization"].get("exclude_modules") if file else config.get("ignore")
        return "*" not in (left_out or [])
    return method == "fp8"


def declares_attention(config):
    groups = (config or {}).get("config_groups") or {}
    return any(group.get("weights") is None and group.get("input_activations") for group in groups.values())


def cases_of(record, checkpoints):
    """{model_type: its cases}"""
    found = {}
    for family, answers in record["families"].items():
        row = checkpoints["families"][family]
        config = config_of(family, row)
        for name, (answer, reason) in answers.items():
            form, _, told = name.partition("@")
            if form != "scales-json" and form not in row["forms"]:
                continue
            declared, file, names = row["forms"].get(form, [None, None, []])
            declared, file = (None if index is None else checkpoints["configs"][index] for index in (declared, file))
            method = declared["quant_method"].lower() if declared else "modelopt" if file else ""
            whole = config | (dict(quantization_config=declared) if declared else {})
            found.setdefault(config["model_type"], []).append(
                Case(name, answer, "" if reason is None else record["reasons"][reason], method, [known.replace("{}", "0") for known in names],
                     declares_weights(method, declared, file), declares_attention(declared), whole, bool(told)))
    return found


def value_at(value, path):
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def is_set(config, setting):
    value = value_at(config, setting["key"])
    if value is None:
        value = value_at(config.get("text_config"), setting["key"])
    is_met = value == setting["value"] if "value" in setting else value not in (None, False)
    return is_met != setting.get("is_not", False)


def fits(explanation, case):
    when = explanation["when"]
    methods, names = when.get("methods", ["*"]), when.get("names")
    return (any(case.method.startswith(method[:-1]) if method.endswith("*") else case.method == method for method in methods)
            and (case.has_weights or not when.get("needs_weights")) and (case.has_attention or not when.get("needs_attention")) and all(is_set(case.config, setting) for setting in when.get("settings", []))
            and (not names or any(name.startswith(part) if part.endswith(".") else name.endswith(part) for name in case.names for part in names)))


def is_switched(case):
    """Whether the checkpoint makes the cache FP8 by itself, in engines that do so."""
    return case.is_told or case.method == "compressed-tensors" or case.method.startswith("modelopt")


def is_loaded_by_name(case, letters, cases):
    """Whether engines_names.py's record, which goes before explanations, says that all its names are loaded, where the same form had other names, and another
    answer, in another family of the type. letters: of the type, by method."""
    if not any(other.name == case.name and other.names != case.names and other.answer != case.answer for other in cases):
        return False
    seen, tried = letters.get(case.method, ""), tried_names()
    ends = [max((end for end in tried if name.endswith((end.replace("{}", "k"), end.replace("{}", "v")))), key=len, default=None) for name in case.names]
    return bool(ends) and case.answer in HELD and bool(seen) and all(end and seen[tried.index(end)] == "L" for end in ends)


def foretells(effect, case):
    answer = case.answer
    if effect == "no model":
        return answer == "no model"
    if effect == "refused":
        return answer in ("refused", "no model")
    if ALWAYS_REFUSED.search(case.reason):
        return True
    if effect == "refused without groups":
        groups = value_at(case.config, "quantization_config.config_groups") or {}
        return answer in HELD if any(group.get("weights") for group in groups.values()) else answer == "refused"
    if effect == "sixteen bits":
        return answer == "16-bit"
    if effect == "ones":
        return answer in ("lost", "partly") or (answer == "16-bit" and (not is_switched(case) or case.name == "head"))
    if effect == "ones when asked":
        return answer == ("lost" if case.is_told else "16-bit")
    if effect == "refused when asked":
        return answer == ("refused" if case.is_told else "16-bit")
    if effect == "by rules when asked":
        return answer in HELD if case.is_told else answer == "16-bit"
    return answer in HELD or answer == "lost" or (answer == "16-bit" and not is_switched(case))


def is_of(explanation, cases, all_cases):
    """cases: those that it fits and none before it does."""
    def is_seen(pattern, among):
        return any(re.search(pattern, f"{case.name}: {case.answer}: {case.reason}") for case in among)

    return (bool(cases) and all(foretells(explanation["effect"], case) for case in cases) and all(is_seen(pattern, cases) for pattern in explanation["seen"])
            and all(is_seen(pattern, all_cases) for pattern in explanation["elsewhere"]))


def explain(model_type, explanations, cases, all_cases):
    """cases: those of which an explanation has to tell."""
    if not explanations:
        return []
    first, others = explanations[0], explanations[1:]
    inside = [case for case in cases if fits(first, case)]
    outside = [case for case in cases if not fits(first, case)]
    if model_type in first["read"]:
        return [first] + explain(model_type, others, outside, all_cases)
    is_left_out = model_type in first["unless"] or (first["only"] and model_type not in first["only"])
    if is_left_out or not is_of(first, inside, all_cases):
        return explain(model_type, others, cases, all_cases)
    later = explain(model_type, others, outside, all_cases)
    # What the rules say needs an explanation only where a later one would say otherwise.
    if first["effect"] == "by rules" and not first["seen"] and not any(fits(other, case) for other in later for case in inside):
        return explain(model_type, others, cases, all_cases)
    return [first] + later


def drafts_of(recorded):
    """Of the models of which the engine ran a draft."""
    rows = {}
    for model, answers in sorted(read(RECORDS / f"drafts_{recorded}.json")["drafts"].items()):
        if answers["names"][""]["draft"] is not True:
            continue
        rows[model] = dict(method=METHODS_OF_DRAFTS.get(recorded, "compressed-tensors"))
        for name, seen in answers["names"].items():
            outcome = "loaded" if seen["draft"] is True else "dropped" if seen["draft"].startswith("holds") else "refused"
            if name:
                rows[model].setdefault(outcome, []).append(re.sub(r"\bk_(?=scale|proj)", "{}_", name.removeprefix("self_attn")))
    return rows


def outcome_of(letter, is_told, told_letters):
    """Of a letter of engines_names.py. told_letters: those of the name beside methods for which the engine was told an FP8 cache; none, where it cannot be told. A
    loader does with a name what it does beside these."""
    if letter == "6" and not is_told and told_letters:
        known = told_letters - set("?-")  # of the others it stops at the configuration or the weights
        return "l" if known and known <= {"L", "r"} else "o"
    return {"r": "L", "P": "?", "-": "?"}.get(letter, letter)


@functools.cache
def tried_names():
    names = read(RECORDS / "names.json")["names"].values()
    return [name.removeprefix("{m}").replace("{l}", "layer").replace("{s}", "{}") for name in names]


def names_of(recorded, checkpoints):
    """{model_type: {method: letters}} of engines_names.py's record. A method of which all names were refused, or all loaded, says nothing of names."""
    path = RECORDS / f"names_{recorded}.json"
    if not path.exists():
        return {}
    told, seen = {method for method, (_, option) in read(RECORDS / "names.json")["methods"].items() if option}, {}
    for family, methods in read(path)["families"].items():
        model_type = config_of(family, checkpoints["families"][family])["model_type"]
        for method, letters in methods.items():
            asked = [methods[other] for other in told & methods.keys()]
            outcomes = [outcome_of(letter, method in told, {row[i] for row in asked}) for i, letter in enumerate(letters)]
            seen.setdefault(model_type, {}).setdefault(method, {})[family] = None if set(letters) == {"-"} else outcomes
    found = {}
    for model_type, methods in sorted(seen.items()):
        for method, by_family in methods.items():
            # Of families of the type that do not start, other answers tell.
            rows = [row for row in by_family.values() if row] or [["?"] * len(tried_names())]
            letters = [outcomes[0] if len(set(outcomes)) == 1 else "?" for outcomes in zip(*rows)]
            if len(set(letters) - {"?"}) > 1 or not set(letters) <= SAY_NOTHING:
                found.setdefault(model_type, {})[method] = "".join(letters)
    return found


def names_by_rows(names):
    """A line for all types that have the same letters beside a method."""
    rows = {}
    for model_type, methods in names.items():
        for method, letters in methods.items():
            rows.setdefault((method.replace("modelopt", "modelopt*"), letters), []).append(model_type)
    return [dict(method=method, seen=letters, of=of) for (method, letters), of in sorted(rows.items())]


def strays_of(recorded, engine, checkpoints):
    """{"refused" or "passed": types of engines_strays.py's record} that do another thing than the engine's rule says."""
    path = RECORDS / f"strays_{recorded}.json"
    if not path.exists():
        return {}
    record = read(path)
    types = {outcome: {config_of(family, checkpoints["families"][family])["model_type"] for family in record[outcome]} for outcome in ("refused", "passed")}
    usual, other = ("refused", "passed") if engine in STOP_AT_STRAYS else ("passed", "refused")
    return {other: sorted(types[other] - types[usual])}


# Cases of engines_fused.py: the parts of fused Linears, as engine_answers.h has them.
PARTS = {"k_proj": "k_proj", "up_proj": "up_proj", "kv_a_proj_with_mqa": "kv_a_proj", "expert": "expert", "shared": "shared"}


def parts_of(recorded, engine, checkpoints):
    """{"apart", "unfused": {part: types}} of engines_fused.py's record: of models whose parts the engine does not compare, and does not run as one."""
    path, found, refused = RECORDS / f"fused_{recorded}.json", {"apart": {}, "unfused": {}}, set()
    if not path.exists():
        return {}
    for family, methods in read(path)["families"].items():
        model_type = config_of(family, checkpoints["families"][family])["model_type"]
        for case, answer in methods.get("compressed-tensors", {}).items():
            if answer in ("parts", "refused"):
                refused.add((PARTS.get(case), model_type))
            elif case in PARTS:
                is_fused = case in explained.ALWAYS_FUSED and model_type not in explained.UNFUSED.get((engine, case), [])
                found["apart" if is_fused else "unfused"].setdefault(PARTS[case], set()).add(model_type)
    rows = {key: {part: sorted(one for one in types if (part, one) not in refused) for part, types in sorted(by_part.items())} for key, by_part in found.items()}
    return {key: {part: types for part, types in row.items() if types} for key, row in rows.items() if row}


def inner_types(record, checkpoints):
    """["OUTER INNER ...": a multimodal type and those of the text models inside, of the families that were run; "-" where config.json names none]"""
    found = {}
    for family in record["families"]:
        config = config_of(family, checkpoints["families"][family])
        if isinstance(config.get("text_config"), dict) or "vision_config" in config:
            found.setdefault(config["model_type"], set()).add(value_at(config, "text_config.model_type") or "-")
    return [" ".join([model_type, *sorted(inner)]) for model_type, inner in sorted(found.items())]


def short(explanation):
    return {key: value for key, value in dict(effect=explanation["effect"], why=explanation["why"], **explanation["when"]).items() if value != ""}


def tables():
    """{"vllm_0.33": its row of engines_versions.json}"""
    return {f"{engine}_{version}": row for engine, rows in read_versions().items() for version, row in rows.items()}


@functools.cache
def table_of(name):
    row = tables()[name]
    recorded, explanations = row["records"], getattr(explained, row["explanations"])
    record = read(RECORDS / f"families_{recorded}.json")
    types = {}
    by_type = sorted(cases_of(record, read(RECORDS / "families.json")).items())
    names = names_of(recorded, read(RECORDS / "families.json"))
    for model_type, cases in by_type:
        letters = names.get(model_type, {})
        asked = [case for case in cases if not case.name.endswith("scales-json@fp8") and not is_loaded_by_name(case, letters, cases)]
        types[model_type] = [explanation["name"] for explanation in explain(model_type, explanations, asked, cases)]
    used = {name for names in types.values() for name in names}
    engine, version = name.split("_")
    table = dict(engine=engine, version=version, recorded=record["version"], date=record["date"], records=recorded,
                 explanations={known["name"]: short(known) for known in explanations if known["name"] in used}, types=types)
    taken = [model_type for model_type, cases in by_type if any(case.name == "scales-json@fp8" and case.answer == "loaded" for case in cases)]
    if taken:
        table["scales_file"] = sorted(taken + SCALES_FILES_READ.get(name, []))
    names = names_by_rows(names)
    table["inner"] = inner_types(record, read(RECORDS / "families.json"))
    strays = strays_of(recorded, engine, read(RECORDS / "families.json"))
    table |= parts_of(recorded, engine, read(RECORDS / "families.json"))
    return table | dict(drafts=drafts_of(recorded)) | (dict(tried=tried_names(), names=names) if names else {}) | (dict(strays=strays) if strays else {})


def differences(table, name, base):
    """The table without what the base has, too."""
    known, explanations = base["explanations"], table["explanations"]
    own = {key: row for key, row in explanations.items() if known.get(key) != row}
    types = {key: names for key, names in table["types"].items() if base["types"].get(key) != names or any(one in own for one in names)}
    not_run = sorted(base["types"].keys() - table["types"].keys())
    further = {key: table.get(key, []) for key in ("scales_file", "drafts", "tried", "names", "strays", "inner", "apart", "unfused") if table.get(key) != base.get(key)}
    head = {key: table[key] for key in ("engine", "version", "recorded", "date", "records")}
    return head | dict(like=name, explanations=own, types=types) | (dict(not_run=not_run) if not_run else {}) | further


def bases(name):
    """The tables that one may state its differences from: of its engine's versions before it, and of the engine whose code it has."""
    engine, names = name.partition("_")[0], list(tables())
    return [other for other in names[:names.index(name)] if other.partition("_")[0] == engine] + LIKE_OTHERS.get(engine, [])


def written(name):
    """The shortest text of the table, by itself or as differences."""
    ways = [table_of(name), *(differences(table_of(name), base, table_of(base)) for base in bases(name))]
    return min((text_of(by_explanations(way)) for way in ways), key=len)


def by_explanations(table):
    """The table with its types by their explanations."""
    groups = {}
    for model_type, names in table["types"].items():
        groups.setdefault(tuple(names), []).append(model_type)
    return table | dict(types=[dict(explanations=names, of=of) for names, of in groups.items()])


def wrapped(row):
    """Its JSON in lines that break between texts alone."""
    text = re.sub(r'"[^"]*"', lambda found: found[0].replace(" ", "\0"), json.dumps(row))
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def text_of(table):
    """A line for each explanation, draft, and list of types, which goes on in further lines."""
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items() if isinstance(value, str))
    parts = ["{" + head]
    for key, value in table.items():
        if isinstance(value, str):
            continue
        if value and isinstance(value, dict):
            value = "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in value.items()) + "\n}"
        elif value and isinstance(value[0], dict):
            value = "[\n" + ",\n".join(map(wrapped, value)) + "\n]"
        else:
            value = json.dumps(value)
        parts.append(f"{json.dumps(key)}: {value}")
    return ",\n".join(parts) + "}\n"


def main():
    differ = False
    for name in tables():
        path, text = ANSWERS / f"{name}.json", written(name)
        if "--check" not in sys.argv:
            path.write_text(text)
            continue
        found = path.read_text() if path.exists() else ""
        sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), text.splitlines(True), str(path), "of the recorded answers"))
        differ = differ or found != text
    unknown = sorted(path.name for path in ANSWERS.glob("*.json") if path.stem not in tables())
    if differ or unknown:
        sys.exit(f"run {pathlib.Path(__file__).name}" + "".join(f"; no row of engines_versions.json writes {name}" for name in unknown))


if __name__ == "__main__":
    main()
