#!/usr/bin/env python3
"""Whether transformers and vLLM load and run a checkpoint of each recipe: a Markdown table, a row a recipe.

usage: engines_load.py KVCAL MODEL MOE_MODEL TOKENS.json --hf "PYTHON CHECK_HF" --vllm "PYTHON CHECK_VLLM" [--dtype auto] [--recipe FILE ...]
MODEL: for all recipes but those named *moe*, which take MOE_MODEL. TOKENS: {"ids": [[...], ...]}; four pieces of 128 tokens are
calibrated on, as ids below the model's vocabulary. CHECK_HF, CHECK_VLLM: programs that load a folder, compare its K and V scales, run it
and end with a line "RESULT ..." or "REFUSED error", with exit code 2 where a layer has no K and V scale, 3 where the cache is not FP8.
--dtype: what vLLM computes in. --recipe: default: all of recipes/. Exit 1 where transformers refuses one or scales differ.

What a judge says of missing K and V scales is left out where the recipe makes none. Give CHECK_HF the model's own dtype (its "--dtype auto"
after the program's name): with experts transformers leaves the router in the file's dtype, and another one stops at its product.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"
TOKENS, SAMPLES = 128, 4


def calibrate(options, recipe, scratch):
    """The folder written, or the message of why none was."""
    model = options.moe_model if "moe" in recipe.stem else options.model
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    samples = json.loads(options.tokens.read_text())["ids"][:SAMPLES]
    ids = scratch / "ids.jsonl"
    ids.write_text("".join(json.dumps({"input_ids": [i % vocab for i in sample[:TOKENS]]}) + "\n" for sample in samples))
    target = scratch / recipe.stem
    done = subprocess.run([options.kvcal, "calibrate", model, "--recipe", recipe, "--dataset", ids, "--output", target],
                          capture_output=True, text=True)
    return target, "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def judged(command, has_kv):
    """(what happened, whether it loaded with the right scales)."""
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    refused = [line for line in lines if line.startswith("REFUSED")]
    if refused or done.returncode not in (0, 1, 2, 3) or not lines or not lines[-1].startswith("RESULT"):
        errors = [line for line in done.stderr.strip().splitlines() if "Error" in line]
        return "refused: " + (refused or errors or ["exit " + str(done.returncode)])[-1].removeprefix("REFUSED ").replace("|", "/")[:200], False
    keys = re.findall(r"\{'(?:missing|unexpected|mismatched)_keys'.*\}", done.stdout)
    what = "loads, runs" + "".join(f", {found}" for found in keys)
    if done.returncode == 1 or (has_kv and done.returncode in (2, 3)):
        return what + ", " + lines[-1].removeprefix("RESULT ").lower(), done.returncode != 1
    return what + (", K and V scales bit for bit" if has_kv else ""), True


def kind_of(config):
    """What the written config says, in a few words."""
    groups = config["config_groups"].values()
    parts = []
    for group in groups:
        for side in ("weights", "input_activations"):
            scheme = group.get(side)
            if scheme:
                parts.append(f"{side.split('_')[0]} {scheme['strategy']}{' dynamic' if scheme['dynamic'] else ''}")
    kv = config.get("kv_cache_scheme")
    return ", ".join(dict.fromkeys(parts + ([f"KV {kv['strategy']}"] if kv else [])))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kvcal")
    for name in ("model", "moe_model", "tokens"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--hf", required=True)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--recipe", type=pathlib.Path, nargs="+", default=sorted(RECIPES.glob("*.yaml")))
    options = parser.parse_args()
    print(f"| recipe | kind | transformers | vLLM ({options.dtype}) |\n| --- | --- | --- | --- |", flush=True)
    all_load = True
    for recipe in options.recipe:
        with tempfile.TemporaryDirectory() as folder:
            target, error = calibrate(options, recipe, pathlib.Path(folder))
            if error:
                print(f"| {recipe.stem} | {error} | | |", flush=True)
                all_load = False
                continue
            config = json.loads((target / "config.json").read_text())["quantization_config"]
            has_kv = any(name.endswith("k_scale") for name in tensor_names(target))
            hf, right = judged([*options.hf.split(), target], has_kv)
            vllm, _ = judged([*options.vllm.split(), target, "--max-len", "256", "--dtype", options.dtype,
                              *(["--kv", "fp8"] if has_kv else [])], has_kv)
            print(f"| {recipe.stem} | {kind_of(config)} | {hf} | {vllm} |", flush=True)
            all_load = all_load and right
    return 0 if all_load else 1


def tensor_names(folder):
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            yield from json.loads(stream.read(int.from_bytes(stream.read(8), "little")))


if __name__ == "__main__":
    sys.exit(main())
