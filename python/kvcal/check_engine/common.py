"""What the engines' files share: modules that stand for absent ones, replaced parts of engines, their warnings and errors, configurations."""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import math
import os
import re
import socket
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

#: Of an engine's warnings, those of its start.
MUTED = re.compile(r"LOAD REPORT|Ignore import error|Acceleration for non-quantized|is deprecated|Cuda graph|CUDA|cuda|tokenizer|torch_dtype|AMX|amx|rope|Triton|triton|attention backend|"
                   r"shared memory|random port|overlap|page_size|radix|context length|mem_fraction|generation_config|max_model_len|"
                   r"DEPRECATED: |For higher performance|compute capability|NUMA|Chunked|chunked|prefix cach|eager|graph|piecewise|multimodal|downcast|Downcast")  # fmt: skip
ABSENT = "which is not here"


class Absent:
    """A name of a module that is not here."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __getitem__(self, _: Any) -> Any:  # where it is a type in a signature
        return self

    __or__ = __ror__ = __getitem__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:  # where it is the class of another one
        return ()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self.__name__} was called, {ABSENT}")


class NoStream:
    """Of a GPU; some models make one for each layer."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        here = any(name == known or name.startswith(known + ".") for known in self.names)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if here else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> AbsentModule:
        module = AbsentModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def absent(*names: str) -> None:
    """Modules of nothing stand for these from now on."""
    sys.meta_path.insert(0, AbsentModules(names))


def undecorated(function: Any = None, **_: Any) -> Any:
    """For decorators that compile, of modules that are not here."""
    return undecorated if function is None else function


def replace(place: str, make: Callable[[Any], Any]) -> bool:
    """place: "module:Class.name". What stands there becomes make(what stands there). Versions that have no such place are left as they are."""
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    try:
        owner = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        old = getattr(owner, name)
    except (ImportError, AttributeError):
        return False
    setattr(owner, name, make(old))
    return True


def put(place: str, value: Any) -> bool:
    return replace(place, lambda _: value)


def set_environment(**values: str) -> None:
    """Before an engine is imported; what the user has set stays."""
    for key, value in values.items():
        os.environ.setdefault(key, value)


def attention_processing(attention: type, cache_method: type) -> Callable[[Any, Any, Any], None]:
    """As process_weights_after_loading of vLLM and engines of its code, of what holds KV scales. attention, cache_method: the engine's classes."""

    def process(model: Any, model_config: Any, _: Any) -> None:
        layers = [layer for layer in model.modules() if hasattr(layer, "kv_cache_dtype")]
        for layer in layers:
            if isinstance(getattr(layer, "quant_method", None), cache_method):
                layer.quant_method.process_weights_after_loading(layer)
        for layer in layers:
            if isinstance(layer, attention):
                layer.process_weights_after_loading(model_config.dtype)

    return process


class Heard(logging.Handler):
    """Warnings that an engine gave, without those of its start."""

    def __init__(self, *loggers: str) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        for name in ("", *loggers):
            logging.getLogger(name or None).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        if not MUTED.search(text) and text not in self.said:
            self.said.append(text)

    def about(self, folder: str) -> list[str]:
        return [text.replace(folder, "MODEL")[:260] for text in self.said][:6]


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def know_config(folder: str, remote: tuple[str, ...] = ()) -> dict[str, Any]:
    """config.json; where a model_type's configuration class is remote code, a plain one of the keys is made known to transformers. So it is
    for the types of remote, whose class of transformers --trust-remote-code passes over."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

    with open(os.path.join(folder, "config.json")) as file:
        config: dict[str, Any] = json.load(file)
    if "auto_map" in config and (config["model_type"] in remote or config["model_type"] not in CONFIG_MAPPING):
        keys = {key: config[key] for key in ("model_type", "max_position_embeddings")}  # RoPE's are looked at before keys are set
        if "num_hidden_layers" not in config:  # exaone
            keys["attribute_map"] = {"num_hidden_layers": "num_layers"}
        AutoConfig.register(config["model_type"], type("Config", (PretrainedConfig,), keys), exist_ok=True)
    return config


def layer_of(module_name: str) -> int:
    found = re.search(r"\.(?:layers|h)\.(\d+)\.", "." + module_name + ".")
    return int(found[1])  # type: ignore[index]


def refusal(error: BaseException, folder: str, package: str) -> str:
    """The error, and the last line of the engine that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"/{package}/" in frame.filename]
    at = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).replace(folder, "MODEL").split())
    text = text.partition(" The available parameters")[0]  # a set, which is in another order each time
    return f"{type(error).__name__}: {text}"[:260] + at


def forget_model() -> None:
    """Frees the model before. Collections need not look at what is left then, which imports made, also those of models' files: it is most of what there is."""
    gc.collect()
    gc.freeze()


def numbers(tensor: Any) -> Any:
    values = [number(x) for x in tensor.detach().float().flatten().tolist()]
    return values[0] if len(values) == 1 else values


def number(x: float) -> float | str:
    """JSON has no word for these."""
    return "nan" if x != x else {math.inf: "inf", -math.inf: "-inf"}.get(x, x)
