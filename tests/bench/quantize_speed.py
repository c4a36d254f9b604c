#!/usr/bin/env python3
"""What `kvcal quantize` costs beside copying the bytes that it reads, and how much memory it takes.

usage: quantize_speed.py KVCAL [--config tests/bench/gpu/llama3_8b.json] [--layers 4] [--schemes FP8_DYNAMIC,...] [--threads 0] [--runs 3]
                         [--source FOLDER] [--warm] [--scratch FOLDER] [--json FILE]

A checkpoint (--source, else one of `kvcal synth` in shards of 2 GiB, of bfloat16), against `cp -r` and an fsync of every file (convert_speed.py). Both begin with an
empty page cache where that may be emptied (--warm leaves it as it is), both end when their bytes are on the disk, and they take turns. Medians of --runs. Beside
the time of the whole: peak memory, processor time, and bytes of the source a second. FOLDER holds two copies of the checkpoint at most. The
exit status is 1 where peak memory is over 200 MB and the largest tensor, which is mapped while it is read.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import convert_speed
from convert_speed import HERE, Bench, bytes_of, files_of


class QuantizeBench(Bench):
    def make_room(self):
        if not self.arguments.warm:
            return super().make_room()
        shutil.rmtree(self.target, ignore_errors=True)
        os.sync()
        self.is_cold = False

    def quantize(self, source, scheme):
        self.make_room()
        before = os.times()
        seconds, peak = self.kvcal("quantize", source, "--scheme", scheme, "--threads", self.arguments.threads, "--output", self.target)
        after = os.times()
        return seconds, after.children_user + after.children_system - before.children_user - before.children_system, peak

    @staticmethod
    def largest(source):
        """Bytes of the largest tensor."""
        largest = 0
        for path in source.glob("*.safetensors"):
            with open(path, "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            largest = max(largest, *(entry["data_offsets"][1] - entry["data_offsets"][0]
                                     for name, entry in header.items() if name != "__metadata__"))
        return largest

    def measure(self):
        source = self.arguments.source or self.synth("source", self.arguments.layers)
        size = bytes_of(source)
        for scheme in self.arguments.schemes.split(","):
            copied, quantized = [], []
            for turn in range(self.arguments.runs):
                for which in ("copy", "quantize") if turn % 2 else ("quantize", "copy"):
                    if which == "copy":
                        copied.append(self.copy(source))
                    else:
                        quantized.append(self.quantize(source, scheme))
                        written = bytes_of(self.target)
            seconds, work = (statistics.median(one[i] for one in quantized) for i in (0, 1))
            peak, limit = max(one[2] for one in quantized), statistics.median(copied)
            print(f"{scheme}: {size / 1e9:.2f} GB in {len(files_of(source))} files became {written / 1e9:.2f} GB; {seconds:.2f} s "
                  f"({size / seconds / 1e6:.0f} MB/s), {work:.2f} s of processors; cp and fsync {limit:.2f} s, {seconds / limit:.2f} x; caches "
                  f"{'emptied' if self.is_cold else 'as they were'}", flush=True)
            self.results[f"{scheme}, runs"] = {"bytes": size, "written": written, "runs": quantized, "copy_seconds": copied}
            self.expect(f"{scheme}, peak memory", f"{peak / 1e6:.0f} MB", peak < convert_speed.MEMORY_LIMIT + self.largest(source),
                        "< 200 MB and the largest tensor")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("--config", type=pathlib.Path, default=HERE / "gpu" / "llama3_8b.json")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--schemes", default="FP8_DYNAMIC,FP8_BLOCK,W8A8,W4A16,NVFP4A16,MXFP4")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--scratch")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        bench = QuantizeBench(arguments, scratch)
        bench.measure()
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.results, indent=1) + "\n")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
