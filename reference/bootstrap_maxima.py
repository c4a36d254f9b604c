#!/usr/bin/env python3
"""Makes tests/fixtures/calib/bootstrap.json: a percentile bootstrap of maxima, drawn.

Run with Python 3.11, numpy 2:
    python reference/bootstrap_maxima.py

For lists of magnitudes: the largest of the first 1, 2, 4, ... and all of them, and the 2.5 % and 97.5 % quantiles of
the maximum of DRAWS draws of as many with replacement. A list whose quantile could come out as a neighbouring value by
the luck of the draw is refused, so the interval in the limit of infinitely many draws must be the same numbers.
"""

import json
import pathlib

import numpy as np

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "calib" / "bootstrap.json"
DRAWS = 100_000
TAILS = [0.025, 0.975]


def lists(rng):
    for count in [1, 2, 3, 4, 5, 7, 16, 37, 64, 100, 512]:
        yield rng.lognormal(1.0, 0.6, count).astype(np.float32)
    yield np.full(9, 3.5, np.float32)
    yield np.array([2, 2, 2, 5, 5, 1, 0, 0], np.float32)  # ties
    yield np.zeros(6, np.float32)


def drawn_maxima(values, rng):
    return np.concatenate([rng.choice(values, (1000, len(values))).max(axis=1) for _ in range(DRAWS // 1000)])


def check_is_clear(values, maxima):
    """No distinct value's share of the draws comes near a tail."""
    for value in np.unique(values):
        share = np.mean(maxima <= value)
        for tail in TAILS:
            if abs(share - tail) < 6 * np.sqrt(tail * (1 - tail) / DRAWS):
                raise SystemExit(f"{len(values)} values: {share} of the draws lie below {value}, too near {tail}")


def main():
    rng = np.random.default_rng(7)
    cases = []
    for values in lists(rng):
        maxima = drawn_maxima(values, rng)
        check_is_clear(values, maxima)
        points = sorted({2**i for i in range(20) if 2**i <= len(values)} | {len(values)})
        low, high = np.quantile(maxima, TAILS, method="inverted_cdf")
        cases.append({"values": [float(value) for value in values],
                      "num_samples": points,
                      "running": [float(values[:point].max()) for point in points],
                      "interval": [float(low), float(high)]})
    OUTPUT.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUTPUT.write_text(f'{{"draws": {DRAWS}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} lists of magnitudes, {DRAWS} draws each: {OUTPUT}")


if __name__ == "__main__":
    main()
