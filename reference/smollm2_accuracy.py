#!/usr/bin/env python3
"""Perplexity, KL and top-1 agreement of FP8 caches against transformers on wikitext-2.

usage: smollm2_accuracy.py KVCAL MODEL TEXT ACCURACY_DIR SCALES_JSON [WORK_DIR]

MODEL: SmolLM2-135M-Instruct in float16 (tools/fetch_demo_model.sh). TEXT: wikitext-2's test split, whole.
ACCURACY_DIR: expected.json with the NLL of each window, and perplexity, KL and top-1 over 20 windows of 1024
tokens, from transformers in float32 with K and V quantized at Cache.update; tokens.json: the first windows' ids.
SCALES_JSON: per layer the scales those caches had ("layers": k_amax, v_amax, k_scale_minmax_ema, ...).

kvcal runs the same 20 windows in float32, all caches in one pass. Exit 1 where a perplexity is off by more than
1e-3, a window's NLL in float32 by more than 1e-4, a KL or top-1 agreement by more than 2 % or, where that is more, by
three standard errors of the difference of two runs: rounding errors of an FP8 cache do not repeat when sums change in
their last bits (cache_noise.py shows it for transformers against itself: 2.6 %).
"""
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from safetensors.numpy import save_file

VARIANTS = {
    "fp8_e4m3_llmc_ema_scales": "fp8_e4m3:{ema}",
    "fp8_e4m3_absmax_scales": "fp8_e4m3:{absmax}",
    "fp8_e4m3_scale1": "fp8_e4m3:unit",
    "fp8_e5m2_scale1": "fp8_e5m2:unit",
}


def write_scales(model, folder, scales):
    """A folder that holds nothing but scales, as compressed-tensors names them."""
    folder.mkdir(parents=True)
    shutil.copy(model / "config.json", folder)
    tensors = {}
    for layer, (k, v) in enumerate(scales):
        for name, value in (("k_scale", k), ("v_scale", v)):
            tensors[f"model.layers.{layer}.self_attn.{name}"] = np.array([value], np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def run(kvcal, model, text, work, scales):
    shutil.rmtree(work, ignore_errors=True)
    layers = json.loads(scales.read_text())["layers"]
    ema = write_scales(model, work / "ema", [(x["k_scale_minmax_ema"], x["v_scale_minmax_ema"]) for x in layers])
    absmax = write_scales(model, work / "absmax", [(x["k_amax"] / 448, x["v_amax"] / 448) for x in layers])
    command = [kvcal, "eval", model, "--task", "kl", "--dataset", text, "--num-samples", "20", "--max-seq-length",
               "1024", "--compute-dtype", "float32", "--json", "--reference-kv-cache-dtype", "float32", "--variant", "fp32=float32"]
    for name, cache in VARIANTS.items():
        command += ["--variant", f"{name}={cache.format(ema=ema, absmax=absmax)}"]
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)


def main():
    kvcal, model, text, accuracy, scales = map(pathlib.Path, sys.argv[1:6])
    work = pathlib.Path(sys.argv[6] if len(sys.argv) > 6 else "/tmp/smollm2_accuracy")
    expected = json.loads((accuracy / "expected.json").read_text())
    result = run(kvcal, model, text, work, scales)
    found = {variant["name"]: variant for variant in result["variants"]}
    failed = False

    def judge(what, got, want, tolerance):
        nonlocal failed
        wrong = not abs(got - want) <= tolerance
        failed |= wrong
        print(f"{what:42} {got:12.6f} {want:12.6f}  off {abs(got - want) / want:.2e}, allowed {tolerance / want:.2e}"
              f"{'  WRONG' if wrong else ''}")

    print(f"{'':42} {'kvcal':>12} {'transformers':>12}")
    for i, windows in enumerate(expected["per_window_nll"]):
        judge(f"fp32 NLL of window {i}", found["fp32"]["sequences"][i]["nll"], windows["fp32"], 1e-4)
    for name in ["fp32", *VARIANTS]:
        want, got = expected["all_20_windows"][name], found[name]
        judge(f"{name} perplexity", got["perplexity"], want["ppl"], 1e-3 * want["ppl"])
        if "mean_kl_fp32_vs_fp8kv" not in want:
            continue
        of_two = 3 * 2 ** 0.5
        kl, top1 = want["mean_kl_fp32_vs_fp8kv"], want["top1_agreement"]
        top1_error = (top1 * (1 - top1) / got["num_tokens"]) ** 0.5
        judge(f"{name} mean KL", got["kl_mean"], kl, max(0.02 * kl, of_two * got["kl_stderr"]))
        judge(f"{name} top-1", got["top1_agreement"], top1, of_two * top1_error)
    print(f"{found['fp32']['num_tokens']} tokens")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
