"""Renders random templates by transformers' own renderer and by chat_template_dump (built with
-DKVCAL_BENCH=ON) and prints where they differ: mutations of our templates, and random expressions.

Run: python3 reference/fuzz_chat_template.py DUMP SEED COUNT   (versions: chat_template_reference.py)
"""

import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import warnings

from chat_template_expressions import EXPRESSIONS, TEMPLATES, VARIABLES
from chat_template_reference import render

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures/text/templates"
TOKEN = re.compile(r"\{%[-+]?|[-+]?%\}|\{\{-?|-?\}\}|\{#-?|-?#\}|\w+|'[^'\n]*'|\"[^\"\n]*\"|\s+|.", re.S)
# What kvcal refuses on purpose: see docs of lib/jinja, and the UNSUPPORTED of chat_template_expressions.py.
ON_PURPOSE = ("not supported", "64 signed bits", "the limit", "could be printed", "levels", "surrogate", "two values", "mixed")
# Jinja2 folds slices of literals that cannot be sliced to undefined, and refuses those of variables.
ON_PURPOSE += ("cannot be sliced", "slice indices")


def tokens_of(text: str) -> list[str]:
    return TOKEN.findall(text)


def mutated(source: list[str], pool: list[str], rng: random.Random) -> str:
    tokens = list(source)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(tokens) + 1)
        kind = rng.random()
        if kind < 0.35 and at < len(tokens):
            tokens[at] = rng.choice(pool)
        elif kind < 0.6:
            tokens.insert(at, rng.choice(pool))
        elif kind < 0.8 and at < len(tokens):
            del tokens[at]
        elif at + 1 < len(tokens):
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


ATOMS = ["1", "0", "-3", "2.5", "'a'", "'Bc d'", "''", "true", "none", "[]", "[3, 1, 2]", "(1, 'a')", "{'k': 1}", "text", "list", "words",
         "users", "pairs", "nothing", "missing", "number", "emoji", "nested", "mixed", "range(3)", "tool", "spaced", "'é😀'", "quotes"]
FILTERS = ["length", "upper", "lower", "title", "trim", "first", "last", "list", "string", "int", "float", "abs", "round", "join(',')", "sort",
           "unique|list", "reverse|list", "tojson", "default('d')", "default('d', true)", "map('string')|list", "select|list", "map(attribute='name')|list",
           "selectattr('name')|list", "sum", "min", "max", "indent", "e", "wordcount", "dictsort", "items|list", "batch(2)|list", "capitalize",
           "replace('a', 'b')", "center(9)", "rejectattr('age', 'eq', 30)|list", "groupby('age')", "slice(2)|list", "truncate(5, true, '', 0)", "attr('upper') is defined", "count", "safe", "forceescape"]
TESTS = ["defined", "none", "string", "number", "mapping", "sequence", "iterable", "odd", "even", "in [1, 'a']", "eq 1", "true", "boolean", "callable", "lower", "divisibleby 3", "gt 1", "not string", "sameas none", "integer", "float"]
METHODS = ["upper()", "split()", "split('a')", "strip()", "items()", "keys()|list", "get('k', 0)", "startswith('a')", "replace('a', 'x')", "count('a')", "index(1)",
           "find('a')", "title()", "splitlines()", "join(['x', 'y'])", "isdigit()", "rstrip('c')", "lstrip()", "name", "k", "foo", "values()|list", "format(1)", "zfill(5)", "partition('a')", "endswith(('a', 'd'))"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 3 or kind < 0.2:
        return rng.choice(ATOMS)
    if kind < 0.45:
        return f"({expression(rng, depth + 1)} {rng.choice(OPERATORS)} {expression(rng, depth + 1)})"
    if kind < 0.65:
        return f"({expression(rng, depth + 1)}|{rng.choice(FILTERS)})"
    if kind < 0.75:
        return f"({expression(rng, depth + 1)} is {rng.choice(TESTS)})"
    if kind < 0.85:
        return f"{expression(rng, depth + 1)}.{rng.choice(METHODS)}"
    if kind < 0.92:
        parts = [rng.choice(["", "0", "1", "-1", "2", "-3", "'k'", "none"]) for _ in range(rng.choice((1, 2, 3)))]
        return f"{expression(rng, depth + 1)}[{':'.join(parts)}]"
    if kind < 0.97:
        return f"({expression(rng, depth + 1)} if {expression(rng, depth + 1)} else {expression(rng, depth + 1)})"
    return f"[{expression(rng, depth + 1)}, {expression(rng, depth + 1)}]"


def statements(rng: random.Random, depth: int = 0) -> str:
    """A random program of assignments, conditions, loops and macros over four names: for the scoping."""
    return "".join(statement(rng, depth) for _ in range(rng.randrange(1, 4)))


def statement(rng: random.Random, depth: int) -> str:
    a, b = rng.choice("xyzt"), rng.choice("xyzt")

    def body() -> str:
        return statements(rng, depth + 1) if depth < 3 else rng.choice((".", f"{{{{ {a} }}}}", f"{{% set {b} = 7 %}}"))

    def tag(text: str) -> str:
        return rng.choice(("{% ", "{%- ", "{%+ ", "\n  {% ")) + text + rng.choice((" %}", " -%}", " %}\n", " +%}\n "))

    leave = rng.choice(("break", "continue"))
    kinds = (
        lambda: f"{{{{ {a} }}}}",
        lambda: f" {{{{ {a}|d('-') }}}}\n",
        lambda: tag(f"set {a} = {b}|d('') ~ {rng.choice('123')}"),
        lambda: tag(f"set {a}") + body() + tag("endset"),
        lambda: tag(f"if {a} is defined") + body() + tag("else") + body() + tag("endif"),
        lambda: tag(f"if {a} == '1'") + body() + tag(f"elif {b}") + body() + tag("endif"),
        lambda: tag(f"for {a} in ['p', 'q']") + body() + tag("endfor"),
        lambda: tag(f"for {a} in 'ab' if {b} != 'a'") + body() + "{{ loop.index }}{{ loop.last }}" + tag("endfor"),
        lambda: tag(f"for {a} in range(3)") + body() + tag(f"if {a} == 1") + tag(leave) + tag("endif") + tag("else") + body() + tag("endfor"),
        lambda: tag(f"macro {a}m({b}, y={a})") + body() + tag("endmacro") + f"{{{{ {a}m({a}) }}}}{{{{ {b}m }}}}",
        lambda: tag(f"with {a} = {b}, t = 1") + body() + tag("endwith"),
        lambda: tag("filter upper") + body() + tag("endfilter"),
        lambda: tag("generation") + body() + tag("endgeneration"),
        lambda: tag(f"set ns = namespace({a}={b})") + tag(f"set ns.{b} = {a}") + "{{ ns.x }}{{ ns.t is defined }}",
        lambda: tag("macro w()") + "<{{ caller('c') }}>" + tag("endmacro") + tag(f"call({a}) w()") + body() + tag("endcall"),
    )
    return rng.choice(kinds)()


def cases(rng: random.Random, count: int):
    shared = json.loads((FOLDER / "conversations.json").read_text(encoding="utf-8"))
    chats = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))]
    pool = [token for source in chats + TEMPLATES + EXPRESSIONS.split("\n") for token in tokens_of(source)]
    sources = [tokens_of(source) for source in chats]
    small = [tokens_of("{{ " + line + " }}") for line in EXPRESSIONS.strip("\n").split("\n")] + [tokens_of(s) for s in TEMPLATES if s]
    scoped = {"x": "X", "t": "T", **VARIABLES}
    for _ in range(count):
        kind = rng.random()
        if kind < 0.25:
            conversation = rng.choice(list(shared["conversations"].values()))
            setting = rng.choice(list(shared["settings"].values()))
            yield mutated(rng.choice(sources), pool, rng), {**setting, "messages": conversation}
        elif kind < 0.5:
            yield mutated(rng.choice(small), pool, rng), VARIABLES
        elif kind < 0.75:
            yield "{{ " + expression(rng) + " }}", VARIABLES
        else:
            yield statements(rng), scoped


def main() -> int:
    warnings.simplefilter("ignore")
    dump, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    made = list(cases(random.Random(seed), count))
    lines = "".join(json.dumps({"template": source, "variables": variables}) + "\n" for source, variables in made)
    run = subprocess.run([dump], input=lines, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]
    differing = same = refused = skipped = 0
    for (source, variables), ours in zip(made, found, strict=True):
        theirs = render(source, copy.deepcopy(variables))  # Python's `+=` changes lists in place
        if "error" in ours and any(text in ours["error"] for text in ON_PURPOSE) or " at 0x" in theirs.get("text", ""):
            skipped += 1
        elif ours.get("text") == theirs.get("text"):
            same += "text" in theirs
            refused += "error" in theirs
        else:
            differing += 1
            print(f"--- {source!r}\n  ours   {ours}\n  theirs {theirs}")
    print(f"{count} templates: {same} equal texts, {refused} refused by both, {skipped} refused on purpose, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
