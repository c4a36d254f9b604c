#!/usr/bin/env python3
"""Writes tests/fixtures/text/datasets/delimited.json: CSV and TSV texts, and the rows that Python's csv module reads in them.

usage: delimited_rows.py     Run from the repository's root.

The texts are hard ones, written here, and 600 random ones of the characters that mean something. The dialects are csv's excel and
excel-tab with strict=True; rows are null where csv raises an error. Reference: csv of CPython 3.11.
"""
import csv
import io
import json
import pathlib
import random

HARD = [
    "",
    "a",
    "a,b\n1,2\n",
    "a,b\r\n1,2\r\n",
    "a,b\r1,2\r",
    "a,b\n\n\n1,2",
    "\n\na,b\n",
    ",\n,,\n",
    '""',
    '"",""\n""\n',
    '"a,b","c\nd","e\r\nf","g\rh"\n',
    '"say ""hello""",""""\n',
    '""""""\n',
    'a"b,c""d,"e"\n',
    ' "a", "b"\n',
    '"a" ,b\n',
    '"a"b,c\n',
    '"open, and never closed\n1,2\n',
    'a,"open',
    'a,"',
    '"a""',
    "caf\u00e9,\u6771\u4eac,\u0130\u2028x,\u0085y\n",
    "a;b;c\n1;2;3\n",
    "a\tb\n1,5\t\"x\ty\"\n",
    "'a','b'\n",
    "a\\,b,\\\"c\n",
    "\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"a, b\"\"}]\",2\n",
    " , \n",
    "a,b,\n",
    "\u00a0,\v,\f\n",
]


def rows_of(text, dialect):
    try:
        return list(csv.reader(io.StringIO(text, newline=""), dialect, strict=True))
    except csv.Error:
        return None


def random_texts(count):
    draw = random.Random(29)
    pick = lambda choices, most: "".join(draw.choice(choices) for _ in range(draw.randrange(1, most)))
    special = ["a", " ", ",", "\t", "\n", "\r", "\r\n", "\u00e9", '"', '""', '",', '\n"', ',"', '"\n']
    for i in range(count):
        if i % 3 == 0:
            yield pick(special, 24)
            continue
        text = ""
        for _ in range(draw.randrange(1, 12)):
            field = pick(["a", "b c", "\u00e9", "", "\t" if i % 2 else ","], 4)
            quoted = '"' + pick(["a", ",", "\t", "\n", "\r", "\r\n", '""', "\u6771"], 6) + '"'
            text += draw.choice([field, quoted]) + draw.choice([",", ",", "\t", "\n", "\r\n", "\r", "\n\n"])
        yield text


cases = [{"text": text, "comma": rows_of(text, "excel"), "tab": rows_of(text, "excel-tab")} for text in HARD + list(random_texts(600))]
lines = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path("tests/fixtures/text/datasets/delimited.json").write_text(f"[\n{lines}\n]\n")
valid = sum(case["comma"] is not None for case in cases)
print(f"{len(cases)} texts, {valid} of them CSV")
