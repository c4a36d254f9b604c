"""What the engines_*.py judges share: the loop over checkpoint folders, in one process that holds the engine.

usage of a judge: engines_ENGINE.py --jobs JOBS.json OUT.jsonl
JOBS.json: [{"name", "folder", or "made", of which engines_names.py makes a folder, "kv_cache_dtype" (default "auto"),
  "scales" (a kv_cache_scales.json, or absent), "base" (the job of the model without scales; default: NAME/base of NAME/...)}].
OUT.jsonl, a line a job, in the order of JOBS, written as soon as it is known:
  {"name", "engine", "version", "loads": true, "cache_dtype", "layers": {"0": {"k", "v"}}, "warnings": [...]}
  {"name", "engine", "version", "loads": false, "why": "KeyError: ... (gemma.py:407)", "warnings": [...]}
k and v: a number, or a list where they are of heads; null where the attention has no scale and so 1.0. Lines that OUT.jsonl has
already are not asked again, so a judge that died is started again for the rest. Where a job's base does not load, it gets the base's answer.
"""
import contextlib
import gc
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

MUTED = re.compile(r"LOAD REPORT|Ignore import error|Acceleration for non-quantized|is deprecated|Cuda graph|CUDA|cuda|tokenizer|torch_dtype|AMX|amx|rope|Triton|triton|attention backend|"
                   r"shared memory|random port|overlap|page_size|radix|context length|mem_fraction|generation_config|max_model_len|"
                   r"DEPRECATED: |compute capability|NUMA|Chunked|chunked|prefix cach|eager|graph|piecewise|multimodal|downcast|Downcast")


class Absent:
    """A name of a module that is not here."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *_, **__):
        raise RuntimeError(f"{self.__name__} was called, which is not here")


class AbsentModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, *_):
        here = any(name == known or name.startswith(known + ".") for known in self.names)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if here else None

    def create_module(self, spec):
        module = AbsentModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def absent(*names):
    """Modules of nothing stand for these from now on."""
    sys.meta_path.insert(0, AbsentModules(names))


class Heard(logging.Handler):
    """Warnings that an engine gave, without those of its start."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        text = " ".join(record.getMessage().split())
        if not MUTED.search(text) and text not in self.said:
            self.said.append(text)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def know_config(folder, remote=()):
    """config.json; where a model_type's configuration class is remote code, a plain one of the keys is made known to transformers. So it is
    for the types of remote, whose class of transformers --trust-remote-code passes over."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
    config = json.load(open(os.path.join(folder, "config.json")))
    if "auto_map" in config and (config["model_type"] in remote or config["model_type"] not in CONFIG_MAPPING):
        keys = {key: config[key] for key in ("model_type", "max_position_embeddings")}  # RoPE's are looked at before keys are set
        if "num_hidden_layers" not in config:  # exaone
            keys["attribute_map"] = {"num_hidden_layers": "num_layers"}
        AutoConfig.register(config["model_type"], type("Config", (PretrainedConfig,), keys), exist_ok=True)
    return config


# Names of weights that fixtures have not as published checkpoints do: of parts that see, hear or draw, and norms of K in layers that read another one's cache.
OTHER_PARTS = re.compile(r"vision|visual|image|audio|video|projector|vqmodel|generation_|whisper|embed_tokens_extend|qformer")
NOT_IN_FIXTURES = re.compile(OTHER_PARTS.pattern + r"|\.self_attn\.k_norm\.weight$")


def pass_over_other_parts(loader):
    """Of DefaultModelLoader in vLLM and engines of its code: its check that files had all weights does not ask for those."""
    track = loader.track_weights_loading

    def track_others(self, model, loaded_weights, **named):
        if loaded_weights is not None:
            loaded_weights |= {name for name, _ in model.named_parameters() if NOT_IN_FIXTURES.search(name)}
        return track(self, model, loaded_weights, **named)

    loader.track_weights_loading = track_others


def refusal(error, folder, package):
    """The error, and the last line of the engine that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"/{package}/" in frame.filename]
    at = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).replace(folder, "MODEL").split())
    text = text.partition(" The available parameters")[0]  # a set, which is in another order each time
    return f"{type(error).__name__}: {text}"[:260] + at


def forget_model():
    """Frees the model before. Collections need not look at what is left then, which imports made, also those of models' files: it is most of what there is."""
    gc.collect()
    gc.freeze()


def numbers(tensor):
    values = [number(x) for x in tensor.detach().float().flatten().tolist()]
    return values[0] if len(values) == 1 else values


def number(x):
    """JSON has no word for these."""
    return "nan" if x != x else {math.inf: "inf", -math.inf: "-inf"}.get(x, x)


class NoModel(Exception):
    """The engine refused the model without scales, the job NAME/base, so it is not asked for the others of NAME."""


def folder_of(job):
    if "made" in job:
        from engines_names import checkpoint
        return checkpoint(job["made"])
    return contextlib.nullcontext(job["folder"])


def judge(jobs_path, out_path, engine, version, package, observe):
    """observe(folder, job) gives {"cache_dtype", "layers"}, or raises what the engine refuses with."""
    jobs = json.load(open(jobs_path))
    done = {seen["name"]: seen for seen in map(json.loads, open(out_path))} if os.path.exists(out_path) else {}
    heard = Heard()
    logging.getLogger().addHandler(heard)
    for name in (engine, package):
        logging.getLogger(name).addHandler(heard)
    forget_model()
    for job in jobs:
        if job["name"] in done:
            continue
        heard.said = []
        seen = {"name": job["name"], "engine": engine, "version": version}
        base = done.get(job.get("base", job["name"].rpartition("/")[0] + "/base"), {"loads": True})
        with folder_of(job) as folder:
            try:
                if not base["loads"]:
                    raise NoModel
                seen |= {"loads": True} | observe(folder, job)
            except NoModel:
                seen |= {"loads": False, "why": base["why"]}
            except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
                seen |= {"loads": False, "why": refusal(error, folder, package)}
        seen["warnings"] = [text.replace(folder, "MODEL")[:260] for text in heard.said][:6]
        done[seen["name"]] = seen
        with open(out_path, "a") as file:
            file.write(json.dumps(seen) + "\n")
