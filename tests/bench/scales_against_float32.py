#!/usr/bin/env python3
"""How far scales of FP8 calibrations in bfloat16 are from those in float32, of two programs on the same samples: noise, or a loss?

usage: scales_against_float32.py OLD NEW MODEL DATA [--samples 12] [--length 512] [--shuffles 8]
Each shuffle of DATA gives other samples. Codes of an FP8 cache that round to the other side move everything behind them, so single differences say
little: compared is the root mean square over the layers, paired by shuffle. Prints a line a shuffle and the mean difference with its standard error.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser()
    for name in ("old", "new", "model", "data"):
        parser.add_argument(name)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--shuffles", type=int, default=8)
    options = parser.parse_args()
    differences = []
    for seed in range(1, options.shuffles + 1):
        exact = scales(options, options.old, "float32", seed)
        old, new = (distances(scales(options, program, "bfloat16", seed), exact) for program in (options.old, options.new))
        differences.append(rms(new) - rms(old))
        print(f"shuffle {seed}: root mean square {rms(old):.3%} and {rms(new):.3%}, largest {max(map(abs, old)):.2%} and {max(map(abs, new)):.2%}", flush=True)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"new less old: {statistics.mean(differences):+.3%} +- {error:.3%}")


def scales(options, program, dtype, seed):
    """One a layer, the larger of K's and V's."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([program, "calibrate", options.model, "--recipe", "fp8_kv_tensor", "--dataset", options.data, "--num-samples",
                               str(options.samples), "--max-seq-length", str(options.length), "--shuffle-seed", str(seed), "--compute-dtype", dtype,
                               "--kv-forward", "quantized", "--format", "scales-json", "--scales-only", "-o", f"{folder}/out"],
                              capture_output=True, text=True)
        if made.returncode != 0:
            sys.exit(f"error: {program}: {made.stderr}")
        of_layers = json.loads((pathlib.Path(folder) / "out/kv_cache_scales.json").read_text())["kv_cache"]["scaling_factor"]["0"]
        return [of_layers[layer] for layer in sorted(of_layers, key=int)]


def distances(found, expected):
    return [a / b - 1 for a, b in zip(found, expected, strict=True)]


def rms(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


main()
