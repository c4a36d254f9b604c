#!/usr/bin/env python3
"""Writes family/rope_cases.json: what transformers makes of RoPE keys that contradict each other, or that a family ignores.

usage: make_rope_cases.py
needs: torch, transformers 5.23

For the config.json of every fixture that is no wrapper, a few changes of its RoPE keys. Each case has the frequencies
[rotary_dim / 2] and the factor of cos and sin of the model's rotary modules, or null where transformers raises an error.
A file that is refused beside them agrees with nobody else: vLLM 0.33's `get_rope` takes partial_rotary_factor for every
family, and other engines read rope_scaling or rope_parameters alone.
"""
import copy
import json
import logging
import pathlib
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def changes_of():
    """Labels and the keys that say how positions turn, all of them."""
    theta = 12345.0
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": theta}
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": theta, "original_max_position_embeddings": 32}
    plain = {"rope_type": "default", "rope_theta": theta}
    yield "both say the same", {"rope_scaling": linear, "rope_parameters": linear}
    yield "both, another type", {"rope_scaling": linear, "rope_parameters": plain}
    yield "both, another factor", {"rope_scaling": linear, "rope_parameters": {**linear, "factor": 3.0}}
    yield "both, another theta", {"rope_scaling": plain, "rope_parameters": {**plain, "rope_theta": 777.0}}
    yield "both, one empty", {"rope_scaling": {}, "rope_parameters": linear}
    yield "theta beside and inside", {"rope_theta": 777.0, "rope_parameters": plain}
    yield "a share beside", {"rope_parameters": plain, "partial_rotary_factor": 0.5}
    yield "a share inside", {"rope_parameters": {**plain, "partial_rotary_factor": 0.5}}
    yield "a share of linear", {"rope_parameters": {**linear, "partial_rotary_factor": 0.5}}
    yield "a share of one", {"rope_parameters": plain, "partial_rotary_factor": 1.0}
    yield "yarn", {"rope_parameters": yarn}
    yield "yarn, its factor said", {"rope_parameters": {**yarn, "attention_factor": 1.3}}
    yield "yarn, its factor 0", {"rope_parameters": {**yarn, "attention_factor": 0.0}}
    yield "yarn, both mscales", {"rope_parameters": {**yarn, "mscale": 0.7, "mscale_all_dim": 0.9}}


ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")


def changed(config, keys):
    # transformers changes the objects that it gets.
    return copy.deepcopy({**{key: value for key, value in config.items() if key not in ROPE_KEYS}, **keys})


def rotary_of(config):
    """[frequencies, factor] of each rotary module of the text model."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    found = set()
    for name, module in model.named_modules():
        if not hasattr(module, "inv_freq") or "vision" in name:
            continue
        with torch.device("cpu"):
            fresh = type(module)(config=config)
        found.add((tuple(float("%.7g" % x) for x in fresh.inv_freq), float("%.7g" % fresh.attention_scaling)))
    return sorted(found)


def main():
    changes, cases = dict(changes_of()), []
    for path in sorted((HERE / "models").glob("*/config.json")):
        config = json.loads(path.read_text())
        # A rotary module made by itself does not know its layer's own theta.
        if any(key in config for key in ("text_config", "vision_config", "layer_rope_theta")):
            continue
        ropes = {}
        for label, keys in changes.items():
            try:
                ropes[label] = rotary_of(AutoConfig.for_model(**changed(config, keys)))
            except Exception:
                ropes[label] = None
        if any(ropes.values()):
            cases += [{"fixture": path.parent.name, "case": label, "ropes": found} for label, found in ropes.items()]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "family" / "rope_cases.json").write_text(
        '{"made_with": %s,\n"keys": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(versions), json.dumps(changes), lines))
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
