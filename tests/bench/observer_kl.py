#!/usr/bin/env python3
"""What each observer and granularity of KV scales costs: KL from the cache without FP8, over the same tokens.

usage: observer_kl.py KVCAL MODEL CALIBRATION TEXT [--num-samples 20] [--max-seq-length 1024] [--compute-dtype float32] [--scratch FOLDER]
KVCAL: the program. CALIBRATION: what scales are made of, TEXT: what is scored. One exact forward keeps statistics; every setting's scales
come from them (kvcal scales), and are scored by kvcal eval --task kl. "quantized" is the default run of calibrate, "scale 1.0" --unit-scales.
minmax is llm-compressor's default. Prints a Markdown table, sorted by mean KL. "against the default" is the difference of mean KL from the default's,
with the standard error of the mean over the same sequences (paired): less than two of those is no difference.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

RECIPE = "s_stage: {{g_modifiers: {{QuantizationModifier: {{kv_cache_scheme: {{type: float, num_bits: 8, strategy: {}, observer: {}}}}}}}}}\n"
OBSERVERS = ("static_minmax", "minmax", "memoryless_minmax", "mse", "percentile", "entropy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("text")
    parser.add_argument("--num-samples", type=int, default=20)
    parser.add_argument("--max-seq-length", type=int, default=1024)
    parser.add_argument("--compute-dtype", default="float32")
    parser.add_argument("--scratch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows = measure(options, pathlib.Path(folder))
    print("| scales | granularity | mean KL | against the default | 99 % | largest | same first token | perplexity |\n" + "| --- " * 8 + "|")
    default = rows[0][2]
    for name, strategy, found in sorted(rows, key=lambda row: row[2]["kl_mean"]):
        against = "–" if found is default else "{:+.6f} ± {:.6f}".format(*paired(found["sequences"], default["sequences"]))
        print(f"| {name} | {strategy} | {found['kl_mean']:.6f} | {against} | {found['kl_p99']:.4f} | {found['kl_max']:.3f} | "
              f"{100 * found['top1_agreement']:.2f} % | {found['perplexity']:.4f} |")


def paired(sequences, default):
    """Mean difference of the sequences' mean KL, and its standard error."""
    differences = [one["kl_mean"] - other["kl_mean"] for one, other in zip(sequences, default, strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def measure(options, folder):
    def run(*arguments):
        done = subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: kvcal {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
        return done.stdout

    def score(checkpoint, *arguments):
        return json.loads(run("eval", checkpoint, "--task", "kl", "--dataset", options.text, "--num-samples", options.num_samples,
                              "--max-seq-length", options.max_seq_length, "--compute-dtype", options.compute_dtype, "--json", *arguments))

    recipe, kept = folder / "recipe.yaml", folder / "kept.safetensors"
    recipe.write_text(RECIPE.format("tensor", "static_minmax"))
    calibrate = ("calibrate", options.model, "--recipe", recipe, "--dataset", options.calibration, "--compute-dtype", options.compute_dtype)
    run(*calibrate, "--output", folder / "quantized")
    rows = [("static_minmax, quantized forward (the default)", "tensor", score(folder / "quantized")),
            ("scale 1.0", "-", score(folder / "quantized", "--unit-scales"))]
    run(*calibrate, "--output", folder / "exact", "--kv-forward", "exact", "--save-statistics", kept)
    for observer in OBSERVERS:
        for strategy in ("tensor", "attn_head"):
            recipe.write_text(RECIPE.format(strategy, observer))
            run("scales", "--statistics", kept, "--recipe", recipe, "--model", options.model, "--output", folder / "out", "--overwrite")
            rows.append((observer, strategy, score(folder / "out")))
            print(f"{observer} {strategy}: {rows[-1][2]['kl_mean']:.6f}", file=sys.stderr, flush=True)
    return rows


main()
