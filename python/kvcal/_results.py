"""Values that calls return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Folder:
    """A folder of an output: its format, as `format=` names it."""

    format: str
    path: Path
    is_overlay: bool = False  #: scales without weights (`scales_only`)


@dataclass(frozen=True)
class EngineAnswer:
    """What becomes of an output's KV scales in a serving engine, as `--json` has it."""

    name: str  #: "vllm"
    title: str  #: "vLLM 0.32"
    verdict: str  #: "loaded", "not known", "lost" or "refused"
    command: str | None = None  #: that serves it, where they are loaded
    reason: str | None = None  #: where they are not


@dataclass(frozen=True)
class Output:
    """What `calibrate`, `scales`, `convert` and `apply` made."""

    manifest: dict[str, Any]  #: the content of kvcal_manifest.json
    folders: list[Folder]  #: empty where nothing was written
    engines: list[EngineAnswer]
    measured: dict[str, Any] | None = None  #: of `calibrate(measure=True)`
    losses: list[dict[str, Any]] = field(default_factory=list)  #: of `convert`: octaves lost, by format and layer

    @property
    def path(self) -> Path:
        """The folder of the only or first format."""
        if not self.folders:
            raise ValueError("nothing was written: the call had no output")
        return self.folders[0].path


@dataclass(frozen=True)
class Verification:
    """What serving engines make of a checkpoint's KV scales."""

    reports: list[dict[str, Any]]  #: one an engine, as `kvcal verify --json` prints it
    holding: list[str]  #: engines that use the scales
    idle: list[str]  #: engines that load them beside a cache of 16 bits
    unknown: list[str]  #: engines that were not run with such models


@dataclass(frozen=True)
class SweepResults:
    """A sweep's cells and their numbers."""

    results: dict[str, Any] | None  #: the content of results.json; None where `cells` named some
    failed: list[str]  #: ids of cells that failed


def output_of(answer: dict[str, Any]) -> Output:
    return Output(
        manifest=answer["manifest"],
        folders=[Folder(one["format"], Path(one["path"]), one["is_overlay"]) for one in answer["folders"]],
        engines=[EngineAnswer(**one) for one in answer["engines"]],
        measured=answer.get("measured"),
        losses=answer.get("losses", []),
    )
