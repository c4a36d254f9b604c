#!/usr/bin/env python3
"""Runs ONNX Runtime GenAI on the CPU with KV scales that kvcal calibrated, and compares it with kvcal's simulation of the same cache:
greedy text, and the KL divergence from the same engine with a float32 cache. Exit 1 where a divergence is more than two standard errors
from the simulation's, or a greedy text differs before the two best tokens of the simulation are nearly alike.

usage: onnxruntime_genai_run.py KVCAL MODEL WORK [--sequences 16] [--length 256] [--tokens 48]

WORK gets kvcal's files, and graphs that the engine's own builder makes of MODEL (fp32, for the CPU): one with a float32 cache, one with
each of CASES. CPUs have no kernel for FP8 caches (GroupQueryAttention of float8e4m3fn), which the script asserts: FP8 is not run.

Of FP8 scales, amax / 448, the builder makes amax / 128 for INT8, kvcal's simulation amax / 127: it is given scales times 127 / 128, so that both
quantize with the same numbers. Scales of INT8 caches both take as they are.

needs: onnxruntime-genai 0.18.0, onnxruntime 1.32.0, onnx-ir 1.1.0, torch 2.13, transformers 5.23 or 5.24
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime_genai as genai
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = ["The capital of France is", "Once upon a time, in a village by the sea,", "def fibonacci(n):\n",
           "Water boils at a lower temperature on high mountains because"]
NEARLY_ALIKE = 0.05  # nats between the two best tokens
# Recipe: the builder's kv_cache_quant_scheme.
CASES = {"fp8_kv_tensor": "int8_per_tensor", "int8_kv_tensor": "int8_per_tensor", "int8_kv_channel": "int8_per_channel"}

parser = argparse.ArgumentParser()
parser.add_argument("kvcal")
parser.add_argument("model")
parser.add_argument("work", type=pathlib.Path)
parser.add_argument("--sequences", type=int, default=16)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--tokens", type=int, default=48)
arguments = parser.parse_args()
WORK = arguments.work


def kvcal(*words):
    return subprocess.run([arguments.kvcal, *map(str, words)], check=True, capture_output=True, text=True).stdout


def calibrate(recipe):
    folder = WORK / f"scales_{recipe}"
    kvcal("calibrate", arguments.model, "--recipe", ROOT / "recipes" / f"{recipe}.yaml", "--dataset", "calibration", "--num-samples", 64, "--max-seq-length", 512,
          "--format", "onnxruntime-genai", "--output", folder, "--overwrite")
    return folder / "kv_scales.json"


def build(name, *options):
    folder = WORK / name
    if not (folder / "model.onnx").exists():
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", arguments.model, "-o", str(folder), "-p", "fp32", "-e", "cpu",
                        "-c", str(WORK / "cache"), *(["--extra_options", *options] if options else [])], check=True, capture_output=True)
    return folder


def generator(model, tokens, longest):
    search = genai.GeneratorParams(model)
    search.set_search_options(do_sample=False, max_length=longest)
    made = genai.Generator(model, search)
    made.append_tokens(tokens)
    return made


def log_probabilities(model, tokens):
    logits = np.array(generator(model, tokens, len(tokens) + 1).get_output("logits"))[0].astype(np.float64)
    assert len(logits) == len(tokens)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def divergences(exact, model, sequences):
    """KL of every token but each sequence's first, as `kvcal eval` scores them."""
    all_tokens = []
    for tokens in sequences:
        p, q = log_probabilities(exact, tokens)[:-1], log_probabilities(model, tokens)[:-1]
        all_tokens.append((np.exp(p) * (p - q)).sum(axis=1))
    return np.concatenate(all_tokens)


def simulation_of(path):
    """The options of kvcal that simulate the cache."""
    document = json.loads(path.read_text())
    if document["qmax"] != 128:
        document["scales"] = {side: [scale * 127 / 128 for scale in rows] for side, rows in document["scales"].items()}
        path = path.with_name("simulated.json")
        path.write_text(json.dumps(document))
    return ["--kv-cache-dtype", "int8", "--scales", path, "--compute-dtype", "float32"]


def compare_divergence(exact, model, simulation, sequences):
    data = WORK / "sequences.jsonl"
    data.write_text("".join(json.dumps({"input_ids": tokens}) + "\n" for tokens in sequences))
    ours = json.loads(kvcal("eval", arguments.model, "--task", "kl", "--dataset", data, "--num-samples", len(sequences), "--max-seq-length",
                            arguments.length, "--json", *simulation))
    theirs = divergences(exact, model, sequences)
    assert len(theirs) == ours["num_tokens"], (len(theirs), ours["num_tokens"])
    error = theirs.std(ddof=1) / math.sqrt(len(theirs))
    bound = 2 * math.hypot(error, ours["kl_stderr"])
    is_within = abs(theirs.mean() - ours["kl_mean"]) <= bound
    print(f"KL over {len(theirs)} tokens: ONNX Runtime GenAI {theirs.mean():.6f} ± {error:.6f}, kvcal {ours['kl_mean']:.6f} ± "
          f"{ours['kl_stderr']:.6f}: {'within' if is_within else 'NOT WITHIN'} two standard errors ({bound:.6f})")
    return is_within


def compare_greedy(model, simulation):
    is_same = True
    for prompt in PROMPTS:
        ours = json.loads(kvcal("generate", arguments.model, "--prompt", prompt, "--json", "--ignore-eos", "--max-new-tokens", arguments.tokens,
                                *simulation))
        start, ids = ours["prompt_ids"], ours["ids"]
        made = generator(model, start, len(start) + len(ids))
        while not made.is_done():
            made.generate_next_token()
        theirs = list(made.get_sequence(0))[len(start):]
        first = next((i for i, pair in enumerate(zip(ids, theirs)) if pair[0] != pair[1]), len(theirs))
        gap = 0.0
        if first < len(theirs):
            best = np.sort(log_probabilities(model, start + ids[:first])[-1])
            gap = best[-1] - best[-2]
        ended = first == len(theirs) < len(ids)
        is_same = is_same and gap <= NEARLY_ALIKE
        print(f"{'same' if first == len(theirs) else f'differs from token {first} on, where the two best are {gap:.4f} nats apart'}, "
              f"{len(theirs)} tokens{' (end of text)' if ended else ''}: {prompt!r}")
    return is_same


def assert_fp8_is_refused(path):
    folder = build("fp8_per_tensor", "kv_cache_quant_scheme=fp8_per_tensor", f"kv_cache_scale_file={path}")
    try:
        genai.Model(str(folder))
    except RuntimeError as error:
        print(f"FP8: built, not run on a CPU: {str(error)[:90]}")
        return
    raise AssertionError("this version runs FP8 caches on the CPU: compare them, too")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    ids = tokenizer((ROOT / "datasets" / "evaluation.txt").read_text())["input_ids"]
    sequences = [ids[i * arguments.length:(i + 1) * arguments.length] for i in range(arguments.sequences)]
    assert all(len(tokens) == arguments.length for tokens in sequences)
    exact = genai.Model(str(build("float32")))
    results = []
    for recipe, scheme in CASES.items():
        path = calibrate(recipe)
        if recipe.startswith("fp8"):
            assert_fp8_is_refused(path)
        model = genai.Model(str(build(recipe, f"kv_cache_quant_scheme={scheme}", f"kv_cache_scale_file={path}")))
        print(f"{recipe}, {scheme}")
        simulation = simulation_of(path)
        results += [compare_greedy(model, simulation), compare_divergence(exact, model, simulation, sequences)]
    sys.exit(0 if all(results) else 1)


main()
