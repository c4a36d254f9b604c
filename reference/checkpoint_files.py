#!/usr/bin/env python3
"""Writes tests/fixtures/checkpoint: files by the real safetensors package, hand-made files that it
reads, with what it read, and tiny model folders.

files/<name>.safetensors with files.json: per file `metadata`, `canonical` (the package wrote it, so
write_safetensors must give the same bytes) and tensors in the order of their bytes.

Versions: Python 3.11, safetensors 0.8.0, numpy 2. Run: python checkpoint_files.py
"""
import ctypes
import hashlib
import json
import pathlib
import shutil
import struct

import numpy as np
import safetensors
from safetensors import TensorSpec, numpy as st_numpy, serialize

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "checkpoint"
# The package's names of dtypes → the format's, with bits of an element.
WRITABLE = {
    "bool": ("BOOL", 8), "float4_e2m1fn_x2": ("F4", 4), "uint8": ("U8", 8), "int8": ("I8", 8),
    "float8_e5m2": ("F8_E5M2", 8), "float8_e4m3fn": ("F8_E4M3", 8), "float8_e8m0fnu": ("F8_E8M0", 8),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 8), "float8_e5m2fnuz": ("F8_E5M2FNUZ", 8),
    "int16": ("I16", 16), "uint16": ("U16", 16), "float16": ("F16", 16), "bfloat16": ("BF16", 16),
    "int32": ("I32", 32), "uint32": ("U32", 32), "float32": ("F32", 32), "complex64": ("C64", 64),
    "float64": ("F64", 64), "int64": ("I64", 64), "uint64": ("U64", 64),
}
rng = np.random.default_rng(20)


def written(tensors, metadata):
    """The package's bytes of {name: (dtype, shape, data)}."""
    buffers = {name: ctypes.create_string_buffer(data, max(1, len(data)))
               for name, (_, _, data) in tensors.items()}
    specs = {}
    for name, (dtype, shape, data) in tensors.items():
        if dtype == "float4_e2m1fn_x2" and shape:  # the package doubles the last dimension
            shape = shape[:-1] + [shape[-1] // 2]
        specs[name] = TensorSpec(dtype=dtype, shape=shape,
                                 data_ptr=ctypes.addressof(buffers[name]), data_len=len(data))
    return serialize(specs, metadata)


def random_tensor(dtype, shape):
    bits = WRITABLE[dtype][1] * int(np.prod(shape, dtype=np.int64))
    return dtype, shape, rng.bytes(bits // 8)


def by_hand(header, data):
    raw = header.encode()
    return struct.pack("<Q", len(raw)) + raw + data


def canonical_files():
    yield "all_dtypes", {f"t.{name}": random_tensor(name, [2, 4]) for name in WRITABLE}, None
    yield "shapes", {
        "scalar": random_tensor("float32", []), "one": random_tensor("float16", [1]),
        "empty": random_tensor("float16", [0]), "empty.inside": random_tensor("bfloat16", [3, 0, 5]),
        "empty.f4": random_tensor("float4_e2m1fn_x2", [2, 0]),
        "deep": random_tensor("uint8", [1, 2, 1, 3, 1, 2, 1, 1, 1]),
        "odd.bytes": random_tensor("int8", [7]), "tail": random_tensor("bool", [3]),
    }, {"format": "pt"}
    yield "names", {
        "": random_tensor("uint8", [1]), "a b": random_tensor("uint8", [1]),
        'quote " and \\ and /': random_tensor("uint8", [1]), "tab\tnew\nline\x01\x1f\x7f": random_tensor("uint8", [1]),
        "é 漢字 \U0001f600": random_tensor("uint8", [1]), "Z": random_tensor("uint8", [1]),
        "layers.10": random_tensor("uint8", [1]), "layers.9": random_tensor("uint8", [1]),
    }, {'ключ "k"': "value\n\u2028\x00é"}
    yield "no_tensors", {}, None
    yield "only_metadata", {}, {"format": "pt"}
    for i in range(12):
        names = rng.permutation(40)[: rng.integers(1, 9)]
        yield f"random_{i}", {
            f"t{n}": random_tensor(str(rng.choice(list(WRITABLE))), [int(x) for x in rng.integers(0, 4, rng.integers(0, 3))] + [2])
            for n in names}, {"format": "pt"} if i % 2 else None


def other_files():
    """Legal files that no current writer makes."""
    yield "header_not_padded", by_hand(
        '{"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}', bytes(range(6)))
    yield "misaligned", by_hand(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},'
        '"c":{"dtype":"F16","shape":[1],"data_offsets":[9,11]}}', bytes(range(11)))
    yield "white_space", by_hand(
        ' \n{ "a" : {"dtype":"I16", "shape":[ 2 ],\t"data_offsets":[0, 4]} }\r\n   ', bytes(range(4)))
    yield "unknown_key", by_hand(
        '{"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4],"note":{"x":[1,null]}}}', bytes(range(4)))
    yield "metadata_null", by_hand(
        '{"__metadata__":null,"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}', bytes(range(4)))
    yield "metadata_last", by_hand(
        '{"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"a":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},'
        '"__metadata__":{"x":"y","format":"pt"}}', bytes(range(3)))
    yield "escaped_name", by_hand(
        '{"\\u00e9\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\x07")
    yield "empty_between", by_hand(
        '{"z":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"e":{"dtype":"F32","shape":[0],"data_offsets":[1,1]},'
        '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\x01\x02")
    yield "f6", by_hand(
        '{"e2m3":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]},'
        '"e3m2":{"dtype":"F6_E3M2","shape":[2,4],"data_offsets":[3,9]}}', bytes(range(9)))


def described(raw):
    """What the package reads, in the order of the bytes, with the offset in the file."""
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    tensors = []
    for name, tensor in safetensors.deserialize(raw):
        begin, end = header[name]["data_offsets"]
        data = bytes(tensor["data"])
        assert raw[8 + length + begin:8 + length + end] == data
        tensors.append({"name": name, "dtype": tensor["dtype"], "shape": list(tensor["shape"]),
                        "offset": 8 + length + begin, "hex": data.hex()})
    place = list(header)  # empty tensors share an offset: the header's order decides
    tensors.sort(key=lambda t: (t["offset"], len(t["hex"]), place.index(t["name"])))
    return {"metadata": header.get("__metadata__") or {}, "tensors": tensors}


def write_files():
    folder = OUT / "files"
    folder.mkdir(parents=True)
    listing = {}
    for name, tensors, metadata in canonical_files():
        raw = written(tensors, metadata)
        (folder / f"{name}.safetensors").write_bytes(raw)
        listing[name] = {"canonical": True, **described(raw)}
    for name, raw in other_files():
        (folder / f"{name}.safetensors").write_bytes(raw)
        listing[name] = {"canonical": False, **described(raw)}
    (OUT / "files.json").write_text(json.dumps(listing, indent=1) + "\n")


def write_models():
    """single/, sharded/ and the folder of a hub cache with links into blobs/."""
    config = {"model_type": "llama", "num_hidden_layers": 2}
    tensors = {f"model.layers.{i}.self_attn.{p}_proj.weight": rng.standard_normal((4, 4)).astype(np.float16)
               for i in range(2) for p in "qkvo"}
    tensors["model.norm.weight"] = np.ones(4, np.float32)
    sidecars = {"generation_config.json": '{"eos_token_id": 2, "temperature": 0.5}\n',
                "tokenizer.json": "{}\n", "tokenizer.model": "sp", "chat_template.jinja": "{{ x }}\n",
                "special_tokens_map.json": "{}\n", "README.md": "# tiny\n"}

    def fill(folder, extra=True):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        if extra:
            for name, text in sidecars.items():
                (folder / name).write_text(text)

    single = OUT / "single"
    fill(single)
    st_numpy.save_file(tensors, single / "model.safetensors", {"format": "pt"})
    for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "training_args.bin", ".hidden"):
        (single / name).write_text("x")
    (single / "additional_chat_templates").mkdir()
    (single / "additional_chat_templates" / "tool_use.jinja").write_text("{{ y }}\n")
    (single / "onnx").mkdir()
    (single / "onnx" / "config.json").write_text("{}\n")

    sharded = OUT / "sharded"
    fill(sharded, extra=False)
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:4], "model-00002-of-00002.safetensors": names[4:]}
    for shard, members in shards.items():
        st_numpy.save_file({n: tensors[n] for n in members}, sharded / shard, {"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
             "weight_map": {n: shard for shard, members in shards.items() for n in members}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")

    def hexdigest(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    digests = {}
    for folder in (single, sharded):
        weights = sorted(p.name for p in folder.glob("model*.safetensors"))
        text = b"".join(n.encode() + b"\0" + hexdigest(folder / n).encode() + b"\n"
                        for n in sorted(weights + ["config.json"]))
        digests[folder.name] = hashlib.sha256(text).hexdigest()
    (OUT / "models.json").write_text(json.dumps({"sha256": digests, "tensors": names}, indent=1) + "\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    write_files()
    write_models()


main()
