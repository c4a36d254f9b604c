#!/usr/bin/env python3
"""Calibrations in float32 on each class of processors that this one can stand for: every output has the same bytes.

KVCAL_CPU limits the instructions of a run. Of each output all files are compared; of the manifest, all but the device, the times
and the memory. Models: every fixture with the program's own recipe, and a wider one with every recipe of the project.
Exits with 77 where this processor has one class alone.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/fixtures/models"
CLASSES = ("avx2", "avx512", "avx512_bf16", "amx_bf16")
OF_THE_RUN = ("device", "peak_rss_bytes", "seconds")


def run(level, words):
    environment = {**os.environ, "KVCAL_CPU": level, "HF_HUB_OFFLINE": "1"}
    return subprocess.run([os.environ["KVCAL"], *map(str, words)], env=environment, capture_output=True, text=True)


def calibrated(level, model, data, output, *more):
    """Bytes by file; or the error."""
    done = run(level, ["calibrate", model, "--dataset", data, "--compute-dtype", "float32", "--threads", 1, "-o", output, *more])
    if done.returncode != 0:
        return {"error": done.stderr.replace(str(output), "OUTPUT").encode()}, ""
    files = {file.name: file.read_bytes() for file in sorted(output.iterdir())}
    manifest = json.loads(files["kvcal_manifest.json"])
    device = manifest["device"]
    files["kvcal_manifest.json"] = json.dumps({key: value for key, value in manifest.items() if key not in OF_THE_RUN}).encode()
    return files, device


def classes_here(scratch, data):
    """Classes that this processor has: each names another device."""
    seen = {}
    for level in CLASSES:
        _, device = calibrated(level, MODELS / "llama", data, scratch / f"class_{level}")
        # In bfloat16 the name of the product tells the classes above AVX-512 apart.
        done = run(level, ["calibrate", MODELS / "llama", "--dataset", data, "--compute-dtype", "bfloat16", "-o", scratch / f"bf16_{level}"])
        manifest = scratch / f"bf16_{level}/kvcal_manifest.json"
        seen.setdefault(device + (json.loads(manifest.read_text())["device"] if done.returncode == 0 else ""), level)
    return list(seen.values())


def wide_model(folder):
    config = json.loads((MODELS / "llama/config.json").read_text())
    config.update(hidden_size=640, num_attention_heads=8, num_key_value_heads=4, head_dim=80, intermediate_size=1200, num_hidden_layers=3)
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    done = run("avx2", ["synth", "--config", file, "--output", folder / "wide"])
    assert done.returncode == 0, done.stderr
    return folder / "wide"


def main():
    generator = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        data = scratch / "ids.jsonl"
        data.write_text("".join(json.dumps({"input_ids": [generator.randrange(3, 60) for _ in range(20 + i)]}) + "\n" for i in range(6)))
        classes = classes_here(scratch, data)
        print("classes:", ", ".join(classes))
        if len(classes) < 2:
            print("one class alone: nothing to compare")
            return 77
        wide = wide_model(scratch)
        cases = [(model, ()) for model in sorted(path.parent for path in MODELS.glob("*/config.json"))]
        cases += [(wide, ("--recipe", recipe)) for recipe in sorted((ROOT / "recipes").glob("*.yaml"))]
        failed = calibrations = 0
        for number, (model, more) in enumerate(cases):
            results = [calibrated(level, model, data, scratch / f"{number}_{level}", *more)[0] for level in classes]
            calibrations += "error" not in results[0]
            for level, files in zip(classes[1:], results[1:]):
                wrong = sorted(key for key in files.keys() | results[0].keys() if files.get(key) != results[0].get(key))
                if wrong:
                    failed += 1
                    print(f"FAILED {model.name} {' '.join(map(str, more))}: {level} and {classes[0]} differ in {', '.join(wrong)}")
        print(f"{calibrations} of {len(cases)} calibrated on each class, {failed} differ")
        return 1 if failed or calibrations < len(cases) * 9 // 10 else 0


if __name__ == "__main__":
    sys.exit(main())
