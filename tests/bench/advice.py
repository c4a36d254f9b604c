#!/usr/bin/env python3
"""How often the advice of statistics ranks two caches as measured KL does.

usage: advice.py KVCAL CALIBRATION TEXT MODEL... [--num-samples 20] [--max-seq-length 1024] [--compute-dtype float32] [--scratch FOLDER]
For each MODEL the caches of which_cache.py are measured, and ranked by `kvcal scales --advise` from the same statistics. Counts
the pairs of caches that both rank the same way: of all pairs, and of those whose KL differs by more than two paired standard
errors. A pair with equal expected losses counts as half. Prints a Markdown table, and the pairs that were told apart and
ranked the other way.
"""
import itertools
import json
import pathlib
import tempfile

from which_cache import keep_statistics, paired, read_options, run, score_caches


def agreement(pairs):
    """Share of (measured, expected) differences with the same sign."""
    right = sum(0.5 if expected == 0 else float((expected > 0) == (measured > 0)) for measured, expected in pairs)
    return right, len(pairs)


def judge(options, model, folder):
    kept, scales = keep_statistics(options, model, options.calibration, folder)
    measured = {cache["name"]: cache for cache in score_caches(options, model, options.text, scales)}
    advice = json.loads(run(options, "scales", "--statistics", kept, "--recipe", folder / "recipe.yaml", "--advise", "--json"))
    expected = {cache["name"]: cache["expected_loss"] for cache in advice["caches"]}
    assert measured.keys() == expected.keys(), "advice and measurement are of the same caches"
    every, apart, wrong = [], [], []
    for one, other in itertools.combinations(sorted(measured), 2):
        mean, error = paired(measured[one], measured[other])
        pair = (mean, expected[one] - expected[other])
        every.append(pair)
        if abs(mean) <= 2 * error:
            continue
        apart.append(pair)
        if pair[1] * mean < 0:
            wrong.append(f"{one} and {other}: measured {mean:+.6f} ± {error:.6f}, expected loss {pair[1]:+.6f}")
    return agreement(every), agreement(apart), wrong


def main():
    def more(parser):
        for name in ("calibration", "text"):
            parser.add_argument(name)
        parser.add_argument("models", nargs="+")
    options = read_options(__doc__, more)
    print("| model | pairs ranked the same way | of pairs that differ by more than two standard errors |\n| --- | --- | --- |")
    notes = []
    for model in options.models:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            every, apart, wrong = judge(options, model, pathlib.Path(folder))
        name = pathlib.Path(model).name
        cells = [f"{right:g} of {count} ({100 * right / max(count, 1):.0f} %)" for right, count in (every, apart)]
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)
        notes += [f"{name}: {line}" for line in wrong]
    if notes:
        print("\nranked the other way:\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
