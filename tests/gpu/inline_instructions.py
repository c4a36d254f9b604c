#!/usr/bin/env python3
"""Sees that the code that hipcc compiles for AMD's chips has no inline instructions.

LLVM inserts the wait states that a chip needs between instructions for those that it knows, and for none that an `asm` holds
(docs/gpu.md, "Hazards of AMD's chips"). So HIP code calls the compiler's functions. The preprocessor decides what HIP code is.
usage: inline_instructions.py SOURCE_TREE --include FOLDER... [--compiler C++]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# As hipcc defines them when it compiles for a chip.
HIP = ["-D__HIPCC__=1", "-D__HIP__=1", "-D__HIP_PLATFORM_AMD__=1", "-D__HIP_DEVICE_COMPILE__=1", "-D__AMDGCN__=1"]
INLINE = re.compile(r"\b(?:asm|__asm__|__asm)\b[^;]*;")
# The preprocessor's line that says which line of which file follows.
MARKER = re.compile(r'^# (\d+) "([^"]*)".*$', re.MULTILINE)


def pieces_of(sources: list[Path], includes: list[Path], compiler: str):
    """What the preprocessor leaves of the sources and their headers for hipcc: (file, first line, text)."""
    with tempfile.TemporaryDirectory() as scratch:
        # Only the names of AMD's headers matter here.
        header = Path(scratch, "hip", "hip_runtime.h")
        header.parent.mkdir()
        header.touch()
        text = "".join(f'#include "{source.resolve()}"\n' for source in sources)
        command = [compiler, "-std=c++20", "-E", "-x", "c++", *HIP, f"-I{scratch}", *(f"-I{folder}" for folder in includes), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {compiler} -E: {done.stderr}")
    parts = MARKER.split(done.stdout)
    yield from zip(parts[2::3], map(int, parts[1::3]), parts[3::3])


def inline_instructions(root: Path, sources: list[Path], includes: list[Path], compiler: str) -> list[str]:
    """The inline instructions in files of the source tree: "FILE:LINE: INSTRUCTION"."""
    found = []
    for file, line, text in pieces_of(sources, includes, compiler):
        path = Path(file).resolve()
        if not path.is_relative_to(root.resolve()):
            continue
        for one in INLINE.finditer(text):
            at = line + text[: one.start()].count("\n") - 1  # the text begins with the marker's end of line
            found.append(f"{path.relative_to(root.resolve())}:{at}: {' '.join(one.group().split())}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--include", type=Path, action="append", default=[])
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    kernels = arguments.root / "kernels/gpu"
    sources = sorted(kernels.glob("*.cu")) + sorted(kernels.glob("hip/*.cu"))
    if len(sources) < 2:
        raise SystemExit(f"error: {kernels} has no sources")
    found = inline_instructions(arguments.root, sources, arguments.include, arguments.compiler)
    for one in found:
        print(f"{one}: an inline instruction of HIP code", file=sys.stderr)
    if found:
        print("call the compiler's function (__builtin_amdgcn_*) instead, for which it inserts the wait states of the chip: docs/gpu.md", file=sys.stderr)
        return 1
    print(f"{len(sources)} sources have no inline instruction in HIP code")
    return 0


if __name__ == "__main__":
    sys.exit(main())
