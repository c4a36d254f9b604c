#!/usr/bin/env python3
"""What a conversion costs beside copying the same bytes, and how much memory it takes.

usage: convert_speed.py KVCAL [--config tests/bench/gpu/llama3_8b.json] [--layers N] [--part one,several,fp8] [--fp8-layers 8]
                        [--runs 3] [--scratch FOLDER] [--json FILE]

A checkpoint of `kvcal synth` (8B: 16 GB) in shards gets scales (an overlay's files dropped into its folder), and then
one:     compressed-tensors to modelopt, against `cp -r` of the source and an fsync of every file: at most 1.3 times as long, and
         less than 200 MB of memory;
several: the same to three formats and kv_cache_scales.json at once: the weights are on disk once;
fp8:     FP8 weights, of --fp8-layers layers and a vocabulary of 32,000, from compressed-tensors' form to ModelOpt's.
Both sides read from the disk where the page cache can be emptied (needs root; else it is said), both end when their bytes are on
the disk, and they take turns, in an order that changes from run to run. Medians of --runs. Peak memory is the system's figure for the
process, never less than the 15 MB or so of this script, which starts it. FOLDER holds at most two copies of the checkpoint, which
are deleted at the end. The exit status is 1 where an expectation is missed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes" / "fp8_dynamic.yaml"  # needs no data
MEMORY_LIMIT, RATIO_LIMIT = 200e6, 1.3


def run(*command):
    """Seconds from the shell and peak memory in bytes; ends the program where the command fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{text[-3000:]}")
    return time.perf_counter() - begin, usage.ru_maxrss * 1024


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bytes_of(folder):
    """Of all files, one that has several names counted once."""
    return sum({(status.st_dev, status.st_ino): status.st_size for status in map(os.stat, files_of(folder))}.values())


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = pathlib.Path(scratch)
        self.target = self.scratch / "target"
        self.results, self.missed = {}, []
        self.is_cold = True

    def kvcal(self, *command):
        return run(self.arguments.kvcal, *command)

    def expect(self, name, text, holds, wanted):
        print(f"{name}: {text}, expected {wanted}: {'met' if holds else 'MISSED'}", flush=True)
        self.results[name] = {"value": text, "expected": wanted, "met": holds}
        if not holds:
            self.missed.append(name)

    def make_room(self):
        """No target, nothing left to write, and, where it may be, nothing of the source in memory."""
        shutil.rmtree(self.target, ignore_errors=True)
        os.sync()
        try:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError:
            self.is_cold = False

    def copy(self, source):
        self.make_room()
        begin = time.perf_counter()
        run("cp", "-r", source, self.target)
        run("sync", *files_of(self.target), self.target)
        return time.perf_counter() - begin

    def convert(self, source, *options):
        self.make_room()
        return self.kvcal("convert", source, "--output", self.target, *options)

    def synth(self, name, layers, **changes):
        folder, config = self.scratch / name, self.scratch / "config.json"
        config.write_text(json.dumps(json.loads(self.arguments.config.read_text()) | changes))
        self.kvcal("synth", "--config", config, "--seed", 1, "--dtype", "bfloat16", "--max-shard-size", "2GiB", folder,
                   *(["--layers", layers] if layers else []))
        return folder

    def scales(self, folder):
        """A kv_cache_scales.json for the checkpoint: how large they are does not matter."""
        config = json.loads((folder / "config.json").read_text())
        values = {str(layer): 0.01 + 0.001 * layer for layer in range(config["num_hidden_layers"])}
        file = self.scratch / "kv_cache_scales.json"
        file.write_text(json.dumps({"model_type": config["model_type"],
                                    "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": values}}}))
        return file

    def put_scales(self, source):
        overlay = self.scratch / "overlay"
        self.kvcal("convert", source, "--scales", self.scales(source), "--format", "compressed-tensors", "--scales-only", "--output", overlay)
        for file in files_of(overlay):
            shutil.copy(file, source)
        shutil.rmtree(overlay)

    def in_turn(self, name, source, *options):
        """Medians of a conversion's seconds and a copy's, the largest peak; the last conversion's target stays."""
        converted, copied, peaks = [], [], []
        for turn in range(self.arguments.runs):
            last = turn + 1 == self.arguments.runs
            for which in (("copy", "convert") if last or turn % 2 else ("convert", "copy")):
                if which == "copy":
                    copied.append(self.copy(source))
                else:
                    seconds, peak = self.convert(source, *options)
                    converted.append(seconds)
                    peaks.append(peak)
                print(f"  run {turn + 1}: {which} {(converted if which == 'convert' else copied)[-1]:.2f} s", file=sys.stderr, flush=True)
        size, seconds, limit = bytes_of(source), statistics.median(converted), statistics.median(copied)
        print(f"{name}: {size / 1e9:.2f} GB in {len(files_of(source))} files; convert {seconds:.2f} s ({size / seconds / 1e6:.0f} MB/s), "
              f"cp and fsync {limit:.2f} s ({size / limit / 1e6:.0f} MB/s), caches {'emptied' if self.is_cold else 'as they were'}")
        self.results[f"{name}, runs"] = {"bytes": size, "convert_seconds": converted, "copy_seconds": copied, "peak_bytes": peaks,
                                         "caches_emptied": self.is_cold}
        self.expect(f"{name}, time of convert / time of cp", f"{seconds / limit:.2f}", seconds / limit <= RATIO_LIMIT, f"<= {RATIO_LIMIT}")
        self.expect_memory(name, max(peaks))

    def expect_memory(self, name, peak):
        self.expect(f"{name}, peak memory", f"{peak / 1e6:.0f} MB", peak < MEMORY_LIMIT, f"< {MEMORY_LIMIT / 1e6:.0f} MB")

    def expect_same_shards(self, name, source):
        shards = [file for file in files_of(source) if "-of-" in file.name]
        same = shards and all(subprocess.run(["cmp", "-s", file, self.target / file.name]).returncode == 0 for file in shards)
        self.expect(f"{name}, shards with the source's bytes", f"{len(shards) if same else 'not all'} of {len(shards)}", bool(same), "all")

    def one(self, source):
        self.in_turn("one format", source, "--format", "modelopt")
        self.expect_same_shards("one format", source)

    def several(self, source):
        formats = ("compressed-tensors", "modelopt", "tgi", "scales-json")
        seconds, peak = self.convert(source, *(word for name in formats for word in ("--format", name)))
        size, given = bytes_of(self.target), bytes_of(source)
        print(f"several formats: {', '.join(formats)} in {seconds:.2f} s")
        self.expect("several formats, bytes on disk / bytes of the source", f"{size / given:.4f}", size < 1.001 * given, "< 1.001")
        self.expect_memory("several formats", peak)

    def fp8(self):
        plain, source = self.synth("plain", self.arguments.fp8_layers, vocab_size=32000), self.scratch / "fp8"
        self.kvcal("calibrate", plain, "--recipe", RECIPE, "--output", source)
        shutil.rmtree(plain)
        self.in_turn("FP8 weights", source, "--format", "modelopt", "--scales", self.scales(source))

    def measure(self):
        parts = self.arguments.part.split(",")
        if set(parts) - {"one", "several", "fp8"}:
            sys.exit(f"error: --part {self.arguments.part}, expected names of one, several, fp8")
        if "one" in parts or "several" in parts:
            source = self.synth("source", self.arguments.layers)
            self.put_scales(source)
            if "one" in parts:
                self.one(source)
            if "several" in parts:
                self.several(source)
            shutil.rmtree(self.target)
            shutil.rmtree(source)
        if "fp8" in parts:
            self.fp8()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("--config", type=pathlib.Path, default=HERE / "gpu" / "llama3_8b.json")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--fp8-layers", type=int, default=8)
    parser.add_argument("--part", default="one,several,fp8")
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
