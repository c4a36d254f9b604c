#!/usr/bin/env python3
"""What an FP8 cache costs one model, and what mends it: the table of docs/accuracy.md.

usage: fp8_story.py KVCAL MODEL DATASET TEXT [--num-samples 12] [--num-sequences 8] [--max-seq-length 512]
                    [--compute-dtype auto] [--kl-budget 0.02] [--oneshot-python PYTHON] [--scratch FOLDER]
DATASET calibrates, TEXT is measured, which no calibration has seen. Every row is measured against MODEL with its 16-bit
cache, on the same tokens, with standard errors: FP8 with scale 1.0 and with calibrated scales; the fewest layers in 16
bits that keep the budget; and the checkpoint that `kvcal smooth --for fp8_e4m3` makes, with 16 bits, with 1.0 and with
calibrated scales. Bytes are of one token's cache. --oneshot-python: an interpreter that has llm-compressor (0.14.0.1, with
transformers 5.17), which makes scales of the same samples; DATASET then has JSON lines with "messages" or "text".
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile


class Story:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.samples = ["--dataset", options.dataset, "--num-samples", options.num_samples, "--max-seq-length",
                        options.max_seq_length, "--compute-dtype", options.compute_dtype]

    def run(self, *arguments, missed=False):
        done = subprocess.run([str(one) for one in (self.options.kvcal, *arguments)], capture_output=True, text=True)
        if done.returncode == 3 and missed:
            return None
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def calibrate(self, model, name, *more, missed=False):
        """(the scales' folder, manifest), or None where a gate was missed."""
        output = self.folder / name
        found = self.run("calibrate", model, *self.samples, "--state", "none", "--scales-only", "--output", output, "--json",
                         *more, missed=missed)
        return found and (output, found)

    def oneshot(self):
        """The folder of what llm-compressor makes with its defaults, and the tokens that it saw."""
        output = self.folder / "oneshot"
        settings = {"model": str(pathlib.Path(self.options.model).resolve()), "dataset": self.options.dataset,
                    "samples": self.options.num_samples, "max_seq_length": self.options.max_seq_length,
                    "threads": os.cpu_count(), "output": str(output)}
        done = subprocess.run([self.options.oneshot_python, pathlib.Path(__file__).with_name("peer_runs.py"), "oneshot",
                               json.dumps(settings)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: llm-compressor:\n{done.stderr[-2000:]}")
        return output, json.loads(done.stdout.splitlines()[-1])["tokens"]

    def measure(self, *variants):
        """By name the variants' numbers, against the model as it is with a 16-bit cache."""
        arguments = [argument for variant in variants for argument in ("--variant", variant)]
        found = self.run("eval", self.options.model, "--task", "kl", "--dataset", self.options.text, "--num-samples",
                         self.options.num_sequences, "--max-seq-length", self.options.max_seq_length, "--compute-dtype",
                         self.options.compute_dtype, *arguments, "--json")
        return {one["name"]: one for one in found["variants"]}


def row(name, found, bytes_per_token):
    print(f"| {name} | {found['kl_mean']:.4f} ± {found['kl_stderr']:.4f} | {100 * found['top1_agreement']:.1f} % | "
          f"{100 * found['perplexity_increase']:+.2f} % | {bytes_per_token} |", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("kvcal", "model", "dataset", "text"):
        parser.add_argument(name)
    parser.add_argument("--num-samples", type=int, default=12)
    parser.add_argument("--num-sequences", type=int, default=8)
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--compute-dtype", default="auto")
    parser.add_argument("--kl-budget", type=float, default=0.02)
    parser.add_argument("--oneshot-python")
    parser.add_argument("--scratch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        story = Story(options, pathlib.Path(scratch))
        scales, manifest = story.calibrate(options.model, "scales")
        variants = ["unit=fp8_e4m3:unit", f"calibrated=fp8_e4m3:{scales}"]
        if options.oneshot_python:
            folder, tokens = story.oneshot()
            assert tokens == manifest["dataset"]["num_tokens"], "both see the same samples"
            variants.append(f"oneshot=fp8_e4m3:{folder}")
        found = story.measure(*variants)
        fp8 = found["unit"]["bytes_per_token"]
        print("| cache | KL | same top token | perplexity | bytes a token |\n| --- | --- | --- | --- | --- |")
        row("FP8, scale 1.0", found["unit"], fp8)
        row("FP8, calibrated", found["calibrated"], fp8)
        if "oneshot" in found:
            row("FP8, llm-compressor's scales", found["oneshot"], fp8)
        kept = story.calibrate(options.model, "kept", "--kl-budget", options.kl_budget, "--measure-sequences",
                               options.num_sequences, missed=True)
        if kept and kept[1]["kl_budget"]["layers_16_bit"]:
            result = kept[1]["kl_budget"]
            layers = result["layers_16_bit"]
            print(f"| FP8, calibrated, layers in 16 bits: {', '.join(map(str, layers))} (of `calibrate --kl-budget "
                  f"{options.kl_budget}`, on its own held-out records) | {result['kl_mean']:.4f} ± {result['kl_stderr']:.4f} | | | "
                  f"{kept[1]['summary']['cache_bytes_per_token'].get('as_served', fp8)} |", flush=True)
        rewritten = story.folder / "rewritten"
        story.run("smooth", options.model, "--for", "fp8_e4m3", *story.samples, "--output", rewritten, "--json")
        own, _ = story.calibrate(rewritten, "rewritten-scales")
        row("the rewritten model, 16 bits", story.measure(f"rewritten=model:{rewritten}")["rewritten"], 2 * fp8)
        options.model = rewritten  # whose 16-bit cache gives the same function
        found = story.measure("unit=fp8_e4m3:unit", f"calibrated=fp8_e4m3:{own}")
        row("rewritten, FP8, scale 1.0", found["unit"], fp8)
        row("rewritten, FP8, calibrated", found["calibrated"], fp8)


if __name__ == "__main__":
    main()
