"""The form of a folder of samples, version 1, which docs/images.md describes: writing and checking. Needs no package.

index.json names the model and the files; each sample is one safetensors file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import BadInput

VERSION = 1
INDEX = "index.json"
FILE_NAME = re.compile(r"^[0-9]{5,}\.safetensors$", re.ASCII)
INJECTED = re.compile(r"^injected\.(0|[1-9][0-9]{0,5})$", re.ASCII)
HASH = re.compile(r"^[0-9a-f]{64}$", re.ASCII)
#: Bytes of an element, its code in `array`, and the bits of an exponent that is that of no finite number.
DTYPES = {"I32": (4, "i", 0), "BF16": (2, "H", 0x7F80), "F32": (4, "I", 0x7F800000)}
FLOATS = ("BF16", "F32")
#: tensor: whether each sample has it
TOKEN_TENSORS = {"input_ids": True, "image_groups": True, "embedded_positions": True, "per_layer_ids": False, "position_ids": False}
MOST_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """data: little-endian, in order of the rows."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def values(self) -> array[int]:
        """Whole numbers, or the bits of floats."""
        held = array(DTYPES[self.dtype][1], self.data)
        if sys.byteorder == "big":
            held.byteswap()
        return held


def int_tensor(values: list[int], *rows: int) -> Tensor:
    """rows: leading dimensions, in which the values lie one after the other."""
    held = array("i", values)
    if sys.byteorder == "big":
        held.byteswap()
    count = 1
    for row in rows:
        count *= row
    return Tensor("I32", (*rows, len(values) // count), held.tobytes())


def safetensors_bytes(tensors: dict[str, Tensor]) -> bytes:
    """A safetensors file; tensors of larger elements come first, so that each lies at a multiple of its size."""
    entries: dict[str, Any] = {}
    data = []
    end = 0
    for name in sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype][0], name)):
        tensor = tensors[name]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + len(tensor.data)]}
        data.append(tensor.data)
        end += len(tensor.data)
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + b"".join(data)


def read_tensors(content: bytes, place: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, whose bytes lie one after the other."""
    try:
        size = struct.unpack("<Q", content[:8])[0]
        entries = json.loads(content[8 : 8 + size].decode()) if size <= MOST_HEADER_BYTES else None
        entries.pop("__metadata__", None)
        tensors, parts = {}, []
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), content[8 + size + begin : 8 + size + end])
            parts.append((begin, end))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{place}: is no safetensors file: {error}") from error
    at = 0
    for begin, end in sorted(parts):
        if begin != at or end < begin:
            raise BadInput(f"{place}: its tensors do not lie one after the other")
        at = end
    if 8 + size + at != len(content):
        raise BadInput(f"{place}: found {len(content)} bytes, expected {8 + size + at}")
    for name, tensor in tensors.items():
        check_size(name, tensor, place)
    return tensors


def check_size(name: str, tensor: Tensor, place: str) -> None:
    if tensor.dtype not in DTYPES:
        raise BadInput(f"{place}: {name}: found dtype {tensor.dtype}, expected one of {', '.join(DTYPES)}")
    size = DTYPES[tensor.dtype][0]
    for extent in tensor.shape:
        if not isinstance(extent, int) or extent < 0:
            raise BadInput(f"{place}: {name}: found the shape {list(tensor.shape)}")
        size *= extent
    if size != len(tensor.data):
        raise BadInput(f"{place}: {name}: found {len(tensor.data)} bytes, expected {size} for {list(tensor.shape)} of {tensor.dtype}")


def check_free(output: Path) -> None:
    """Of a file or folder that is to be made."""
    if output.exists() or output.is_symlink():
        raise BadInput(f"{output}: exists already")
    if not output.absolute().parent.is_dir():
        raise BadInput(f"{output}: its folder does not exist")


class Writer:
    """A folder of samples that appears when it is whole, with `with`; nothing appears where the work ends by an error."""

    def __init__(self, output: Path) -> None:
        check_free(output)
        self._output = output
        self._samples: list[dict[str, Any]] = []

    def __enter__(self) -> Writer:
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self._output.name}.", dir=self._output.absolute().parent))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, tensors: dict[str, Tensor], images: int) -> dict[str, Any]:
        """The sample's entry of the index."""
        name = f"{len(self._samples):05d}.safetensors"
        content = safetensors_bytes(tensors)
        self._write(name, content)
        entry = {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "tokens": tensors["input_ids"].shape[0],
                 "embedded": tensors["embedded_positions"].shape[0], "images": images}  # fmt: skip
        self._samples.append(entry)
        return entry

    def finish(self, model: dict[str, Any], made_with: dict[str, Any]) -> None:
        index = {"kvcal_samples": VERSION, "model": model, "made_with": made_with, "samples": self._samples}
        self._write(INDEX, (json.dumps(index, indent=1) + "\n").encode())
        check_samples(self._folder)
        put(self._folder, self._output, 0o777)

    def _write(self, name: str, content: bytes) -> None:
        with open(self._folder / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def put(made: Path, output: Path, rights: int) -> None:
    """A scratch file or folder to its place, with the rights that the user's mask leaves of these."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(made, rights & ~mask)
    os.rename(made, output)


def write_json(content: Any, output: Path) -> None:
    """A file, which appears when it is whole."""
    check_free(output)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=output.absolute().parent, prefix=f".{output.name}.", delete=False) as file:
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    put(Path(file.name), output, 0o666)


def check_samples(folder: Path) -> dict[str, Any]:
    """The index of a folder whose every file has the form; BadInput names what has not."""
    folder = Path(folder)
    index = read_index(folder / INDEX)
    for entry in index["samples"]:
        path = folder / entry["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise BadInput(f"{path}: its sha256 is not the one in {INDEX}")
        check_sample(read_tensors(content, str(path)), entry, index["model"], str(path))
    return index


def read_index(path: Path) -> dict[str, Any]:
    try:
        index = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is no JSON: {error}") from error
    expect(isinstance(index, dict) and "kvcal_samples" in index, path, "kvcal_samples is missing: this is no folder of samples")
    version = index["kvcal_samples"]
    expect(is_count(version, 1) and version == VERSION, path, f"kvcal_samples: found version {version!r}, expected {VERSION}")
    model, samples = index.get("model"), index.get("samples")
    expect(isinstance(model, dict), path, "model: expected an object")
    expect(isinstance(model.get("model_type"), str), path, "model.model_type: expected a string")
    for name in ("hidden_size", "num_hidden_layers", "vocab_size"):
        expect(is_count(model.get(name), 1), path, f"model.{name}: expected a whole number from 1")
    expect(is_hash(model.get("config_sha256")), path, "model.config_sha256: expected 64 digits of hex")
    if model.get("bidirectional_layers") is not None:  # else as the model's decoder has it
        check_layers(model["bidirectional_layers"], model["num_hidden_layers"], path)
    expect(isinstance(samples, list) and bool(samples), path, "samples: expected a list of one or more")
    for number, entry in enumerate(samples):
        check_entry(entry, f"{path}: samples[{number}]")
    expect(len({entry["file"] for entry in samples}) == len(samples), path, "samples: a file is named twice")
    return index


def expect(is_so: bool, place: object, what: str) -> None:
    if not is_so:
        raise BadInput(f"{place}: {what}")


def is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 31


def is_hash(value: object) -> bool:
    return isinstance(value, str) and bool(HASH.match(value))


def check_layers(layers: object, num_layers: int, place: object) -> None:
    what = f"model.bidirectional_layers: expected layers below {num_layers}, each once and in their order"
    expect(isinstance(layers, list) and all(is_count(layer, 0) and layer < num_layers for layer in layers), place, what)
    expect(layers == sorted(set(layers)), place, what)  # type: ignore[call-overload]


def check_entry(entry: object, place: str) -> None:
    expect(isinstance(entry, dict), place, "expected an object")
    assert isinstance(entry, dict)
    expect(isinstance(entry.get("file"), str) and bool(FILE_NAME.match(entry["file"])), place, "file: expected a name such as 00000.safetensors")
    expect(is_hash(entry.get("sha256")), place, "sha256: expected 64 digits of hex")
    for name, least in (("tokens", 1), ("embedded", 0), ("images", 0)):
        expect(is_count(entry.get(name), least), place, f"{name}: expected a whole number from {least}")


def check_sample(tensors: dict[str, Tensor], entry: dict[str, Any], model: dict[str, Any], place: str) -> None:
    tokens, embedded, hidden = entry["tokens"], entry["embedded"], model["hidden_size"]
    shapes = {"input_ids": (tokens,), "image_groups": (tokens,), "per_layer_ids": (tokens,), "position_ids": (3, tokens),
              "embedded_positions": (embedded,)}  # fmt: skip
    for name, is_needed in {**TOKEN_TENSORS, "embeddings": True}.items():
        expect(name in tensors or not is_needed, place, f"{name} is missing")
    for name, tensor in tensors.items():
        layer = INJECTED.match(name)
        expect(name == "embeddings" or name in shapes or bool(layer), place, f"found the tensor {name!r}, which this form does not have")
        expect(not layer or int(layer[1]) < model["num_hidden_layers"], place, f"{name}: the model has {model['num_hidden_layers']} layers")
        shape = shapes.get(name, (embedded, hidden))
        expect(tensor.shape == shape, place, f"{name}: found the shape {list(tensor.shape)}, expected {list(shape)}")
        allowed = ("I32",) if name in shapes else FLOATS
        expect(tensor.dtype in allowed, place, f"{name}: found dtype {tensor.dtype}, expected {' or '.join(allowed)}")
        if name not in shapes:
            bits = DTYPES[tensor.dtype][2]
            expect(all(value & bits != bits for value in tensor.values()), place, f"{name}: found a value that is not finite")
    check_tokens({name: tensors[name].values() for name in shapes if name in tensors}, model["vocab_size"], place)


def check_tokens(values: dict[str, array[int]], vocab_size: int, place: str) -> None:
    positions, groups = values["embedded_positions"], values["image_groups"]
    expect(all(a < b for a, b in zip(positions, positions[1:])), place, "embedded_positions: expected rising numbers")
    expect(not positions or (positions[0] >= 0 and positions[-1] < len(groups)), place, f"embedded_positions: expected 0 to {len(groups) - 1}")
    expect(groups.tolist() == groups_of(positions.tolist(), len(groups)), place,
           "image_groups: expected the number of its run at each embedded position, and 0 elsewhere")  # fmt: skip
    for name in ("position_ids", "per_layer_ids"):
        expect(min(values.get(name, [0])) >= 0, place, f"{name}: found a negative number")
    replaced = set(positions)
    for at, token in enumerate(values["input_ids"]):
        expect(at in replaced or 0 <= token < vocab_size, place, f"input_ids: found {token} at {at}, expected 0 to {vocab_size - 1}")


def groups_of(positions: list[int], num_tokens: int) -> list[int]:
    """For each token the number, from 1, of the run of neighbouring embedded positions that it is of; 0 for text."""
    groups = [0] * num_tokens
    number = 0
    for at in positions:
        number += at == 0 or groups[at - 1] == 0
        groups[at] = number
    return groups
