#!/usr/bin/env python3
"""KL of scales by observer on models whose K makes FP8 hard: does an observer that judges attention choose better than extremes and squared errors?

usage: attention_observer.py KVCAL MODEL CALIBRATION TEXT [--outliers SPEC]... [--num-samples 32] [--windows 8] [--length 256]
       [--kv-forward quantized] [--compute-dtype float32] [--scratch FOLDER]
MODEL is measured as it is and rewritten by `kvcal synth --from MODEL --outliers SPEC` for each SPEC. Each recipe calibrates on the first samples of
CALIBRATION; one `kvcal eval --task kl` compares all scales, and 1.0, with a float32 cache over the first windows of TEXT. Where a model has no chat
template, the texts of a conversation's messages are joined. Prints rows of a Markdown table: KL, and the difference from the running extreme
(fp8_kv_tensor) with the standard error over the same windows, bold where it is more than two of those; and the processor seconds of calibrations.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPES = {"tensor": "fp8_kv_tensor", "mse": "fp8_kv_mse", "attention": "fp8_kv_attention_mse"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("text")
    parser.add_argument("--outliers", action="append", default=[])
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--kv-forward", default="quantized")
    parser.add_argument("--compute-dtype", default="float32")
    parser.add_argument("--scratch")
    options = parser.parse_args()
    print("| model | static_minmax | scale 1.0 | `mse` | `attention_mse` | processor seconds, static_minmax / attention_mse |\n" + "| --- " * 6 + "|")
    for spec in [None] + options.outliers:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            print(row(options, spec, pathlib.Path(folder)), flush=True)


def row(options, spec, folder):
    model = pathlib.Path(options.model).resolve()
    if spec:
        run(options, "synth", "--from", model, "--outliers", spec, "-o", folder / "rewritten")
    measured = folder / "rewritten" if spec else model
    data = readable(options.calibration, model, folder)
    seconds, variants = {}, ["--variant", "unit=fp8_e4m3:unit"]
    for name, recipe in RECIPES.items():
        begun = processor_seconds()
        run(options, "calibrate", measured, "--recipe", ROOT / "recipes" / f"{recipe}.yaml", "--dataset", data, "--num-samples", options.num_samples,
            "--max-seq-length", options.length, "--compute-dtype", options.compute_dtype, "--kv-forward", options.kv_forward, "--scales-only", "-o", folder / name)
        seconds[name] = processor_seconds() - begun
        variants += ["--variant", f"{name}=fp8_e4m3:{folder / name}"]
    found = json.loads(run(options, "eval", measured, "--task", "kl", "--dataset", options.text, "--num-samples", options.windows, "--max-seq-length",
                           options.length, "--compute-dtype", options.compute_dtype, "--reference-kv-cache-dtype", "float32", "--json", *variants))
    caches = {one["name"]: [sequence["kl_mean"] for sequence in one["sequences"]] for one in found["variants"]}
    cells = [f"{spec or 'as published'}", f"{mean(caches['tensor']):.5f}"]
    cells += [against(caches[name], caches["tensor"]) for name in ("unit", "mse", "attention")]
    return "| " + " | ".join(cells + [f"{seconds['tensor']:.1f} / {seconds['attention']:.1f}"]) + " |"


def run(options, *arguments):
    done = subprocess.run([str(pathlib.Path(options.kvcal).resolve()), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: kvcal {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
    return done.stdout


def readable(calibration, model, folder):
    """The data set, as texts where the model has no chat template."""
    config = model / "tokenizer_config.json"
    if (model / "chat_template.jinja").exists() or (config.exists() and "chat_template" in json.loads(config.read_text())):
        return calibration
    texts = folder / "texts.jsonl"
    records = [json.loads(line) for line in pathlib.Path(calibration).read_text().splitlines()]
    texts.write_text("".join(json.dumps({"text": "\n".join(one["content"] for one in record["messages"])}) + "\n" for record in records))
    return texts


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mean(values):
    return sum(values) / len(values)


def against(sequences, extreme):
    """KL, and the difference from the running extreme's over the same windows."""
    differences = [one - other for one, other in zip(sequences, extreme, strict=True)]
    middle = mean(differences)
    error = (sum((one - middle) ** 2 for one in differences) / (len(differences) - 1) / len(differences)) ** 0.5
    text = f"{middle:+.5f} ± {error:.5f}"
    return f"{mean(sequences):.5f}: " + (f"**{text}**" if abs(middle) > 2 * error else text)


if __name__ == "__main__":
    main()
