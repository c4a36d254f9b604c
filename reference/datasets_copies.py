#!/usr/bin/env python3
"""Whether kvcal calibrates on copies of a data set exactly as on its JSON lines, and gives the records that `datasets` gives.

usage: datasets_copies.py KVCAL [--only TEXT ...]     Run from the repository's root; KVCAL: a program built with Arrow.

Data sets: datasets/calibration.jsonl, chats with fields that only some messages have, tool calls, ShareGPT turns, text and token ids,
written by this script. Copies: Parquet of pyarrow (zstd, snappy, row groups of 7 rows; large types; dictionary encoded) and of
`datasets`; `save_to_disk` in one and three files and with splits; Feather; Arrow streams; gzip and zstd; shards in a folder, as folder
and as pattern. Each is calibrated on with the fixture model llama, in order and with two shuffle seeds. Of every copy the manifest must
equal the JSON lines' but for the data set's path and hash (so sample indices, numbers of tokens, extremes and scales are the same), and
all files of the checkpoint but the manifest must be the same bytes. The sample indices must be those of `Dataset.shuffle(seed)`.

Prints a Markdown table, a row a copy; exit 1 on any difference. Reference: pyarrow 26.0.1, datasets 5.2.0.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="kvcal-copies-"))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = str(SCRATCH / "cache")

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

datasets.disable_progress_bars()
SAMPLES, SEEDS = 40, (None, 0, 42)
DATA = pathlib.Path("tests/cli/data")


def synthetic(name):
    draw = random.Random(name)
    text = lambda n: " ".join(draw.choice("the sea was calm and green in a north wind ¿qué? 東京 ok".split()) for _ in range(n))
    rows = []
    for i in range(90):
        user, reply = {"role": "user", "content": text(6)}, {"role": "assistant", "content": text(9)}
        if name == "extra":
            if i % 2:
                user["name"] = "Ann"
            if i % 5 == 0:
                reply |= {"weight": 0.25 * i, "tags": ["x"] * (i % 3)}
            rows.append({"id": i, "messages": [user, reply] * (1 + i % 3)})
        elif name == "tools":
            call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {f"k{i % 4}": i}}}]}
            # Templates print what is null; a text takes its place, so that the fixture's simple one can render it.
            rows.append({"messages": [user, call | {"content": text(2)}, {"role": "tool", "content": text(2)}, reply]})
        elif name == "sharegpt":
            rows.append({"conversations": [{"from": "human", "value": text(5)}, {"from": "gpt", "value": text(8)}], "source": f"s{i}"})
        elif name == "text":
            rows.append({"text": text(20) if i % 9 else "", "meta": {"n": i}})
        elif name == "ids":
            rows.append({"input_ids": [draw.randrange(3, 150) for _ in range(draw.randrange(0, 70))]})
    return rows


def json_lines(rows, path):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def larger(kind):
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_list(kind):
        return pa.large_list(larger(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, larger(f.type)) for f in kind])
    return kind


def stream(path, table, rows):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def copies_of(lines, folder, name):
    """Name of a copy → what --dataset gets."""
    data = datasets.load_dataset("json", data_files=str(lines), split="train")
    made = {}
    def add(label, file):
        made[label] = str(folder / file)
        return folder / file
    packed = lines.read_bytes()
    add("gzip", "rows.jsonl.gz").write_bytes(gzip.compress(packed))
    add("zstd", "rows.jsonl.zst").write_bytes(pa.Codec("zstd").compress(packed, asbytes=True))
    data.to_parquet(str(add("datasets: Parquet", "d.parquet")), batch_size=16)
    data.save_to_disk(str(add("datasets: save_to_disk", "saved")))
    data.save_to_disk(str(add("datasets: save_to_disk, 3 files", "saved3")), num_shards=3)
    datasets.DatasetDict({"train": data, "test": data.select(range(3))}).save_to_disk(str(folder / "splits"))
    made["datasets: DatasetDict, its folder 'train'"] = str(folder / "splits" / "train")
    (folder / "hub").mkdir()
    for i in range(3):
        data.shard(3, i, contiguous=True).to_parquet(str(folder / "hub" / f"train-{i:05}-of-00003.parquet"))
    (folder / "hub" / "README.md").write_text("# Rows\n")
    made["shards, the folder"] = str(folder / "hub")
    made["shards, a pattern"] = str(folder / "hub" / "train-*.parquet")
    if name == "tools":  # its messages are JSON values, which pyarrow alone does not write
        return made
    table = pa.Table.from_pylist([json.loads(line) for line in packed.decode().splitlines()])
    pq.write_table(table, add("pyarrow: Parquet, zstd, groups of 7", "zstd.parquet"), compression="zstd", row_group_size=7)
    pq.write_table(table, add("pyarrow: Parquet, snappy", "snappy.parquet"), compression="snappy")
    pq.write_table(table.cast(pa.schema([pa.field(f.name, larger(f.type)) for f in table.schema])), add("pyarrow: Parquet, large types", "large.parquet"))
    encoded = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in table.columns]
    pq.write_table(pa.table(encoded, names=table.column_names), add("pyarrow: Parquet, dictionary encoded", "encoded.parquet"), row_group_size=30)
    pa.feather.write_feather(table, add("pyarrow: Feather, lz4", "lz4.feather"), chunksize=25)
    stream(add("pyarrow: Arrow stream", "stream.arrow"), table, 11)
    return made


def calibrate(kvcal, model, dataset, seed):
    out = SCRATCH / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [kvcal, "calibrate", str(model), "--recipe", str(DATA / "recipe.yaml"), "--dataset", dataset, "--output", str(out),
               "--num-samples", str(SAMPLES)] + (["--shuffle-seed", str(seed)] if seed is not None else [])
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return {"error": run.stderr.strip().splitlines()[-1]}, {}
    manifest = json.loads((out / "kvcal_manifest.json").read_text())
    for key in ("seconds", "peak_rss_bytes"):
        manifest.pop(key, None)
    for key in ("path", "sha256"):
        manifest["dataset"].pop(key)
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.iterdir() if p.name != "kvcal_manifest.json"}
    return manifest, files


def expected_indices(lines, seed):
    """The first records of the order that have a token; the empty ones are dropped."""
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    order = datasets.Dataset.from_dict({"i": list(range(len(rows)))})
    order = (order.shuffle(seed=seed) if seed is not None else order)["i"][:]
    is_empty = lambda row: row.get("text", "x") == "" or row.get("input_ids", [1]) == []
    return [i for i in order if not is_empty(rows[i])][:SAMPLES]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    model = SCRATCH / "model"
    shutil.copytree("tests/fixtures/models/llama", model)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DATA / name, model)
    print("| data set | copy | seeds | manifest, scales and files |\n| --- | --- | --- | --- |")
    failed = compared = 0
    for name in ["calibration", "extra", "tools", "sharegpt", "text", "ids"]:
        if options.only and not any(part in name for part in options.only):
            continue
        folder = SCRATCH / name
        folder.mkdir()
        lines = folder / "rows.jsonl"
        shutil.copy("datasets/calibration.jsonl", lines) if name == "calibration" else json_lines(synthetic(name), lines)
        wanted = {seed: calibrate(options.kvcal, model, str(lines), seed) for seed in SEEDS}
        for seed, (manifest, _) in wanted.items():
            if "error" in manifest or manifest["dataset"]["sample_indices"] != expected_indices(lines, seed):
                failed += 1
                print(f"| {name} | JSON lines | {seed} | {manifest.get('error', 'other samples than Dataset.shuffle')} |")
        for label, dataset in copies_of(lines, folder, name).items():
            differ = [str(seed) for seed in SEEDS if calibrate(options.kvcal, model, dataset, seed) != wanted[seed]]
            compared += len(SEEDS)
            failed += len(differ)
            shown = "differ with seed " + ", ".join(differ) if differ else "equal"
            if differ:
                shown += ": " + calibrate(options.kvcal, model, dataset, SEEDS[0])[0].get("error", "")
            print(f"| {name} | {label} | none, 0, 42 | {shown} |", flush=True)
    print(f"\n{compared} calibrations compared, {failed} differ")
    shutil.rmtree(SCRATCH)
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
