#!/usr/bin/env python3
"""Writes tests/fixtures/drafts/<name>: a fixture of models/<name> with its multi-token prediction layer, and what engines
cache in that layer.

usage: make_drafts.py [NAME ...]        (default: all of DRAFTS)
needs: torch 2.13, transformers 5.23, safetensors (as make_fixtures.py)

The layer's own tensors are those of the model's last attention layer, moved by noise, under the names of published
checkpoints. transformers leaves these layers out, so its own decoder layer of the family is put behind the model as vLLM
0.32 does (models/glm4_moe_mtp.py, deepseek_mtp.py, qwen3_5_mtp.py, qwen3_next_mtp.py; v1/spec_decode/llm_base_proposer.py,
set_inputs_first_pass): row i is
  projection(concatenated(norm(embedding of token i + 1), norm(hidden state of token i behind the final norm)))
at position i, and in the DeepSeek kind the embedding of row 0 is zero. The last token of a sample has no next one.
Output: config.json, model.safetensors, expected.json: ids; draft: the extremes of K and V of the layer's cache as
make_fixtures.py records them, over all tokens but the last; "from_zero": the same where the embedding of row 0 is kept, as
SGLang 0.5.23 runs it (absent where it makes no difference). Reference: float32, eager attention.
"""
import json
import pathlib
import re
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.cache_utils import DynamicCache

HERE = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"
DEEPSEEK = {"prefix": "model.layers.{}.", "layers": "model.layers.{}.", "embedding_norm": "enorm", "hidden_norm": "hnorm",
            "projection": "eh_proj", "masks_first": True, "end": "shared_head.norm", "adds_one": False, "own_head": True}
QWEN = {"prefix": "mtp.", "layers": "mtp.layers.0.", "embedding_norm": "pre_fc_norm_embedding",
        "hidden_norm": "pre_fc_norm_hidden", "projection": "fc", "masks_first": False, "end": "norm", "adds_one": True,
        "own_head": False}
DRAFTS = {"glm4_moe": DEEPSEEK, "deepseek_v3": DEEPSEEK, "qwen3_next": QWEN, "qwen3_5": QWEN}


def loaded(config, tensors):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        save_file(tensors, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
        model, report = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                             experts_implementation="eager", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"], report
    return model.eval()


def longer(config):
    """The config with one layer more, a copy of the last attention layer in kind."""
    config = json.loads(json.dumps(config))
    text = config.get("text_config", config)
    text["num_hidden_layers"] += 1
    if "layer_types" in text:
        text["layer_types"].append("full_attention")
    return config


def attention_layer(names, config):
    """The last layer with attention, and the prefix of its tensors."""
    found = [re.search(r"^(.*layers\.)(\d+)\.self_attn\.", name) for name in names]
    number, stem = max((int(one.group(2)), one.group(1)) for one in found
                       if one and int(one.group(2)) < config.get("text_config", config)["num_hidden_layers"])
    return number, f"{stem}{number}.", stem


def draft_tensors(own, kind, count, hidden, vocab, generator):
    """own: the tensors of a layer by their names in it."""
    tensors = {}
    layer, top = kind["layers"].format(count), kind["prefix"].format(count)
    for name, tensor in sorted(own.items()):
        noise = torch.randn(tensor.shape, generator=generator)
        spread = tensor.float().std() if tensor.numel() > 1 else tensor.float().abs()
        tensors[layer + name] = (tensor.float() + 0.5 * spread * noise).to(tensor.dtype)
    base = 0.0 if kind["adds_one"] else 1.0
    norms = [kind["embedding_norm"], kind["hidden_norm"], kind["end"]]
    for name in norms:
        tensors[f"{top}{name}.weight"] = (base + 0.3 * torch.randn(hidden, generator=generator)).to(torch.bfloat16)
    weight = torch.randn(hidden, 2 * hidden, generator=generator) * (1.6 / (2 * hidden) ** 0.5)
    tensors[f"{top}{kind['projection']}.weight"] = weight.to(torch.bfloat16)
    if kind["own_head"]:
        for name in ("embed_tokens", "shared_head.head"):
            tensors[f"{top}{name}.weight"] = torch.randn(vocab, hidden, generator=generator).to(torch.bfloat16)
    return tensors


def normed(x, weight, kind, eps):
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * (weight.float() + (1.0 if kind["adds_one"] else 0.0))


def extremes(heads):
    return [head.abs().max().item() for head in heads]


def cache_of(model, layer_model, tensors, kind, ids, count, eps, masks_first):
    """K and V [heads, tokens - 1, dim] of the draft layer."""
    top = kind["prefix"].format(count)
    tokens = torch.tensor([ids])
    backbone, other = [getattr(one.model, "language_model", one.model) for one in (model, layer_model)]
    hidden = backbone(tokens, use_cache=False).last_hidden_state[:, :-1]
    embedded = model.get_input_embeddings()(tokens[:, 1:])
    if masks_first:
        embedded[:, 0] = 0.0
    both = torch.cat([normed(embedded, tensors[f"{top}{kind['embedding_norm']}.weight"], kind, eps),
                      normed(hidden, tensors[f"{top}{kind['hidden_norm']}.weight"], kind, eps)], -1)
    x = both @ tensors[f"{top}{kind['projection']}.weight"].float().T
    positions = torch.arange(x.shape[1])[None]
    cache = DynamicCache()
    mask = torch.full((x.shape[1], x.shape[1]), torch.finfo(torch.float32).min).triu(1)[None, None]
    layer = other.layers[count]
    layer.self_attn.layer_idx = 0
    rotary_positions = positions[None].expand(3, -1, -1) if "text_config" in model.config.to_dict() else positions
    layer(x, position_embeddings=other.rotary_emb(x, rotary_positions), attention_mask=mask, position_ids=positions,
          past_key_values=cache, use_cache=True)
    return cache.layers[0].keys[0], cache.layers[0].values[0]


def recorded(k, v):
    return {"k_head_amax": extremes(k), "v_head_amax": extremes(v), "k_min": k.min().item(), "k_max": k.max().item(),
            "v_min": v.min().item(), "v_max": v.max().item()}


def make(name):
    kind, source, target = DRAFTS[name], HERE / "models" / name, HERE / "drafts" / name
    config = json.loads((source / "config.json").read_text())
    text = config.get("text_config", config)
    count, hidden = text["num_hidden_layers"], text["hidden_size"]
    if kind is QWEN:
        text["mtp_num_hidden_layers"] = 1
    tensors = {}
    for file in sorted(source.glob("model*.safetensors")):
        tensors.update(load_file(file))
    behind = re.compile(rf"^mtp\.|layers\.{count}\.")
    tensors = {key: value for key, value in tensors.items() if not behind.search(key)}
    ids = json.loads((source / "expected.json").read_text())["ids"]
    _, prefix, stem = attention_layer(tensors, config)
    own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    drafts = draft_tensors(own, kind, count, hidden, text["vocab_size"], torch.Generator().manual_seed(len(name)))
    as_layer = {f"{stem}{count}.{key.removeprefix(kind['layers'].format(count))}": value for key, value in drafts.items()
                if key.startswith(kind["layers"].format(count)) and key.removeprefix(kind["layers"].format(count)) in own}
    with torch.no_grad():
        model, layer_model = loaded(config, tensors), loaded(longer(config), {**tensors, **as_layer})
        eps = text["rms_norm_eps"]
        caches = {first: recorded(*cache_of(model, layer_model, drafts, kind, ids, count, eps, first))
                  for first in (True, False)}
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (target / "model.safetensors").write_bytes(save({**tensors, **drafts}, metadata={"format": "pt"}))
    expected = {"reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager",
                "ids": ids, "draft": caches[kind["masks_first"]]}
    if kind["masks_first"]:
        expected["from_zero"] = caches[False]
    (target / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, json.dumps(expected["draft"]), flush=True)


for chosen in sys.argv[1:] or DRAFTS:
    make(chosen)
