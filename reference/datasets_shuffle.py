"""Expected orders of Dataset.shuffle(seed), and what a calibration script picks with shuffle and select.

Versions: numpy 2.4.6, datasets 5.2.0. Run from the repository's root; writes
tests/fixtures/text/datasets/{shuffle.json,selection.json}.
"""
import hashlib
import json
import pathlib

import datasets
import numpy as np

FOLDER = pathlib.Path("tests/fixtures/text/datasets")
SEEDS = [0, 1, 42, 1234, 2**32 - 1, 2**32, 2**32 + 42, 2**63, 2**64 - 1]
COUNTS = [1, 2, 3, 7, 10, 255, 256, 257, 1000, 1319, 7473, 24926, 65535, 65536, 65537, 207865, 208000]
LARGE = [(2**20 + 1, 42), (3_000_000, 7)]
SHOWN = 8


def row(count, seed):
    order = np.random.default_rng(seed).permutation(count)
    shuffled = datasets.Dataset.from_dict({"index": np.arange(count)}).shuffle(seed=seed)
    assert np.array_equal(shuffled.with_format("numpy")["index"][:], order), (count, seed)
    return {
        "count": count,
        "seed": seed,
        "first": order[:SHOWN].tolist(),
        "last": order[-SHOWN:].tolist(),
        "sha256": hashlib.sha256(order.astype("<i8").tobytes()).hexdigest(),
    }


def selection():
    """The usual calibration script on a file: load, shuffle, select."""
    data = datasets.load_dataset("json", data_files=str(FOLDER / "selection.jsonl"), split="train")
    rows = []
    for seed in (0, 42):
        for count in (1, 12, 37):
            rows.append({"seed": seed, "samples": count,
                         "texts": data.shuffle(seed=seed).select(range(count))["text"][:]})
    return {"unshuffled": data.select(range(5))["text"][:], "rows": rows}


def main():
    pairs = [(count, seed) for count in COUNTS for seed in SEEDS] + LARGE
    lines = ",\n".join(json.dumps(row(*pair)) for pair in pairs)
    (FOLDER / "shuffle.json").write_text(f"[\n{lines}\n]\n")
    with open(FOLDER / "selection.jsonl", "w", newline="\n") as file:
        for i in range(37):
            file.write(json.dumps({"id": i, "text": f"record number {i}"}) + "\n")
    (FOLDER / "selection.json").write_text(json.dumps(selection(), indent=1) + "\n")


if __name__ == "__main__":
    main()
