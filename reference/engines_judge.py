"""What the engines_*.py judges share: the loop over checkpoint folders, in one process that holds the engine.

usage of a judge: engines_ENGINE.py --jobs JOBS.json OUT.jsonl
HOLLOW_TENSORS=N in the environment: tensors of more than N elements have no memory, as in `python -m kvcal.check_engine`. Its answers are the same.
JOBS.json: [{"name", "folder", or "made", of which engines_names.py or, with a "case", engines_fused.py makes a folder, "kv_cache_dtype" (default "auto"),
  "scales" (a kv_cache_scales.json, or absent), "base" (the job of the model without scales; default: NAME/base of NAME/...)}].
OUT.jsonl, a line a job, in the order of JOBS, written as soon as it is known:
  {"name", "engine", "version", "loads": true, "cache_dtype", "layers": {"0": {"k", "v"}}, "warnings": [...]}
  {"name", "engine", "version", "loads": false, "why": "KeyError: ... (gemma.py:407)", "warnings": [...]}
k and v: a number, or a list where they are of heads; null where the attention has no scale and so 1.0. Lines that OUT.jsonl has
already are not asked again, so a judge that died is started again for the rest. Where a job's base does not load, it gets the base's answer.
"""
import contextlib
import importlib
import json
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "python" / "kvcal"))  # check_engine, which asks the engine that is installed

from check_engine.common import Absent, Heard, absent, attention_processing, forget_model, free_port, know_config, number, numbers, refusal  # noqa: F401  others import them from here

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


def in_hollow_tensors(observe):
    from check_engine.hollow import hollow_tensors  # imports torch, before which engines set their environment

    def observed(folder, job):
        with hollow_tensors(int(os.environ["HOLLOW_TENSORS"])):
            return observe(folder, job)

    return observed


class NoModel(Exception):
    """The engine refused the model without scales, the job NAME/base, so it is not asked for the others of NAME."""


def folder_of(job):
    if "made" in job:
        maker = importlib.import_module("engines_fused" if "case" in job["made"] else "engines_names")
        return maker.checkpoint(job["made"])
    return contextlib.nullcontext(job["folder"])


def judge(jobs_path, out_path, engine, version, package, observe):
    """observe(folder, job) gives {"cache_dtype", "layers"}, or raises what the engine refuses with."""
    jobs = json.load(open(jobs_path))
    done = {seen["name"]: seen for seen in map(json.loads, open(out_path))} if os.path.exists(out_path) else {}
    heard = Heard(engine, package)
    if "HOLLOW_TENSORS" in os.environ:
        observe = in_hollow_tensors(observe)
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
