"""The command line of `python -m kvcal.check_engine`."""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

from . import ENGINES
from .asking import CannotAsk, ask
from .checkpoint import Scales, wanted_scales
from .verdict import compared, counted, differences, is_loaded, sentence, verdict

LOADED, NOT_LOADED, USAGE = 0, 1, 2  # as kvcal has them
EPILOG = """exit status: 0 where every scale is loaded and the cache is FP8, 1 where not, and where the engine cannot be asked or does not run here,
2 where the command line is wrong.
The engine's own code loads the checkpoint on the CPU: no weight is read, no GPU is used. --verbose says what stands in for the GPU."""


class WrongCommandLine(Exception):
    """Its options, whatever the checkpoint holds."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in the words of kvcal."""

    def error(self, message: str) -> NoReturn:
        raise WrongCommandLine(message)


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m kvcal.check_engine", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                    description="Says whether the engine that is installed in this Python loads a checkpoint's KV scales.")  # fmt: skip
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a folder with config.json and safetensors files")
    parser.add_argument("--kv-cache-dtype", default="auto", metavar="NAME", help="the engine's option of that name, as it is served (default: auto)")
    parser.add_argument("--scales", type=Path, metavar="FILE", help="a kv_cache_scales.json for the engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every layer that differs, what stands in, and on stderr what the engine prints")
    return parser.parse_args(words)


def check(options: argparse.Namespace) -> None:
    """That the question makes sense, before the engine is imported, which takes long."""
    engine, folder = ENGINES[options.engine], options.checkpoint
    if options.kv_cache_dtype != "auto" and engine.fp8 is None:
        raise WrongCommandLine(f"{engine.title} has no option for the dtype of its cache: --kv-cache-dtype {options.kv_cache_dtype}")
    if options.scales and not engine.reads_scales_file:
        raise WrongCommandLine(f"{engine.title} has no option for a file of scales: --scales {options.scales}")
    if not (folder / "config.json").is_file():
        raise CannotAsk(f"{folder}: found no config.json, expected the folder of a checkpoint")
    if not any(folder.glob("*.safetensors")):
        raise CannotAsk(f"{folder}: found no *.safetensors file")


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
        lines += [f"  {line}" for line in differences(wanted, seen, options.verbose)]
    if answer == "16-bit" and options.kv_cache_dtype == "auto" and ENGINES[options.engine].fp8:
        lines.append("  --kv-cache-dtype fp8 asks for an FP8 cache")
    if seen.get("dropped"):
        more = len(seen["dropped"]) - 1
        lines.append(f"  dropped: {seen['dropped'][0]}" + (f" and {counted(more, 'more scale')}" if more else ""))
    lines += [f"  its warning: {warning}" for warning in seen["warnings"]]
    return "\n".join(lines + [f"  stood in: {one}" for one in seen["stood_in"] if options.verbose])


def main(words: list[str] | None = None) -> int:
    try:
        options = parsed(words)
        check(options)
        wanted = read_wanted(options)
        seen = ask(options.engine, options.checkpoint.resolve(), job_of(options), options.verbose)
    except WrongCommandLine as error:
        print(f"error: {error}\nRun with --help for usage.", file=sys.stderr)
        return USAGE
    except CannotAsk as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_LOADED
    answer = verdict(wanted, seen)
    print(report(options, wanted, seen, answer))
    return LOADED if is_loaded(answer) else NOT_LOADED


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what engines started does not end
