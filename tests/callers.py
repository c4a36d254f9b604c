#!/usr/bin/env python3
"""Fails for functions that only their own declarations name: dead code, or code that only tests use.

usage: callers.py SOURCE
It reads the headers of lib, kernels, tools and python for names of functions, and all their sources for uses. A use is any
mention that is neither a declaration nor a definition, and a macro that pastes the name. Overrides are used through their
base.
"""
import re
import sys
from pathlib import Path

# A type, a name and "(" begin a declaration. These words are no types, and behind an operator there is an expression: "2 * x * f(".
NOT_TYPES = {"return", "else", "new", "throw", "case", "co_return", "goto", "delete", "not", "and", "or", "if", "while"}
TYPE = r"[A-Za-z_]\w*(?:::\w+)*(?:<[^;{}()]*>)?(?:\s*(?:const\s*)?[*&]+\s*|\s+)"
DECLARED = re.compile(rf"(?:^|[;{{}}>\s])({TYPE})(?:\w+::)*(~?[A-Za-z_]\w*)\s*\(")
OPERATORS = tuple("+-*/%=!?|(,.")
# Programs of tests/ measure and watch a device by these; the shipped program has no use for them.
FOR_PROGRAMS_OF_TESTS = {"gpu_copy", "gpu_milliseconds", "multiply_rounded", "spent", "watched"}
COMPILERS_OWN = {"__align__"}


def code_of(path):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.S)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def declared_in(text):
    for match in DECLARED.finditer(text):
        first = match.group(1).split("<")[0].strip().split()[0].rstrip("*&")
        before = text[: match.start(1)].rstrip()[-1:]
        if first not in NOT_TYPES and before not in OPERATORS:
            yield match.group(2)


def main():
    root = Path(sys.argv[1])
    files = [f for room in ("lib", "kernels", "tools", "python") for f in sorted((root / room).rglob("*"))
             if f.suffix in (".h", ".cc", ".cu")]
    if not files:
        sys.exit(f"no source below {root}")
    declared, mentioned, place, pasted = {}, {}, {}, set()
    for file in files:
        text = code_of(file)
        names = list(declared_in(text))
        for name in names:
            declared[name] = declared.get(name, 0) + 1
            if file.suffix == ".h":
                place.setdefault(name, file.relative_to(root))
        for name in re.findall(r"~?[A-Za-z_]\w*", text):
            mentioned[name] = mentioned.get(name, 0) + 1
        for statement in re.split(r"[;{}]", text):
            if "override" in statement and (name := re.search(r"(\w+)\s*\(", statement)):
                declared[name[1]] = -(1 << 30)
        pasted.update(re.findall(r"\b(\w+_)\s*##", text))
    dead = [name for name in place if mentioned.get(name, 0) <= declared[name] and not name.startswith(("~", *pasted)) and
            name not in FOR_PROGRAMS_OF_TESTS | COMPILERS_OWN]
    for name in sorted(dead, key=lambda name: str(place[name])):
        print(f"{place[name]}: nothing calls {name}")
    print(f"{len(place)} functions, {len(dead)} without a caller")
    sys.exit(1 if dead else 0)


main()
