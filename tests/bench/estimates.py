#!/usr/bin/env python3
"""How near the times are that `calibrate --dry-run` estimates, by number of samples and instructions of the processor.

usage: estimates.py KVCAL MODEL [--samples 24,512] [--instructions amx_bf16,avx512] [--runs 3] [--dataset D] [--check] [--json FILE]

Each row makes the estimate several times, some seconds apart, then runs the calibration it is of. The truth is the run's time on a machine that does nothing
else. On a busy one it is the processor time over the threads, which the estimate is compared with, too; a run that waits for others takes longer by the clock.
--instructions: of KVCAL_CPU; those that the processor lacks are left out, and the row says which it is of. --check: exit status 1 where an estimate is more
than 30 % off, by the processor time, or where estimates of one row differ by as much.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ALLOWED = 0.30


def estimate(kvcal, words, environment):
    done = subprocess.run([kvcal, "calibrate", *words, "--dry-run", "--json"], capture_output=True, text=True, env=environment)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(f"error: {done.stderr[-2000:]}")


def measured(kvcal, words, environment):
    """Seconds by the clock, and of all processors together."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen([kvcal, "calibrate", *words, "--quiet"], stdout=subprocess.DEVNULL, stderr=messages, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            messages.seek(0)
            sys.exit(f"error: {messages.read().decode()[-2000:]}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def row_of(arguments, samples, instructions, scratch):
    environment = {**os.environ, "KVCAL_CPU": instructions}
    output = pathlib.Path(scratch) / f"{instructions}-{samples}"
    words = [arguments.model, "--num-samples", str(samples), "--state", "none", "--output", str(output)]
    words += ["--dataset", arguments.dataset] if arguments.dataset else []
    estimates = []
    for turn in range(arguments.runs):
        time.sleep(2 if turn else 0)
        estimates.append(estimate(arguments.kvcal, words, environment))
    clock, processors = measured(arguments.kvcal, words, environment)
    threads = len(os.sched_getaffinity(0))
    seconds = sorted(one["seconds"] for one in estimates)
    return {"samples": estimates[0]["num_samples"], "tokens": estimates[0]["num_tokens"], "instructions": instructions,
            "device": estimates[0]["device"], "estimated": seconds, "by_clock": clock, "by_processor_time": processors / threads,
            "off": seconds[len(seconds) // 2] / (processors / threads) - 1, "spread": seconds[-1] / max(1, seconds[0]) - 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("--samples", default="24,512")
    parser.add_argument("--instructions", default="amx_bf16,avx512")
    parser.add_argument("--dataset")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    print("| samples | tokens | instructions | estimated | by the clock | processor time / threads | off | spread |\n" + "| --- " * 8 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for instructions in arguments.instructions.split(","):
            for samples in map(int, arguments.samples.split(",")):
                row = row_of(arguments, samples, instructions, scratch)
                rows.append(row)
                print(f"| {row['samples']} | {row['tokens']} | {instructions} | {' / '.join(f'{s:.0f} s' for s in row['estimated'])} | "
                      f"{row['by_clock']:.1f} s | {row['by_processor_time']:.1f} s | {row['off']:+.0%} | {row['spread']:.0%} |", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")
    if arguments.check and any(max(abs(row["off"]), row["spread"]) > ALLOWED for row in rows):
        sys.exit("an estimate is more than 30 % off")


if __name__ == "__main__":
    main()
