#!/usr/bin/env python3
"""Makes tests/fixtures/quant/histograms.json: ranges chosen from histograms of magnitudes.

Run with Python 3.11, numpy 2.4, torch 2.13 (for the casts to FP8):
    python reference/quant_histograms.py

A second implementation of what docs/numerics.md defines, from its words: percentile by inverting the cumulative
count, mse over 16 places a bin, entropy over the common refinement of bins and code cells. A case in which two
candidates are too near each other to tell is not written.
"""

import json
import pathlib

import numpy as np
import torch

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant" / "histograms.json"
FORMATS = {"e4m3fn": (torch.float8_e4m3fn, 448.0), "e4m3fnuz": (torch.float8_e4m3fnuz, 240.0),
           "e5m2": (torch.float8_e5m2, 57344.0)}
PERCENTS = [0.5, 50.0, 99.0, 99.9, 99.99, 100.0]
OPTIONS = [{}, {"norm": 2.0, "grid": 40.0, "maxshrink": 0.9, "patience": 40}, {"expand": 1.5, "maxshrink": 0.6}]
BINS = 384


def edge(index):
    """Lower edge: eight equal steps in each octave from 2^-24."""
    return 0.0 if index == 0 else 2.0 ** (index // 8 - 24) * (1 + index % 8 / 8)


def counts_of(values):
    magnitudes = np.abs(values.astype(np.float32))
    edges = np.array([edge(index) for index in range(BINS)])
    bins = np.clip(np.searchsorted(edges, magnitudes, side="right") - 1, 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


class Distribution:
    """Cumulative count of magnitudes, linear inside a bin; an atom at 0 and perhaps one at the largest."""

    def __init__(self, counts, largest):
        self.zeros, self.total, self.largest = float(counts[0]), float(counts.sum()), float(largest)
        self.bins = [(edge(b), edge(b + 1), float(counts[b])) for b in range(1, BINS) if counts[b]]
        self.top_atom = 0.0
        if self.bins:
            low, _, count = self.bins[-1]
            self.bins[-1] = (low, self.largest, count)
            if low == self.largest:
                self.top_atom = count
                self.bins.pop()

    def below(self, x):
        """Count in (0, x], without the atom at the largest."""
        return sum(count * min(max((x - low) / (high - low), 0.0), 1.0) for low, high, count in self.bins)


def percentile(d, percent):
    wanted = percent / 100 * d.total
    if percent == 100 or wanted <= d.zeros or not d.bins:
        return d.largest
    points = [(0.0, d.zeros)]
    for low, high, _ in d.bins:
        points += [(low, d.zeros + d.below(low)), (high, d.zeros + d.below(high))]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if y1 >= wanted > y0:
            return x0 + (x1 - x0) * (wanted - y0) / (y1 - y0)
    return d.largest


def real_values(x, scale, name):
    """What float32 magnitudes become as codes, as float64."""
    dtype, most = FORMATS[name]
    codes = (torch.from_numpy(x) / torch.tensor(scale)).clamp(max=most).to(dtype)
    return codes.double().numpy() * float(scale)


def scale_of(range_, name):
    scale = np.float32(range_) / np.float32(FORMATS[name][1])
    return scale if scale > 0 else np.float32(2.0**-23)


def mse(d, name, options):
    grid, norm = options.get("grid", 100.0), options.get("norm", 2.4)
    base = np.float32(d.largest) * np.float32(options.get("expand", 1.0))
    bins = d.bins + ([(d.largest, d.largest, d.top_atom)] if d.top_atom else [])
    places = (2 * np.arange(16) + 1) / 32
    x = np.array([low + (high - low) * places for low, high, _ in bins]).astype(np.float32).reshape(len(bins), 16)
    counts = np.array([count for _, _, count in bins])
    tried, best, without_gain = [], (np.inf, np.float32(1)), 0
    for step in range(int(options.get("maxshrink", 0.2) * grid)):
        factor = np.float32(1 - step / grid)
        real = real_values(x, scale_of(base * factor, name), name)
        error = float((counts * (np.abs(real - x.astype(np.float64)) ** norm).mean(axis=1)).sum())
        tried.append(error)
        if error < best[0]:
            best, without_gain = (error, factor), 0
        else:
            without_gain += 1
            if without_gain >= options.get("patience", 5):
                break
    near = [error for error in tried if error != best[0] and abs(error - best[0]) < 1e-9 * best[0]]
    return None if near else float(base * best[1])


def entropy(d, name):
    if not d.bins and not d.top_atom:
        return d.largest
    values = torch.arange(0, 128, dtype=torch.uint8).view(FORMATS[name][0]).double().numpy()
    values = values[np.isfinite(values)]
    values = values[values <= FORMATS[name][1]]
    found = []
    for j in range(64):
        most = d.largest * 2.0 ** (-j / 8)
        edges = np.append((values[1:] + values[:-1]) / 2 * (most / values[-1]), most)
        cuts = [x for low, high, _ in d.bins for x in (low, high)]
        points = np.unique(np.clip(np.concatenate([[0.0], edges, cuts]), 0.0, most))
        pieces = []  # [cell, width, count]
        for low, high in zip(points, points[1:]):
            holder = [b for b in d.bins if b[0] <= low and high <= b[1]]
            if holder:
                cell = int(np.searchsorted(edges, (low + high) / 2))
                begin, end, count = holder[0]
                pieces.append([cell, high - low, count * (high - low) / (end - begin)])
        if d.top_atom and j == 0:
            if pieces:
                pieces[-1][2] += d.top_atom
            else:
                pieces.append([len(edges) - 1, 0.0, d.top_atom])
        if not pieces:
            continue
        kept = d.zeros + sum(count for _, _, count in pieces)
        seen = np.array([count for _, _, count in pieces])
        told = np.zeros(len(pieces))
        for cell in {piece[0] for piece in pieces}:
            inside = [i for i, piece in enumerate(pieces) if piece[0] == cell]
            width = sum(pieces[i][1] for i in inside)
            for i in inside:
                told[i] = sum(pieces[k][2] for k in inside) * (pieces[i][1] / width if width else 1.0)
        seen[-1] += max(0.0, d.total - kept)
        p = np.append(seen, d.zeros) / d.total
        q = np.append(told, d.zeros) / kept
        if (q[p > 0] <= 0).any():
            continue
        found.append((float((p[p > 0] * np.log2(p[p > 0] / q[p > 0])).sum()), most))
    least = min(value for value, _ in found)
    near = [most for value, most in found if abs(value - least) < 1e-9 + 1e-7 * abs(least)]
    return float(np.float32(near[0])) if len(near) == 1 else None


def samples():
    random = np.random.default_rng(4)
    yield "normal", random.normal(size=50000)
    yield "narrow", random.normal(size=30000) * 1e-3
    yield "laplace", random.laplace(size=50000) * 3
    yield "tails", random.standard_t(2, size=50000)
    yield "heavy_tails", random.standard_t(1, size=20000)
    yield "uniform", random.uniform(-5, 5, size=20000)
    yield "rectified", np.maximum(random.normal(size=40000), 0)
    yield "outlier", np.append(random.normal(size=20000), 300.0)
    yield "outlier_power", np.append(random.normal(size=20000), 256.0)
    yield "mostly_zero", np.append(np.zeros(20000), [1.0, 2.5])
    yield "one_value", np.full(10, 3.0)
    yield "one_power", np.full(10, 2.0)
    yield "two_powers", np.append(np.full(1000, 0.5), np.full(3, 64.0))
    yield "zeros", np.zeros(10)
    yield "tiny", np.full(10, 1e-9)
    yield "wide", np.exp2(random.uniform(-30, 30, size=20000))
    yield "squares", random.normal(size=50000) ** 2 * 100


def main() -> None:
    cases, dropped = [], 0
    for name, values in samples():
        counts, largest = counts_of(values), np.abs(values.astype(np.float32)).max()
        d = Distribution(counts, largest)
        case = {"name": name, "largest": float(largest),
                "counts": {str(b): int(counts[b]) for b in range(BINS) if counts[b]},
                "percentile": [[p, percentile(d, p)] for p in PERCENTS], "mse": [], "entropy": []}
        for format_ in FORMATS:
            for options in OPTIONS:
                if (found := mse(d, format_, options)) is not None:
                    case["mse"].append({"format": format_, "options": options, "amax": found})
                else:
                    dropped += 1
            if (found := entropy(d, format_)) is not None:
                case["entropy"].append({"format": format_, "amax": found})
            else:
                dropped += 1
        print(name, float(largest), [round(p, 5) for _, p in case["percentile"]],
              [round(m["amax"] / max(float(largest), 1e-30), 3) for m in case["mse"]],
              [round(e["amax"] / max(float(largest), 1e-30), 4) for e in case["entropy"]])
        cases.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUTPUT.write_text("[\n" + lines + "\n]\n")
    print(len(cases), "histograms,", dropped, "too near to tell")


if __name__ == "__main__":
    main()
