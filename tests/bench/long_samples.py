"""What the length of calibration samples does to a cache at late positions.

    python3 tests/bench/long_samples.py KVCAL MODEL CALIBRATION_TEXT TEXT [--lengths 512 2048 8192] [--tokens 16384]
        [--windows 2] [--length 8192]

Calibrates MODEL on as many tokens of CALIBRATION_TEXT, cut into samples of each length from its beginning, and measures the
scales of each, and scale 1.0, in one pass over windows of TEXT: KL from the 16-bit cache by position. --windows 0 leaves that
out, and only compares the largest values that samples of each length show. Prints Markdown.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("kvcal")
parser.add_argument("model")
parser.add_argument("calibration_text")
parser.add_argument("text")
parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
parser.add_argument("--tokens", type=int, default=16384)
parser.add_argument("--windows", type=int, default=2)
parser.add_argument("--length", type=int, default=8192)
parser.add_argument("--threads", default="2")
given = parser.parse_args()

CHARACTERS = 6  # a token, more than it has, so that samples are as long as they may be


def run(*arguments):
    return subprocess.run([given.kvcal, *map(str, arguments)], check=True, capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(given.calibration_text).read_text()
    variants, manifests = ["scale 1.0=fp8_e4m3:unit"], {}
    for length in given.lengths:
        out, data, size = f"{folder}/{length}", pathlib.Path(folder, f"{length}.jsonl"), length * CHARACTERS
        data.write_text("".join(json.dumps({"text": text[i * size:(i + 1) * size]}) + "\n"
                                for i in range(given.tokens // length)))
        run("calibrate", given.model, "--dataset", data, "--num-samples", given.tokens // length,
            "--max-seq-length", length, "--scales-only", "--output", out, "--threads", given.threads, "--quiet")
        manifests[length] = json.loads(pathlib.Path(out, "kvcal_manifest.json").read_text())
        variants.append(f"samples of {length}=fp8_e4m3:{out}")
    result = None
    if given.windows > 0:
        result = json.loads(run("eval", given.model, "--task", "kl", "--dataset", given.text, "--num-samples", given.windows,
                                "--max-seq-length", given.length, "--threads", given.threads, "--json",
                                *[word for variant in variants for word in ("--variant", variant)]).stdout)

print("| samples | tokens | K: median and largest growth of amax | V |")
print("| --- | --- | --- | --- |")
first = manifests[given.lengths[0]]
for length, manifest in manifests.items():
    cells = []
    for side in ("k_amax", "v_amax"):
        growth = [now[side] / before[side] - 1 for now, before in zip(manifest["layers"], first["layers"], strict=True)]
        cells.append(f"{100 * statistics.median(growth):+.1f} %, {100 * max(growth):+.1f} %")
    print(f"| {manifest['dataset']['num_samples']} of {length} | {manifest['dataset']['num_tokens']} | {cells[0]} | {cells[1]} |")
if result:
    rows = result["variants"]
    print("\n| positions | tokens | " + " | ".join(row["name"] for row in rows) + " |")
    print("| --- " * (len(rows) + 2) + "|")
    for bucket in range(len(rows[0]["positions"])):
        cells = [row["positions"][bucket] for row in rows]
        print(f"| {cells[0]['first']}–{cells[0]['last']} | {cells[0]['num_tokens']} | "
              + " | ".join(f"{one['kl_mean']:.6f}" for one in cells) + " |")
    print("| all | " + str(rows[0]["num_tokens"]) + " | "
          + " | ".join(f"{row['kl_mean']:.6f} ± {row['kl_stderr']:.6f}" for row in rows) + " |")
