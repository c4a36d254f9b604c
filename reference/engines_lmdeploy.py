#!/usr/bin/env python3
"""engines_lmdeploy.py --jobs JOBS.json OUT.jsonl

What LMDeploy's PyTorch engine holds after it loaded a checkpoint: the k_scale and v_scale of every Attention, or what it refused with;
folders as engines_judge.py says. python/kvcal/check_engine/lmdeploy.py says what of LMDeploy runs, and what stands in.

Reference: lmdeploy 0.18.0 (--no-deps) with fire, mmengine-lite, shortuuid and accelerate in the environment of engines_sglang.py. Run
with that environment's python.
"""
import os
import sys

from engines_judge import judge  # first: it finds check_engine
from check_engine.lmdeploy import Attention, lmdeploy, load, observe, start  # noqa: F401  Attention and load are for others

if __name__ == "__main__":
    start()
    judge(*sys.argv[2:4], "lmdeploy", lmdeploy.__version__, "lmdeploy", observe)
    sys.stdout.flush()
    os._exit(0)
