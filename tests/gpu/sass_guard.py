#!/usr/bin/env python3
"""Compares the machine code of kernels/gpu with sass_table.txt. It needs nvcc and nvdisasm, no device.

usage: sass_guard.py --nvcc NVCC --nvdisasm NVDISASM --include FOLDER --scratch FOLDER [--update | --changed-since COMMIT] FILE...

A number that is more than 10 % worse, a spilled register, and a local access in a loop that the table does not have
are errors; as far better, a note. --update writes the rows of the files anew. --changed-since checks only files that a
change since that commit reaches: their text, what they include, their rows of the table. Where it reaches more than MANY
of them, it compiles for MAIN_CHIP alone. With another version of nvcc than the table's it ends with 77: numbers of two
compilers are not comparable."""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from sass import Graph, read_functions

CHIPS = ("sm_80", "sm_90a", "sm_120")
MAIN_CHIP = "sm_90a"  # the one with instructions that no other has
MANY = 6  # files whose compilation for all chips takes minutes
CHIPS_OF = {"attention_warpgroups": ("sm_90a",)}  # a file whose kernels are empty for the others
TENSOR_FILES = ("attention_matrix", "attention_warpgroups")
FORMATS = ("E4m3Fn", "E4m3Fnuz", "E5m2")  # as fp8::Format numbers them
COLUMNS = ("registers", "spilled", "local", "wide", "tensor", "slots")
TOLERANCE = 0.10
TABLE = Path(__file__).with_name("sass_table.txt")
ROOT = TABLE.parents[2]
# What decides how machine code is made and read.
GUARD = ("tests/gpu/sass.py", "tests/gpu/sass_guard.py", "cmake/gpu.cmake")
SKIPPED = 77

HEAD = """# Machine code of kernels/gpu, written by the target update_sass (sass_guard.py --update).
# registers: of a thread. spilled: bytes of stores and loads. local: accesses to local memory in loops. wide: per cent
# of the instructions on global memory that move 16 bytes. tensor: matrix instructions in a round of the loop over keys.
# slots: instructions that a warp issues in that round, on the path without masks; of decode_kernel, for a byte of K or V.
# A warp of attend_with_matrices_kernel has 32 rows (16 of heads of 256), one of attend_with_warpgroups_kernel 16.
"""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {Path(command[0]).name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def compiler_version(nvcc):
    return re.search(r"release ([\d.]+)", run([nvcc, "--version"]))[1]


def compile_file(options, source, chip):
    """Text of nvdisasm, and of ptxas on its resources."""
    cubin = options.scratch / f"{source.stem}.{chip}.cubin"
    includes = [f"-I{options.include / layer}" for layer in ("core", "quant", "backend", "kernels")]
    # As cmake/gpu.cmake compiles.
    said = run([options.nvcc, "-cubin", f"-arch={chip}", "-std=c++20", "-O3", "-DNDEBUG", "--fmad=false",
                f'-DKVCAL_GPU_CHIPS="{chip}"', "-Xptxas=-v", *includes, "-o", cubin, source])
    if found := serialized(said):
        sys.exit(f"error: {source.name} for {chip}: {found}")
    return run([options.nvdisasm, "-c", cubin]), said


def serialized(said):
    """What ptxas says where it lets products of warpgroups wait for each other, because it cannot follow their registers."""
    return next((line for line in said.splitlines() if "wgmma" in line and "serialized" in line), "")


def short_name(full):
    """Of a demangled one, without namespaces and parameters: "decode_kernel<E4m3Fn,4>"."""
    full = re.sub(r"\(anonymous namespace\)::|\w+::", "", full).removeprefix("void ")
    depth = 0
    for at, letter in enumerate(full):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            full = full[:at]
            break
    for number, name in enumerate(FORMATS):
        full = full.replace(f"Code<(Format){number}>", name)
    return full.replace(" ", "")


def short_names(mangled):
    return {name: short_name(full) for name, full in zip(mangled, run(["c++filt", *mangled]).splitlines())}


def resources(said):
    """Mangled name -> (registers, bytes spilled)."""
    found = {}
    for part in said.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part)[1]
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", part)))
        found[name] = int(re.search(r"Used (\d+) registers", part)[1]), spilled
    return found


def is_tensor(instruction):
    return instruction.name.split(".")[0] in ("HMMA", "IMMA", "QMMA", "OMMA", "HGMMA", "QGMMA", "UTCHMMA")


def is_global(instruction):
    return instruction.name.split(".")[0] in ("LDG", "STG", "LDGSTS")


def is_product(instruction):
    return instruction.name.split(".")[0] in ("FFMA", "FFMA2")


def is_wide_load(instruction):
    return instruction.has("LDGSTS") or (instruction.has("LDG") and instruction.has("128"))


def is_wide_store(instruction):
    """Of tiles in shared memory: the loop that makes them of codes has no other work that a path is chosen by."""
    return instruction.has("STS") and instruction.has("128")


def element_bytes(element):
    return {"float": 4, "F16": 2, "BF16": 2}.get(element, 1)


def tile_of_attention(graph, name):
    """(matrix instructions, slots) of a round of the loop over tiles of 64 keys, for one warp. Loops of copies are those
    of a block of four warps; warpgroups copy without."""
    element, dim = re.search(r"<(\w+),(\d+)>", name).groups()
    both = 2 * 64 * int(dim) * element_bytes(element) // 16 // 128  # copies of 16 bytes by a thread
    per_loop = both if element_bytes(element) == 1 else both // 2  # codes: K and V by one loop

    def rounds(instructions):
        for is_work in (is_wide_load, lambda i: i.has("LDS") and i.has("128")):
            if count := sum(map(is_work, instructions)):
                return max(1, per_loop / count)
        return 1

    counts = {head: sum(map(is_tensor, graph.instructions(body))) for head, body in graph.loops.items()}
    head = max(counts, key=lambda h: (counts[h], -len(graph.loops[h])))
    _, slots = graph.path_through(head, lambda i: is_tensor(i) or is_wide_load(i) or is_wide_store(i), rounds)
    tensor, _ = graph.path_through(head, is_tensor, rounds)
    return round(tensor), round(slots)


def slots_of_byte(graph, name):
    """Instructions for each byte of K or V of the loops that multiply, without the copies."""
    element, rows = re.search(r"<(\w+),(\d+)>", name).groups()
    products = slots = 0
    for head, body in graph.loops.items():
        if body not in graph.innermost():
            continue
        counted, length = graph.path_through(head, is_product, lambda _: 1)
        if counted >= 16:
            products, slots = products + counted, slots + length
    return round(slots / (products * element_bytes(element) / int(rows)), 1)


def measure(name, items, registers, spilled):
    graph = Graph(items)
    accesses = [i for i in graph.instructions() if is_global(i)]
    wide = sum(i.has("128") for i in accesses)
    row = {"registers": registers, "spilled": spilled,
           "local": sum(i.has("LDL", "STL") for i in graph.in_loops()),
           "wide": round(100 * wide / len(accesses)) if accesses else "-", "tensor": "-", "slots": "-"}
    if name.startswith(("attend_with_matrices_kernel", "attend_with_warpgroups_kernel")):
        row["tensor"], row["slots"] = tile_of_attention(graph, name)
    if re.match(r"decode_kernel<\w+,\d+>", name):  # of attention; another one decodes weights
        row["slots"] = slots_of_byte(graph, name)
    return row


def measure_file(options, source, chip):
    """(chip, file, kernel) -> row."""
    sys.setrecursionlimit(10000)
    code, said = compile_file(options, source, chip)
    functions, used = read_functions(code), resources(said)
    names = short_names([name for name in functions if name in used])
    return {(chip, source.stem, name): measure(name, functions[mangled], *used[mangled]) for mangled, name in names.items()}


def measure_all(options, tasks):
    """Rows of (file, chip) pairs, by as many processes as this one may use processors. Files of attention take longest."""
    tasks = sorted(tasks, key=lambda task: -task[0].stat().st_size * (10 if task[0].stem in TENSOR_FILES else 1))
    rows = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(measure_file, repeat(options), *zip(*tasks)):
            rows |= found
    return rows


def read_table(text):
    rows, version = {}, None
    for line in text.splitlines():
        words = line.split()
        if line.startswith("# nvcc "):
            version = words[2]
        elif words and not line.startswith("#") and words[0] != "chip":
            values = [v if v == "-" else float(v) if "." in v else int(v) for v in words[3:]]
            rows[tuple(words[:3])] = dict(zip(COLUMNS, values))
    return rows, version


def git(*arguments):
    return run(["git", "-C", ROOT, *arguments])


def behind(source):
    """The paths in the repository of a file and of what it includes, directly or not."""
    found, ahead = set(), [source.resolve().relative_to(ROOT)]
    while ahead:
        path = ahead.pop()
        if path in found or not (ROOT / path).is_file():
            continue
        found.add(path)
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', (ROOT / path).read_text(), re.M):
            ahead += [Path("lib") / name, Path(name)]  # kernels is a layer outside lib
    return {str(path) for path in found}


def reached_files(base, files, table):
    """Those of the files that a change since the commit reaches."""
    changed = set(git("diff", "--name-only", base).splitlines())
    if changed & set(GUARD):
        return files
    relative = str(TABLE.relative_to(ROOT))
    before = read_table(git("show", f"{base}:{relative}"))[0] if relative in changed else table
    rows = {key[1] for key in table.keys() | before.keys() if table.get(key) != before.get(key)}
    return [file for file in files if file.stem in rows or behind(file) & changed]


def write_table(rows, version):
    lines = [("chip", "file", "kernel", *COLUMNS)]
    lines += [(*key, *(str(rows[key][c]) for c in COLUMNS)) for key in sorted(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = HEAD + f"# nvcc {version}\n"
    for line in lines:
        text += "  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() + "\n"
    TABLE.write_text(text)


def complaints(key, row, expected):
    """What is worse than expected, and what is better, each as lines."""
    worse, better = [], []
    for column in COLUMNS:
        found, known = row[column], expected[column]
        text = f"{' '.join(key)}: {column} {found}, expected {known}"
        if "-" in (found, known):
            worse += [text] if found != known else []
            continue
        more = known - found if column in ("wide", "tensor") else found - known
        slack = 0 if column in ("spilled", "local") else TOLERANCE * known
        if more > slack:
            worse.append(text)
        elif -more > slack:
            better.append(text)
    return worse, better


def compare(rows, table, compiled):
    """compiled: pairs of a chip and a file's name."""
    failures = [f"{' '.join(key)}: is in the table, not in the code" for key in table
                if key[:2] in compiled and key not in rows]
    for key, row in rows.items():
        if key not in table:
            failures.append(f"{' '.join(key)}: is not in the table")
            continue
        worse, better = complaints(key, row, table[key])
        failures += worse
        for line in better:
            print(f"note: {line}: better; build the target update_sass and commit the table")
    return failures


def main():
    parser = argparse.ArgumentParser()
    for name in ("--nvcc", "--nvdisasm", "--include", "--scratch"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--changed-since", metavar="COMMIT")
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    table, table_version = read_table(TABLE.read_text() if TABLE.exists() else "")
    version = compiler_version(options.nvcc)
    if not options.update and version != table_version:
        print(f"skipped: here is nvcc {version}, " + (f"the table is of {table_version}" if table_version
                                                      else "there is no table: build the target update_sass"))
        return SKIPPED
    files, chips = options.files, CHIPS
    if options.changed_since:
        files = reached_files(options.changed_since, files, table)
        if not files:
            print(f"no kernel's file is reached by a change since {options.changed_since}")
            return 0
        chips = (MAIN_CHIP,) if len(files) > MANY else CHIPS
        print(f"{len(files)} files for {', '.join(chips)}: {' '.join(file.stem for file in files)}", flush=True)
    options.scratch.mkdir(parents=True, exist_ok=True)
    tasks = [(source, chip) for source in files for chip in CHIPS_OF.get(source.stem, CHIPS) if chip in chips]
    rows = measure_all(options, tasks)
    if options.update:
        names = {source.stem for source in files}
        others = {key: row for key, row in table.items() if key[1] not in names}
        write_table(others | rows, version)
        return 0
    failures = compare(rows, table, {(chip, source.stem) for source, chip in tasks})
    for line in failures:
        print(f"error: {line}")
    if failures:
        print("If this is meant, build the target update_sass and say why in the commit.")
    print(f"{len(rows)} kernels of {len(files)} files, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
