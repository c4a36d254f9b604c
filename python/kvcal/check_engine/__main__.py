"""The command line of `python -m kvcal.check_engine`."""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from . import ENGINES
from .asking import CannotAsk, ask
from .checkpoint import Scales, wanted_scales
from .verdict import compared, differences, is_loaded, sentence, verdict

LOADED, NOT_LOADED, CANNOT_ASK = 0, 1, 2
EPILOG = """exit status: 0 where every scale is loaded and the cache is FP8, 1 where not, 2 where the engine cannot be asked or does not run here.
The engine's own code loads the checkpoint on the CPU: no weight is read, no GPU is used. --json says what stands in for the GPU."""


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvcal.check_engine", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Says whether the engine that is installed in this Python loads a checkpoint's KV scales.")  # fmt: skip
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a folder with config.json and safetensors files")
    parser.add_argument("--kv-cache-dtype", default="auto", metavar="NAME", help="the engine's option of that name, as it is served (default: auto)")
    parser.add_argument("--scales", type=Path, metavar="FILE", help="a kv_cache_scales.json for the engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--verbose", action="store_true", help="show on stderr what the engine prints")
    return parser.parse_args(words)


def check(options: argparse.Namespace) -> None:
    """That the question makes sense, before the engine is imported, which takes long."""
    engine, folder = ENGINES[options.engine], options.checkpoint
    if not (folder / "config.json").is_file():
        raise CannotAsk(f"{folder}: found no config.json, expected the folder of a checkpoint")
    if not any(folder.glob("*.safetensors")):
        raise CannotAsk(f"{folder}: found no *.safetensors file")
    if options.kv_cache_dtype != "auto" and engine.fp8 is None:
        raise CannotAsk(f"{engine.title} has no option for the dtype of its cache: --kv-cache-dtype {options.kv_cache_dtype}")
    if options.scales and not engine.reads_scales_file:
        raise CannotAsk(f"{engine.title} has no option for a file of scales: --scales {options.scales}")


def job_of(options: argparse.Namespace) -> dict[str, Any]:
    word = options.kv_cache_dtype
    job = {"kv_cache_dtype": ENGINES[options.engine].fp8 if word == "fp8" else word}
    return job | ({"scales": str(options.scales.resolve())} if options.scales else {})


def read_wanted(options: argparse.Namespace) -> Scales:
    try:
        return wanted_scales(options.checkpoint, options.scales)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise CannotAsk(f"{options.scales or options.checkpoint}: its scales cannot be read: {type(error).__name__}: {error}") from error


def report(options: argparse.Namespace, wanted: Scales, seen: dict[str, Any], answer: str) -> str:
    if options.json:
        facts = {"engine": options.engine, "version": seen["version"], "answer": answer, "loads": seen["loads"], "cache_dtype": seen.get("cache_dtype"),
                 "why": seen.get("why"), "layers": compared(wanted, seen) if seen["loads"] else [], "dropped": seen.get("dropped", []),
                 "warnings": seen["warnings"], "stood_in": seen["stood_in"]}  # fmt: skip
        return json.dumps(facts)
    lines = [f"{ENGINES[options.engine].title} {seen['version']} (installed): {sentence(answer, wanted, seen)}"]
    if answer in ("partly", "lost"):
        lines += [f"  {line}" for line in differences(wanted, seen)]
    if answer == "16-bit" and options.kv_cache_dtype == "auto" and ENGINES[options.engine].fp8:
        lines.append("  --kv-cache-dtype fp8 asks for an FP8 cache")
    if seen.get("dropped"):
        lines.append(f"  dropped: {seen['dropped'][0]}" + (f" and {len(seen['dropped']) - 1} more scales" if len(seen["dropped"]) > 1 else ""))
    lines += [f"  its warning: {warning}" for warning in seen["warnings"]]
    return "\n".join(lines + [f"  stood in: {one}" for one in seen["stood_in"]])


def main(words: list[str] | None = None) -> int:
    options = parsed(words)
    try:
        check(options)
        wanted = read_wanted(options)
        seen = ask(options.engine, options.checkpoint.resolve(), job_of(options), options.verbose)
    except CannotAsk as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_ASK
    answer = verdict(wanted, seen)
    print(report(options, wanted, seen, answer))
    return LOADED if is_loaded(answer) else CANNOT_ASK if answer == "unknown" else NOT_LOADED


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what engines started does not end
