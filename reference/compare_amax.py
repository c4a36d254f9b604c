#!/usr/bin/env python3
"""Compares the manifest of a calibration with reference extremes and scales, layer by layer.

usage: compare_amax.py kvcal_manifest.json expected.json [--tolerance 1e-4]

expected.json: {"layers": [{"k_amax", "v_amax", "k_scale_minmax_ema"?, "v_scale_minmax_ema"?}, ...]}; the scales are compared
when the recipe's observer is minmax. Exit 0 when every relative difference is within the tolerance, 1 otherwise.
"""
import argparse
import json
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("manifest")
parser.add_argument("expected")
parser.add_argument("--tolerance", type=float, default=1e-4)
arguments = parser.parse_args()
manifest, expected = json.load(open(arguments.manifest)), json.load(open(arguments.expected))
if len(manifest["layers"]) != len(expected["layers"]):
    sys.exit(f"error: {len(manifest['layers'])} layers, expected {len(expected['layers'])}")

pairs = {"k_amax": "k_amax", "v_amax": "v_amax"}
if manifest["recipe"]["kv_cache_scheme"]["observer"] == "minmax":
    pairs.update({"k_scale": "k_scale_minmax_ema", "v_scale": "v_scale_minmax_ema"})
worst = 0.0
for ours_key, theirs_key in pairs.items():
    differences = [abs(ours[ours_key] - theirs[theirs_key]) / abs(theirs[theirs_key])
                   for ours, theirs in zip(manifest["layers"], expected["layers"])]
    layer = max(range(len(differences)), key=differences.__getitem__)
    print(f"{ours_key}: worst relative difference {differences[layer]:.3g}, in layer {layer}")
    worst = max(worst, differences[layer])
print("PASS" if worst <= arguments.tolerance else "FAIL", f"({worst:.3g} against {arguments.tolerance:g})")
sys.exit(worst > arguments.tolerance)
