"""One question to the engine that is installed here."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from . import ENGINES
from .checkpoint import hollow_copy
from .common import ABSENT, Heard, forget_model, refusal


class CannotAsk(Exception):
    """The engine, or the question, is not one that can be asked here."""


def hide_gpus() -> None:
    """Engines run on the CPU: the answer is the same on every machine, and no GPU's memory is taken."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        os.environ[name] = ""


def started(name: str) -> tuple[ModuleType, str]:
    """The engine's file of this folder, with its stand-ins in place, and the version that is installed."""
    engine = ENGINES[name]
    if importlib.util.find_spec(engine.package) is None:
        raise CannotAsk(f"{engine.title} is not installed in {sys.executable}: found no package {engine.package!r}; run the Python that serves with "
                        f"{engine.title}, or {engine.install}")  # fmt: skip
    hide_gpus()
    try:
        file = importlib.import_module(f"{__package__}.{name}")
        version = file.start().__version__
    except Exception as error:  # an engine that is half installed, or is not made as this file knows it
        raise CannotAsk(f"{engine.title} does not start here: {type(error).__name__}: {error}; check_engine was run with {engine.title} "
                        f"{engine.run_with}") from error  # fmt: skip
    return file, version


def is_of_here(error: BaseException) -> bool:
    """Whether what stands in for a GPU is the reason, which says nothing of the checkpoint."""
    chain = [error, error.__cause__, error.__context__]
    return any(one is not None and (ABSENT in str(one) or isinstance(one, (MemoryError, ModuleNotFoundError))) for one in chain)


@contextlib.contextmanager
def unheard(is_verbose: bool) -> Iterator[None]:
    """What the engine prints goes to stderr, or nowhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as nowhere:
        if not is_verbose:
            os.dup2(nowhere.fileno(), 2)
        os.dup2(2, 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, old in zip((1, 2), kept):
                os.dup2(old, descriptor)
                os.close(old)


def ask(name: str, folder: Path, job: dict[str, Any], is_verbose: bool = False) -> dict[str, Any]:
    """{"version", "stood_in", "warnings"} and, where it loads, {"loads": True, "cache_dtype", "layers": {layer: {"k", "v"}}, "dropped": names of
    scales that no module took, of an engine that says so}; else {"loads": False,
    "why", "is_unknown": whether a stand-in is the reason, "has_model": whether it loads without the scales}. job: {"kv_cache_dtype", "scales"}, of which the second may be absent."""
    with unheard(is_verbose):
        file, version = started(name)
        heard = Heard(name, ENGINES[name].package)
        with tempfile.TemporaryDirectory() as scratch:
            home = Path(os.path.realpath(scratch))
            seen = observed(file, name, folder, home / "model", job)
            warnings = heard.about(str(home / "model"))
            if not seen["loads"] and not seen["is_unknown"]:
                base = observed(file, name, folder, home / "base", {"kv_cache_dtype": "auto"}, has_scales=False)
                seen |= {"has_model": base["loads"]}
    return seen | {"version": version, "stood_in": list(file.STOOD_IN), "warnings": warnings}


def observed(file: ModuleType, name: str, source: Path, folder: Path, job: dict[str, Any], has_scales: bool = True) -> dict[str, Any]:
    from .hollow import hollow_tensors

    hollow_copy(source, folder, has_scales)
    forget_model()
    try:
        with hollow_tensors():
            seen = file.observe(str(folder), job)
        return {"loads": True, "cache_dtype": seen["cache_dtype"], "layers": {int(layer): sides for layer, sides in seen["layers"].items()},
                "dropped": seen.get("dropped", [])}  # fmt: skip
    except (Exception, SystemExit) as error:  # whatever it refuses with is the finding
        why = refusal(error, str(folder), ENGINES[name].package)
        return {"loads": False, "why": why, "is_unknown": is_of_here(error)}
