#!/usr/bin/env python3
"""Runs `kvcal verify` and `kvcal inspect` with ids of the hub, whose weights they do not fetch: what they say must be what they
say of the whole folder, for every fourth checkpoint among the fixtures (with KVCAL_WALK=whole for all), and of one of 500 GB no
more than 20 MB may be sent.

    KVCAL=build/cpu/kvcal tests/cli/hub/check_remote.py [NAME...]       NAME: of a check, without "check_"
"""

import itertools
import json
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from check_hub import ID, TESTS, WEIGHTS, main, quantized_files  # noqa: E402
from hub_server import Fault, Hollow, Repository  # noqa: E402

VERIFY = ("verify", "--engine", "all", "--json")
INSPECT = ("inspect", "--tensors", "--json")
SHARES = 1 if os.environ.get("KVCAL_WALK") == "whole" else 4


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def answer(t, command, name, replaced):
    """Exit status and what is said, in which each of replaced is "MODEL", without the note on what was read."""
    process = t.start(*command, name)
    out, err = process.communicate(timeout=600)
    assert str(t.cache) not in out + err and "kvcal-remote" not in out + err, out + err
    notes = [line for line in err.splitlines() if line.startswith(f"note: {ID}: read ")]
    # What a terminal is told while it waits depends on the time.
    err = "".join(line + "\n" for line in err.splitlines() if line not in notes and not line.startswith("download "))
    for word in replaced:
        out, err = out.replace(word, "MODEL"), err.replace(word, "MODEL")
    return process.returncode, out, err, notes


def without_unknown(local, remote):
    found = [json.loads(said[1]) for said in (local, remote)]
    for one, other in zip(*(answer["supported_by"]["formats"] for answer in found), strict=True):
        if other["supported"] is None:
            assert "depends on values of " in other["reason"], other
            one.clear()
            other.clear()
    return [(said[0], json.dumps(answer, indent=1), *said[2:]) for said, answer in zip((local, remote), found, strict=True)]


def difference(local, remote):
    """The first lines that differ; empty where status and output agree. What depends on values that were not fetched, which
    inspect says of an output format, is left out."""
    if "which were not fetched" in remote[1]:
        local, remote = without_unknown(local, remote)
    if local[0] != remote[0] or local[0] not in (0, 1):
        return f"status {local[0]} and {remote[0]}: {local[2]}{remote[2]}"
    for place in (1, 2):
        lines = [said[place].splitlines() for said in (local, remote)]
        for one, other in itertools.zip_longest(*lines):
            if one != other:
                return f"\n  folder: {one}\n  hub:    {other}"
    return ""


def check_agreement(t):
    """The same answers from headers and scales as from the folder."""
    failed = []
    folders = [config.parent for config in sorted((TESTS / "fixtures").rglob("config.json"))]
    folders = [folder for folder in folders if any(path.suffix == ".safetensors" for path in folder.iterdir())]
    assert len(folders) > 250
    for folder in folders[::SHARES]:
        t.hub.repositories["models/" + ID] = Repository(files_of(folder))
        for command in (VERIFY, INSPECT):
            local = answer(t, command, str(folder), [str(folder)])
            remote = answer(t, command, ID, [ID])
            if differs := difference(local, remote):
                failed.append(f"{folder.relative_to(TESTS)}: {command[0]}: {differs}")
        # Another checkpoint comes under the same name.
        t.forget()
    assert not failed, "\n".join([f"{len(failed)} of {len(folders[::SHARES])}", *failed])


def entry(offsets, shape, dtype):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def large_checkpoint():
    """Llama-3.1-405B with scales of the cache, some of them wrong; its weights are zeros."""
    layers, hidden, ffn, heads, kv_heads = 126, 16384, 53248, 128, 8
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": 128256,
              "rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
              "rope_theta": 500000.0, "hidden_act": "silu",
              "quantization_config": {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": "dense",
                                      "config_groups": {}, "ignore": [], "kv_cache_scheme": {
                                          "num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}}}
    values = {0: 1.0, 1: 0.0, 2: 0.03}  # K's scale of the first layers; that of layer 3 is missing
    files, weight_map = {"config.json": config}, {}
    for layer in range(layers):
        prefix, tensors = f"model.layers.{layer}.", []
        for name, rows, columns in (("mlp.down_proj", hidden, ffn), ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                    ("self_attn.k_proj", 128 * kv_heads, hidden), ("self_attn.o_proj", hidden, hidden),
                                    ("self_attn.q_proj", hidden, hidden), ("self_attn.v_proj", 128 * kv_heads, hidden)):
            tensors.append((prefix + name + ".weight", [rows, columns], "BF16", b""))
        tensors.append((prefix + "input_layernorm.weight", [hidden], "BF16", b""))
        tensors.append((prefix + "post_attention_layernorm.weight", [hidden], "BF16", b""))
        if layer != 3:
            tensors.append((prefix + "self_attn.k_scale", [1], "F32", struct.pack("<f", values.get(layer, 0.02))))
        tensors.append((prefix + "self_attn.v_scale", [1], "F32", struct.pack("<f", 0.01)))
        if layer == 0:
            tensors += [("lm_head.weight", [128256, hidden], "BF16", b""), ("model.embed_tokens.weight", [128256, hidden], "BF16", b""),
                        ("model.norm.weight", [hidden], "BF16", b"")]
        file = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        files[file] = hollow_file(sorted(tensors, key=lambda one: (one[2] != "F32", one[0])))
        weight_map |= {name: file for name, *_ in tensors}
    total = sum(len(file) for name, file in files.items() if name != "config.json")
    files["model.safetensors.index.json"] = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return {name: json.dumps(file).encode() if isinstance(file, dict) else file for name, file in files.items()}


def hollow_file(tensors):
    header, end, parts = {}, 0, {}
    for name, shape, dtype, value in tensors:
        size = {"F32": 4, "BF16": 2}[dtype]
        for dim in shape:
            size *= dim
        header[name] = entry([end, end + size], shape, dtype)
        if value:
            parts[end] = value
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    return Hollow(len(head) + end, {0: head} | {len(head) + offset: value for offset, value in parts.items()})


def check_large(t):
    """800 GB: no more than 20 MB are sent, and the answer is that of the folder."""
    files = large_checkpoint()
    t.hub.repositories["models/" + ID] = Repository(files)
    folder = t.folder / "whole"
    folder.mkdir()
    for name, content in files.items():
        with open(folder / name, "wb") as file:
            if isinstance(content, Hollow):
                for offset, part in content.parts.items():
                    file.seek(offset)
                    file.write(part)
                file.truncate(len(content))
            else:
                file.write(content)
    size = sum(len(content) for content in files.values())
    assert size > 500e9, size
    for command in (VERIFY, INSPECT):
        t.hub.sent = 0
        remote = answer(t, command, ID, [ID])
        local = answer(t, command, str(folder), [str(folder)])
        assert not difference(local, remote), f"{command[0]}: {difference(local, remote)}"
        print(f"large: {command[0]}: {t.hub.sent} bytes of {size}; {remote[3]}")
        assert 0 < t.hub.sent < 20e6, t.hub.sent
        assert "251 tensors with scales of the cache or shapes" in remote[3][0], remote[3]
    said = t.refused("verify", ID, "--engine", "vllm", parts=[ID])
    assert str(t.folder) not in said and "/kvcal-remote" not in said, said


def check_faults(t):
    """A server that sends no parts, or others, is told; faults that pass are passed over."""
    t.hub.repositories["models/" + ID] = Repository(quantized_files())
    t.hub.faults[WEIGHTS] = [Fault(ignores_range=True)]
    t.refused("inspect", ID, parts=[ID + ": " + WEIGHTS + ": " + t.hub.endpoint + " was asked for 8 bytes and sends the whole file"])
    t.hub.faults[WEIGHTS] = [Fault(shifted_by=1)]
    t.refused("inspect", ID, parts=[ID + ": " + WEIGHTS + ": ", "asked was for 8 from 0"])
    t.hub.faults[WEIGHTS] = [Fault(status=503), Fault(cut_after=3)]
    t.run("inspect", ID)
    t.hub.faults[WEIGHTS] = [Fault(status=404)]
    t.refused("inspect", ID, parts=[ID + ": " + WEIGHTS + ": HTTP 404"])


def check_not_whole(t):
    """Files that are no checkpoint: what the folder's reader says, in the model's name."""
    files = quantized_files()
    for weights in (b"", b"abc", b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 100, files[WEIGHTS][:-1],
                    b"\x10" + b"\0" * 7 + b"{" * 5000):
        folder = t.folder / "folder"
        folder.mkdir(exist_ok=True)
        for name, content in (files | {WEIGHTS: weights}).items():
            (folder / name).write_bytes(content)
        t.hub.repositories["models/" + ID] = Repository(files | {WEIGHTS: weights})
        for command in (VERIFY, INSPECT):
            local = answer(t, command, str(folder), [str(folder)])
            remote = answer(t, command, ID, [ID])
            assert local[0] == 1 and not difference(local, remote), f"{weights[:20]}: {command[0]}: {difference(local, remote)}"
        t.forget()


if __name__ == "__main__":
    sys.exit(main({name: check for name, check in globals().items() if name.startswith("check_")}))
