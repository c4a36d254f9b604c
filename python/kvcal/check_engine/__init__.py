"""`python -m kvcal.check_engine ENGINE CHECKPOINT`: whether the serving engine that is installed here takes a checkpoint's KV scales.

The engine's own code reads the checkpoint's configuration, builds the model and loads the tensors, on a CPU. No weight is read and none is
allocated (`hollow`), so a model of any size fits. What stands in for a GPU is said by each engine's file, and in the answer.
Nothing here needs the compiled module of kvcal: where the folder `kvcal` is on the path, `check_engine` is a package of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """What is said of an engine before it is imported. Its file of this folder has `start()`, which imports it, puts the stand-ins and returns its
    version, `STOOD_IN`, sentences about these, and `observe(folder, job)`, as `asking.py` says."""

    title: str
    #: Its package in Python, and what installs it.
    package: str
    install: str
    #: The versions that its file was run with; others are asked the same way, and an error names these.
    run_with: str
    #: Its word for the usual FP8 cache; None where the engine has no option for the cache's dtype.
    fp8: str | None
    #: Whether it has an option for a kv_cache_scales.json.
    reads_scales_file: bool = False


ENGINES: dict[str, Engine] = {
    "vllm": Engine("vLLM", "vllm", "pip install vllm", "0.32 and 0.33", "fp8"),
    "sglang": Engine("SGLang", "sglang", "pip install sglang", "0.5.23", "fp8_e4m3", reads_scales_file=True),
    "transformers": Engine("transformers", "transformers", "pip install torch transformers compressed-tensors accelerate", "5.17 to 5.24", None),
    "lmdeploy": Engine("LMDeploy", "lmdeploy", "pip install lmdeploy", "0.18", "fp8"),
}
