"""Safetensors files by their headers: the KV scales that they hold, and a copy of a checkpoint without the bytes of its weights."""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")
SIDES = {"k": re.compile(r"\.(k_scale|k_proj\.output_scale)$"), "v": re.compile(r"\.(v_scale|v_proj\.output_scale)$"),
         "kv": re.compile(r"\.kv_scale$")}  # fmt: skip
#: Names of parts that are no text model, and of prediction layers, which engines load for drafts alone.
OTHER_PARTS = re.compile(r"vision|visual|image|audio|video|whisper|(?:^|\.)mtp\.|(?:^|\.)encoder\.")
#: Tensors up to so many bytes are copied whatever they are; those whose name says scale or zero point up to the second number.
SMALL_BYTES, SCALE_BYTES = 64, 1 << 16
OF_CACHE = re.compile(r"(?:^|[._])(?:[kvq]|kv|key|value|output|cache)_(?:cache_)?(?:scale|zero_point|amax)s?$")
SIZES = {"F32": ("f", 4), "F16": ("e", 2), "F64": ("d", 8)}
FILE_OF_SCALES = "kv_cache_scales.json"

#: A number, or a list where it is of heads.
Scale = Any
#: {layer: {"k", "v"}}
Scales = dict[int, dict[str, Scale]]


def header(path: Path) -> tuple[dict[str, Any], int]:
    """The entries by name, and where their data begins."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), 8 + size


def unpack(data: bytes, dtype: str) -> list[float]:
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    code, size = SIZES[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))


def to_float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def scale_tensors(folder: Path) -> Iterator[tuple[str, int, str, dict[str, Any], list[float]]]:
    """Name, layer, side, entry and values of each KV scale that has a name of SIDES."""
    for path in sorted(folder.glob("*.safetensors")):
        tensors, start = header(path)
        for name, entry in tensors.items():
            layer = LAYER.search("." + name)
            side = next((side for side, pattern in SIDES.items() if pattern.search(name)), None)
            if layer and side:
                begin, end = entry["data_offsets"]
                with open(path, "rb") as file:
                    file.seek(start + begin)
                    yield name, int(layer[1]), side, entry, unpack(file.read(end - begin), entry["dtype"])


def read_sides(folder: Path) -> tuple[dict[int, dict[str, Scale]], dict[str, list[Any]]]:
    """{layer: {"k", "v", "kv"}} of what a folder's files hold, lists for heads; and {name: [dtype, shape]} of these tensors."""
    found: dict[int, dict[str, Scale]] = {}
    shapes = {}
    for name, layer, side, entry, values in scale_tensors(folder):
        found.setdefault(layer, {})[side] = values[0] if len(values) == 1 else values
        shapes[name] = [entry["dtype"], entry["shape"]]
    if (folder / FILE_OF_SCALES).exists():
        found |= read_file(folder / FILE_OF_SCALES)
    return found, shapes


def read_file(path: Path) -> dict[int, dict[str, Scale]]:
    """Of kv_cache_scales.json: {layer: {"kv"}} of its first rank."""
    ranks = json.loads(path.read_text())["kv_cache"]["scaling_factor"]
    return {int(layer): {"kv": to_float32(value)} for layer, value in ranks["0"].items()}


def of_sides(found: dict[int, dict[str, Scale]]) -> Scales:
    return {layer: {side: sides.get(side, sides.get("kv")) for side in "kv"} for layer, sides in found.items()}


def read_scales(folder: Path) -> tuple[Scales, dict[str, list[Any]]]:
    """{layer: {"k", "v"}} of a folder's files; and the tensors."""
    found, shapes = read_sides(folder)
    return of_sides(found), shapes


def text_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return dict(config[key])
    return dict(config)


def wanted_scales(folder: Path, scales_file: Path | None) -> Scales:
    """What an engine should hold: those of the text model's layers, without those of drafts; of the file where it gets one."""
    if scales_file:
        return of_sides(read_file(scales_file))
    config = text_config(folder)
    layers = next((config[key] for key in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") if isinstance(config.get(key), int)), math.inf)
    found: dict[int, dict[str, Scale]] = {}
    for name, layer, side, _, values in scale_tensors(folder):
        if layer < layers and not OTHER_PARTS.search(name):
            found.setdefault(layer, {})[side] = values[0] if len(values) == 1 else values
    return of_sides(found)


# --- a copy without weights ---


def is_copied(name: str, size: int) -> bool:
    return size <= SMALL_BYTES or (size <= SCALE_BYTES and OF_CACHE.search(name) is not None)


def is_scale(name: str) -> bool:
    return any(pattern.search(name) for pattern in SIDES.values()) or OF_CACHE.search(name) is not None


def hollow_file(source: Path, target: Path, has_scales: bool) -> None:
    """The same tensors in a sparse file: scales and the smallest tensors have their bytes, all others are holes, which read as zeros."""
    tensors, start = header(source)
    if not has_scales:
        tensors = {name: entry for name, entry in tensors.items() if name == "__metadata__" or not is_scale(name)}
    entries = {name: entry for name, entry in tensors.items() if name != "__metadata__"}
    begin, places = 0, {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        places[name] = entry | {"data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(({"__metadata__": tensors["__metadata__"]} if "__metadata__" in tensors else {}) | places).encode()
    text += b" " * (-len(text) % 8)
    with open(source, "rb") as old, open(target, "wb") as new:
        new.write(struct.pack("<Q", len(text)) + text)
        new.truncate(8 + len(text) + begin)
        for name, entry in entries.items():
            first, last = entry["data_offsets"]
            if is_copied(name, last - first):
                old.seek(start + first)
                new.seek(8 + len(text) + places[name]["data_offsets"][0])
                new.write(old.read(last - first))


def without_cache(name: str, text: str) -> str | None:
    """A configuration that declares no KV cache; None for a file that then says nothing."""
    content = json.loads(text)
    quantization = content.get("quantization_config" if name == "config.json" else "quantization")
    if not isinstance(quantization, dict):
        return text
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        if key in quantization:
            quantization[key] = None
    has_weights = quantization.get("config_groups") or quantization.get("quant_algo") or quantization.get("quant_method") not in (None, "compressed-tensors")
    if not has_weights:
        if name != "config.json":
            return None
        del content["quantization_config"]
    return json.dumps(content)


def hollow_copy(source: Path, target: Path, has_scales: bool = True) -> None:
    """target: a folder that is not there yet. Other files than weights are links; without scales, configurations say nothing of a KV cache."""
    target.mkdir()
    indexes = []
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        to = target / place
        if any(part.startswith(".") for part in place.parts):  # what downloads keep
            continue
        if path.is_dir():
            to.mkdir(exist_ok=True)
        elif path.suffix == ".safetensors":
            hollow_file(path, to, has_scales)
        elif not has_scales and path.name in ("config.json", "hf_quant_config.json") and path.parent == source:
            text = without_cache(path.name, path.read_text())
            if text is not None:
                to.write_text(text)
        elif not has_scales and path.name.endswith(".safetensors.index.json"):
            indexes.append((path, to))
        elif has_scales or path.name != FILE_OF_SCALES:
            os.symlink(path.resolve(), to)
    for path, to in indexes:
        index = json.loads(path.read_text())
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if not is_scale(name)}
        to.write_text(json.dumps(index))
