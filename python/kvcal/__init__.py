"""FP8 checkpoints of 16-bit Hugging Face models, with calibrated scales of the KV cache.

Each function is a command of the program `kvcal`, with its options as keyword arguments, and runs in this process:

    import kvcal
    out = kvcal.calibrate("./Llama-3.2-1B-Instruct", output="./FP8-KV", dataset=["A text.", "Another."])
    kvcal.verify(out.path, engine="vllm")

Models are folders or ids of the Hugging Face hub. Errors are `kvcal.Error`; a result that fails a check is
`kvcal.CheckFailed`, which holds it. Ctrl-C stops a call at its next safe point and leaves no half-written output. The
GIL is free while a call works, and calls of several threads take turns, because each uses all processors. Warnings are
`kvcal.KvcalWarning`, notes go to the logger "kvcal". `progress(stage, done, total, unit)` is called in the caller's
thread, and an exception that leaves it stops the work.
"""

from __future__ import annotations

try:
    from . import _kvcal
except ImportError as error:
    raise ImportError(
        f"kvcal's compiled module _kvcal does not load from {__path__[0]} ({error}): this folder is not an installed "
        "package, or is one for another Python; install the wheel (docs/install.md) and import from outside the sources"
    ) from error
from ._call import CheckFailed, KvcalWarning
from ._commands import apply, calibrate, convert, evaluate, inspect, scales, sweep, verify
from ._kvcal import Error
from ._results import EngineAnswer, Folder, Output, SweepResults, Verification
from ._session import Session, SessionInfo
from ._statistics import Histograms, LayerStatistics, histogram_edges, layer_statistics, load_statistics

__version__: str = _kvcal.version

__all__ = [
    "CheckFailed", "EngineAnswer", "Error", "Folder", "Histograms", "KvcalWarning", "LayerStatistics", "Output",
    "Session", "SessionInfo", "SweepResults", "Verification", "apply", "calibrate", "convert", "evaluate", "histogram_edges", "inspect",
    "layer_statistics", "load_statistics", "scales", "sweep", "verify",
]  # fmt: skip

for _function in (apply, calibrate, convert, evaluate, inspect, scales, sweep, verify):
    _function.__module__ = __name__
