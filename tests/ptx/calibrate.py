#!/usr/bin/env python3
"""Calibrates fixtures with the kernels' PTX and on the CPU: the scales must agree as docs/numerics.md promises.

usage: calibrate.py PROGRAM MODEL...     models of tests/fixtures/models
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
LARGEST_DIFFERENCE = 1e-3  # relative, in float32


def scales_of(program, model, device, folder):
    output = folder / f"{model}_{device}"
    data = TESTS / "cli/data"  # small.jsonl fits every fixture's vocabulary
    subprocess.run([program, "calibrate", TESTS / "fixtures/models" / model, "--recipe", data / "recipe.yaml", "--dataset",
                    data / "small.jsonl", "--device", device, "--compute-dtype", "float32", "--format", "scales-json",
                    "--output", output], check=True, stdout=subprocess.DEVNULL)
    return numbers_of(json.loads((output / "kv_cache_scales.json").read_text())["kv_cache"]["scaling_factor"], "")


def numbers_of(value, path):
    """Numbers of nested objects by their path."""
    if not isinstance(value, dict):
        return {path: float(value)}
    return {name: number for key, part in value.items() for name, number in numbers_of(part, f"{path}/{key}").items()}


def main():
    program, *models = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            cpu, cuda = (scales_of(program, model, device, pathlib.Path(folder)) for device in ("cpu", "cuda"))
            if not cpu or cpu.keys() != cuda.keys():
                sys.exit(f"error: {model}: the CPU's scales are {sorted(cpu)}, the PTX's {sorted(cuda)}")
            largest = max(abs(cuda[name] - cpu[name]) / cpu[name] for name in cpu)
            failed = failed or not largest <= LARGEST_DIFFERENCE
            print(f"{model}: {len(cpu)} scales, largest relative difference {largest:.2g}, allowed {LARGEST_DIFFERENCE:.2g}")
    return 1 if failed or not models else 0


if __name__ == "__main__":
    sys.exit(main())
