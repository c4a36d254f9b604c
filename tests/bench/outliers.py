#!/usr/bin/env python3
"""Where calibrated KV scales matter: KL from an unquantized cache with outliers of K of growing size, in models whose function stays the same.

usage: outliers.py KVCAL MODEL... TEXT --calibration DATA [--factors 1 4 16 ...] [--pairs 1 2 4 8] [--windows 4] [--length 128]
       [--samples 16] [--compute-dtype float32] [--seed 0] [--folder FOLDER] [--markdown FILE] [--svg FILE]
For each MODEL, number of RoPE pairs of each KV head and factor, `kvcal synth --from MODEL --outliers k:pairs=N,factor=F` writes a checkpoint of the
same function. One unquantized pass over the first samples of DATA keeps statistics, of which `kvcal scales` makes all scales; one `kvcal eval
--task kl` compares all caches over the first windows of TEXT with a float32 cache (float16 ends at 65,504). Caches: E4M3 with scale 1.0; with
llm-compressor's default scales (observer minmax: a moving average, one scale a layer); with the running extreme, one scale a layer and one a KV head;
E5M2 with scale 1.0. FOLDER keeps the numbers of each cell (cells.json), so that a second call goes on where a first one ended. Prints a Markdown
table, or writes it.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

FACTORS = [1, 4, 16, 64, 256, 1024, 4096, 16384]
# name in the table, colour, recipe; no recipe: scale 1.0
CACHES = {"unit": ("scale 1.0", "#c0392b", None), "minmax": ("llm-compressor's default", "#8e44ad", "fp8_kv_minmax"),
          "tensor": ("calibrated, a layer", "#1f6fb2", "fp8_kv_tensor"), "head": ("calibrated, a head", "#1e8449", "fp8_kv_head"),
          "e5m2": ("E5M2, scale 1.0", "#b9770e", None)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("models", nargs="+")
    parser.add_argument("text")
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--factors", type=int, nargs="+", default=FACTORS)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--compute-dtype", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--markdown")
    parser.add_argument("--svg")
    options = parser.parse_args()
    options.kvcal = str(pathlib.Path(options.kvcal).resolve())
    folder = pathlib.Path(options.folder or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        cells = measure_all(options, folder)
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    models = [name_of(model) for model in options.models]
    cells.sort(key=lambda cell: (models.index(cell["model"]) if cell["model"] in models else len(models), cell["pairs"], cell["factor"]))
    table = markdown(cells)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table)
    else:
        print(table, end="")
    if options.svg:
        pathlib.Path(options.svg).write_text(drawing(cells))


def name_of(model):
    return pathlib.Path(model).name


def measure_all(options, folder):
    """[{"model", "pairs", "factor", "caches": {name: numbers of eval}}], kept in folder/cells.json."""
    kept = folder / "cells.json"
    cells = json.loads(kept.read_text()) if kept.exists() else []
    wanted = [(model, pairs, factor) for model in options.models for pairs in options.pairs for factor in options.factors
              if factor != 1 or pairs == options.pairs[0]]
    for model, pairs, factor in wanted:
        if any((cell["model"], cell["pairs"], cell["factor"]) == (name_of(model), pairs, factor) for cell in cells):
            continue
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            caches = measure(options, model, pairs, factor, pathlib.Path(scratch))
        cells.append({"model": name_of(model), "pairs": pairs, "factor": factor, "caches": caches})
        kept.write_text(json.dumps(cells))
        print(name_of(model), pairs, factor, {name: round(one["kl_mean"], 5) for name, one in caches.items()}, file=sys.stderr, flush=True)
    return cells


def measure(options, model, pairs, factor, scratch):
    def run(*arguments):
        done = subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: kvcal {' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
        return done.stdout

    checkpoint, kept = pathlib.Path(model), scratch / "kept.safetensors"
    if factor != 1:
        checkpoint = scratch / "outliers"
        run("synth", "--from", model, "--outliers", f"k:pairs={pairs},factor={factor}", "--seed", options.seed, "-o", checkpoint)
    run("calibrate", checkpoint, "--recipe", "fp8_kv_tensor", "--dataset", options.calibration, "--num-samples", options.samples,
        "--max-seq-length", options.length, "--compute-dtype", options.compute_dtype, "--kv-forward", "exact", "--save-statistics", kept,
        "--scales-only", "-o", scratch / "calibrated")
    variants = []
    for name, (_, _, recipe) in CACHES.items():
        place = "unit"
        if recipe:
            place = scratch / name
            run("scales", "--statistics", kept, "--recipe", recipe, "--model", checkpoint, "--scales-only", "-o", place)
        variants += ["--variant", f"{name}={'fp8_e5m2' if name == 'e5m2' else 'fp8_e4m3'}:{place}"]
    found = json.loads(run("eval", checkpoint, "--task", "kl", "--dataset", options.text, "--num-samples", options.windows, "--max-seq-length",
                           options.length, "--compute-dtype", options.compute_dtype, "--reference-kv-cache-dtype", "float32", "--json", *variants))
    return {one["name"]: {key: one[key] for key in ("kl_mean", "kl_stderr", "top1_agreement", "perplexity")} |
            {"sequences": [sequence["kl_mean"] for sequence in one["sequences"]]} for one in found["variants"]}


def number(value):
    return f"{value:.4f}" if value < 9.9995 else f"{value:.2f}"


def paired(one, other):
    """Mean difference of KL, window by window, and its standard error."""
    differences = [a - b for a, b in zip(one["sequences"], other["sequences"], strict=True)]
    mean = sum(differences) / len(differences)
    return mean, math.sqrt(sum((d - mean) ** 2 for d in differences) / (len(differences) - 1) / len(differences))


def verdict(one, other):
    """The difference of KL, bold where it is one."""
    mean, error = paired(one, other)
    text = f"{mean:+.4f} ± {error:.4f}"
    return f"**{text}**" if abs(mean) > 2 * error else text


def markdown(cells):
    lines = []
    for model in dict.fromkeys(cell["model"] for cell in cells):
        lines += [f"**{model}**", "",
                  "| pairs | factor | " + " | ".join(title for title, _, _ in CACHES.values()) +
                  " | 1.0 less calibrated, a layer | llm-compressor's less calibrated, a layer | same top token, 1.0 / calibrated |",
                  "| --- " * (len(CACHES) + 5) + "|"]
        for cell in cells:
            if cell["model"] != model:
                continue
            found = cell["caches"]
            verdicts = " | ".join(verdict(found[name], found["tensor"]) for name in ("unit", "minmax"))
            values = " | ".join(f"{number(found[name]['kl_mean'])} ± {number(found[name]['kl_stderr'])}" for name in CACHES)
            pairs = "–" if cell["factor"] == 1 else cell["pairs"]
            tops = " / ".join(f"{100 * found[name]['top1_agreement']:.1f} %" for name in ("unit", "tensor"))
            lines.append(f"| {pairs} | {cell['factor']} | {values} | {verdicts} | {tops} |")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


class Panel:
    """One drawing of KL over the factor, both logarithmic, in a box of pixels."""
    WIDTH, HEIGHT, LEFT, TOP = 300, 200, 52, 40

    def __init__(self, column, row, factors, least, largest):
        self.left = column * (self.WIDTH + self.LEFT + 12) + self.LEFT
        self.top = row * (self.HEIGHT + self.TOP + 34) + self.TOP
        self.factors, self.least, self.largest = factors, least, largest

    def x(self, factor):
        share = math.log(factor / self.factors[0]) / math.log(self.factors[-1] / self.factors[0])
        return self.left + 8 + share * (self.WIDTH - 16)

    def y(self, value):
        share = math.log(max(value, self.least) / self.least) / math.log(self.largest / self.least)
        return self.top + self.HEIGHT * (1 - share)

    def frame(self, title):
        parts = [f'<text x="{self.left}" y="{self.top - 10}" font-weight="bold">{title}</text>']
        for power in range(math.ceil(math.log10(self.least)), math.floor(math.log10(self.largest)) + 1):
            y = self.y(10.0 ** power)
            parts.append(f'<line x1="{self.left}" x2="{self.left + self.WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** power:g}</text>')
        for factor in self.factors:
            parts.append(f'<text x="{self.x(factor):.1f}" y="{self.top + self.HEIGHT + 15}" text-anchor="middle">{factor}</text>')
        parts.append(f'<rect x="{self.left}" y="{self.top}" width="{self.WIDTH}" height="{self.HEIGHT}" fill="none" stroke="#888"/>')
        return parts

    def line(self, points, colour):
        """points: [(factor, mean, standard error)]"""
        path = " ".join(f"{self.x(factor):.1f},{self.y(mean):.1f}" for factor, mean, _ in points)
        parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
        for factor, mean, error in points:
            x = self.x(factor)
            parts.append(f'<circle cx="{x:.1f}" cy="{self.y(mean):.1f}" r="2.5" fill="{colour}"/>')
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.y(mean - error):.1f}" y2="{self.y(mean + error):.1f}" stroke="{colour}"/>')
        return parts


def drawing(cells):
    """An SVG: a column a model, a row a number of pairs."""
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    factors = sorted({cell["factor"] for cell in cells})
    values = [one["kl_mean"] for cell in cells for one in cell["caches"].values()]
    least, largest = min(values) / 1.5, max(values) * 1.5
    rows = {model: sorted({cell["pairs"] for cell in cells if cell["model"] == model and cell["factor"] != 1}) for model in models}
    width = max(2, len(models)) * (Panel.WIDTH + Panel.LEFT + 12) + 8
    bottom = max(map(len, rows.values())) * (Panel.HEIGHT + Panel.TOP + 34)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 62}" font-family="sans-serif" font-size="11" role="img" '
             'aria-label="KL from an unquantized cache over the factor of the outliers">',
             f'<rect width="{width}" height="{bottom + 62}" fill="#fff"/>']
    for column, model in enumerate(models):
        for row, pairs in enumerate(rows[model]):
            panel = Panel(column, row, factors, least, largest)
            parts += panel.frame(f"{model}, {pairs} pair{'s' if pairs > 1 else ''} a head")
            for name, (_, colour, _) in CACHES.items():
                parts += panel.line(sorted((cell["factor"], cell["caches"][name]["kl_mean"], cell["caches"][name]["kl_stderr"]) for cell in cells
                                           if cell["model"] == model and (cell["pairs"] == pairs or cell["factor"] == 1)), colour)
    x, y = Panel.LEFT, bottom + 14
    parts.append(f'<text x="{x}" y="{y}" fill="#555">mean KL in nats a token, over the factor of K\'s outliers; both logarithmic</text>')
    y += 20
    for title, colour, _ in CACHES.values():
        if x + 45 + 6.2 * len(title) > width:
            x, y = Panel.LEFT, y + 18
        parts.append(f'<line x1="{x}" x2="{x + 20}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 25}" y="{y}">{title}</text>')
        x += 45 + 6.2 * len(title)
    return "\n".join(parts) + "\n</svg>\n"


main()
