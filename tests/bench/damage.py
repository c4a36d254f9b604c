#!/usr/bin/env python3
"""How well the damage that a calibration sees in attention tells which layers, and which models, an FP8 cache hurts.

usage: damage.py KVCAL DATASET TEXT MODEL [MODEL ...] [--num-samples 24] [--num-sequences 4] [--max-seq-length 512]
                 [--compute-dtype auto] [--scratch FOLDER]
DATASET: what calibrates; TEXT: what is measured, which the calibration has not seen. For each model kvcal calibrates once,
and measures the KL of each layer's cache alone (eval --task sensitivity) and of all layers. Prints a Markdown table: the
rank correlation (Spearman) over the layers of their KL with the error of attention's output and with the KL of its softmax
weights, both with the calibrated scales, whether the layer with the largest KL is the first by either, and for the whole
model the KL measured and the sums over the layers. --layers prints each layer, too.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def run(arguments):
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def ranks(values):
    """Equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in range(at, end + 1):
            result[order[i]] = (at + end) / 2
        at = end + 1
    return result


def correlation(x, y):
    x, y = ranks(x), ranks(y)
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y))
    squares = sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)
    return products / squares ** 0.5 if squares > 0 else float("nan")


def measured(options, model, folder):
    """By layer (output error, KL of weights, measured KL), and the KL of all layers."""
    output = folder / "scales"
    manifest = run([options.kvcal, "calibrate", model, "--dataset", options.dataset, "--num-samples", options.num_samples,
                    "--max-seq-length", options.max_seq_length, "--compute-dtype", options.compute_dtype, "--scales-only",
                    "--output", output, "--overwrite", "--json"])
    found = run([options.kvcal, "eval", model, "--task", "sensitivity", "--dataset", options.text, "--num-samples",
                 options.num_sequences, "--max-seq-length", options.max_seq_length, "--scales", output,
                 "--kv-cache-dtype", "fp8_e4m3", "--compute-dtype", options.compute_dtype, "--json"])
    found = found["sensitivity"]
    kl = {layer["layer"]: layer["kl_mean"] for layer in found["ranking"]}
    rows = []
    for layer in manifest["layers"]:
        damage = layer.get("attention_damage")
        if damage and layer["layer"] in kl:
            own = damage["calibrated"]
            rows.append((layer["layer"], own["output_error"], own["weights_kl"], kl[layer["layer"]]))
    return rows, next(row["kl_mean"] for row in found["rows"] if not row["layers"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kvcal")
    parser.add_argument("dataset")
    parser.add_argument("text")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--num-samples", type=int, default=24)
    parser.add_argument("--num-sequences", type=int, default=4)
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--compute-dtype", default="auto")
    parser.add_argument("--scratch")
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    print("| model | layers | output error | KL of weights | the worst layer is first by | KL measured | sum of squared errors | sum of KLs of weights |\n" +
          "| --- " * 8 + "|")
    for model in options.models:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            rows, kl = measured(options, model, pathlib.Path(folder))
        numbers, errors, weights, kls = zip(*rows)
        worst = kls.index(max(kls))
        first = [name for name, values in (("error", errors), ("KL of weights", weights)) if values[worst] == max(values)]
        print(f"| {pathlib.Path(model).name} | {len(rows)} | {correlation(errors, kls):.2f} | {correlation(weights, kls):.2f} | "
              f"{' and '.join(first) or 'neither'} | {kl:.4f} | {sum(e * e for e in errors):.4f} | {sum(weights):.4f} |", flush=True)
        if options.layers:
            for row in rows:
                print("  layer %d: output error %.5f, KL of weights %.6f, KL alone %.6f" % row)


if __name__ == "__main__":
    main()
