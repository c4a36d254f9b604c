#!/usr/bin/env python3
"""Times kvcal calibrate against transformers' forward pass on the same token ids, in turn, and prints the ratios.

usage: calibrate_against_transformers.py KVCAL MODEL_FOLDER TOKENS.json [--runs 3] [--threads 2] [--device cpu|cuda]
needs: torch 2.13, transformers 5.17 (a virtual environment of its own; nothing of it is part of kvcal)

TOKENS.json: {"ids": [[...], ...]}. kvcal: seconds of the stage "calibrate" (both forwards of --kv-forward). transformers: model.model (no
lm_head), sdpa attention, one sample a batch as llm-compressor feeds it, weights already loaded. Both see every token once; kvcal
also takes the statistics and, when quantized, quantizes the cache.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("kvcal")
parser.add_argument("model")
parser.add_argument("tokens")
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu", help="of both; on a GPU transformers runs bfloat16 only, as kvcal does by default")
arguments = parser.parse_args()
ROOT = pathlib.Path(__file__).parents[2]
ids = json.load(open(arguments.tokens))["ids"]
num_tokens = sum(map(len, ids))
torch.set_num_threads(arguments.threads)


def run_kvcal(dtype, forward):
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([arguments.kvcal, "calibrate", arguments.model, "--recipe", ROOT / "recipes" / "fp8_kv_tensor.yaml",
                        "--dataset", arguments.tokens, "--output", f"{scratch}/out", "--format", "scales-json", "--kv-forward", forward,
                        "--compute-dtype", dtype, "--threads", str(arguments.threads), "--device", arguments.device], check=True, capture_output=True)
        manifest = json.load(open(f"{scratch}/out/kvcal_manifest.json"))
    assert manifest["dataset"]["num_tokens"] == num_tokens
    return manifest["seconds"]["calibrate"], manifest["peak_rss_bytes"]


def run_transformers(model):
    started = time.perf_counter()
    with torch.no_grad():
        for sample in ids:
            model.model(torch.tensor([sample], device=arguments.device), use_cache=True)
    if arguments.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started


print(f"{num_tokens} tokens in {len(ids)} samples, {arguments.threads} threads, medians of {arguments.runs}")
print("dtype     transformers tok/s  kvcal exact tok/s  ratio  kvcal quantized tok/s  ratio  kvcal peak MB")
for dtype in ("float32", "bfloat16") if arguments.device == "cpu" else ("bfloat16",):
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, dtype)).eval().to(arguments.device)
    rows = []
    for _ in range(arguments.runs):
        exact, peak = run_kvcal(dtype, "exact")
        quantized, _ = run_kvcal(dtype, "quantized")
        rows.append((run_transformers(model), exact, quantized, peak))
    theirs, exact, quantized, peak = (statistics.median(column) for column in zip(*rows))
    print(f"{dtype:9} {num_tokens / theirs:18.0f} {num_tokens / exact:18.0f} {theirs / exact:6.2f} "
          f"{num_tokens / quantized:22.0f} {theirs / quantized:6.2f} {peak / 1e6:14.0f}", flush=True)
