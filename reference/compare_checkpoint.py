#!/usr/bin/env python3
"""Compares a quantized checkpoint with llm-compressor's of the same model, tensor by tensor.

usage: compare_checkpoint.py OURS THEIRS [--source MODEL] [--rename mixtral]
OURS: a folder written by kvcal calibrate. THEIRS: a folder of llm-compressor's, with *.safetensors or with tensors.json
({name: {"dtype", "shape", "sha256"}}) and scales.json. --source: what tensors that are not quantized must be (llm-compressor changes
some). Prints how many weights, weight scales and other tensors have the same bytes, and how far input, K and V scales lie apart; exit 1
where a weight or weight scale differs, a tensor is missing or too many, or another tensor is not the source's.
"""
import argparse
import hashlib
import json
import pathlib
import struct
import sys

RENAMED = {".mlp.": ".block_sparse_moe.", ".gate_proj": ".w1", ".down_proj": ".w2", ".up_proj": ".w3"}
CALIBRATED = (".input_scale", ".k_scale", ".v_scale", ".q_scale")
FORMATS = {"F32": "f", "F16": "e"}


def tensors(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with file.open("rb") as stream:
            size = struct.unpack("<Q", stream.read(8))[0]
            header = json.loads(stream.read(size))
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                stream.seek(8 + size + begin)
                data = stream.read(end - begin)
                found[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "sha256": hashlib.sha256(data).hexdigest(),
                               "data": data if name.endswith("_scale") else None}
    return found


def theirs_of(folder):
    listed = pathlib.Path(folder) / "tensors.json"
    found = tensors(folder)
    if found or not listed.exists():
        return found
    return {name: {**entry, "data": None} for name, entry in json.loads(listed.read_text()).items()}


def renamed(name):
    if ".experts." in name or name.endswith(".gate.weight"):
        for ours, theirs in RENAMED.items():
            name = name.replace(ours, theirs)
    return name


def numbers(entry):
    if entry["dtype"] == "BF16":
        return [struct.unpack("<f", b"\0\0" + entry["data"][i:i + 2])[0] for i in range(0, len(entry["data"]), 2)]
    kind = FORMATS[entry["dtype"]]
    return list(struct.unpack(f"<{len(entry['data']) // struct.calcsize(kind)}{kind}", entry["data"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--source")
    parser.add_argument("--rename", choices=["mixtral"])
    options = parser.parse_args()
    ours, theirs = tensors(options.ours), theirs_of(options.theirs)
    if options.rename:
        theirs = {renamed(name): entry for name, entry in theirs.items()}
    source = tensors(options.source) if options.source else {}
    problems = [f"only ours: {name}" for name in sorted(set(ours) - set(theirs))]
    problems += [f"only theirs: {name}" for name in sorted(set(theirs) - set(ours))]
    same = {"weights": 0, "weight scales": 0, "others": 0}
    worst = {kind: 0.0 for kind in CALIBRATED}
    for name in sorted(set(ours) & set(theirs)):
        a, b = ours[name], theirs[name]
        kind = next((kind for kind in CALIBRATED if name.endswith(kind)), None)
        if kind:
            if b["data"] is not None:
                for x, y in zip(numbers(a), numbers(b), strict=True):
                    worst[kind] = max(worst[kind], abs(x - y) / abs(y))
            continue
        expected = b
        group = "weights" if a["dtype"] == "F8_E4M3" else "weight scales" if name.endswith(".weight_scale") else "others"
        if group == "others" and name in source:
            expected = source[name]
        if all(a[key] == expected[key] for key in ("dtype", "shape", "sha256")):
            same[group] += 1
        else:
            problems.append(f"differs: {name} {a['dtype']} {a['shape']}, expected {expected['dtype']} {expected['shape']}")
    print("same bytes:", ", ".join(f"{count} {what}" for what, count in same.items()))
    print("largest relative difference:", ", ".join(f"{kind[1:]} {value:.2e}" for kind, value in worst.items() if value))
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
