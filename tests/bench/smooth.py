#!/usr/bin/env python3
"""What smoothing of K and V, and a rotation of K, would gain for each cache: KL from the unquantized cache, window by window in pairs.

usage: smooth.py MODEL CALIBRATION TEXT [--windows 8] [--length 128] [--calibration-windows 8]
Needs torch and transformers. Everything runs in float32 in transformers; K (after RoPE) and V are quantized where they enter the cache.
CALIBRATION, TEXT: plain text, or JSON lines with "text" or "messages". The first windows of CALIBRATION give the extremes of each channel.

Smoothing multiplies the channels of K by factors that Q undoes, and those of V by factors that the projection behind attention undoes. In an exact
model that is the same function, so it is applied here at the cache: quantize(K f) / f. The two channels of a pair that RoPE turns share a factor, and
where one norm weight serves all heads, they share it too. Factors are powers of two, as a rewrite of 16-bit weights would have them:
  even     every channel (pair) to the largest extreme of its head: what uniform codes want
  half     the square root of that
rotated    K (and Q, which costs an engine a Hadamard product a token) times an orthogonal Hadamard matrix: SpinQuant's R3; or V, too
Caches:
  fp8 tensor              E4M3, a calibrated scale a layer
  int8 head               calibrated, symmetric, a scale a head
  int8 token, int4 token  symmetric, a scale for each token and head from its own values
  nvfp4                   E2M1 in blocks of 16 with E4M3 block scales, and one float32 scale a layer: calibrated amax / 2688
"""
import argparse
import json
import pathlib
import statistics

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("text")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--calibration-windows", type=int, default=8)
    options = parser.parse_args()
    if options.windows < 2:
        parser.error("--windows: a standard error needs two")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(options.model) / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    with torch.no_grad():
        calibration = windows_of(options.calibration, tokenizer, options.calibration_windows, options.length)
        extremes = observe(model, calibration)
        text = windows_of(options.text, tokenizer, options.windows, options.length)
        measure(model, extremes, calibration, text)


def windows_of(path, tokenizer, count, length):
    """[count] of ids [1, length], from the beginning of the file."""
    text = pathlib.Path(path).read_text()
    if path.endswith(".jsonl"):
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
        text = "\n".join(r["text"] if "text" in r else "\n".join(m["content"] for m in r["messages"]) for r in records[: 40 * count])
    ids = tokenizer(text[: 16 * count * length], add_special_tokens=False).input_ids
    windows = [torch.tensor([ids[i * length:(i + 1) * length]]) for i in range(count)]
    assert all(window.shape[1] == length for window in windows), "the text is too short"
    return windows


class SeenCache(transformers.DynamicCache):
    """Shows K and V [1, heads, tokens, dim] to a function of (layer, "k" or "v", values), and caches what that gives."""

    def __init__(self, change, config):
        super().__init__(config=config)
        self.change = change

    def update(self, key_states, value_states, layer_idx, *arguments, **keywords):
        return super().update(self.change(layer_idx, "k", key_states), self.change(layer_idx, "v", value_states), layer_idx,
                              *arguments, **keywords)


def log_probabilities(model, ids, change):
    logits = model(ids, past_key_values=SeenCache(change, model.config), use_cache=True).logits[0]
    return torch.log_softmax(logits.float(), -1)


def observe(model, windows, forward=lambda key, x: x):
    """Largest magnitude of each channel of forward(K) and forward(V): {(layer, side): [heads, dim]}."""
    extremes = {}

    def see(layer, side, values):
        amax = forward((layer, side), values)[0].abs().amax(1)
        extremes[layer, side] = torch.maximum(extremes[layer, side], amax) if (layer, side) in extremes else amax
        return values
    for ids in windows:
        log_probabilities(model, ids, see)
    return extremes


def factors_of(extremes, model, power):
    """Powers of two, {(layer, side): [heads, dim]}."""
    shares_norm = hasattr(model.model.layers[0].self_attn, "k_norm")
    factors = {}
    for (layer, side), amax in extremes.items():
        amax = amax.clamp_min(1e-6)
        if side == "k":
            half = amax.shape[1] // 2
            pair = torch.maximum(amax[:, :half], amax[:, half:])
            if shares_norm:
                pair = pair.amax(0, keepdim=True).expand_as(pair)
            amax = torch.cat([pair, pair], 1)
        wanted = (amax.amax(1, keepdim=True) / amax) ** power
        factors[layer, side] = torch.exp2(torch.round(torch.log2(wanted)))
    return factors


def hadamard(size):
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix / size ** 0.5


def e4m3(x):
    return x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float()


def e2m1(x):
    """To the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to even."""
    magnitude = x.abs().clamp(max=6.0)
    step = torch.where(magnitude < 2.0, 0.5, torch.where(magnitude < 4.0, 1.0, 2.0))
    return torch.sign(x) * (torch.round(magnitude / step) * step)


def uniform(x, scale, largest):
    return torch.clamp(torch.round(x / scale), -largest, largest) * scale


def caches():
    """name -> quantize(values [1, heads, tokens, dim], amax [heads, dim] of the calibration), and the variants that could gain something."""
    def by_token(largest):
        return lambda x, amax: uniform(x, x.abs().amax(-1, keepdim=True).clamp_min(1e-8) / largest, largest)

    def nvfp4(x, amax):
        whole = amax.max() / 2688.0
        blocks = x.unflatten(-1, (-1, 16))
        scale = e4m3(blocks.abs().amax(-1, keepdim=True) / 6.0 / whole).clamp_min(2.0 ** -9) * whole
        return (e2m1(blocks / scale) * scale).flatten(-2)
    every = ("as it is", "even", "half", "rotated K", "rotated K and V")
    return {"fp8 tensor": (lambda x, amax: e4m3(x / (amax.max() / 448.0)) * (amax.max() / 448.0), every[:3]),
            "int8 head": (lambda x, amax: uniform(x, amax.amax(1)[:, None, None] / 127.0, 127.0), every[:4]),
            "int8 token": (by_token(127.0), every[:3]), "int4 token": (by_token(7.0), every), "nvfp4": (nvfp4, every)}


def variants(model, extremes):
    """name -> (forward, backward) of values (layer, side, x), and the extremes of what is quantized."""
    def by(factors):
        scaled = {key: amax * factors[key] for key, amax in extremes.items()}
        return (lambda key, x: x * factors[key][None, :, None]), (lambda key, x: x / factors[key][None, :, None]), scaled
    matrix = hadamard(extremes[0, "k"].shape[1])

    def rotated(sides):
        def turn(key, x):
            return x @ matrix if key[1] in sides else x  # a symmetric matrix, its own inverse
        return turn, turn, None
    return {"as it is": by({key: torch.ones_like(amax) for key, amax in extremes.items()}),
            "even": by(factors_of(extremes, model, 1.0)), "half": by(factors_of(extremes, model, 0.5)),
            "rotated K": rotated("k"), "rotated K and V": rotated("kv")}


def measure(model, extremes, calibration, text):
    table = {}
    ways = variants(model, extremes)
    for name, (forward, backward, seen) in ways.items():
        if seen is None:
            ways[name] = (forward, backward, observe(model, calibration, forward))
    for ids in text:
        reference = log_probabilities(model, ids, lambda layer, side, x: x)
        for cache, (quantize, names) in caches().items():
            for name in names:
                forward, backward, seen = ways[name]
                found = log_probabilities(model, ids, lambda layer, side, x, quantize=quantize, forward=forward, backward=backward, seen=seen: backward(
                    (layer, side), quantize(forward((layer, side), x), seen[layer, side])))
                kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
                table.setdefault((cache, name), []).append(kl)
        print(f"window {len(table['nvfp4', 'as it is'])} of {len(text)}", flush=True)
    print("| cache | variant | mean KL | against as it is (± standard error, paired by window) |\n| --- | --- | --- | --- |")
    for (cache, name), kls in table.items():
        plain = table[cache, "as it is"]
        differences = [one - other for one, other in zip(kls, plain)]
        against = "–" if name == "as it is" else "{:+.6f} ± {:.6f}".format(
            statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5)
        print(f"| {cache} | {name} | {statistics.mean(kls):.6f} | {against} |")


if __name__ == "__main__":
    main()
