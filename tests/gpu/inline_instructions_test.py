#!/usr/bin/env python3
"""Tests of the search for inline instructions, on code of their own."""

import os
import tempfile
import unittest
from pathlib import Path

from inline_instructions import inline_instructions

PORTABILITY = """#pragma once
#include <cstdio>
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define KVCAL_HAS_PTX 0
#else
#define KVCAL_HAS_PTX 1
#endif
"""


class InlineInstructions(unittest.TestCase):
    def found(self, text: str, header: str = "") -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in (("portability.h", PORTABILITY), ("words.h", header), ("kernel.cu", text)):
                (root / name).write_text(content)
            return inline_instructions(root, [root / "kernel.cu"], [root], os.environ.get("CXX", "c++"))

    def test_ptx_and_the_systems_headers_are_no_hip_code(self):
        text = '#include "portability.h"\n#if KVCAL_HAS_PTX\n#include "words.h"\nasm("ex2.approx.ftz.f32");\n#endif\n// asm("a comment");\nint spasm = 1;\n'
        self.assertEqual(self.found(text, 'inline void f() { asm("mma.sync"); }\n'), [])

    def test_hip_code_is_found_with_its_place(self):
        text = '#include "portability.h"\n#if KVCAL_HAS_PTX\nasm("ex2");\n#elif defined(__AMDGCN__)\n  asm("v_exp_f32 %0, %1"\n      : "=v"(a) : "v"(b));\n#endif\n'
        self.assertEqual(self.found(text), ['kernel.cu:5: asm("v_exp_f32 %0, %1" : "=v"(a) : "v"(b));'])
        self.assertEqual(self.found('#include "words.h"\n', '\nvoid f() { asm("s_nop 0"); }\n'), ['words.h:2: asm("s_nop 0");'])

    def test_every_spelling_counts(self):
        for word in ("asm", "asm volatile", "__asm__", "__asm__ volatile", "__asm"):
            self.assertEqual(len(self.found(f'void f() {{ {word}("s_nop 0"); }}\n')), 1, word)

    def test_a_macro_hides_none(self):
        self.assertEqual(len(self.found('#define NOP() asm("s_nop 0")\nvoid f() { NOP(); }\nvoid g() { NOP(); }\n')), 2)


if __name__ == "__main__":
    unittest.main()
