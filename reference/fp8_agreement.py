#!/usr/bin/env python3
"""How far our logits of an FP8 checkpoint are from transformers', beside how far transformers is from itself, by depth.

usage: fp8_agreement.py KVCAL MODEL TOKENS.json [--layers N ...] [--recipe FILE ...] [--samples 2] [--folder SCRATCH]
MODEL: a checkpoint with the names of Llama; its first N layers are a model of their own. TOKENS: {"ids": [[...], ...]}, token ids of
real text; the first --samples lists are calibrated on and scored. prints a Markdown table; exit 1 where a bound is exceeded.
needs: transformers 5.17, compressed-tensors 0.19.0, torch 2.13

Each model is quantized by `kvcal calibrate` and run by transformers (which quantizes and dequantizes inputs, K and V as the config says)
three times: in float32 with eager and with sdpa attention, and in float64. They compute the same function, but a value near the border
of two FP8 codes falls to either side, and every layer makes more of it. Eager and sdpa share every bit up to the first attention, so
float64 is the measure: how far transformers' float32 is from it is what rounding costs anybody. Ours is `kvcal eval --task kl` from a
model that recites: GPT-2 without content, whose position i is the i-th unit vector and whose head holds transformers' logits.
Bound: ours from float64 is at most 1e-4, or 1.5 times what eager or sdpa is, whichever is more. KL is a mean over tokens.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"
RUNS = {"eager": ("eager", torch.float32), "sdpa": ("sdpa", torch.float32), "float64": ("eager", torch.float64)}
LEAST_BOUND, ABOVE_THEIRS = 1e-4, 1.5


def first_layers(model, count, target):
    target.mkdir()
    config = json.loads((model / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "num_hidden_layers": count}))
    tensors = {}
    for file in model.glob("*.safetensors"):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():
                layer = re.match(r"model\.layers\.(\d+)\.", name)
                if not layer or int(layer[1]) < count:
                    tensors[name] = stored.get_tensor(name)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def kvcal(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def logits_of_transformers(folder, samples, attention, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval().to(dtype)
    with torch.no_grad():
        return [model(torch.tensor([ids]), past_key_values=DynamicCache(config=model.config)).logits[0].float() for ids in samples]


def reciting(logits, target):
    """A model of ours whose logits at position i are logits[i], to float32 rounding, whatever the tokens."""
    tokens, vocab = logits.shape
    width = -(-tokens // 64) * 64
    norm = (width - 1 + 1e-5) ** 0.5 / width  # takes the layer norm of a row of width * identity to its unit vector less 1 / width
    tensors = {"wte.weight": torch.zeros(vocab, width), "wpe.weight": width * torch.eye(width), "ln_f.weight": torch.full((width,), norm),
               "ln_f.bias": torch.full((width,), 1 / width), "lm_head.weight": torch.zeros(vocab, width)}
    tensors["lm_head.weight"][:, :tokens] = logits.T
    for name, shape in {"ln_1": (width,), "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width), "ln_2": (width,),
                        "mlp.c_fc": (width, 64), "mlp.c_proj": (64, width)}.items():
        tensors[f"h.0.{name}.weight"], tensors[f"h.0.{name}.bias"] = torch.zeros(shape), torch.zeros(shape[-1])
    target.mkdir(exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab, "n_embd": width, "n_positions": width, "n_layer": 1,
        "n_head": width // 64, "n_inner": 64, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "torch_dtype": "float32"}))


def write_ids(path, samples):
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))


def mean(values):
    return sum(values) / len(values)


def from_reference(program, checkpoint, logits, samples, scratch):
    """Mean KL of ours from the logits, and the share of tokens where both find the same one most likely."""
    config = json.loads((checkpoint / "config.json").read_text())["quantization_config"]
    cache = "auto" if config.get("kv_cache_scheme") else "float32"  # auto without scales is the model's 16 bits
    results = []
    for ids, expected in zip(samples, logits, strict=True):
        reciting(expected, scratch / "reciting")
        write_ids(scratch / "ids.jsonl", [ids])
        results.append(json.loads(kvcal(program, "eval", checkpoint, "--task", "kl", "--reference", scratch / "reciting", "--dataset",
                                        scratch / "ids.jsonl", "--compute-dtype", "float32", "--kv-cache-dtype", cache, "--json")))
    return mean([result["kl_mean"] for result in results]), mean([result["top1_agreement"] for result in results])


def from_each_other(reference, other):
    """The same of two runs of transformers; the last token predicts nothing that eval would score."""
    p, q = (torch.cat([logits[:-1] for logits in run]).double().log_softmax(-1) for run in (reference, other))
    return (p.exp() * (p - q)).sum(-1).mean().item(), (p.argmax(-1) == q.argmax(-1)).double().mean().item()


def measure(program, model, recipe, samples, scratch):
    """(mean KL, share of equal first tokens) by the names of the two runs, the reference first."""
    checkpoint = scratch / "quantized"
    write_ids(scratch / "calibration.jsonl", samples)
    kvcal(program, "calibrate", model, "--recipe", recipe, "--dataset", scratch / "calibration.jsonl", "--output", checkpoint,
          "--compute-dtype", "float32", "--overwrite")
    runs = {name: logits_of_transformers(checkpoint, samples, *run) for name, run in RUNS.items()}
    found = {(name, "ours"): from_reference(program, checkpoint, logits, samples, scratch) for name, logits in runs.items()}
    for pair in (("eager", "sdpa"), ("float64", "eager"), ("float64", "sdpa")):
        found[pair] = from_each_other(*(runs[name] for name in pair))
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kvcal")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 4, 8, 30])
    parser.add_argument("--recipe", type=pathlib.Path, nargs="+", default=[RECIPES / "fp8_w8a8_kv.yaml"])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, help="where the models go, some 700 MB; default: a temporary folder")
    options = parser.parse_args()
    logging.set_verbosity_error()
    samples = json.loads(options.tokens.read_text())["ids"][:options.samples]
    print("mean KL, and the share of tokens with the same most likely one\n")
    print("| recipe | layers | eager, ours | sdpa, ours | eager, sdpa | float64, ours | float64, eager | float64, sdpa | bound |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    within = True
    for count in options.layers:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            scratch = pathlib.Path(folder)
            first_layers(options.model, count, scratch / "model")
            for recipe in options.recipe:
                found = measure(options.kvcal, scratch / "model", recipe, samples, scratch)
                bound = max(LEAST_BOUND, ABOVE_THEIRS * max(found["float64", "eager"][0], found["float64", "sdpa"][0]))
                held = found["float64", "ours"][0] <= bound
                within = within and held
                pairs = (("eager", "ours"), ("sdpa", "ours"), ("eager", "sdpa"), ("float64", "ours"), ("float64", "eager"), ("float64", "sdpa"))
                cells = [f"{kl:.1e}, {100 * same:.1f} %" for kl, same in map(found.get, pairs)]
                print("|", " | ".join([recipe.stem, str(count), *cells, f"{bound:.1e}{'' if held else ' EXCEEDED'}"]), "|", flush=True)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
