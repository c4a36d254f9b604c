#!/usr/bin/env python3
"""engines_sglang.py --jobs JOBS.json OUT.jsonl   or   engines_sglang.py [--habits] OUT.json [NAME...]

What SGLang holds after it loaded a checkpoint: k and v of the RadixAttention of every layer, the dtype of its cache, its warnings, or
what it refused with. First form: folders, as engines_judge.py says; second form: the variants of engines_variants.py.

python/kvcal/check_engine/sglang.py says what of SGLang runs, and what stands in. Weights of OTHER_TOWERS, which fixtures name otherwise than
published checkpoints, are not read.

Reference: sglang 0.5.23 with requirements-sglang.txt: python3 -m venv DIR; DIR/bin/pip install -r requirements-sglang.txt;
DIR/bin/pip install --no-deps sglang==0.5.23. Run with that environment's python.
"""
import os
import sys

from engines_judge import judge  # first: it finds check_engine
from check_engine.common import put, replace
from check_engine.sglang import forget_state, held, observe, run_model, sglang, start  # noqa: F401  some are for others

OTHER_TOWERS = {"kimi_k25": ("vision_tower.",), "kimi_k3": ("vision_tower.", "mm_projector.")}  # at which it stops


def without_other_towers(read):
    return lambda self, config, model: (one for one in read(self, config, model)
                                        if not one[0].startswith(OTHER_TOWERS.get(config.hf_config.model_type, ("-",))))


def stand_in_for_gpu():
    start()
    for tower in ("Vision", "Audio"):  # whose weights fixtures have not
        put(f"sglang.srt.models.dots3_common.dots_omni_towers:DotsNoteOmni{tower}Encoder.load_converted_state", lambda *_: None)
    replace("sglang.srt.model_loader.loader:DefaultModelLoader._get_all_weights", without_other_towers)


def observe_variant(folder, variant):
    told = variant.get("kv_cache_dtype", "auto")
    seen = observe(folder, {"kv_cache_dtype": "fp8_e4m3" if told == "fp8" else told})  # it has no plain fp8
    return seen | {"layers": [sides for _, sides in sorted(seen["layers"].items())]}


if __name__ == "__main__":
    stand_in_for_gpu()
    if sys.argv[1] == "--jobs":
        judge(*sys.argv[2:4], "sglang", sglang.__version__, "sglang", observe)
    else:
        from engines_variants import run
        run("sglang", sglang.__version__, observe_variant, skips=lambda variant: variant.get("rocm"))
    sys.stdout.flush()
    os._exit(0)
