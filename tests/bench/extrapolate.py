#!/usr/bin/env python3
"""What calibrating an 8B, a 70B and a 405B model would take on many cores, from rates measured here, with its arithmetic.

usage: extrapolate.py STAGES.json [--cores 64] [--efficiency 0.75] [--samples 512] [--tokens 2048] [--disk 2.0]
STAGES.json: what `calibrate_stages CHECKPOINT --random 8x512 --json` printed for layers of the 8B shape on this machine.
--efficiency: what of the cores' rate is left on that many cores; docs/performance.md says what it stands for. --disk: GB/s.
"""
import argparse
import json
import pathlib

# layers, hidden, intermediate, query heads, KV heads (of 128 each), vocabulary: Llama 3 8B and 70B, Llama 3.1 405B.
SHAPES = {"8B": (32, 4096, 14336, 32, 8, 128256), "70B": (80, 8192, 28672, 64, 8, 128256), "405B": (126, 16384, 53248, 128, 8, 128256)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("stages", type=pathlib.Path)
parser.add_argument("--cores", type=int, default=64)
parser.add_argument("--efficiency", type=float, default=0.75)
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--tokens", type=int, default=2048)
parser.add_argument("--disk", type=float, default=2.0)
arguments = parser.parse_args()
measured = json.loads(arguments.stages.read_text())

operations = measured["operations"]


def rate_in(*names):
    """FLOP a second of processor-wide wall time inside the operations, and their seconds."""
    seconds = sum(operations[name]["seconds"] for name in names if name in operations)
    return sum(operations[name]["flop"] for name in names if name in operations) / seconds, seconds


def text_of(seconds):
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


threads = measured["threads"]
linear_rate, linear_seconds = rate_in("matmul", "matmul_groups", "matmul_activate")
attention_rate, attention_seconds = rate_in("attention")
pack_seconds = operations["pack"]["seconds"] + measured["pack_seconds_beside"]
other_seconds = measured["seconds"] - linear_seconds - attention_seconds - operations["pack"]["seconds"]
layer_tokens = (measured["layers"] - 1) * measured["tokens"] * measured["hidden_size"]
other_per_element = other_seconds / layer_tokens
packed_per_second = measured["packed_bytes"] / pack_seconds
scale = arguments.cores / threads * arguments.efficiency
tokens = arguments.samples * arguments.tokens

print(f"""Measured on {threads} threads ({measured['device']}), {measured['compute_dtype']}, {measured['kv_forward']}:
  linears    {linear_rate / 1e9:8.0f} GFLOP/s
  attention  {attention_rate / 1e9:8.0f} GFLOP/s (useful FLOP, {measured['tokens'] // measured['samples']} tokens a sample)
  passes     {other_per_element * 1e9:8.3f} ns a token, layer and element of the residual
  packing    {packed_per_second / 1e9:8.2f} GB/s of packed weights
On {arguments.cores} cores at {arguments.efficiency:.0%}: all of it {arguments.cores} / {threads} * {arguments.efficiency} = {scale:.1f} times as fast, reading at {arguments.disk} GB/s.
{arguments.samples} samples of {arguments.tokens} tokens = {tokens} tokens.
""")

for name, (layers, hidden, inner, heads, kv_heads, vocabulary) in SHAPES.items():
    query, kv = heads * 128, 2 * kv_heads * 128
    layer = hidden * (2 * query + kv + 3 * inner)
    linears = 2 * tokens * ((layers - 1) * (layer + hidden * kv) + hidden * kv)  # K and V twice, but once in the last layer
    pairs = arguments.samples * arguments.tokens * (arguments.tokens + 1) / 2
    attention = (layers - 1) * 4 * query * pairs
    passes = (layers - 1) * tokens * hidden * other_per_element
    file_bytes = 2 * ((layers - 1) * layer + hidden * kv + vocabulary * hidden)
    seconds = {"linears": linears / (linear_rate * scale), "attention": attention / (attention_rate * scale), "passes": passes / scale,
               "packing": 2 * (layers - 1) * layer / (packed_per_second * scale), "reading": file_bytes / (arguments.disk * 1e9)}
    computing = sum(value for key, value in seconds.items() if key != "reading")
    print(f"""{name}: {layers} layers, hidden {hidden}, intermediate {inner}, {heads} query and {kv_heads} KV heads of 128
  weights of a layer  {hidden} * (2 * {query} + {kv} + 3 * {inner}) = {layer / 1e6:.0f} M, packed {2 * layer / 1e9:.2f} GB
  linears    2 * {tokens} * ({layers - 1} * ({layer / 1e6:.0f} M + {hidden * kv / 1e6:.1f} M) + {hidden * kv / 1e6:.1f} M) = {linears / 1e15:.2f} PFLOP / {linear_rate * scale / 1e12:.1f} TFLOP/s = {text_of(seconds['linears'])} s
  attention  {layers - 1} * 4 * {query} * {pairs:.3g} pairs = {attention / 1e15:.2f} PFLOP / {attention_rate * scale / 1e12:.1f} TFLOP/s = {text_of(seconds['attention'])} s
  passes     {layers - 1} * {tokens} * {hidden} * {other_per_element * 1e9:.3f} ns / {scale:.1f} = {text_of(seconds['passes'])} s
  packing    {layers - 1} * {2 * layer / 1e9:.2f} GB / {packed_per_second * scale / 1e9:.1f} GB/s = {text_of(seconds['packing'])} s
  reading    {file_bytes / 1e9:.0f} GB / {arguments.disk} GB/s = {text_of(seconds['reading'])} s, beside computing where the next layer's pages are asked for in time
  together   {computing:.0f} s = {computing / 60:.0f} min computing; {max(computing, seconds['reading']) / 60:.0f} min where reading hides behind it, {(computing + seconds['reading']) / 60:.0f} min where nothing does
  memory     one packed layer {2 * layer / 1e9:.2f} GB + hidden states {tokens} * {hidden} * 4 B = {tokens * hidden * 4 / 1e9:.1f} GB (on disk past --memory-limit)
""")
