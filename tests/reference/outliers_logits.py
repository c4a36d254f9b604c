#!/usr/bin/env python3
"""Checks in transformers (float32) that kvcal synth --outliers keeps a model's function.

usage: outliers_logits.py KVCAL MODEL... [--outliers SPEC] [--tolerance 1e-4]
MODEL: a checkpoint that transformers loads, such as the folders of tests/fixtures/models. Prints the largest difference of logits for each, relative
to the largest logit, and how many times as large K has become. Exits with 1 if one differs by more than the tolerance, or if K did not grow. Models
that kvcal refuses are listed with its reason.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--outliers", default="k:pairs=1,factor=1024;v:channels=1,factor=16")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    failed = compared = 0
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([options.kvcal, "synth", "--from", model, "--outliers", options.outliers, "-o", f"{folder}/rewritten"],
                                  capture_output=True, text=True)
            if made.returncode != 0:
                print(f"{pathlib.Path(model).name}: refused: {made.stderr.strip()}")
                continue
            before, after = run(model), run(f"{folder}/rewritten")
        difference = ((before[0] - after[0]).abs().max() / before[0].abs().max()).item()
        growth = max(new / old for old, new in zip(before[1], after[1], strict=True))
        is_bad = not difference <= options.tolerance or not growth > 8
        failed += is_bad
        compared += 1
        print(f"{pathlib.Path(model).name}: logits differ by {difference:.2e}, K grew {growth:.0f} times{'  FAILED' if is_bad else ''}", flush=True)
    print(f"{compared} compared, {failed} failed")
    sys.exit(1 if failed or not compared else 0)


def run(model):
    """Logits of fixed tokens, and the largest magnitude of K in each layer that caches it."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.arange(3, 27)[None] % loaded.get_input_embeddings().weight.shape[0]
    with torch.no_grad():
        out = loaded(ids, use_cache=True)
    keys = [layer.keys for layer in out.past_key_values.layers if getattr(layer, "keys", None) is not None]
    return out.logits, [key.abs().max().item() for key in keys]


main()
