#!/usr/bin/env python3
"""What turning and scaling pairs of K gains for a static E4M3 cache: KL from the unquantized cache, window by window in pairs.

usage: alignment.py MODEL CALIBRATION TEXT [--windows 8] [--length 512] [--calibration-windows 8] [--only NAME ...]
Needs torch and transformers; everything runs in float32 in transformers, and K (after RoPE) and V are quantized where they enter the cache, as in
smooth.py. A turn of a pair of K commutes with RoPE and Q undoes it, so it is applied at the cache: unturn(quantize(turn(K) f) / f). kvcal smooth
--for fp8_e4m3 writes it into weights. CALIBRATION gives means, spreads and scales.

Each pair's mean is that of K before RoPE, its spread the deviation of both channels from it. Variants, of pairs whose mean is more than 3 spreads:
  as it is                     nothing
  factor                       no turn, the larger channel's mean to 1.875 * 2^e
  turned                       the mean onto the first channel
  turned, 1.875 | 1.4375 | 1.0625 | 1.03125   and its length to that, times 2^e: the top, the middle and the bottom of a binade, and the
                               edge between its first two codes
  turned, top, 1 | 8 spreads   1.875 of pairs with other means
  turned at the middle, top    the angle of the mean of K after RoPE, the middle of the arc that it runs over
  searched                     the angle and factor of least key_error over rows of the calibration, as kvcal does
  searched, V shifted          and V less its mean, which the projection behind attention could add again
Caches: E4M3 with scale 1.0, and amax / 448 of each layer.
"""
import argparse
import math
import pathlib
import statistics

import torch
import transformers

from smooth import SeenCache, e4m3, log_probabilities, windows_of

OCTAVE = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("text")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--calibration-windows", type=int, default=8)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    if options.windows < 2:
        parser.error("--windows: a standard error needs two")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(options.model) / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    with torch.no_grad():
        rows = observe(model, windows_of(options.calibration, tokenizer, options.calibration_windows, options.length))
        measure(model, rows, windows_of(options.text, tokenizer, options.windows, options.length), options.only)


def observe(model, windows):
    """{layer: (K before RoPE, K, V)}, each [heads, tokens, dim] over all windows."""
    before, rows = {}, {}
    hooks = []
    for index, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        module = getattr(attention, "k_norm", attention.k_proj)
        hooks.append(module.register_forward_hook(lambda module, inputs, out, index=index: before.setdefault(index, []).append(out)))

    def see(layer, side, values):
        rows.setdefault((layer, side), []).append(values[0])
        return values
    for ids in windows:
        log_probabilities(model, ids, see)
    for hook in hooks:
        hook.remove()
    found = {}
    for (layer, side), parts in rows.items():
        if side != "k":
            continue
        heads, _, dim = parts[0].shape
        own = torch.cat([out.reshape(-1, heads, dim).transpose(0, 1) for out in before[layer]], 1)
        found[layer] = (own, torch.cat(parts, 1), torch.cat(rows[layer, "v"], 1))
    return found


def pairs(x):
    """[..., dim] as [..., dim / 2, 2]: the channels that RoPE turns together."""
    half = x.shape[-1] // 2
    return torch.stack([x[..., :half], x[..., half:]], -1)


def unpaired(x):
    return torch.cat([x[..., 0], x[..., 1]], -1)


def turned(x, angle):
    """x [..., pairs, 2] by angle [..., pairs]."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack([x[..., 0] * cos - x[..., 1] * sin, x[..., 0] * sin + x[..., 1] * cos], -1)


def moments(rows):
    """{layer: (mean [heads, pairs, 2], spread [heads, pairs], mean of the cached rows)}"""
    found = {}
    for layer, (before, cached, _) in rows.items():
        one = pairs(before)
        mean = one.mean(1)
        found[layer] = (mean, (one - mean[:, None]).square().sum(-1).mean(1).sqrt(), pairs(cached).mean(1))
    return found


def to_point(length, point):
    """The factor that brings a length to the next point * 2^e."""
    return point * torch.exp2(torch.round(torch.log2(length / point))) / length


def changes(rows, turns=True, point=None, least=3.0, middle=False):
    """{layer: (angle, factor) [heads, pairs]}"""
    found = {}
    for layer, (mean, spread, cached) in moments(rows).items():
        length = mean.norm(dim=-1)
        chosen = length > least * spread
        toward = cached if middle else mean
        angle = torch.where(chosen, -torch.atan2(toward[..., 1], toward[..., 0]), 0.0) if turns else torch.zeros_like(length)
        reach = length if turns else mean.abs().amax(-1)
        factor = torch.ones_like(length) if point is None else torch.where(chosen, to_point(reach, point), 1.0)
        # Above 30 there is nothing to gain, and 448 is near.
        factor = factor * torch.exp2(-torch.clamp(torch.ceil(torch.log2(factor * reach / 30.0)), min=0.0)) if point else factor
        found[layer] = (angle, torch.where(chosen, factor, 1.0))
    return found


def key_error(x, angle, factor, scales):
    """Of candidates: x [rows, 2], angle and factor [candidates]."""
    changed = turned(x[None, :, None], angle[:, None, None])[:, :, 0] * factor[:, None, None]
    return sum((e4m3(changed / scale) * scale - changed).var(1, correction=0).sum(-1) for scale in scales) / factor.square()


def searched(rows):
    """As align_layer of lib/rewrite/alignment.cc."""
    found = {}
    for layer, (mean, spread, middle) in moments(rows).items():
        cached = pairs(rows[layer][1])
        cached = cached[:, ::max(1, cached.shape[1] // 1024)]
        length = mean.norm(dim=-1)
        amax = rows[layer][1].abs().max().item()
        angle, factor = torch.zeros_like(length), torch.ones_like(length)
        places = [(h, p) for h, p in (length > 3.0 * spread).nonzero().tolist()]

        def choose(head, pair, scales, most):
            candidates = [(0.0, 1.0)]
            top = min(most, length[head, pair].item() * math.sqrt(2.0))
            for toward in (mean, middle):
                for wanted in (0.0, -math.atan2(toward[head, pair, 1], toward[head, pair, 0])):
                    candidates += [(wanted, top / length[head, pair].item() * 2.0 ** (-i / OCTAVE)) for i in range(OCTAVE)]
            a, f = (torch.tensor(values) for values in zip(*candidates))
            errors = key_error(cached[head, :, pair], a, f, scales)
            best = errors.argmin().item()
            return a[best], f[best], errors[best], errors[0]
        for h, p in places:
            angle[h, p], factor[h, p], _, _ = choose(h, p, (1.0,), 30.0)
        reach = torch.where(factor == 1.0, pairs(rows[layer][1]).abs().amax((1, 3)), factor * (length + 4.0 * spread))
        after = reach.max().item()
        pinned = divmod(reach.argmax().item(), reach.shape[1])
        scale, old = after / 448.0, amax / 448.0
        for h, p in places:
            if (h, p) != pinned:
                angle[h, p], factor[h, p], _, _ = choose(h, p, (1.0, 0.99 * scale, scale, 1.01 * scale), min(30.0, after))
            now = key_error(cached[h, :, p], angle[h, p][None], factor[h, p][None], (1.0, 0.99 * scale, scale, 1.01 * scale))
            was = key_error(cached[h, :, p], torch.zeros(1), torch.ones(1), (1.0, 0.99 * old, old, 1.01 * old))
            if now.item() >= 0.5 * was.item():
                angle[h, p], factor[h, p] = 0.0, 1.0
        found[layer] = (angle, factor)
    return found


def variants(rows):
    """name -> ({layer: (angle, factor)}, whether V is shifted)"""
    none = changes(rows, turns=False, least=math.inf)
    best = searched(rows)
    return {"as it is": (none, False), "factor": (changes(rows, turns=False, point=1.875), False), "turned": (changes(rows), False),
            **{f"turned, {point}": (changes(rows, point=point), False) for point in (1.875, 1.4375, 1.0625, 1.03125)},
            "turned, top, 1 spread": (changes(rows, point=1.875, least=1.0), False),
            "turned, top, 8 spreads": (changes(rows, point=1.875, least=8.0), False),
            "turned at the middle, top": (changes(rows, point=1.875, middle=True), False),
            "searched": (best, False), "searched, V shifted": (best, True)}


def cache_of(made, rows, is_shifted, calibrated):
    """What a cache of scale 1.0, or calibrated ones, does to K and V."""
    def forward(layer, x):
        angle, factor = made[layer]
        return unpaired(turned(pairs(x), angle[:, None]) * factor[:, None, :, None])

    def backward(layer, x):
        angle, factor = made[layer]
        return unpaired(turned(pairs(x) / factor[:, None, :, None], -angle[:, None]))
    shifts = {layer: v.mean(1, keepdim=True) * is_shifted for layer, (_, _, v) in rows.items()}
    k_scales = {layer: forward(layer, k).abs().max() / 448.0 for layer, (_, k, _) in rows.items()}
    v_scales = {layer: (v - shifts[layer]).abs().max() / 448.0 for layer, (_, _, v) in rows.items()}

    def change(layer, side, x):
        if side == "v":
            scale = v_scales[layer] if calibrated else 1.0
            return e4m3((x - shifts[layer]) / scale) * scale + shifts[layer]
        scale = k_scales[layer] if calibrated else 1.0
        return backward(layer, e4m3(forward(layer, x) / scale) * scale)
    return change


def measure(model, rows, text, only):
    table = {}
    every = {name: way for name, way in variants(rows).items() if not only or name in only or name == "as it is"}
    for index, ids in enumerate(text):
        reference = log_probabilities(model, ids, lambda layer, side, x: x)
        for name, (made, is_shifted) in every.items():
            for calibrated in (False, True):
                found = log_probabilities(model, ids, cache_of(made, rows, is_shifted, calibrated))
                kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
                same = (reference.argmax(-1) == found.argmax(-1)).float().mean().item()
                table.setdefault((name, calibrated), []).append((kl, same))
                print(f"window {index + 1} of {len(text)}: {name}, {'amax' if calibrated else '1.0'}: {kl:.5f}, {100 * same:.1f} %", flush=True)
    print("| variant | pairs | scale | mean KL ± its standard error | same top token | against as it is, paired |\n| --- | --- | --- | --- | --- | --- |")
    for (name, calibrated), results in table.items():
        kls = [kl for kl, _ in results]
        differences = [kl - plain for kl, (plain, _) in zip(kls, table["as it is", calibrated])]
        count = sum(((angle != 0) | (factor != 1)).sum().item() for angle, factor in every[name][0].values())
        against = "–" if name == "as it is" else f"{statistics.mean(differences):+.5f} ± {error_of(differences):.5f}"
        print(f"| {name} | {count} | {'amax / 448' if calibrated else '1.0'} | {statistics.mean(kls):.5f} ± {error_of(kls):.5f} | "
              f"{100 * statistics.mean(same for _, same in results):.1f} % | {against} |")


def error_of(values):
    return statistics.stdev(values) / len(values) ** 0.5


if __name__ == "__main__":
    main()
