#!/usr/bin/env python3
"""One timed run of a peer in a process of its own; prints one line of JSON. Started by against_peers.py with the peer's Python.

usage: peer_runs.py transformers|vllm|oneshot SETTINGS
SETTINGS is JSON: model, samples, threads, what the function of that name takes, and tokens, a file {"ids": [[...], ...]}, or
dataset, JSON lines with "messages" or "text", and max_seq_length, where its samples are cut.
Printed are: seconds (of the forward pass alone), start_seconds (imports, loading), peak_rss_bytes.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import time

START = time.perf_counter()


def peak_rss_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024


def result(begin, end):
    return {"seconds": end - begin, "start_seconds": begin - START, "peak_rss_bytes": peak_rss_bytes()}


def transformers(ids, model, threads, dtype, device="cpu", **_):
    """model.model, no lm_head: sdpa attention, a cache, one sample a batch as llm-compressor feeds it."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval().to(device)
    begin = time.perf_counter()
    with torch.no_grad():
        for sample in ids:
            loaded.model(torch.tensor([sample], device=device), use_cache=True)
    if device != "cpu":
        torch.cuda.synchronize()
    return result(begin, time.perf_counter())


def vllm(ids, model, dtype, cache="auto", eager=False, **_):
    """Prefill of all prompts at once and one token each; batches and chunks are the engine's own. The engine's start, which is not timed,
    ends with one prompt: some of it is compiled when it is first used."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR",
                   "VLLM_NO_USAGE_STATS": "1"}
    from vllm import LLM, SamplingParams

    longest = max(map(len, ids)) + 1
    engine = LLM(model, dtype=dtype, kv_cache_dtype=cache, enforce_eager=eager, max_model_len=longest, enable_prefix_caching=False,
                 skip_tokenizer_init=True, disable_log_stats=True)
    prompts = [{"prompt_token_ids": sample} for sample in ids]
    one_token = SamplingParams(temperature=0, max_tokens=1, detokenize=False)
    engine.generate(prompts[:1], one_token, use_tqdm=False)
    begin = time.perf_counter()
    outputs = engine.generate(prompts, one_token, use_tqdm=False)
    end = time.perf_counter()
    assert len(outputs) == len(ids)
    return result(begin, end)


def oneshot(ids, model, threads, dtype="auto", pipeline=None, output=None, **_):
    """FP8 KV cache alone, of already tokenized samples; a dtype of "auto" loads the model as oneshot does by default. The
    checkpoint stays in output, where that is set."""
    import torch

    torch.set_num_threads(threads)
    from datasets import Dataset
    from llmcompressor import oneshot as run_oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.pipelines import CalibrationPipeline
    from transformers import AutoModelForCausalLM

    spans = []
    choose = CalibrationPipeline.from_modifiers

    def choose_timed(*arguments, **named):
        chosen = choose(*arguments, **named)

        def run(*arguments, **named):
            begin = time.perf_counter()
            chosen(*arguments, **named)
            spans.append((begin, time.perf_counter()))

        return run

    CalibrationPipeline.from_modifiers = choose_timed
    if dtype != "auto":
        model = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    named = {"pipeline": pipeline} if pipeline else {}
    with tempfile.TemporaryDirectory() as folder:
        run_oneshot(model=model, recipe=QuantizationModifier(kv_cache_scheme=scheme), output_dir=output or folder,
                    dataset=Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(sample) for sample in ids]}),
                    num_calibration_samples=len(ids), max_seq_length=max(map(len, ids)), shuffle_calibration_samples=False, **named)
    begin, end = max(spans, key=lambda span: span[1] - span[0])  # the default pipeline starts another one inside
    return result(begin, end)


def tokenized(model, dataset, samples, max_seq_length):
    """The first samples of JSON lines, conversations in the model's chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    records = [json.loads(line) for line in pathlib.Path(dataset).read_text().splitlines()[:samples]]
    ids = [tokenizer.apply_chat_template(record["messages"], return_dict=False) if "messages" in record
           else tokenizer(record["text"])["input_ids"] for record in records]
    return [sample[:max_seq_length] for sample in ids]


def main():
    settings = json.loads(sys.argv[2])
    samples = settings.pop("samples") or None
    if "dataset" in settings:
        ids = tokenized(settings["model"], settings.pop("dataset"), samples, settings.pop("max_seq_length"))
    else:
        ids = json.loads(pathlib.Path(settings.pop("tokens")).read_text())["ids"][:samples]
    measured = {"transformers": transformers, "vllm": vllm, "oneshot": oneshot}[sys.argv[1]](ids, **settings)
    print("\n" + json.dumps(measured | {"tokens": sum(map(len, ids))}), flush=True)
    os._exit(0)  # engines' threads may outlive the work


if __name__ == "__main__":
    main()
