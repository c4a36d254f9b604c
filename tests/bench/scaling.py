#!/usr/bin/env python3
"""How the cost of a calibration grows, in tables.

usage: scaling.py KVCAL CALIBRATE_STAGES [--part layers,tokens,hidden,threads,large,recompute] [--large 70b] [--check] [--json FILE]
                  [--dtype bfloat16] [--runs 3] [--scratch FOLDER]

layers, tokens, hidden: seconds of calibrate_stages on random checkpoints of `kvcal synth` while one quantity grows; the exponent p of
the fit seconds = c · quantity^p in logarithms, after the time of nothing (a run's constant part) is left as it is. By processor time, so
that other work on the machine counts little. Expected: 1, 1 and 2.
threads: wall seconds on one thread and on two; expected is a ratio of at least 1.9.
large: peak memory and rate of two layers of a large model's shape (70b, 405b) within 24 GiB.
recompute: what the quantized mode's pass over K and V before the layer moves on costs on 8B shapes; at most 6 % of the rest.
With --check the exit status is 1 where an expectation is missed. FOLDER holds the checkpoints, some GB with "large".
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SMALL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
         "num_hidden_layers": 32, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 4096, "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
# Llama 3.1 405B: the shapes beside bench/gpu's 8B and 70B.
SHAPE_405B = {"hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_key_value_heads": 8}


def fit_exponent(quantities, seconds):
    """Least squares in logarithms."""
    x, y = [math.log(q) for q in quantities], [math.log(s) for s in seconds]
    middle_x, middle_y = statistics.mean(x), statistics.mean(y)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y)) / sum((a - middle_x) ** 2 for a in x)


class Scaling:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = pathlib.Path(scratch)
        self.results, self.missed = {}, []

    def run(self, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr}")
        return done.stdout

    def checkpoint(self, name, config, layers):
        folder = self.scratch / f"{name}_{layers}"
        if not folder.exists():
            file = self.scratch / f"{name}.json"
            file.write_text(json.dumps(config))
            self.run(self.arguments.kvcal, "synth", "--config", file, "--seed", "1", "--layers", layers, "--dtype", "bfloat16", folder)
        return folder

    def stages(self, model, random, *more, runs=None):
        return json.loads(self.run(self.arguments.stages, model, "--random", random, "--compute-dtype", self.arguments.dtype, "--json",
                                   "--runs", runs or self.arguments.runs, *more))

    def expect(self, name, value, holds, wanted):
        print(f"{name}: {value:.3f}, expected {wanted}: {'met' if holds else 'MISSED'}\n")
        self.results[name] = {"value": value, "expected": wanted, "met": holds}
        if not holds:
            self.missed.append(name)

    def grow(self, name, rows, expected, slack):
        """rows: (quantity, measured) in rising order."""
        print(f"{name:>10} {'cpu s':>9} {'wall s':>9} {'needed GFLOP':>13} {'of the rate':>12}")
        for quantity, row in rows:
            print(f"{quantity:>10} {row['cpu_seconds']:9.3f} {row['seconds']:9.3f} {row['needed_flop'] / 1e9:13.1f} {row['share_of_rate_by_cpu_time']:12.1%}")
        exponent = fit_exponent([quantity for quantity, _ in rows], [row["cpu_seconds"] for _, row in rows])
        self.results[f"{name}_rows"] = [[quantity, row["cpu_seconds"], row["seconds"]] for quantity, row in rows]
        self.expect(f"cost against {name}, exponent", exponent, abs(exponent - expected) <= slack, f"{expected} ± {slack}")

    def layers(self):
        model = self.checkpoint("small", SMALL, 32)
        # The last layer stops after K and V, so that n + 1 of them cost n layers and a little.
        rows = [(count, self.stages(model, "8x512", "--layers", count + 1)) for count in (3, 7, 15, 31)]
        self.grow("layers", rows, 1, 0.1)

    def tokens(self):
        model = self.checkpoint("small", SMALL, 32)
        rows = [(samples * 512, self.stages(model, f"{samples}x512", "--layers", 5)) for samples in (8, 16, 32, 64)]
        self.grow("tokens", rows, 1, 0.1)

    def hidden(self):
        """Attention grows with one power of the hidden size, so short samples: linears are what is quadratic."""
        rows = []
        for heads in (8, 16, 32, 64):
            config = SMALL | {"hidden_size": 64 * heads, "intermediate_size": 160 * heads, "num_attention_heads": heads, "num_key_value_heads": heads // 4}
            rows.append((64 * heads, self.stages(self.checkpoint(f"hidden{heads}", config, 3), "16x128")))
        self.grow("hidden", rows, 2, 0.3)

    def threads(self):
        model = self.checkpoint("small", SMALL, 32)
        one, two = [], []
        for _ in range(self.arguments.runs):  # in turn
            one.append(self.stages(model, "16x512", "--layers", 8, "--threads", 1, runs=1)["seconds"])
            two.append(self.stages(model, "16x512", "--layers", 8, "--threads", 2, runs=1)["seconds"])
        print(f"small shape: {statistics.median(one):.3f} s on one thread, {statistics.median(two):.3f} s on two")
        self.expect("two threads", statistics.median(one) / statistics.median(two), statistics.median(one) / statistics.median(two) >= 1.9, ">= 1.9")

    def large(self):
        name = self.arguments.large
        config = json.loads((HERE / "gpu" / "llama3_70b.json").read_text()) | {"vocab_size": 32000}
        if name == "405b":
            config |= SHAPE_405B
        row = self.stages(self.checkpoint(name, config, 2), "4x512", runs=1)
        print(f"two layers of the {name} shape, 2048 tokens: {row['seconds']:.2f} s, {row['share_of_rate']:.1%} of the rate "
              f"({row['share_of_rate_by_cpu_time']:.1%} by processor time)")
        peak = row["peak_rss_bytes"] / 2**30
        self.expect(f"{name} shape, peak GiB", peak, peak < 24, "< 24")

    def recompute(self):
        """The quantized mode's pass over K and V before the layer moves on, against the rest, in one run."""
        config = json.loads((HERE / "gpu" / "llama3_8b.json").read_text()) | {"vocab_size": 32000}
        row = self.stages(self.checkpoint("8b", config, 3), "8x512")
        extra = row["observe_cpu_seconds"] / (row["cpu_seconds"] - row["observe_cpu_seconds"])
        print(f"8B shape: computed twice are {row['recomputed_flop'] / row['needed_flop']:.2%} of the needed FLOP; the pass takes "
              f"{row['observe_cpu_seconds']:.3f} s of {row['cpu_seconds']:.3f} s of processors")
        self.expect("pass over K and V that is run again, 8B shape, % of the rest", 100 * extra, extra <= 0.06, "<= 6")


def main():
    parts = ("layers", "tokens", "hidden", "threads", "large", "recompute")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcal")
    parser.add_argument("stages")
    parser.add_argument("--part", default=",".join(parts))
    parser.add_argument("--large", default="70b", choices=("70b", "405b"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", help="keeps the checkpoints")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        scaling = Scaling(arguments, arguments.scratch or temporary)
        for part in arguments.part.split(","):
            if part not in parts:
                parser.error(f"no part {part}, there are {', '.join(parts)}")
            print(f"== {part}")
            getattr(scaling, part)()
    if arguments.json:
        arguments.json.write_text(json.dumps(scaling.results, indent=1) + "\n")
    if scaling.missed:
        print(f"missed: {', '.join(scaling.missed)}")
    return 1 if arguments.check and scaling.missed else 0


if __name__ == "__main__":
    sys.exit(main())
