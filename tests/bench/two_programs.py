#!/usr/bin/env python3
"""What a change costs a calibration: processor time and peak memory of two programs, run in turn.

usage: two_programs.py BEFORE AFTER MODEL DATASET [--pairs 6] [--num-samples 32] [--max-seq-length 512] [--compute-dtype auto] [--threads 2]
BEFORE and AFTER are kvcal programs. Every pair runs both, the one first that was second before. Prints the ratio of processor
times, the mean of the pairs with its standard error, and that of peak memories. Other work on the machine moves
processor time less than elapsed time, and both programs alike.
"""
import argparse
import os
import statistics
import tempfile


def measured(program, options, output):
    """(processor seconds, peak bytes) of one calibration."""
    arguments = [program, "calibrate", options.model, "--dataset", options.dataset, "--num-samples", str(options.num_samples),
                 "--max-seq-length", str(options.max_seq_length), "--compute-dtype", options.compute_dtype, "--threads",
                 str(options.threads), "--scales-only", "--state", "none", "--overwrite", "-q", "-o", output]
    child = os.posix_spawn(program, arguments, os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"error: {' '.join(arguments)}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("before", "after", "model", "dataset"):
        parser.add_argument(name)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--compute-dtype", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    seconds, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            found = {}
            for program in (options.before, options.after)[:: 1 if pair % 2 == 0 else -1]:
                found[program] = measured(program, options, os.path.join(folder, "out"))
            before, after = found[options.before], found[options.after]
            seconds.append(after[0] / before[0])
            peaks.append(after[1] / before[1])
    error = statistics.stdev(seconds) / len(seconds) ** 0.5 if len(seconds) > 1 else float("nan")
    print(f"processor time {statistics.mean(seconds):.3f} ± {error:.3f} times, peak memory {statistics.mean(peaks):.3f} times")


if __name__ == "__main__":
    main()
