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

import os
from collections.abc import Iterable, Sequence
from typing import Any, Union

from . import _kvcal
from ._call import CheckFailed, Data, KvcalWarning, Progress, data_of, run
from ._kvcal import Error
from ._results import EngineAnswer, Folder, Output, SweepResults, Verification, output_of
from ._session import Session, SessionInfo
from ._statistics import Histograms, LayerStatistics, histogram_edges, layer_statistics, load_statistics

__version__: str = _kvcal.version

Path = Union[str, "os.PathLike[str]"]
Names = Union[str, Sequence[str]]
Layers = Union[int, Sequence[int]]

__all__ = [
    "CheckFailed", "EngineAnswer", "Error", "Folder", "Histograms", "KvcalWarning", "LayerStatistics", "Output",
    "Session", "SessionInfo", "SweepResults", "Verification", "apply", "calibrate", "convert", "evaluate", "histogram_edges", "inspect",
    "layer_statistics", "load_statistics", "scales", "sweep", "verify",
]  # fmt: skip


def calibrate(
    model: Path,
    *,
    output: Path,
    recipe: Path | None = None,
    dataset: Data | None = None,
    text_column: str | None = None,
    prompt_column: str | None = None,
    response_column: str | None = None,
    messages_column: str | None = None,
    max_record_bytes: int | None = None,
    chat_template: Path | None = None,
    chat_template_kwargs: dict[str, Any] | None = None,
    skip_bad_records: int | float | str | None = None,
    num_samples: int | None = None,
    max_seq_length: int | None = None,
    shuffle_seed: int | None = None,
    format: Names | None = None,
    engine: Names | None = None,
    kv_cache_dtype: str | None = None,
    scale_dtype: str | None = None,
    tp_size: int | None = None,
    scales_only: bool = False,
    overwrite: bool = False,
    measure: bool = False,
    measure_sequences: int | None = None,
    kl_budget: float | None = None,
    kv_cache_dtype_skip_layers: Layers | None = None,
    save_statistics: Path | None = None,
    kv_forward: str | None = None,
    headroom: float | None = None,
    smooth: bool = False,
    moe_all_experts: bool = False,
    no_mtp: bool = False,
    stop_when_stable: float | str | None = None,
    stable_samples: int | None = None,
    state: Path | None = None,
    resume: bool = False,
    reproducible: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    device: str | None = None,
    compute_dtype: str | None = None,
    inputs: str | None = None,
    threads: int | None = None,
    batch_tokens: int | None = None,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> Output:
    """Runs data through the model, makes scales as the recipe says and writes the checkpoint.

    recipe: a file or a name; default: `fp8_kv_tensor`. dataset: a path, a name or an id of the hub; or an iterable of
    texts, conversations (lists of {"role", "content"}), lists of token ids, or records as JSON lines have them;
    default: the texts of the program. text_column and the others: columns of a data set whose records are not
    recognized. num_samples: how many are used at most. format: one or several of the program's
    formats; engine: engines that must use the scales, instead of a format. measure: also measures KL and perplexity.
    kl_budget: leaves the fewest layers in 16 bits that keep the mean KL within it, else raises `Error` and writes nothing.
    smooth: rewrites the weights first, of the same function, so that an fp8_e4m3 cache loses less of K. The other arguments are the options of `kvcal calibrate`.
    """
    arguments = dict(locals())
    data = arguments.pop("dataset")
    if data is not None and not isinstance(data, (str, os.PathLike)):
        arguments["dataset_name"] = "in memory"
    with data_of(data, arguments):
        return run("calibrate", arguments, output_of)


def scales(
    statistics: Path,
    *,
    recipe: Path | None = None,
    model: Path | None = None,
    output: Path | None = None,
    format: Names | None = None,
    engine: Names | None = None,
    kv_cache_dtype: str | None = None,
    scale_dtype: str | None = None,
    headroom: float | None = None,
    tp_size: int | None = None,
    scales_only: bool = False,
    overwrite: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    progress: Progress | None = None,
) -> Output:
    """Makes the scales of a recipe from statistics that `calibrate(save_statistics=...)` kept, without a forward pass.

    With `model` and `output` it writes the checkpoint, else the manifest alone is returned.
    """
    return run("scales", dict(locals()), output_of)


def convert(
    checkpoint: Path,
    *,
    output: Path,
    format: Names | None = None,
    engine: Names | None = None,
    scales: Path | None = None,
    strategy: str | None = None,
    fp8_dialect: str | None = None,
    tp_size: int | None = None,
    scales_only: bool = False,
    overwrite: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    progress: Progress | None = None,
) -> Output:
    """Writes a checkpoint's KV scales, and its FP8 weights, in other formats: `format`, or those that `engine` reads."""
    return run("convert", dict(locals()), output_of)


def apply(
    overlay: Path,
    checkpoint: Path,
    *,
    output: Path,
    overwrite: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    progress: Progress | None = None,
) -> Output:
    """Puts an overlay, which `scales_only=True` wrote, on a checkpoint of the same model."""
    return run("apply", dict(locals()), output_of)


def inspect(
    checkpoint: Path, *, tensors: bool = False, family: str | None = None, family_file: Path | None = None
) -> dict[str, Any]:
    """Architecture, sizes, scales and support of a checkpoint, as `kvcal inspect --json` prints them.

    tensors: also lists every tensor. `layer_statistics` makes arrays of the layers.
    """
    return run("inspect", dict(locals()), dict)


def verify(
    checkpoint: Path,
    *,
    engine: Names = "all",
    kv_cache_dtype: str | None = None,
    kv_cache_dtype_skip_layers: Layers | None = None,
    rocm: bool = False,
    tp_size: int | None = None,
    scales: Path | None = None,
    allow_16_bit: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
) -> Verification:
    """Tells which KV scales serving engines would load. Raises `CheckFailed` where one would lose or lack them."""
    return run("verify", dict(locals()), lambda answer: Verification(**answer))


def evaluate(
    model: Path,
    *,
    task: str,
    dataset: Data,
    text_column: str | None = None,
    prompt_column: str | None = None,
    response_column: str | None = None,
    messages_column: str | None = None,
    max_record_bytes: int | None = None,
    chat_template: Path | None = None,
    chat_template_kwargs: dict[str, Any] | None = None,
    skip_bad_records: int | float | str | None = None,
    kv_cache_dtype: str | None = None,
    scales: Path | None = None,
    unit_scales: bool = False,
    kv_cache_dtype_skip_layers: Layers | None = None,
    variants: Names | None = None,
    num_samples: int | None = None,
    max_seq_length: int | None = None,
    stride: int | None = None,
    reference: Path | None = None,
    reference_kv_cache_dtype: str | None = None,
    per_layer: bool | None = None,
    max_kl: float | None = None,
    max_perplexity_increase: float | str | None = None,
    min_top1: float | str | None = None,
    kl_budget: float | None = None,
    fewshot_dataset: Data | None = None,
    num_fewshot: int | None = None,
    limit: int | None = None,
    max_gen_toks: int | None = None,
    add_bos_token: bool | None = None,
    apply_chat_template: bool | None = None,
    fewshot_as_multiturn: bool | None = None,
    batch_size: int | None = None,
    cache_memory: int | str | None = None,
    min_exact_match: float | str | None = None,
    min_exact_match_flexible: float | str | None = None,
    allow_16_bit: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    device: str | None = None,
    compute_dtype: str | None = None,
    inputs: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measures what a cache dtype, scales or FP8 weights do to a model's predictions, as `kvcal eval --json` prints it.

    task: "perplexity", "kl", "sensitivity" or "gsm8k". Raises `CheckFailed` where a gate (`max_kl`, `min_top1`, ...) is
    missed. Of `sensitivity`, "recipe" is the text of the recipe that stays within `kl_budget`.
    """
    arguments = dict(locals())
    data, fewshot = arguments.pop("dataset"), arguments.pop("fewshot_dataset")

    def evaluation(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer["evaluation"], **({"recipe": answer["recipe"]} if answer.get("recipe") else {})}

    with data_of(data, arguments), data_of(fewshot, arguments, "fewshot_dataset"):
        return run("evaluate", arguments, evaluation)


def sweep(
    file: Path,
    *,
    output: Path | None = None,
    cells: Iterable[str] | None = None,
    jobs: int | None = None,
    dry_run: bool = False,
    family: str | None = None,
    family_file: Path | None = None,
    device: str | None = None,
    compute_dtype: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SweepResults:
    """Measures the grid of a YAML file. With the same output it goes on where it was stopped.

    Tasks run in processes of their own, so that a crash of one leaves the others alone; progress counts tasks. dry_run:
    `results` has the plan with its time and memory. Raises `CheckFailed` where cells failed.
    """
    arguments = dict(locals())
    arguments["cells"] = None if cells is None else list(cells)
    arguments["program"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kvcal")

    def results(answer: dict[str, Any]) -> SweepResults:
        return SweepResults(answer, []) if dry_run else SweepResults(**answer)

    return run("sweep", arguments, results)
