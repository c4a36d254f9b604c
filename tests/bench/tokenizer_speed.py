#!/usr/bin/env python3
"""Megabytes a second that our tokenizer and the `tokenizers` library encode on one thread, in turn, and whether all ids are equal.

usage: tokenizer_speed.py TOKENIZER_DUMP MODEL_FOLDER [FILE...] [--runs 5] [--repeat 5] [--json]
FILE: as in reference/compare_tokenizer.py; default: the texts in datasets/. Python of tests/bench/install_peers.sh (reference).
Printed are medians of the runs. A run encodes all documents --repeat times; neither side keeps words of the run before.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "reference"))
import compare_tokenizer  # noqa: E402  (it also sets both libraries to one thread)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("model")
parser.add_argument("files", nargs="*", default=[str(ROOT / "datasets" / name) for name in ("calibration.jsonl", "evaluation.txt")])
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--json", action="store_true")
arguments = parser.parse_args()

texts = [text for path in arguments.files for text in compare_tokenizer.documents(path) if text]
stream = b"".join(b"%d\n%s" % (len(data), data) for data in (text.encode() for text in texts))
size = sum(len(text.encode()) for text in texts) * arguments.repeat


def run_ours():
    done = subprocess.run([arguments.program, arguments.model, "--repeat", str(arguments.repeat)], input=stream, capture_output=True, check=True)
    encoded, seconds = done.stderr.split()[-2:]
    assert int(encoded) == size
    return [[int(word) for word in line.split()] for line in done.stdout.decode().split("\n")[:-1]], float(seconds)


def run_theirs():
    encode, _ = compare_tokenizer.reference(arguments.model)  # new each time, for its cache of words
    begin = time.perf_counter()
    for _ in range(arguments.repeat):
        ids = [encode(text) for text in texts]
    return ids, time.perf_counter() - begin


ours, theirs = [], []
for _ in range(arguments.runs):
    got, seconds = run_ours()
    ours.append(size / seconds / 1e6)
    expected, seconds = run_theirs()
    theirs.append(size / seconds / 1e6)
    if got != expected:
        different = sum(a != b for a, b in zip(got, expected, strict=True))
        sys.exit(f"error: ids of {different} of {len(texts)} documents differ")
result = {"documents": len(texts), "bytes": size, "kvcal_mb_per_second": statistics.median(ours),
          "tokenizers_mb_per_second": statistics.median(theirs)}
result["ratio"] = result["kvcal_mb_per_second"] / result["tokenizers_mb_per_second"]
if arguments.json:
    print(json.dumps(result))
else:
    print(f"{len(texts)} documents, {size / 1e6:.1f} MB a run: kvcal {result['kvcal_mb_per_second']:.1f} MB/s, "
          f"tokenizers {result['tokenizers_mb_per_second']:.1f} MB/s, ratio {result['ratio']:.2f}, all ids equal")
