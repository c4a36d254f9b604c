#!/usr/bin/env python3
"""Times kvcal calibrate and its peers on the same token ids and threads, in turn, and prints one table with ratios.

usage: against_peers.py KVCAL MODEL_FOLDER TOKENS.json [--environments FOLDER] [--peers transformers,vllm,oneshot,oneshot_basic]
                        [--samples N] [--runs 3] [--threads N] [--dtypes float32,bfloat16] [--device cpu|cuda] [--markdown] [--json FILE]
FOLDER: made by tests/bench/install_peers.sh (reference/ and vllm/); or --reference-python and --vllm-python.

TOKENS.json: {"ids": [[...], ...]}. Every contestant runs in a process of its own on the same processors.
- kvcal: "forward" is the stage "calibrate" of its manifest, packing all weights and taking all statistics; "shell" is the whole command.
- transformers: model.model (no lm_head), sdpa attention, one sample a batch, weights loaded before the clock starts.
- vllm: prefill of all prompts and one token each, without prefix caching; only the engine's start and a first prompt are left out.
- oneshot: llm-compressor's, FP8 KV cache alone, from the shell; "forward" is its pipeline. oneshot_basic: pipeline="basic".
A ratio is how many times as fast kvcal is: forward against forward, for oneshot shell against shell.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "recipes" / "fp8_kv_tensor.yaml"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--environments", type=pathlib.Path)
    parser.add_argument("--reference-python", default=sys.executable)
    parser.add_argument("--vllm-python")
    parser.add_argument("--peers", default="transformers,vllm,oneshot,oneshot_basic")
    parser.add_argument("--samples", type=int, default=0, help="the first N; 0: all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--oneshot-runs", type=int, default=1, help="it takes minutes")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--oneshot-dtype", default="auto", help="auto: as llm-compressor loads the model by default")
    parser.add_argument("--vllm-eager", action="store_true", help="without torch.compile")
    parser.add_argument("--device", default="cpu", help="of kvcal and transformers; a GPU runs bfloat16 alone")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.environments:
        arguments.reference_python = str(arguments.environments / "reference/bin/python")
        arguments.vllm_python = str(arguments.environments / "vllm/bin/python")
    if arguments.device != "cpu":
        arguments.peers, arguments.dtypes = "transformers", "bfloat16"
    return arguments


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = pathlib.Path(scratch)
        ids = json.loads(pathlib.Path(arguments.tokens).read_text())["ids"][:arguments.samples or None]
        self.num_samples, self.num_tokens = len(ids), sum(map(len, ids))
        self.tokens = self.scratch / "tokens.json"
        self.tokens.write_text(json.dumps({"ids": ids}))
        self.processors = sorted(os.sched_getaffinity(0))[:arguments.threads]

    def run(self, command):
        """Seconds from the shell, and what the command printed."""
        environment = os.environ | {"OMP_NUM_THREADS": str(self.arguments.threads), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        begin = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment,
                              preexec_fn=lambda: os.sched_setaffinity(0, self.processors))
        seconds = time.perf_counter() - begin
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, command[:3]))} ended with {done.returncode}\n{done.stderr[-3000:]}")
        return seconds, done.stdout

    def kvcal(self, dtype, forward):
        output = self.scratch / "output"
        arguments = self.arguments
        seconds, _ = self.run([arguments.kvcal, "calibrate", arguments.model, "--recipe", RECIPE, "--dataset", self.tokens, "--output", output,
                               "--overwrite", "--num-samples", self.num_samples, "--max-seq-length", 1 << 20, "--kv-forward",
                               forward, "--compute-dtype", dtype, "--threads", arguments.threads, "--device", arguments.device])
        manifest = json.loads((output / "kvcal_manifest.json").read_text())
        assert manifest["dataset"]["num_tokens"] == self.num_tokens
        return {"forward": manifest["seconds"]["calibrate"], "shell": seconds, "peak": manifest["peak_rss_bytes"]}

    def peer(self, python, name, **settings):
        settings |= {"model": str(pathlib.Path(self.arguments.model).resolve()), "tokens": str(self.tokens), "samples": 0,
                     "threads": self.arguments.threads}
        seconds, text = self.run([python, HERE / "peer_runs.py", name, json.dumps(settings)])
        measured = json.loads(text.strip().splitlines()[-1])
        assert measured["tokens"] == self.num_tokens
        return {"forward": measured["seconds"], "shell": seconds, "peak": measured["peak_rss_bytes"]}

    def contestants(self):
        """(who, dtype, detail) and a function that runs it once."""
        arguments = self.arguments
        peers = arguments.peers.split(",") if arguments.peers else []
        reference, vllm = arguments.reference_python, arguments.vllm_python
        for dtype in arguments.dtypes.split(","):
            for forward in ("exact", "quantized"):
                yield ("kvcal", dtype, forward), lambda d=dtype, f=forward: self.kvcal(d, f)
            if "transformers" in peers:
                yield ("transformers", dtype, ""), lambda d=dtype: self.peer(reference, "transformers", dtype=d, device=arguments.device)
            if "vllm" in peers:
                caches = ("auto", "fp8") if dtype == "bfloat16" else ("auto",)
                for cache in caches:
                    yield (("vllm", dtype, "" if cache == "auto" else "FP8 cache"),
                           lambda d=dtype, c=cache: self.peer(vllm, "vllm", dtype=d, cache=c, eager=arguments.vllm_eager))
        if "oneshot" in peers or "oneshot_basic" in peers:
            yield ("kvcal", "auto", "quantized"), lambda: self.kvcal("auto", "quantized")
        for name, pipeline in (("oneshot", None), ("oneshot_basic", "basic")):
            if name in peers:
                yield ((name, arguments.oneshot_dtype, f"pipeline {pipeline or 'by default'}"),
                       lambda p=pipeline: self.peer(reference, "oneshot", dtype=arguments.oneshot_dtype, pipeline=p))

    def measure(self):
        contestants = list(self.contestants())
        rows = {key: [] for key, _ in contestants}
        for turn in range(self.arguments.runs):
            for key, run in contestants:
                if key[0].startswith("oneshot") and turn >= self.arguments.oneshot_runs:
                    continue
                rows[key].append(run())
                print(f"run {turn + 1}: {' '.join(key)}: {rows[key][-1]['forward']:.2f} s", file=sys.stderr, flush=True)
        return {key: {what: statistics.median(run[what] for run in runs) for what in ("forward", "shell", "peak")} for key, runs in rows.items()}


def ratio_to(medians, key, forward):
    """How many times as fast kvcal is as the contestant; None where there is nothing to compare."""
    own = medians.get(("kvcal", "auto" if key[0].startswith("oneshot") else key[1], forward))
    if key[0] == "kvcal" or own is None:
        return None
    what = "shell" if key[0].startswith("oneshot") else "forward"
    return medians[key][what] / own[what]


def table(bench, medians):
    head = ["who", "dtype", "", "forward s", "tokens/s", "shell s", "peak MB", "kvcal exact is", "kvcal quantized is"]
    rows = []
    for key, row in medians.items():
        ratios = [ratio_to(medians, key, forward) for forward in ("exact", "quantized")]
        rows.append([*key, f"{row['forward']:.2f}", f"{bench.num_tokens / row['forward']:.0f}", f"{row['shell']:.2f}", f"{row['peak'] / 1e6:.0f}",
                     *("" if ratio is None else f"{ratio:.2f} x" for ratio in ratios)])
    return head, rows


def print_table(head, rows, markdown):
    if markdown:
        for line in (head, ["---"] * len(head), *rows):
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    for line in (head, *rows):
        print("  ".join(cell.ljust(width) if i < 3 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))).rstrip())


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments, scratch)
        medians = bench.measure()
    print(f"{bench.num_tokens} tokens in {bench.num_samples} samples, {arguments.threads} threads, medians of {arguments.runs} runs in turn\n")
    print_table(*table(bench, medians), arguments.markdown)
    if arguments.json:
        rows = [dict(zip(("who", "dtype", "detail"), key)) | row | {"kvcal_exact_is": ratio_to(medians, key, "exact"),
                                                                    "kvcal_quantized_is": ratio_to(medians, key, "quantized")}
                for key, row in medians.items()]
        arguments.json.write_text(json.dumps({"tokens": bench.num_tokens, "samples": bench.num_samples, "threads": arguments.threads,
                                              "runs": arguments.runs, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
