#!/usr/bin/env python3
"""Makes tests/fixtures/report/{kl,gsm8k,sensitivity,sweep}.json: results as `kvcal eval --json` and `kvcal sweep` write them, of
the size of a model of 30 layers. Numbers are made up; their relations are those of real runs.
  tests/report/make_samples.py OUT"""

import json
import math
import random
import sys
from pathlib import Path

LAYERS = 30
chance = random.Random(10)


def about(value, spread=0.3):
    return value * math.exp(chance.gauss(0, spread))


def rounded(value):
    return float(f"{value:.6g}")


def likelihood(kl, perplexity=14.2):
    return {
        "nll": rounded(math.log(perplexity)),
        "perplexity": rounded(perplexity),
        "kl_mean": rounded(kl),
        "kl_p99": rounded(kl * 9),
        "kl_max": rounded(kl * 80),
        "top1_agreement": rounded(1 - math.sqrt(kl) * 0.6),
        "reference_perplexity": 14.1873,
        "perplexity_increase": rounded(perplexity / 14.1873 - 1),
    }


def positions(kl):
    buckets, first = [], 0
    for bits in range(11):
        last = 2**bits - 1
        nll = 5.2 - 0.28 * bits
        count = 24 * (last - first + 1)
        mean = rounded(about(kl * (0.5 + bits / 8), 0.1))
        buckets.append({"first": first, "last": last, "num_tokens": count, "kl_mean": mean, "kl_stderr": rounded(2 * mean / math.sqrt(count)),
                        "nll": rounded(nll + kl), "nll_stderr": rounded(2.8 / math.sqrt(count)),
                        "reference_nll": rounded(nll), "reference_nll_stderr": rounded(2.8 / math.sqrt(count))})
        first = last + 1
    return buckets


def layers(kl):
    costs = [about(kl / 40 * (6 if layer in (0, 3, 27) else 1)) for layer in range(LAYERS)]
    return [{"layer": layer, "kl_mean": rounded(cost), "kl_stderr": rounded(cost / 30), "kl_p99": rounded(cost * 8), "kl_max": rounded(cost * 60),
             "top1_agreement": rounded(1 - math.sqrt(cost) * 0.5), "perplexity": rounded(14.19 + cost)} for layer, cost in enumerate(costs)]


def variant(name, dtype, scales, kl, perplexity):
    return {"name": name, "kv_cache_dtype": dtype, "scales": scales, "num_tokens": 24576, **likelihood(kl, perplexity),
            "positions": positions(kl), "layers": layers(kl),
            "sequences": [{"num_tokens": 1024, "nll": rounded(about(2.65, 0.1)), "kl_mean": rounded(about(kl, 0.35))} for _ in range(24)]}


VARIANTS = [("calibrated", "fp8_e4m3", "checkpoint", 0.0061, 14.231), ("scale 1.0", "fp8_e4m3", "unit", 0.0188, 14.402),
            ("calibrated, E5M2", "fp8_e5m2", "checkpoint", 0.0242, 14.517), ("FNUZ", "fp8_e4m3fnuz", "checkpoint", 0.0064, 14.236)]


def text(name, words, divergence=None, kl=0.004):
    tokens = [" " + word if i else word for i, word in enumerate(words.split(" "))]
    result = {"name": name, "text": words, "tokens": tokens}
    if divergence is not None:
        result["first_divergence"] = divergence
        result["kl"] = [rounded(about(kl * (30 if i == divergence else 1), 1.0)) for i in range(len(tokens))]
    return result


def texts():
    first = "The capital of France is Paris, a city on the Seine that is known for its museums and its food."
    other = "The capital of France is Paris, which lies on the river Seine\nand has been the seat of kings."
    return [{"prompt": "What is the capital of France?", "reference": text("auto", first),
             "variants": [text("calibrated", first, -1), text("scale 1.0", other, 6, 0.02)]},
            {"prompt": "Write <b>bold</b> & mean it.", "reference": text("auto", "<b>bold</b> & mean it, said nobody."),
             "variants": [text("calibrated", "<b>bold</b> & meant, said nobody.", 2)]}]


def kl_result():
    return {"task": "kl", "version": "0.1.0", "model": "demo/SmolLM2-135M-Instruct-FP8-KV", "dataset": "datasets/wikitext.txt",
            "num_sequences": 24, "max_seq_length": 1024, "stride": 512, "reference": "the same with an unquantized cache",
            "variants": [variant(*one) for one in VARIANTS], "texts": texts()}


def gsm8k_result():
    samples = []
    for number in range(12):
        target, found = str(7 * number), str(7 * number if number % 3 else number)
        samples.append({"doc_id": number, "prompt": f"Question: an example?\nAnswer: #### 1\n\nQuestion: What is 7 times {number}?\nAnswer:",
                        "text": f" It is {found}.\n#### {found}", "strict": found if number % 5 else "[invalid]", "flexible": found,
                        "target": target, "exact_match_strict": int(found == target and number % 5 > 0), "exact_match_flexible": int(found == target)})
    shares = {key: sum(sample[key] for sample in samples) / 12 for key in ("exact_match_strict", "exact_match_flexible")}
    return {"task": "gsm8k", "version": "0.1.0", "model": "SmolLM2", "dataset": "gsm8k_test.jsonl", "kv_cache_dtype": "fp8_e4m3", "scales": "checkpoint",
            **shares, **{f"{key}_stderr": rounded(math.sqrt(share * (1 - share) / 11)) for key, share in shares.items()},
            "num_questions": 12, "num_fewshot": 5, "samples": samples}


def sensitivity_result():
    ranking = sorted(layers(0.0061), key=lambda layer: -layer["kl_mean"])
    rows = []
    for kept in (0, 1, 2, 3, 4, 6, 8, 15):
        names = sorted(layer["layer"] for layer in ranking[:kept])
        cost = sum(layer["kl_mean"] for layer in ranking[kept:])
        rows.append({"num_kept": kept, "layers": names, "kl_mean": rounded(cost), "kl_stderr": rounded(cost / 30),
                     "perplexity": rounded(14.19 + cost),
                     "bytes_per_token": 11520 + 384 * kept, "is_proposed": kept == 4})
    names = " ".join(str(layer) for layer in rows[4]["layers"])
    return {"task": "sensitivity", "version": "0.1.0", "model": "SmolLM2", "dataset": "wikitext.txt", "num_sequences": 24,
            "reference": "the same with an unquantized cache",
            "sensitivity": {"kv_cache_dtype": "fp8_e4m3", "scales": "checkpoint", "kl_budget": 0.004,
                            "ranking": [{key: layer[key] for key in ("layer", "kl_mean", "kl_stderr")} for layer in ranking], "rows": rows,
                            "bytes_per_token_16_bit": 23040, "skip_layers_argument": f"--kv-cache-dtype-skip-layers {names}",
                            "recipe": "quant_stage:\n  quant_modifiers:\n    QuantizationModifier:\n      ignore: [lm_head]\n"}}


def cell(name, dtype, source, forward, kl, **more):
    fp8 = dtype != "auto"
    return {"id": name, "model": "demo/SmolLM2-135M-Instruct", "recipe": more.pop("recipe", None), "kv_cache_dtype": dtype,
            "scale_source": source, "kv_forward": forward, "num_samples": 512 if source == "calibrated" else None, "seed": None,
            "status": "done", "error": None, **likelihood(kl, 14.1873 * (1 + kl)), "bytes_per_token": 11520 if fp8 else 23040,
            "weight_bytes": 269060352, "is_pareto": False, **more}


def sweep_result():
    cells = [cell("bf16", "auto", "none", None, 0.0)]
    for observer, kl in (("static_minmax", 0.0061), ("mse", 0.0057), ("percentile", 0.0083), ("entropy", 0.0102)):
        for strategy, better in (("tensor", 1.0), ("attn_head", 0.93)):
            for forward in ("quantized", "exact"):
                recipe = f"recipes/kv_{observer}_{strategy}.yaml"
                cells.append(cell(f"{observer}-{strategy}-{forward}", "fp8_e4m3", "calibrated", forward, about(kl * better, 0.02), recipe=recipe))
    cells.append(cell("unit-e4m3", "fp8_e4m3", "unit", None, 0.0188))
    for forward in ("quantized", "exact"):
        cells.append(cell(f"static_minmax-e5m2-{forward}", "fp8_e5m2", "calibrated", forward, about(0.0242, 0.02),
                          recipe="recipes/kv_static_minmax_tensor.yaml"))
    failed = {"id": "broken", "model": "demo/SmolLM2-135M-Instruct", "recipe": "recipes/broken.yaml", "kv_cache_dtype": "fp8_e4m3",
              "scale_source": "calibrated", "kv_forward": "exact", "num_samples": 512, "seed": 1, "status": "failed",
              "error": "recipes/broken.yaml:3: unknown observer 'minimax', expected <minmax>; did you mean 'minmax'?"}
    cells += [failed, {**failed, "id": "later", "status": "pending", "error": None}]
    best = min((one for one in cells if one.get("bytes_per_token") == 11520), key=lambda one: one["kl_mean"])
    for one in (cells[0], best):
        one["is_pareto"] = True
    return {"version": "0.1.0", "name": "kv_observers", "cells": cells, "pareto": {"x": "bytes_per_token", "y": "kl_mean"}}


def main():
    out = Path(sys.argv[1])
    for name, result in (("kl", kl_result()), ("gsm8k", gsm8k_result()), ("sensitivity", sensitivity_result()), ("sweep", sweep_result())):
        (out / f"{name}.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
