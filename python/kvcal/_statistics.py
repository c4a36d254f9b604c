"""Statistics of K and V as numpy arrays; numpy is imported by the functions that need it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import numpy as np

    from ._results import Output

_FIRST_OCTAVE, _OCTAVES, _STEPS = -24, 48, 8
_DTYPES = {"F32": "<f4", "I64": "<i8"}


@dataclass(frozen=True)
class Histograms:
    """Counts of magnitudes: `counts[i, j]` of layer i are in [edges[j], edges[j + 1])."""

    edges: np.ndarray  #: [bins + 1]
    counts: np.ndarray  #: [layers, bins]
    zeros: np.ndarray  #: [layers]: magnitudes below the first bin of a run


@dataclass(frozen=True)
class LayerStatistics:
    """What a calibration saw of K or V, layer by layer. NaN where it is not known."""

    layer: np.ndarray  #: [layers]
    amax: np.ndarray  #: [layers]
    head_amax: np.ndarray  #: [layers, heads]; NaN where a layer has fewer heads
    scale: np.ndarray  #: [layers, 1], or [layers, heads] by attn_head
    saturated: np.ndarray  #: [layers]: fraction over the range of the scale
    histograms: Histograms | None


def layer_statistics(source: Output | dict[str, Any], tensor: str = "k") -> LayerStatistics:
    """Arrays of what a manifest, an `Output` or the answer of `inspect` has of K ("k"), V ("v") or queries ("q")."""
    import numpy as np

    if tensor not in ("k", "v", "q"):
        raise ValueError(f"tensor: found {tensor!r}, expected 'k', 'v' or 'q'")
    layers = (source if isinstance(source, dict) else source.manifest).get("layers", [])

    def rows(key: str) -> np.ndarray:
        values = [one.get(f"{tensor}_{key}") for one in layers]
        lists = [value if isinstance(value, list) else [value] for value in values]
        width = max(map(len, lists), default=0)
        filled = [[np.nan if one is None else one for one in line] + [np.nan] * (width - len(line)) for line in lists]
        return np.array(filled, dtype=np.float64).reshape(len(lists), width)

    def column(key: str) -> np.ndarray:
        return rows(key).reshape(-1)

    return LayerStatistics(
        layer=np.array([one["layer"] for one in layers], dtype=np.int64),
        amax=column("amax"),
        head_amax=rows("head_amax"),
        scale=rows("scale"),
        saturated=column("saturated"),
        histograms=_histograms([one.get(f"{tensor}_histogram") for one in layers]),
    )


def _histograms(found: list[dict[str, Any] | None]) -> Histograms | None:
    """The halves of octaves of all layers, in the columns of the widest range."""
    import numpy as np

    known = [one for one in found if one]
    if not known:
        return None
    first = min(one["first_octave"] for one in known)
    end = max(one["first_octave"] + (len(one["counts"]) + 1) // 2 for one in known)
    counts = np.zeros((len(found), 2 * (end - first)), dtype=np.int64)
    for row, one in zip(counts, found):
        if one:
            at = 2 * (one["first_octave"] - first)
            row[at : at + len(one["counts"])] = one["counts"]
    octaves = np.exp2(np.arange(first, end, dtype=np.float64))
    edges = np.append(np.stack([octaves, 1.5 * octaves], axis=1).reshape(-1), 2.0**end)
    return Histograms(edges, counts, np.array([one["zeros"] if one else 0 for one in found], dtype=np.int64))


def histogram_edges() -> np.ndarray:
    """The 385 edges of the histograms of `load_statistics`: eight steps of equal width in each octave from 2^-24."""
    import numpy as np

    octaves = np.exp2(np.arange(_FIRST_OCTAVE, _FIRST_OCTAVE + _OCTAVES, dtype=np.float64))
    steps = 1.0 + np.arange(_STEPS) / _STEPS
    return np.append(np.outer(octaves, steps).reshape(-1), 2.0 ** (_FIRST_OCTAVE + _OCTAVES))


def _sha256_of(metadata: dict[str, str], header: dict[str, Any], data: bytes) -> str:
    """As docs/formats.md says."""
    digest = hashlib.sha256()
    for key in sorted(metadata):
        if key != "sha256":
            digest.update(f"{key}\0{metadata[key]}\0".encode())
    for name in sorted(header):
        entry = header[name]
        begin, end = entry["data_offsets"]
        digest.update(f"{name}\0{entry['dtype']} {entry['shape']}\0".encode() + data[begin:end])
    return digest.hexdigest()


def load_statistics(path: Union[str, os.PathLike[str]]) -> dict[str, np.ndarray]:
    """The arrays of a file of `calibrate(save_statistics=...)`, by name: "<module>.k.ranges" [samples, heads, 2] has the
    smallest and the largest value of each sample, "<module>.k.histogram" [heads, 384] the counts of magnitudes."""
    import numpy as np

    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    if metadata.get("format") != "kvcal-statistics":
        raise ValueError(f"{os.fspath(path)}: is no file of calibrate(save_statistics=...)")
    if metadata.get("sha256") != _sha256_of(metadata, header, data):
        raise ValueError(f"{os.fspath(path)}: has changed since it was written, or is of an older version")
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays
