"""The answer about a checkpoint: what an engine holds, compared with what the files hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .checkpoint import Scale, Scales

#: Layers that are told one by one, at most, without --verbose.
SHOWN = 3


def same(a: Scale, b: Scale, within: float = 0.0) -> bool:
    """One number stands for all heads."""
    if isinstance(a, list) or isinstance(b, list):
        a, b = (x if isinstance(x, list) else [x] for x in (a, b))
        heads = max(len(a), len(b))
        a, b = (x * heads if len(x) == 1 else x for x in (a, b))
        return len(a) == len(b) and all(same(x, y, within) for x, y in zip(a, b))
    a, b = (1.0 if x is None else x for x in (a, b))
    return bool(a == b or (not isinstance(a, str) and not isinstance(b, str) and math.isclose(a, b, rel_tol=within)))


def is_quantized(cache_dtype: str) -> bool:
    return any(word in cache_dtype for word in ("fp8", "float8", "int8"))


def answer_of(wanted: Scales, loads: bool, cache_dtype: str, layers: Scales) -> str:
    """loaded: the cache is FP8 or INT8, and the attention of every layer holds the numbers of the file; rounded: as loaded, but rounded by less
    than a hundredth; partly: as loaded, but not of every layer, or other numbers; lost: the cache is so, and every scale 1.0; 16-bit: it is not;
    refused: it does not start."""
    if not loads:
        return "refused"
    if not is_quantized(cache_dtype):
        return "16-bit"
    pairs = [(sides[side], layers.get(layer, {}).get(side)) for layer, sides in wanted.items() for side in "kv"]
    if all(same(a, b) for a, b in pairs):
        return "loaded"
    if all(same(1.0, b) for _, b in pairs):
        return "lost"
    return "rounded" if all(same(a, b, 0.01) for a, b in pairs) else "partly"


def ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5: "0-2, 5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def shown(scale: Scale) -> str:
    if isinstance(scale, list):
        values = [x for x in scale if not isinstance(x, str)]
        return f"{len(scale)} of {min(values):.6g} to {max(values):.6g}" if values else f"{len(scale)} of nan"
    return "none" if scale is None else scale if isinstance(scale, str) else f"{scale:.6g}"


def counted(count: int, unit: str = "layer") -> str:
    return f"{count} {unit}{'s' * (count != 1)}"


def compared(wanted: Scales, seen: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a layer: what the engine holds, and what the file does."""
    held = seen.get("layers", {})
    return [{"layer": layer, "k_scale": held.get(layer, {}).get("k"), "v_scale": held.get(layer, {}).get("v"),
             "k_stored": wanted.get(layer, {}).get("k"), "v_stored": wanted.get(layer, {}).get("v")}
            for layer in sorted({*wanted, *held})]  # fmt: skip


def verdict(wanted: Scales, seen: dict[str, Any]) -> str:
    """answer_of, and "no scales" in the checkpoint, "no model" where the engine does not start without them either, and "unknown" where a
    stand-in is the reason."""
    if not seen["loads"]:
        return "unknown" if seen["is_unknown"] else "refused" if seen["has_model"] else "no model"
    return answer_of(wanted, True, seen["cache_dtype"], seen["layers"]) if wanted else "no scales"


def is_loaded(answer: str) -> bool:
    return answer in ("loaded", "rounded")


def rounding(wanted: Scales, seen: dict[str, Any]) -> float:
    """The largest relative difference between what the engine holds and what the file does."""
    most = 0.0
    for row in compared(wanted, seen):
        for side in "kv":
            held, stored = (x if isinstance(x, list) else [x] for x in (row[f"{side}_scale"], row[f"{side}_stored"]))
            heads = max(len(held), len(stored))
            for a, b in zip(held * (heads // len(held)), stored * (heads // len(stored))):
                if isinstance(a, float) and isinstance(b, float) and b:
                    most = max(most, abs(a - b) / abs(b))
    return most


def sentence(answer: str, wanted: Scales, seen: dict[str, Any]) -> str:
    cache = f"cache {seen.get('cache_dtype')}"
    lost = [row["layer"] for row in compared(wanted, seen) if row["layer"] in wanted and not (
        same(row["k_scale"], row["k_stored"], 0.01) and same(row["v_scale"], row["v_stored"], 0.01))]  # fmt: skip
    return {
        "loaded": lambda: f"loaded: K and V scales of {counted(len(wanted))}, {cache}",
        "rounded": lambda: f"loaded: K and V scales of {counted(len(wanted))}, rounded by {100 * rounding(wanted, seen):.2g} % at most, {cache}",
        "partly": lambda: f"lost: scales of layer{'s' * (len(lost) != 1)} {ranges(lost)}, of {counted(len(wanted))} with scales, {cache}",
        "lost": lambda: f"lost: 1.0 stands for the scales of all {counted(len(wanted))}, {cache}",
        "16-bit": lambda: f"not used: K and V stay in 16 bits, cache {seen.get('cache_dtype')}",
        "no scales": lambda: f"no scales: the checkpoint has no K and V scales, {cache}",
        "refused": lambda: f"refused: {seen.get('why')}",
        "no model": lambda: f"refused: {seen.get('why')}; without the scales it does not start here either",
        "unknown": lambda: f"not known: {seen.get('why')}",
    }[answer]()


def differences(wanted: Scales, seen: dict[str, Any], is_whole: bool) -> list[str]:
    """Layers whose numbers are others than the file's; is_whole: all of them."""
    rows = [row for row in compared(wanted, seen) if not (same(row["k_scale"], row["k_stored"]) and same(row["v_scale"], row["v_stored"]))]
    lines = [f"layer {row['layer']}: K {shown(row['k_scale'])}, V {shown(row['v_scale'])}; stored: K {shown(row['k_stored'])}, V {shown(row['v_stored'])}"
             for row in rows]  # fmt: skip
    if is_whole or len(lines) <= SHOWN:
        return lines
    return [*lines[:SHOWN], f"and {counted(len(lines) - SHOWN, 'more layer')} (--verbose lists them)"]
