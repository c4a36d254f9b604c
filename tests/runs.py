#!/usr/bin/env python3
"""Fails for a test that nothing runs: a script, a fuzz target or a label of ctest that neither CI, nor the night, nor a
release reaches.

usage: runs.py SOURCE
A script is reached where .ci/run, .ci/nightly or .ci/release names it, or a file that is reached does. CMake's files are,
since tests/run.sh configures the build. CONTRIBUTING.md has a table of the runs; its row "by hand" names folders whose
scripts people run. Each label of ctest stands in that table.
"""
import re
import subprocess
import sys
from pathlib import Path

RUNS = (".ci/run", ".ci/nightly", ".ci/release")
SCRIPT = re.compile(r"\.(sh|py)$")
BEGIN, END = "<!-- runs -->", "<!-- end of runs -->"


def read(path):
    return path.read_text(errors="ignore")


def table_of(root):
    page = read(root / "CONTRIBUTING.md")
    if BEGIN not in page or END not in page:
        sys.exit(f"CONTRIBUTING.md: found no table of runs between {BEGIN} and {END}")
    return page.split(BEGIN)[1].split(END)[0]


def reached_from(files, root):
    """Paths of the files that the runs name, directly or through each other."""
    texts = {file: read(root / file) for file in files}
    by_name = {}
    for file in files:
        by_name.setdefault(file.rsplit("/", 1)[-1], []).append(file)
    reached = {file for file in files if file in RUNS or re.search(r"(CMakeLists\.txt|\.cmake)$", file)}
    todo = list(reached)
    while todo:
        source = todo.pop()
        text = texts[source]
        for name in set(re.findall(r"[\w.-]+\.(?:sh|py)\b", text)) | {name + ".py" for name in re.findall(r"(?:import|from) (\w+)", text)}:
            for file in by_name.get(name, []):
                if file not in reached:
                    reached.add(file)
                    todo.append(file)
        # "*_faults.sh" and "${kind}_check.py" name files beside the one that says so.
        folder = source.rsplit("/", 1)[0] + "/"
        for pattern in set(re.findall(r"[\w.*${}-]*[*}$][\w.*${}-]*\.(?:sh|py)\b", text)):
            wanted = re.compile(re.sub(r"\\\*|\\\$(\\\{)?\w+(\\\})?", "[\\\\w.+-]*", re.escape(pattern)))
            for file in files:
                if file not in reached and file.startswith(folder) and wanted.fullmatch(file.rsplit("/", 1)[-1]):
                    reached.add(file)
                    todo.append(file)
    return reached


def main():
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    tracked = listed.stdout.split("\n")
    if listed.returncode != 0:  # an archive of the sources
        tracked = [str(f.relative_to(root)) for top in (".ci", "cmake", "packaging", "python", "tests", "tools") for f in (root / top).rglob("*")]
    files = [f for f in tracked if f in RUNS or re.search(r"(CMakeLists\.txt|\.cmake|\.sh|\.py)$", f)]
    table = table_of(root)
    by_hand = next((line for line in table.split("\n") if line.startswith("| by hand")), "")
    folders = tuple(re.findall(r"`([\w/]+)/`", by_hand))
    faults = [f"{run}: is missing" for run in RUNS if run not in files]
    reached = reached_from(files, root)
    scripts = [f for f in files if SCRIPT.search(f) and f.startswith("tests/") and not f.startswith(folders or ("\0",))]
    faults += [f"{f}: nothing runs it" for f in scripts if f not in reached]
    for file in files:
        if re.search(r"(CMakeLists\.txt|\.cmake)$", file):
            for labels in re.findall(r"LABELS \"?([\w;]+)", read(root / file)):
                faults += [f"{file}: label {label} is not in CONTRIBUTING.md's table of runs"
                           for label in labels.split(";") if f"`{label}`" not in table]
    for fault in sorted(set(faults)):
        print(fault)
    print(f"{len(scripts)} scripts, {len(reached)} files reached")
    sys.exit(1 if faults or not scripts else 0)


main()
