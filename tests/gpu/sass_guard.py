#!/usr/bin/env python3
"""Compares the machine code of kernels/gpu with sass_table.txt. It needs nvcc and nvdisasm, no device.

usage: sass_guard.py --nvcc NVCC --nvdisasm NVDISASM --include FOLDER --scratch FOLDER [--update] FILE...

A number that is more than 10 % worse, a spilled register, and a local access in a loop that the table does not have
are errors; as far better, a note. --update writes the rows of the files anew. With another version of nvcc than the
table's it ends with 77: numbers of two compilers are not comparable."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from sass import Graph, read_functions

CHIPS = ("sm_80", "sm_90a", "sm_120")
CHIPS_OF = {"attention_warpgroups": ("sm_90a",)}  # a file whose kernels are empty for the others
FORMATS = ("E4m3Fn", "E4m3Fnuz", "E5m2")  # as fp8::Format numbers them
COLUMNS = ("registers", "spilled", "local", "wide", "tensor", "slots")
TOLERANCE = 0.10
TABLE = Path(__file__).with_name("sass_table.txt")
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


def measure_file(options, source):
    """(chip, file, kernel) -> row."""
    rows = {}
    for chip in CHIPS_OF.get(source.stem, CHIPS):
        code, said = compile_file(options, source, chip)
        functions, used = read_functions(code), resources(said)
        names = short_names([name for name in functions if name in used])
        for mangled, name in names.items():
            rows[chip, source.stem, name] = measure(name, functions[mangled], *used[mangled])
    return rows


def read_table():
    rows, version = {}, None
    if not TABLE.exists():
        return rows, version
    for line in TABLE.read_text().splitlines():
        words = line.split()
        if line.startswith("# nvcc "):
            version = words[2]
        elif words and not line.startswith("#") and words[0] != "chip":
            values = [v if v == "-" else float(v) if "." in v else int(v) for v in words[3:]]
            rows[tuple(words[:3])] = dict(zip(COLUMNS, values))
    return rows, version


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


def compare(rows, table, files):
    failures = [f"{' '.join(key)}: is in the table, not in the code" for key in table
                if key[1] in files and key not in rows]
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
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    sys.setrecursionlimit(10000)
    table, table_version = read_table()
    version = compiler_version(options.nvcc)
    if not options.update and version != table_version:
        print(f"skipped: here is nvcc {version}, " + (f"the table is of {table_version}" if table_version
                                                      else "there is no table: build the target update_sass"))
        return SKIPPED
    options.scratch.mkdir(parents=True, exist_ok=True)
    rows = {}
    for source in options.files:
        rows |= measure_file(options, source)
    files = {source.stem for source in options.files}
    if options.update:
        others = {key: row for key, row in table.items() if key[1] not in files}
        write_table(others | rows, version)
        return 0
    failures = compare(rows, table, files)
    for line in failures:
        print(f"error: {line}")
    if failures:
        print("If this is meant, build the target update_sass and say why in the commit.")
    print(f"{len(rows)} kernels of {len(files)} files, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
