#!/usr/bin/env python3
"""What kvcal smooth gains for every cache that engines offer: KL of a smoothed model against that of the model, window by window in pairs.

usage: smoothed_caches.py KVCAL CALIBRATION TEXT MODEL... [--for int8] [--num-samples 20] [--max-seq-length 1024] [--calibration-samples 128]
       [--compute-dtype float32] [--scratch FOLDER]
Both models are the same function, so each is measured against its own unquantized cache. CALIBRATION is what channels and scales come from, TEXT
what is scored (kvcal eval --every-cache). Prints a Markdown table; bold: more than two standard errors.
"""
import pathlib
import tempfile

from which_cache import keep_statistics, paired, read_options, run, score_caches


def main():
    def more(parser):
        parser.add_argument("calibration")
        parser.add_argument("text")
        parser.add_argument("models", nargs="+")
        parser.add_argument("--for", dest="cache", default="int8")
    options = read_options(__doc__, more)
    print("| model | cache | as it is | smoothed | difference |\n" + "| --- " * 5 + "|")
    for model in options.models:
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            folder = pathlib.Path(scratch)
            run(options, "smooth", model, "--for", options.cache, "--dataset", options.calibration, "--num-samples", options.calibration_samples, "--max-seq-length",
                options.max_seq_length, "--compute-dtype", options.compute_dtype, "--output", folder / "even")
            before = measure(options, model, folder / "before")
            after = measure(options, folder / "even", folder / "after")
        for name, cache in before.items():
            mean, error = paired(after[name], cache)
            difference = f"{mean:+.5f} ± {error:.5f}"
            print(f"| {pathlib.Path(model).name} | {name} | {cache['kl_mean']:.5f} | {after[name]['kl_mean']:.5f} | "
                  f"{f'**{difference}**' if abs(mean) > 2 * error else difference} |", flush=True)


def measure(options, model, folder):
    """{cache: its result of eval}"""
    folder.mkdir()
    _, scales = keep_statistics(options, model, options.calibration, folder)
    return {cache["name"]: cache for cache in score_caches(options, model, options.text, scales)}


if __name__ == "__main__":
    main()
