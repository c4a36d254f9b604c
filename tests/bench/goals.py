#!/usr/bin/env python3
"""The goals of the CPU backend, measured: one line each with its value, what was wanted, and met or MISSED.

usage: goals.py BUILD_FOLDER MODEL_FOLDER TOKENS.json [--goal NAME,...] [--environments FOLDER] [--layers-8b 4] [--runs 3]
                [--check] [--markdown] [--json FILE] [--scratch FOLDER]
BUILD_FOLDER: of a release build with -DKVCAL_BENCH=ON. MODEL, TOKENS: SmolLM2-135M-Instruct and {"ids": [[...], ...]}.
FOLDER: made by install_peers.sh; without it the goals against peers are not measured. transformers and vllm are measured with TOKENS's
samples and with all of its ids in samples of 4,096. --layers-8b: of the synthetic 8B checkpoint that
is calibrated under --memory-limit 4GiB; 32 are 16 GB of disk. --check: exit status 1 where a goal is missed.

Names: rate_8b, rate_small, rate_small_f32, memory, memory_8b, start, attention, threads, recompute, transformers, vllm, oneshot.
The limit is the processor's: a loop of multiply-adds of the class that runs, measured in the same run. Shares of it are by the wall clock for a
calibration, and by processor time for attention. The last line has every goal's share by processor time, for machines that do other work.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GIB = 2**30


class Goals:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.build = pathlib.Path(arguments.build)
        self.scratch = pathlib.Path(scratch)
        self.rows = []
        self.smol = {}
        self.shares = {}  # of the processor's limit by processor time

    def add(self, name, what, wanted, value, met, note=""):
        self.rows.append({"goal": name, "what": what, "wanted": wanted, "measured": value, "met": met, "note": note})
        verdict = "not measured" if met is None else "met" if met else "MISSED"
        print(f"{name}: {what}: {value or '-'} (wanted {wanted}): {verdict} {note}", file=sys.stderr, flush=True)

    def run(self, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr[-3000:]}")
        return done.stdout

    def stages(self, model, *options):
        return json.loads(self.run(self.build / "tests/bench/calibrate_stages", model, *options, "--json", "--runs", self.arguments.runs))

    def synthetic_8b(self, layers, vocab_size=None):
        folder = self.scratch / f"8b_{layers}_{vocab_size}"
        if not folder.exists():
            config = json.loads((HERE / "gpu/llama3_8b.json").read_text())
            file = self.scratch / "8b.json"
            file.write_text(json.dumps(config | ({"vocab_size": vocab_size} if vocab_size else {})))
            self.run(self.build / "kvcal", "synth", "--config", file, "--seed", 1, "--layers", layers, "--dtype", "bfloat16", folder)
        return folder

    def small(self, dtype):
        if dtype not in self.smol:
            self.smol[dtype] = self.stages(self.arguments.model, self.arguments.tokens, "--compute-dtype", dtype)
        return self.smol[dtype]

    def add_rate(self, name, what, row, wanted):
        self.shares[name] = row["share_of_rate_by_cpu_time"]
        self.add(name, what, f">= {wanted:.0%}", f"{row['share_of_rate']:.1%}", row["share_of_rate"] >= wanted,
                 f"{row['needed_flop'] / row['seconds'] / 1e9:.0f} of {row['rate_flop_per_second'] / 1e9:.0f} GFLOP/s ({row['rate_source']}); "
                 f"by processor time {row['share_of_rate_by_cpu_time']:.1%}")

    def rate_8b(self):
        row = self.stages(self.synthetic_8b(3, 32000), "--random", "64x512")
        self.add_rate("rate_8b", "8B-shaped layers, bfloat16, of the processor's limit", row, 0.75)

    def rate_small(self):
        self.add_rate("rate_small", "SmolLM2-135M, bfloat16, of the processor's limit", self.small("bfloat16"), 0.75)

    def rate_small_f32(self):
        self.add_rate("rate_small_f32", "SmolLM2-135M, float32, of the processor's limit", self.small("float32"), 0.80)

    def memory(self):
        row = self.small("bfloat16")
        config = json.loads((pathlib.Path(self.arguments.model) / "config.json").read_text())
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        layer = 2 * hidden * (2 * hidden + 2 * kv + 3 * inner)
        bound = layer + row["tokens"] * hidden * 4 + 200e6
        self.add("memory", "peak memory, MB", f"<= {bound / 1e6:.0f}", f"{row['peak_rss_bytes'] / 1e6:.0f}", row["peak_rss_bytes"] <= bound,
                 "one packed layer + hidden states + 200 MB")

    def memory_8b(self):
        layers = self.arguments.layers_8b
        tokens = self.scratch / "ids.jsonl"
        tokens.write_text("".join(json.dumps({"input_ids": [(i * 7919 + t * 104729) % 128000 for t in range(2048)]}) + "\n" for i in range(8)))
        output = self.scratch / "out_8b"
        self.run(self.build / "kvcal", "calibrate", self.synthetic_8b(layers), "--recipe", HERE.parents[1] / "recipes/fp8_kv_tensor.yaml",
                 "--dataset", tokens, "--format", "scales-json", "--overwrite", "--output", output, "--memory-limit", "4GiB")
        manifest = json.loads((output / "kvcal_manifest.json").read_text())
        peak = manifest["peak_rss_bytes"]
        self.add("memory_8b", f"8B shape, {layers} layers, --memory-limit 4GiB: peak GiB", "< 4", f"{peak / GIB:.2f}", peak < 4 * GIB,
                 f"8 x 2048 tokens in {manifest['seconds']['calibrate']:.0f} s")

    def start(self):
        seconds = self.small("bfloat16")["seconds_to_first_layer"]
        self.add("start", "start to first layer, s", "< 0.2", f"{seconds:.3f}", seconds < 0.2, "of the first of the runs")

    def attention(self):
        for row in json.loads(self.run(self.build / "tests/bench/attention_share", "--pairs", 5 * self.arguments.runs, "--json")):
            wanted = 0.45 if row["length"] == 512 else 0.60
            what = f"{row['length']} tokens, head_dim {row['head_dim']}"
            self.add("attention", f"attention, {what}, of the processor's limit by processor time", f">= {wanted:.0%}", f"{row['bf16']:.1%}",
                     row["bf16"] >= wanted, row["limit"])
            if "float32" in row["limit"] and row["length"] > 512:
                self.add("attention", f"attention, {what}, float32, of the processor's limit by processor time", ">= 70%", f"{row['float32']:.1%}",
                         row["float32"] >= 0.70, row["limit"])
            self.add("attention", f"attention, {what}, FP8 cache against bfloat16", ">= 97%", f"{row['fp8'] / row['bf16']:.1%}",
                     row["fp8"] >= 0.97 * row["bf16"])
            self.shares[f"attention {row['length']}/{row['head_dim']}"] = row["bf16"]

    def scaling(self, part, name, what, wanted):
        file = self.scratch / "scaling.json"
        self.run(sys.executable, HERE / "scaling.py", self.build / "kvcal", self.build / "tests/bench/calibrate_stages", "--part", part,
                 "--runs", self.arguments.runs, "--json", file)
        (row,) = [row for key, row in json.loads(file.read_text()).items() if isinstance(row, dict)]
        self.add(name, what, wanted, f"{row['value']:.2f}", row["met"])

    def threads(self):
        self.scaling("threads", "threads", "two threads against one", ">= 1.9 x")

    def recompute(self):
        self.scaling("recompute", "recompute", "second pass over K and V on 8B shapes, %", "<= 6")

    def peers(self, who, goals, tokens=None, dtypes="float32,bfloat16"):
        """goals: (dtype, detail, which of kvcal's modes, wanted)."""
        length = ", 4,096 tokens a sample" if tokens else ""
        whats = [" ".join(["against", who, dtype, detail]).strip() + length for dtype, detail, _, _ in goals]
        if not self.arguments.environments:
            for what, (_, _, _, wanted) in zip(whats, goals):
                self.add(who, what, f">= {wanted} x", "", None, "needs --environments")
            return
        file = self.scratch / "peers.json"
        self.run(sys.executable, HERE / "against_peers.py", self.build / "kvcal", self.arguments.model, tokens or self.arguments.tokens,
                 "--environments", self.arguments.environments, "--peers", who, "--dtypes", dtypes, "--runs", self.arguments.runs, "--json", file)
        rows = {(row["who"], row["dtype"], row["detail"]): row for row in json.loads(file.read_text())["rows"]}
        for what, (dtype, detail, mode, wanted) in zip(whats, goals):
            ratio = rows[who, dtype, detail][f"kvcal_{mode}_is"]
            self.add(who, what, f">= {wanted} x", f"{ratio:.2f} x", ratio >= wanted, f"kvcal {mode}")

    def long_samples(self, length=4096):
        """All ids one after the other, cut anew."""
        ids = [token for sample in json.loads(pathlib.Path(self.arguments.tokens).read_text())["ids"] for token in sample]
        file = self.scratch / "long.json"
        file.write_text(json.dumps({"ids": [ids[i:i + length] for i in range(0, len(ids) - length + 1, length)]}))
        return file

    def transformers(self):
        self.peers("transformers", [("bfloat16", "", "exact", 2), ("float32", "", "exact", 1.5)])
        self.peers("transformers", [("bfloat16", "", "exact", 2)], self.long_samples(), "bfloat16")

    def vllm(self):
        self.peers("vllm", [("bfloat16", "", "exact", 1.35), ("bfloat16", "FP8 cache", "quantized", 1.15), ("float32", "", "exact", 1.15)])
        self.peers("vllm", [("bfloat16", "", "exact", 1.35), ("bfloat16", "FP8 cache", "quantized", 1.35)], self.long_samples(), "bfloat16")

    def oneshot(self):
        self.peers("oneshot", [("auto", "pipeline by default", "quantized", 18)])


def print_table(rows, markdown):
    head = ["goal", "what", "wanted", "measured", "", "note"]
    lines = [[row["goal"], row["what"], row["wanted"], row["measured"], "not measured" if row["met"] is None else "met" if row["met"] else "MISSED",
              row["note"]] for row in rows]
    if markdown:
        for line in (head, ["---"] * len(head), *lines):
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    for line in (head, *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    names = ("rate_8b", "rate_small", "rate_small_f32", "memory", "memory_8b", "start", "attention", "threads", "recompute",
             "transformers", "vllm", "oneshot")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--goal", default=",".join(names))
    parser.add_argument("--environments")
    parser.add_argument("--layers-8b", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", help="keeps the checkpoints")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        goals = Goals(arguments, arguments.scratch or temporary)
        for name in arguments.goal.split(","):
            if name not in names:
                parser.error(f"no goal {name}, there are {', '.join(names)}")
            getattr(goals, name)()
    print_table(goals.rows, arguments.markdown)
    if goals.shares:
        print("of the processor's limit by processor time: " + ", ".join(f"{name} {share:.0%}" for name, share in goals.shares.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(goals.rows, indent=1) + "\n")
    return 1 if arguments.check and any(row["met"] is False for row in goals.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
