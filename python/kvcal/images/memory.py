"""Samples that a caller holds in memory, as NumPy or torch arrays, in the form of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import BadInput
from .samples import Tensor, Writer, groups_of, int_tensor

#: NumPy's and torch's names of dtypes that rows may have, as the form names them.
FLOATS = {"float32": "F32", "torch.float32": "F32", "torch.bfloat16": "BF16", "bfloat16": "BF16"}
KEYS = {"input_ids", "embedded_positions", "embeddings", "image_groups", "position_ids", "per_layer_ids"}


def holds_rows(item: object) -> bool:
    return isinstance(item, Mapping) and "embeddings" in item


def numbers(values: Any) -> list[int]:
    """Of an array or a list, row by row."""
    flat = values.flatten().tolist() if hasattr(values, "flatten") else values
    return [int(value) for value in flat]


def rows_of(name: str, values: Any, place: str) -> Tensor:
    dtype = FLOATS.get(str(getattr(values, "dtype", type(values).__name__)))
    if dtype is None or len(values.shape) != 2:
        raise BadInput(f"{place}: {name}: expected an array [tokens, hidden_size] of float32 or, of torch, bfloat16")
    if hasattr(values, "detach"):
        import torch

        values = values.detach().cpu().contiguous().view(torch.int32 if dtype == "F32" else torch.int16).numpy()
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return Tensor(dtype, tuple(values.shape), little.tobytes())


def tensors_of(item: Mapping[str, Any], place: str) -> dict[str, Tensor]:
    strange = [name for name in item if name not in KEYS and not name.startswith("injected.")]
    if strange or "input_ids" not in item or "embedded_positions" not in item:
        raise BadInput(f"{place}: found the keys {sorted(item)}, expected input_ids, embedded_positions, embeddings and what docs/images.md has beside them")
    ids, positions = numbers(item["input_ids"]), numbers(item["embedded_positions"])
    tensors = {"input_ids": int_tensor(ids), "embedded_positions": int_tensor(positions),
               "image_groups": int_tensor(numbers(item.get("image_groups", groups_of(positions, len(ids)))))}  # fmt: skip
    if "position_ids" in item:
        tensors["position_ids"] = int_tensor(numbers(item["position_ids"]), 3)
    if "per_layer_ids" in item:
        tensors["per_layer_ids"] = int_tensor(numbers(item["per_layer_ids"]))
    for name, values in item.items():
        if name == "embeddings" or name.startswith("injected."):
            tensors[name] = rows_of(name, values, place)
    return tensors


def facts_of(model: Path) -> dict[str, Any]:
    """What the index says of a checkpoint, from its config.json."""
    path = model / "config.json"
    try:
        content = path.read_bytes()
        config = json.loads(content)
        text = config.get("text_config") or config
        return {"model_type": config["model_type"], "config_sha256": hashlib.sha256(content).hexdigest(), "hidden_size": text["hidden_size"],
                "num_hidden_layers": text["num_hidden_layers"], "vocab_size": text["vocab_size"], "bidirectional_layers": None}  # fmt: skip
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: expected the config.json of the model that the rows are for: {type(error).__name__}: {error}") from error


def write_samples(items: Iterable[Any], model: Path, output: Path) -> None:
    """A folder of samples of records in memory. model: the folder of the checkpoint that the rows are for."""
    facts = facts_of(model)
    with Writer(output) as writer:
        for number, item in enumerate(items):
            place = f"dataset[{number}]"
            if not holds_rows(item):
                raise BadInput(f"{place}: has no 'embeddings', and the first record has; expected them in all or in none")
            tensors = tensors_of(item, place)
            writer.add(tensors, max(tensors["image_groups"].values(), default=0))
        writer.finish(facts, {})
