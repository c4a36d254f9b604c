#!/usr/bin/env python3
"""How far KL of an FP8 cache repeats: transformers against itself, with two ways to sum attention.

usage: cache_noise.py MODEL TEXT [WINDOWS=20] [WINDOW=1024] [SCALE=1.0]

MODEL: SmolLM2-135M-Instruct. Float32, K and V quantized to E4M3FN at Cache.update, by attention "sdpa" and "eager",
which round differently in the last bits and are both right. A value next to a rounding boundary then gets another
code; a few layers on the errors of the two runs have nothing to do with each other. Prints the mean KL of both with
its standard error: what two right implementations may differ by. Needs torch, transformers.
"""
import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache


class Fp8Cache(DynamicCache):
    scale = 1.0

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        def coded(x):
            codes = (x / self.scale).clamp(-448, 448).to(torch.float8_e4m3fn)
            return codes.float() * self.scale
        return super().update(coded(key_states), coded(value_states), layer_idx, *args, **kwargs)


def log_probabilities(model, ids, cache):
    with torch.no_grad():
        return torch.log_softmax(model(ids, past_key_values=cache, use_cache=True).logits[0, :-1].double(), -1)


def main():
    folder, text = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    windows, window = int((sys.argv + [0] * 5)[3] or 20), int((sys.argv + [0] * 5)[4] or 1024)
    Fp8Cache.scale = float((sys.argv + [0] * 6)[5] or 1.0)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text(), add_special_tokens=False).ids
    kls = {}
    for attention in ("sdpa", "eager"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
        kl = []
        for i in range(windows):
            batch = torch.tensor([ids[i * window:(i + 1) * window]])
            plain = log_probabilities(model, batch, DynamicCache())
            coded = log_probabilities(model, batch, Fp8Cache())
            kl.append((plain.exp() * (plain - coded)).sum(-1))
        kls[attention] = torch.cat(kl)
        mean, error = kls[attention].mean().item(), kls[attention].std().item() / len(kls[attention]) ** 0.5
        print(f"{attention:6} mean KL {mean:.6f} +- {error:.6f} (standard error), max {kls[attention].max().item():.4f}", flush=True)
    a, b = kls["sdpa"], kls["eager"]
    print(json.dumps({"relative_difference": abs(a.mean() - b.mean()).item() / a.mean().item(),
                      "correlation_of_log_kl": torch.corrcoef(torch.stack([a, b]).clamp_min(1e-12).log())[0, 1].item(),
                      "tokens_off_by_2_percent": ((a - b).abs() > 0.02 * a).double().mean().item()}))


if __name__ == "__main__":
    main()
