"""Calls of the library: arguments to JSON, events to callbacks, problems to exceptions."""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Union

from . import _kvcal
from ._kvcal import Error
from ._results import SweepResults, Verification, output_of

Progress = Callable[[str, int, int, str], None]
Path = Union[str, "os.PathLike[str]"]
Names = Union[str, Iterable[str]]
Layers = Union[int, Sequence[int]]
Data = Union[Path, Iterable[Any]]

#: The program, which lies in the package.
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kvcal")

_log = logging.getLogger("kvcal")


class CheckFailed(Error):
    """The work was done, and its result fails a check: a gate, an engine that would lose scales, a cell of a sweep.

    `result` is what the call would have returned.
    """

    result: Any = None


class KvcalWarning(UserWarning):
    """Something that the user should know; the work goes on."""


def _caller_level() -> int:
    """The `stacklevel` of warnings for the first frame outside this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


def reporter(progress: Progress | None) -> Callable[[str, str, int, int, str], None]:
    def report(kind: str, text: str, done: int, total: int, unit: str) -> None:
        if kind == "warning":
            warnings.warn(text, KvcalWarning, stacklevel=_caller_level())
        elif kind == "note":
            _log.info("%s", text)
        elif progress is not None:
            progress(text, done, total, unit)

    return report


_RESULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "eval": dict,
    "inspect": dict,
    "sweep": lambda answer: SweepResults(**answer),
    "verify": lambda answer: Verification(**answer),
}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)):
        return [_plain(item) for item in value]
    return value


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not None, as JSON has them."""
    return {name: _plain(value) for name, value in arguments.items() if value is not None}


def call(command: str, arguments: dict[str, Any]) -> Any:
    """The value of a command; data sets that are in memory are files for as long as it runs."""
    report = reporter(arguments.pop("progress"))
    if command == "sweep":
        arguments["program"] = PROGRAM
    with contextlib.ExitStack() as files:
        if command == "calibrate":
            _give_images(arguments, files)
        for name in {"dataset", "fewshot_dataset"} & arguments.keys():
            if arguments[name] is not None and not isinstance(arguments[name], (str, os.PathLike)):
                arguments[name] = files.enter_context(_file_of(arguments[name], name))
                if command == "calibrate":
                    arguments["dataset_name"] = "in memory"
        answer = json.loads(_kvcal.run(command, json.dumps(given(arguments)), report))
    problem = answer.pop("problem", None)
    result = _RESULTS.get(command, output_of)(answer)
    if problem is not None:
        failure = CheckFailed(problem)
        failure.result = result
        raise failure
    return result


def _give_images(arguments: dict[str, Any], files: contextlib.ExitStack) -> None:
    """Makes samples with images, where the call gives pictures or arrays of rows, the data set."""
    pictures, data = arguments.pop("images", None), arguments.get("dataset")
    if data is not None and not isinstance(data, (str, os.PathLike, Mapping)):
        arguments["dataset"] = data = list(data)
    holds_rows = isinstance(data, list) and bool(data) and isinstance(data[0], Mapping) and "embeddings" in data[0]
    if pictures is None and not holds_rows:
        return
    if pictures is not None and data is not None:
        raise Error("images and dataset: found both, expected one; records of text may lie among those of pictures")
    from .images.__main__ import make
    from .images.errors import BadInput
    from .images.memory import write_samples

    model = pathlib.Path(arguments["model"])
    samples = pathlib.Path(files.enter_context(tempfile.TemporaryDirectory(prefix="kvcal-"))) / "samples"
    try:
        if pictures is None:
            write_samples(data, model, samples)
        else:
            make(model, pathlib.Path(pictures), samples, num_samples=arguments.get("num_samples"))
    except BadInput as error:
        raise Error(str(error)) from error
    arguments["dataset"] = str(samples)
    arguments["dataset_name"] = "in memory" if pictures is None else os.fspath(pictures)


def _record(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, Mapping):
        return dict(item)
    items = list(item)
    if all(isinstance(one, Mapping) for one in items):
        return {"messages": [dict(one) for one in items]}
    return {"input_ids": [operator.index(one) for one in items]}  # int would cut 1.7 to 1


@contextlib.contextmanager
def _file_of(records: Iterable[Any], name: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kvcal-") as folder:
        path = os.path.join(folder, name + ".jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for item in records:
                file.write(json.dumps(_record(item)) + "\n")
        yield path
