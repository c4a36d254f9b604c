#!/usr/bin/env python3
"""Checks in transformers (float32) that kvcal synth --outliers, or kvcal smooth, keeps a model's function.

usage: outliers_logits.py KVCAL MODEL... [--outliers SPEC | --smooth [--for fp8_e4m3]] [--tolerance 1e-4]
MODEL: a checkpoint that transformers loads, such as the folders of tests/fixtures/models. Prints the largest difference of logits for each, relative
to the largest logit, beside that of the model as it is between float32 and float64, and how many times as large K has become; with --smooth, how far the least channel of V reaches, over the largest of its head.
Exits with 1 if one differs by more than the tolerance and by more than twice what float32 makes of the model as it is, if K did not grow, or if a channel of V reaches less than half of its head.
With --for fp8_e4m3 the model is first written in float32, with large biases in pairs of K where the family has biases, since else nothing is turned;
then it counts how many pairs are. Models that kvcal or transformers refuses are listed with the reason.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--outliers", default="k:pairs=1,factor=1024;v:channels=1,factor=16")
    parser.add_argument("--smooth", action="store_true")
    parser.add_argument("--for", dest="cache", choices=["int8", "fp8_e4m3"], default="int8")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    failed = compared = changed = 0
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            if options.cache == "fp8_e4m3":
                model = biased(options, model, folder)
            made = subprocess.run([options.kvcal, *command_of(options, model, folder), "-o", f"{folder}/rewritten"], capture_output=True, text=True)
            if made.returncode != 0:
                print(f"{pathlib.Path(model).name}: refused: {made.stderr.strip()}")
                continue
            try:
                before, after = run(model), run(f"{folder}/rewritten")
                exact = run(model, torch.float64)[0]
            except NotLoaded as error:
                print(f"{pathlib.Path(model).name}: not compared: transformers {error}")
                continue
            smoothing = smoothing_of(folder) if options.smooth else {}
            turned = sum(count for layer in smoothing.get("k", {}).get("layers", {}).values() for count in layer.values()
                         if isinstance(count, int))
            v_stays = options.smooth and not smoothing["v"]["smoothed"]
        difference = ((before[0] - after[0]).abs().max() / before[0].abs().max()).item()
        if options.cache == "fp8_e4m3":
            changed += turned
            effect, has_effect = f"{turned} pairs or channels of K changed", True  # a layer that loses nothing stays
        elif options.smooth:
            least = min(reach(values) for values in after[2])
            effect, has_effect = f"least channel of V reaches {least:.2f}", v_stays or least > 0.499
        else:
            growth = max(new.abs().max().item() / old.abs().max().item() for old, new in zip(before[1], after[1], strict=True))
            effect, has_effect = f"K grew {growth:.0f} times", growth > 8
        # What float32 makes of the model itself: no other float32 model of the same function is nearer.
        rounding = ((before[0] - exact).abs().max() / exact.abs().max()).item()
        is_bad = not difference <= max(options.tolerance, 2 * rounding) or not has_effect
        failed += is_bad
        compared += 1
        print(f"{pathlib.Path(model).name}: logits differ by {difference:.2e} (float32 from float64, as it is: {rounding:.2e}), {effect}{'  FAILED' if is_bad else ''}", flush=True)
    print(f"{compared} compared, {failed} failed")
    sys.exit(1 if failed or not compared or (options.cache == "fp8_e4m3" and not changed) else 0)


def smoothing_of(folder):
    return json.loads(pathlib.Path(f"{folder}/rewritten/kvcal_manifest.json").read_text())["smoothing"]


def biased(options, model, folder):
    """The model in float32, with large biases of K where the family can have them; its name stays."""
    wide = pathlib.Path(folder) / "wide"
    shutil.copytree(model, wide, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json", "expected.json"))
    tensors = {}
    for file in pathlib.Path(model).glob("model*.safetensors"):
        tensors |= safetensors.torch.load_file(file)
    safetensors.torch.save_file({name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()},
                                wide / "model.safetensors", {"format": "pt"})
    made = pathlib.Path(folder) / pathlib.Path(model).name
    done = subprocess.run([options.kvcal, "synth", "--from", wide, "--outliers", "bias:norm=150,pairs=2", "-o", made], capture_output=True)
    if done.returncode != 0:
        wide.rename(made)
    return str(made)


def ids_of(vocabulary):
    return [token % vocabulary for token in range(3, 27)]


def command_of(options, model, folder):
    if not options.smooth:
        return ["synth", "--from", model, "--outliers", options.outliers]
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    pathlib.Path(f"{folder}/data.jsonl").write_text(json.dumps({"input_ids": ids_of(vocabulary)}) + "\n")
    return ["smooth", model, "--for", options.cache, "--dataset", f"{folder}/data.jsonl", "--compute-dtype", "float32"]


def reach(values):
    """Of the least channel of [1, heads, tokens, dim], over the largest of its head; channels of zeros do not count."""
    channels = values[0].abs().amax(1)
    shares = channels / channels.amax(1, keepdim=True)
    return shares[channels > 0].min().item()


class NotLoaded(Exception):
    """transformers does not load the model, or not all of it: what is missing is random there."""


def load(model, dtype):
    try:
        # The other implementation of experts wants rows of a multiple of 16 bytes.
        loaded, info = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype, attn_implementation="eager",
                                                                         experts_implementation="eager", output_loading_info=True,
                                                                         trust_remote_code=False)
    except (ValueError, ImportError, StrictDataclassError) as error:
        raise NotLoaded(f"refuses it: {str(error).strip().splitlines()[0][:100]}") from error
    if info["missing_keys"]:
        raise NotLoaded(f"finds no {sorted(info['missing_keys'])[0]}")
    return loaded.eval()


def whole_cache(config):
    """Layers with a window would keep its last tokens alone."""
    cache = DynamicCache(config=config)
    cache.layers = [DynamicLayer() if isinstance(layer, DynamicSlidingWindowLayer) else layer for layer in cache.layers]
    return cache


def run(model, dtype=torch.float32):
    """Logits of fixed tokens, and K and V of each layer that caches them."""
    loaded = load(model, dtype)
    ids = torch.tensor([ids_of(loaded.get_input_embeddings().weight.shape[0])])
    with torch.no_grad():
        out = loaded(ids, use_cache=True, past_key_values=whole_cache(loaded.config))
    layers = [layer for layer in out.past_key_values.layers if getattr(layer, "keys", None) is not None]
    return out.logits, [layer.keys for layer in layers], [layer.values for layer in layers]


main()
