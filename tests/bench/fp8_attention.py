"""What FP8 attention costs beside an FP8 cache.

    python3 tests/bench/fp8_attention.py KVCAL MODEL TEXT [--windows 8] [--length 512] [--calibrate-with DATASET]

Calibrates MODEL with recipes/fp8_attention.yaml (Q, K and V), and measures in one pass over windows of TEXT the cache alone and
with attention in FP8, with calibrated scales and with 1.0. Differences are paired window by window. Prints Markdown.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("kvcal")
parser.add_argument("model")
parser.add_argument("text")
parser.add_argument("--windows", type=int, default=8)
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--calibrate-with", default="calibration")
parser.add_argument("--num-samples", type=int, default=32)
parser.add_argument("--threads", default="2")
given = parser.parse_args()


def run(*arguments):
    return subprocess.run([given.kvcal, *map(str, arguments)], check=True, capture_output=True, text=True)


def paired(more, less):
    differences = [a["kl_mean"] - b["kl_mean"] for a, b in zip(more["sequences"], less["sequences"], strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences))


with tempfile.TemporaryDirectory() as folder:
    for name, recipe in (("cache", "fp8_kv_tensor"), ("attention", "fp8_attention")):
        run("calibrate", given.model, "--recipe", recipe, "--dataset", given.calibrate_with, "--num-samples",
            given.num_samples, "--scales-only", "--output", f"{folder}/{name}", "--threads", given.threads, "--quiet")
    variants = [f"cache, calibrated=fp8_e4m3:{folder}/cache", "cache, 1.0=fp8_e4m3:unit",
                f"attention, calibrated=fp8_e4m3+attention:{folder}/attention",
                f"attention, Q with 1.0=fp8_e4m3+attention:{folder}/cache", "attention, 1.0=fp8_e4m3+attention:unit"]
    result = json.loads(run("eval", given.model, "--task", "kl", "--dataset", given.text, "--num-samples", given.windows,
                            "--max-seq-length", given.length, "--threads", given.threads, "--json",
                            *[word for variant in variants for word in ("--variant", variant)]).stdout)
rows = {row["name"]: row for row in result["variants"]}
print(f"| {pathlib.Path(given.model).name}: {next(iter(rows.values()))['num_tokens']} tokens | KL | perplexity | same top | against the cache |")
print("| --- | --- | --- | --- | --- |")
for name, row in rows.items():
    base = rows["cache, 1.0" if name.endswith(", 1.0") else "cache, calibrated"]
    against = "" if row is base else "{:+.6f} ± {:.6f}".format(*paired(row, base))
    print(f"| {name} | {row['kl_mean']:.6f} ± {row['kl_stderr']:.6f} | {100 * row['perplexity_increase']:+.2f} % | "
          f"{100 * row['top1_agreement']:.2f} % | {against} |")
