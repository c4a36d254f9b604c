#!/usr/bin/env python3
"""A sweep of 24 cells within half an hour, killed twice on the way, with the results of one that was not.

usage: sweep_goal.py KVCAL MODEL CALIBRATION TEXT [--sweep FILE] [--num-samples 32] [--max-seq-length 512] [--scratch FOLDER] [--minutes 30]
KVCAL: the program. CALIBRATION: what scales are made of, TEXT: what is scored. FILE (sweeps/kv_observers.yaml) gives the grid; its model, data sets
and the size of its evaluation are replaced. The sweep is started, killed (SIGKILL) when a third of its cells are done and a task runs, continued,
killed again at two thirds, continued to its end; then run once more in another folder without a kill. Fails unless results.json and results.csv
have the same bytes and the killed one, all three starts together, took less than the minutes. Prints the cells as a Markdown table, by mean KL;
"against the first" is the difference of mean KL from the sweep's first cell, with the standard error of the mean over the same sequences (paired).
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("text")
    parser.add_argument("--sweep", default=REPOSITORY / "sweeps/kv_observers.yaml", type=pathlib.Path)
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--scratch")
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        failed = measure(options, pathlib.Path(folder))
    sys.exit(1 if failed else 0)


def measure(options, folder):
    sweep = folder / "sweep.yaml"
    sweep.write_text(sweep_text(options))
    total = len(subprocess.run([options.kvcal, "sweep", sweep, "--list"], capture_output=True, text=True, check=True).stdout.split())
    killed, whole = folder / "killed", folder / "whole"
    seconds = [run(options, sweep, killed, kill_at=total // 3), run(options, sweep, killed, kill_at=2 * total // 3), run(options, sweep, killed)]
    seconds_whole = run(options, sweep, whole)
    same = all((killed / name).read_bytes() == (whole / name).read_bytes() for name in ("results.json", "results.csv"))
    print_table(killed)
    print(f"\n{total} cells: {' + '.join(f'{one:.0f}' for one in seconds)} = {sum(seconds):.0f} s with two kills, {seconds_whole:.0f} s without; "
          f"results {'are the same bytes' if same else 'DIFFER'}; the limit is {60 * options.minutes:.0f} s")
    return not same or sum(seconds) > 60 * options.minutes


def sweep_text(options):
    """The grid of the file with other data."""
    text = options.sweep.read_text()
    text = re.sub(r"(?m)^models:\n(  - .*\n)+", f"models:\n  - {pathlib.Path(options.model).resolve()}\n", text)
    recipes = options.sweep.resolve().parent
    text = re.sub(r"(?m)^(  - \w+: )(\.\./\S+)$", lambda found: found[1] + str((recipes / found[2]).resolve()), text)
    text = re.sub(r"(?ms)^calibration:\n  dataset: .*?\n", f"calibration:\n  dataset: {pathlib.Path(options.calibration).resolve()}\n", text)
    return re.sub(r"(?ms)^evaluation:\n(  .*?\n)+?(?=^\w)",
                  f"evaluation:\n  dataset: {pathlib.Path(options.text).resolve()}\n  max_seq_length: {options.max_seq_length}\n"
                  f"  num_samples: {options.num_samples}\n", text)


def run(options, sweep, output, kill_at=None):
    """Seconds of one start; killed as soon as kill_at cells are done and another task runs."""
    begin = time.monotonic()
    process = subprocess.Popen([options.kvcal, "sweep", sweep, "--output", output], stdout=subprocess.DEVNULL, stderr=sys.stderr)
    while kill_at is not None and process.poll() is None:
        if len(list((output / "cells").glob("*.json"))) >= kill_at:
            time.sleep(3)
            os.kill(process.pid, signal.SIGKILL)
            print(f"killed with {kill_at} cells done or more", file=sys.stderr, flush=True)
            break
        time.sleep(0.2)
    if process.wait() != (-signal.SIGKILL if kill_at is not None else 0):
        sys.exit(f"error: the sweep ended with {process.returncode}")
    return time.monotonic() - begin


def print_table(output):
    results = json.loads((output / "results.json").read_text())
    sequences = {one["id"]: one["sequences"] for one in map(json.loads, (path.read_text() for path in (output / "cells").glob("*.json")))}
    first = results["cells"][0]
    print("| cell | mean KL | against the first | 99 % | largest | same first token | perplexity | bytes a token |\n" + "| --- " * 8 + "|")
    for cell in sorted(results["cells"], key=lambda one: one["kl_mean"]):
        differences = [one["kl_mean"] - other["kl_mean"] for one, other in zip(sequences[cell["id"]], sequences[first["id"]], strict=True)]
        error = statistics.stdev(differences) / len(differences) ** 0.5
        against = "–" if cell is first else f"{statistics.mean(differences):+.6f} ± {error:.6f}"
        name = cell["id"].split("/", 1)[1]
        print(f"| {name} | {cell['kl_mean']:.6f} | {against} | {cell['kl_p99']:.4f} | {cell['kl_max']:.3f} | {100 * cell['top1_agreement']:.2f} % | "
              f"{cell['perplexity']:.4f} | {cell['bytes_per_token']} |")


main()
