"""What changed from one version of an engine to another, of their recorded answers, as text that a person can review."""
import json
import re

from engines_names import LETTERS
from engines_versions import read_versions

ANSWERS = {letter: answer for answer, letter in LETTERS.items()}


def read(out, kind, records):
    """None: not recorded. The variants of an engine's oldest version are in the file that describes them."""
    files = [f"{kind}_{records}.json"] + ([f"{records}.json"] if kind == "variants" else [])
    return next((json.loads((out / file).read_text()) for file in files if (out / file).exists()), None)


def grouped(changes):
    """changes: (what was, what is, where). A line for each two answers, with the places."""
    groups = {}
    for before, after, where in changes:
        groups.setdefault((before, after), []).append(where)
    lines = []
    for (before, after), places in sorted(groups.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(places[:8]) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
        lines.append(f"- {before} -> {after}: {len(places)}: {shown}")
    return lines


def family_cells(record):
    """{"llama modelopt@fp8": "lost (reason)"}"""
    cells = {}
    for family, cases in record["families"].items():
        for case, (answer, reason) in cases.items():
            cells[f"{family} {case}"] = answer + ("" if reason is None else f" ({without_places(record['reasons'][reason])})")
    return cells


def without_places(reason):
    """Files and lines of the source move in every version, sets are in any order, and lists of what is known grow."""
    reason = re.sub(r" ?\(\w+\.py:\d+\)$| ?\[type=.*| Supported architectures: .*| The available parameters .*|\{[^{}]*\}?", "", reason)
    return reason.removeprefix("ValidationError: 1 validation error for ")[:110].strip()


def name_cells(record, names):
    return {f"{family} {method}, {name}": ANSWERS[letter] for family, methods in record["families"].items() for method, letters in methods.items()
            for name, letter in zip(names, letters)}


def variant_cells(record):
    cells = {}
    for name, row in record["variants"].items():
        if isinstance(row, str):  # of engines_keys.py
            cells[name] = row
            continue
        seen = row.get("seen", row)
        cells[name] = f"refused ({without_places(seen['why'])})" if not seen["loads"] else held_by(seen)
    return cells


def held_by(seen):
    """ "fp8: k 0.027 v 0.024, ..." of the first layers."""
    sides = ", ".join(" ".join(f"{side} {short(number)}" for side, number in layer.items() if side != "q") for layer in seen["layers"][:2])
    return f"{seen['cache_dtype']}: {sides}"


def short(number):
    return f"{number:.4g}" if isinstance(number, float) else json.dumps(number)[:40]


def stray_cells(record):
    return {family: answer for answer in ("refused", "passed") for family in record[answer]}


def draft_cells(record):
    return {f"{model} {name or 'without scales'}": seen["draft"] if isinstance(seen["draft"], str) else "runs" if seen["draft"] else "does not run"
            for model, answers in record["drafts"].items() for name, seen in answers["names"].items()}


def section(title, before, after):
    """before, after: {place: answer}"""
    changes = [(before[place], answer, place) for place, answer in after.items() if place in before and before[place] != answer]
    reasons = [change for change in changes if change[0].partition(" (")[0] == change[1].partition(" (")[0]]
    changes = [change for change in changes if change not in reasons]
    new = [("not asked", answer, place) for place, answer in after.items() if place not in before]
    gone = [(answer, "not asked", place) for place, answer in before.items() if place not in after]
    same = len(after) - len(changes) - len(new) - len(reasons)
    lines = [f"\n{title}: {same} as before, {len(changes)} changed, {len(reasons)} for another reason, {len(new)} new, {len(gone)} gone"]
    return lines + grouped(changes + new + gone) + (["for another reason:", *grouped(reasons)] if reasons else [])


def text_of(out, engine, version, older=""):
    rows = read_versions()[engine]
    versions = list(rows)
    at = versions.index(version)
    if not older and at == 0:
        return f"{engine} {version}: no version before it is recorded"
    older = older or versions[at - 1]
    lines = [f"{engine} {rows[older]['release']} -> {rows[version]['release']}"]
    cells = {"families": family_cells, "names": lambda record: name_cells(record, json.loads((out / "names.json").read_text())["names"]),
             "strays": stray_cells, "habits": variant_cells, "variants": variant_cells, "keys": variant_cells, "drafts": draft_cells}
    for kind, cells_of in cells.items():
        before, after = (read(out, kind, rows[one]["records"]) for one in (older, version))
        if before and after:
            lines += section(kind, cells_of(before), cells_of(after))
    return "\n".join(lines)
