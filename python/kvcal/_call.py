"""Calls of the library: arguments to JSON, events to callbacks, problems to exceptions."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar, Union

from . import _kvcal
from ._kvcal import Error

Value = TypeVar("Value")
Progress = Callable[[str, int, int, str], None]
Data = Union[str, "os.PathLike[str]", Iterable[Any]]

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


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not None, as JSON has them."""
    return {name: _plain(value) for name, value in arguments.items() if value is not None}


def run(command: str, arguments: dict[str, Any], make: Callable[[dict[str, Any]], Value]) -> Value:
    """Runs a command; `make` makes the call's value of its answer."""
    progress = arguments.pop("progress", None)
    answer = json.loads(_kvcal.run(command, json.dumps(given(arguments)), reporter(progress)))
    problem = answer.pop("problem", None)
    result = make(answer)
    if problem is not None:
        failure = CheckFailed(problem)
        failure.result = result
        raise failure
    return result


def _record(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, Mapping):
        return dict(item)
    items = list(item)
    if all(isinstance(one, Mapping) for one in items):
        return {"messages": [dict(one) for one in items]}
    return {"input_ids": [int(one) for one in items]}


@contextlib.contextmanager
def data_of(dataset: Data | None, arguments: dict[str, Any], name: str = "dataset") -> Iterator[None]:
    """Puts the data set into the arguments; one that is in memory is a file for as long as the call runs."""
    if dataset is None or isinstance(dataset, (str, os.PathLike)):
        arguments[name] = dataset
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kvcal-") as folder:
        path = os.path.join(folder, name + ".jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for item in dataset:
                file.write(json.dumps(_record(item)) + "\n")
        arguments[name] = path
        yield
