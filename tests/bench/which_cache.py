#!/usr/bin/env python3
"""What every cache that engines offer costs a model: KL from the 16-bit cache over the same tokens, beside bytes a token.

usage: which_cache.py KVCAL MODEL CALIBRATION TEXT [--num-samples 20] [--max-seq-length 1024] [--compute-dtype float32] [--scratch FOLDER]
KVCAL: the program. CALIBRATION: what scales are made of, TEXT: what is scored, which the calibration does not see. One exact
forward keeps statistics, from which scales of heads are made (static_minmax); kvcal eval --every-cache scores all caches in
one pass. Prints a Markdown table, the least KL first. "against FP8 by layer" is the difference of mean KL, with the standard
error of its mean over the same sequences (paired): less than two of those is no difference.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HEADS = ("s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: "
         "{type: float, num_bits: 8, strategy: attn_head, observer: static_minmax}}}}\n")
BASE = "fp8, by layer"


def read_options(description, more=lambda parser: None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("kvcal")
    more(parser)
    parser.add_argument("--num-samples", type=int, default=20)
    parser.add_argument("--calibration-samples", type=int, default=128)
    parser.add_argument("--max-seq-length", type=int, default=1024)
    parser.add_argument("--compute-dtype", default="float32")
    parser.add_argument("--scratch")
    return parser.parse_args()


def run(options, *arguments):
    done = subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: kvcal {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
    return done.stdout


def keep_statistics(options, model, calibration, folder):
    """Statistics of an exact forward, and the scales of its heads beside them."""
    kept, recipe, scales = folder / "kept.safetensors", folder / "recipe.yaml", folder / "scales"
    recipe.write_text(HEADS)
    run(options, "calibrate", model, "--recipe", recipe, "--dataset", calibration, "--num-samples", options.calibration_samples,
        "--max-seq-length", options.max_seq_length, "--compute-dtype", options.compute_dtype, "--kv-forward", "exact",
        "--save-statistics", kept, "--scales-only", "--output", scales)
    return kept, scales


def score_caches(options, model, text, scales):
    """Each cache's result of eval."""
    found = json.loads(run(options, "eval", model, "--task", "kl", "--dataset", text, "--num-samples", options.num_samples,
                           "--max-seq-length", options.max_seq_length, "--compute-dtype", options.compute_dtype, "--every-cache",
                           "--scales", scales, "--json"))
    return found["variants"]


def paired(cache, base):
    """Mean difference of the sequences' mean KL, and its standard error."""
    differences = [one["kl_mean"] - other["kl_mean"] for one, other in zip(cache["sequences"], base["sequences"], strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def main():
    def more(parser):
        for name in ("model", "calibration", "text"):
            parser.add_argument(name)
    options = read_options(__doc__, more)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        _, scales = keep_statistics(options, options.model, options.calibration, pathlib.Path(folder))
        caches = score_caches(options, options.model, options.text, scales)
    base = next(cache for cache in caches if cache["name"] == BASE)
    print(f"{base['num_tokens']} tokens in {len(base['sequences'])} sequences\n")
    print("| cache | bytes a token | mean KL | against FP8 by layer | 99 % | same top token | perplexity |\n" + "| --- " * 7 + "|")
    for cache in sorted(caches, key=lambda cache: cache["kl_mean"]):
        against = "–" if cache is base else "{:+.6f} ± {:.6f}".format(*paired(cache, base))
        print(f"| {cache['name']} | {cache['bytes_per_token']} | {cache['kl_mean']:.6f} | {against} | {cache['kl_p99']:.4f} | "
              f"{100 * cache['top1_agreement']:.2f} % | {100 * cache['perplexity_increase']:+.2f} % |")


if __name__ == "__main__":
    main()
