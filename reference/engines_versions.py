"""Versions of engines that were run (engines_versions.json): {ENGINE: {VERSION, as `--engine ENGINE@VERSION` names it: {
  "release": that was installed, "records": families_RECORDS.json and others of tests/fixtures/engines are its answers, "packages": of its environment,
  "explanations": the list of engines_explained.py, "not_run": families of which it needs kernels that are not here, or names of tensors and keys that a
  fixture has not: verify says "not known" of these,
  "later": {"families": that are run with other "packages", those of its own environment know them not}}}}
"""
import json
import pathlib

PATH = pathlib.Path(__file__).with_name("engines_versions.json")


def read_versions():
    return json.loads(PATH.read_text())


def write_versions(versions):
    """A line a version."""
    engines = []
    for engine, rows in versions.items():
        lines = ",\n".join(f"  {json.dumps(version)}: {json.dumps(row)}" for version, row in rows.items())
        engines.append(f"{json.dumps(engine)}: {{\n{lines}\n}}")
    PATH.write_text("{" + ",\n".join(engines) + "}\n")


def row_of(engine):
    """Of "vllm@0.33"."""
    name, _, version = engine.partition("@")
    rows = read_versions()[name]
    if version not in rows:
        raise SystemExit(f"{engine}: a version of {PATH.name}, {', '.join(rows)}, was expected")
    return rows[version]


def not_run(engine):
    """Families that are not asked for in the engine's own environment."""
    row = row_of(engine)
    return set(row.get("not_run", [])) | set(row.get("later", {}).get("families", []))
