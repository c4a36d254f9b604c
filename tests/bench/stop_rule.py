#!/usr/bin/env python3
"""How many samples `calibrate --stop-when-stable` uses, and how far its scales are from those of all samples.

usage: stop_rule.py KVCAL MODEL DATASET [--recipe recipes/fp8_kv_tensor.yaml] [--ratios 0.01 0.02 0.05] [--windows 16 32 64]
                    [--num-samples 512] [--max-seq-length 512] [--kv-forward exact] [--shuffle-seed N] [--scratch FOLDER]
Runs kvcal once over all samples and once for each ratio and window, and compares every scale of K and V. Prints a Markdown table: samples used of
those there are, the largest move in the last window, and the largest and the median change of a scale from the stopped run to the full one.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

DEFAULT_RECIPE = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "fp8_kv_tensor.yaml"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("dataset")
    parser.add_argument("--recipe", default=str(DEFAULT_RECIPE))
    parser.add_argument("--ratios", nargs="+", default=["0.01", "0.02", "0.05"])
    parser.add_argument("--windows", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--num-samples", type=int, default=512)
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--kv-forward", default="exact")
    parser.add_argument("--shuffle-seed", type=int)
    parser.add_argument("--scratch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        full = calibrate(options, pathlib.Path(folder) / "full")
        print(f"{pathlib.Path(options.recipe).name}, {options.kv_forward}: {full['dataset']['num_samples']} samples, "
              f"{full['dataset']['num_tokens']} tokens\n", flush=True)
        print("| ratio | window | samples | stable | largest move in the window | largest change to all samples | of | median |\n"
              + "| --- " * 8 + "|", flush=True)
        for ratio in options.ratios:
            for window in options.windows:
                found = calibrate(options, pathlib.Path(folder) / f"{ratio}-{window}", "--stop-when-stable", ratio,
                                  "--stable-samples", window)
                print(row(found, full), flush=True)


def calibrate(options, output, *more):
    """The manifest."""
    arguments = [options.kvcal, "calibrate", options.model, "--recipe", options.recipe, "--dataset", options.dataset,
                 "--num-samples", options.num_samples, "--max-seq-length", options.max_seq_length,
                 "--kv-forward", options.kv_forward, "--scales-only", "--output", output, "--json", *more]
    if options.shuffle_seed is not None:
        arguments += ["--shuffle-seed", options.shuffle_seed]
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def scales_of(manifest):
    """Scale by (layer, side, head)."""
    scales = {}
    for layer in manifest["layers"]:
        for side in ("k_scale", "v_scale", "q_scale"):
            values = layer.get(side)
            for head, value in enumerate(values if isinstance(values, list) else [values]):
                if value is not None:
                    scales[layer["layer"], side, head] = value
    return scales


def row(found, full):
    stop, before, after = found["stop"], scales_of(found), scales_of(full)
    assert before.keys() == after.keys()
    changes = {place: abs(after[place] - before[place]) / before[place] for place in before}
    layer, side, _ = worst = max(changes, key=changes.get)
    move = stop["largest_move"]
    return (f"| {100 * stop['ratio']:g} % | {stop['window']} | {stop['num_samples']} of {stop['max_samples']} | {'yes' if stop['is_stable'] else 'no'} | "
            f"{100 * move['ratio']:.2f} % | {100 * changes[worst]:.2f} % | {side} of layer {layer} | {100 * statistics.median(changes.values()):.2f} % |")


if __name__ == "__main__":
    main()
