#!/usr/bin/env python3
"""What `kvcal calibrate` costs on quantized weights beside the same model in 16 bits: time, and bytes from the disk.

usage: source_speed.py KVCAL [--config tests/bench/gpu/llama3_8b.json] [--layers 2] [--vocab 32000] [--tokens 2048] [--threads 0]
                       [--kinds packed_int4,gptq_int4,awq,...] [--inputs as-served,16bit] [--runs 3]
                       [--scratch FOLDER] [--json FILE]

The twin is a checkpoint of `kvcal synth` in bfloat16. `kvcal quantize` makes the kinds of compressed-tensors from it; the others have random codes of
the same shapes, since speed does not depend on values. Twin and source take turns, in an order that changes from run to run, each with nothing of its
files in the page cache. The output is kv_cache_scales.json, so that only reading differs. Ratios are medians over pairs of neighbours in time. Bytes
from the disk are those that the kernel counts for the process (`ru_inblock`), and are 0 where the files lie in memory. --inputs 16bit runs
the inputs of FP8 sources in 16 bits, as the twin's; as-served quantizes them, which is work that the twin has not. The exit status is 1 where a
source takes over 5 % longer, or reads more than its files have of the twin's (a half or a quarter of the layers) and a tenth.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes" / "fp8_kv_tensor.yaml"
TIME_LIMIT, MORE_BYTES = 1.05, 0.1
SCHEMES = {"packed_int4": "W4A16", "fp8_channel": "FP8_DYNAMIC", "fp8_blocks": "FP8_BLOCK", "nvfp4": "NVFP4A16", "mxfp4": "MXFP4A16"}
GROUP = 128
RANDOM = random.Random(1).randbytes(1 << 22)
# Codes of E4M3 with magnitudes of about 1, none of them NaN.
FP8 = bytes(range(0x30, 0x40)) * 8 + bytes(range(0xb0, 0xc0)) * 8


def run(*command):
    """Wall seconds, processor seconds and bytes from the disk; ends the program where the command fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{text[-3000:]}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_inblock * 512


def drop_from_cache(folder):
    os.sync()
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def header_of(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def repeated(content, size):
    return (content * (size // len(content) + 1))[:size]


def gptq(out, width):
    return {".qweight": ("I32", [width // 8, out], RANDOM), ".qzeros": ("I32", [width // GROUP, out // 8], b"\x77"),
            ".scales": ("F16", [width // GROUP, out], b"\x00\x1c"),
            ".g_idx": ("I32", [width], b"".join((i // GROUP).to_bytes(4, "little") for i in range(width)))}


def awq(out, width):
    return {".qweight": ("I32", [width, out // 8], RANDOM), ".qzeros": ("I32", [width // GROUP, out // 8], b"\x88"),
            ".scales": ("F16", [width // GROUP, out], b"\x00\x1c")}


def fp8_tensor(out, width):
    return {".weight": ("F8_E4M3", [out, width], RANDOM.translate(FP8)), ".weight_scale": ("F32", [], b"\x0a\xd7\xa3\x3c"),
            ".input_scale": ("F32", [], b"\x0a\xd7\xa3\x3d")}


WRITERS = {
    "gptq_int4": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True,
                         "checkpoint_format": "gptq"}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "fp8_tensor": (fp8_tensor, {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}),
}


def write_source(twin, target, kind):
    """The twin with random codes in its layers' Linears."""
    make, quantization = WRITERS[kind]
    target.mkdir()
    config = json.loads((twin / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    entries, start = header_of(twin / "model.safetensors")
    entries.pop("__metadata__", None)
    header, contents, offset = {}, [], 0
    sizes = {"I32": 4, "F16": 2, "F8_E4M3": 1, "F32": 4}

    def add(name, dtype, shape, size, content):
        nonlocal offset
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        contents.append((content, size))
        offset += size

    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        if not name.endswith("_proj.weight"):
            add(name, entry["dtype"], entry["shape"], end - begin, start + begin)
            continue
        for tail, (dtype, shape, content) in make(*entry["shape"]).items():
            size = sizes[dtype]
            for side in shape:
                size *= side
            add(name.removesuffix(".weight") + tail, dtype, shape, size, content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target / "model.safetensors", "wb") as file, open(twin / "model.safetensors", "rb") as source:
        file.write(len(text).to_bytes(8, "little") + text)
        for content, size in contents:
            if isinstance(content, int):
                source.seek(content)
            file.write(source.read(size) if isinstance(content, int) else repeated(content, size))


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, pathlib.Path(scratch)
        self.results, self.missed = {}, []
        self.samples = self.scratch / "samples.jsonl"
        numbers = random.Random(2)
        with open(self.samples, "w") as file:
            for left in range(arguments.tokens, 0, -512):
                ids = [numbers.randrange(arguments.vocab) for _ in range(min(left, 512))]
                file.write(json.dumps({"input_ids": ids}) + "\n")

    def twin(self):
        config, folder = self.scratch / "config.json", self.scratch / "twin"
        config.write_text(json.dumps(json.loads(self.arguments.config.read_text()) | {"vocab_size": self.arguments.vocab}))
        run(self.arguments.kvcal, "synth", "--config", config, "--seed", 1, "--dtype", "bfloat16", "--layers", self.arguments.layers, folder)
        return folder

    def source(self, twin, kind):
        folder = self.scratch / "source"
        shutil.rmtree(folder, ignore_errors=True)
        if kind in WRITERS:
            write_source(twin, folder, kind)
        else:
            run(self.arguments.kvcal, "quantize", twin, "--scheme", SCHEMES[kind], "--output", folder)
        return folder

    def calibrate(self, folder, inputs):
        target = self.scratch / "target"
        shutil.rmtree(target, ignore_errors=True)
        drop_from_cache(folder)
        return run(self.arguments.kvcal, "calibrate", folder, "--recipe", RECIPE, "--dataset", self.samples, "--inputs", inputs,
                   "--threads", self.arguments.threads, "--format", "scales-json", "--output", target)

    def expect(self, name, value, limit):
        print(f"{name}: {value:.3f}, expected <= {limit:.3f}: {'met' if value <= limit else 'MISSED'}", flush=True)
        self.results[name] = {"value": value, "limit": limit}
        if value > limit:
            self.missed.append(name)

    def compare(self, twin, source, kind, inputs):
        pairs = []
        for turn in range(self.arguments.runs):
            order = (twin, source) if turn % 2 else (source, twin)
            taken = {folder: self.calibrate(folder, inputs) for folder in order}
            pairs.append((taken[twin], taken[source]))
        name = kind if inputs == "as-served" else f"{kind}, {inputs} inputs"
        wall, work, read = (statistics.median(ours[i] / max(theirs[i], 1e-9) for theirs, ours in pairs) for i in range(3))
        plain, ours = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
        print(f"{name}: {ours:.2f} s beside {plain:.2f} s, {pairs[-1][1][2] / 1e6:.0f} MB of {pairs[-1][0][2] / 1e6:.0f} MB from the disk; "
              f"processor time {work:.3f} x", flush=True)
        self.results[f"{name}, pairs"] = pairs
        self.expect(f"{name}, time / time of the twin", wall, TIME_LIMIT)
        if pairs[-1][0][2]:
            files = sum(path.stat().st_size for path in source.iterdir()) / sum(path.stat().st_size for path in twin.iterdir())
            self.results[f"{name}, share of files"] = files
            self.expect(f"{name}, bytes / bytes of the twin", read, files + MORE_BYTES)

    def measure(self):
        twin = self.twin()
        for kind in self.arguments.kinds.split(","):
            source = self.source(twin, kind)
            for inputs in self.arguments.inputs.split(","):
                if inputs == "as-served" or kind.startswith("fp8"):
                    self.compare(twin, source, kind, inputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("--config", type=pathlib.Path, default=HERE / "gpu" / "llama3_8b.json")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--kinds", default=",".join([*SCHEMES, *WRITERS]))
    parser.add_argument("--inputs", default="as-served,16bit")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        bench = Bench(arguments, scratch)
        bench.measure()
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.results, indent=1) + "\n")
    if bench.missed:
        print(f"missed: {', '.join(bench.missed)}")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
