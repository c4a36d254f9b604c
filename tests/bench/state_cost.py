#!/usr/bin/env python3
"""What keeping its state costs a calibration: runs with and without, in turn, and the ratio of their processor seconds and of their
times, each of the least of all repeats, since others use the machine, too. Exit 1 where the processor seconds are over the limit.

usage: state_cost.py KVCAL MODEL RECIPE DATASET [--repeats 5] [--limit 0.03] [ARGUMENT ...]      ARGUMENT: of kvcal calibrate
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time


def run(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("recipe")
    parser.add_argument("dataset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.03)
    args, more = parser.parse_known_args()
    folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    seen = {"none": [], "kept": []}
    try:
        for _ in range(args.repeats):
            for state in seen:
                output = os.path.join(folder, "out")
                command = [args.kvcal, "calibrate", args.model, "--recipe", args.recipe, "--dataset", args.dataset,
                           "--output", output, *more, *(["--state", "none"] if state == "none" else [])]
                seen[state].append(run(command))
                shutil.rmtree(output)
    finally:
        shutil.rmtree(folder)
    least = {state: [min(values) for values in zip(*runs)] for state, runs in seen.items()}
    wall = least["kept"][0] / least["none"][0] - 1
    processor = least["kept"][1] / least["none"][1] - 1
    print(f"without: {least['none'][0]:.2f} s, {least['none'][1]:.2f} s of processor; with: {least['kept'][0]:.2f} s, "
          f"{least['kept'][1]:.2f} s of processor")
    print(f"the state costs {100 * wall:+.1f} % of time, {100 * processor:+.1f} % of processor seconds")
    return 1 if processor > args.limit else 0


sys.exit(main())
