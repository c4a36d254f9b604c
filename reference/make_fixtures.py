#!/usr/bin/env python3
"""Writes weights and expectations beside every tests/fixtures/models/<name>/config.json.

usage: make_fixtures.py [--folder FOLDER] [NAME ...]   (FOLDER holds the models, default: tests/fixtures/models)
needs: torch 2.13, transformers 5.24, safetensors, numpy (the versions are written into expected.json)

Input, written by hand: config.json, as a published checkpoint of the family has it, and where needed fixture.json:
  seed            first seed tried (default: from the name); fixed_seed: that one, whatever the conditions below say
  num_tokens      40 unless told; shards: 1 unless told
  stand_in        config.json of the transformers model that computes the same, for families transformers has no code of
  reference       module of this folder that registers the model's class, which makes its caches
  rename          [[pattern, replacement], ...]: from the names transformers saves to the published ones
  fuse_qkv        {"into": module, "heads_per_group": n, "head_dim": n}: joins rows of q, k, v by group, before rename
  transpose       pattern of tensors of all experts which are published as [experts, in, out]
  float32         pattern of tensors that are stored in float32 whatever the checkpoint's dtype
  fp8             pattern of weights stored as F8_E4M3 with weight_scale_inv, blocks as in quantization_config
  extra           {name: shape}: further tensors of published checkpoints which nobody reads, filled with noise
  omit            pattern of tensors beside the text model which are left out, to keep the file small
  amplify         {pattern: factor}: parameters made larger, so that a soft-cap or a sink shows, or smaller: less noise
  without         {label: {"config": {...}, "fill": {pattern: value}, "attribute": {of modules: value}}}: each turns one
                  variation off; the logits must move. A value may be {"rows": [period, from, to], "value": value}: only
                  the rows whose number modulo period is in from .. to - 1
  uncalibrated    pattern of matrices of a selection of tokens, or beside the text model, whose inputs nobody calibrates
  greedy_anew     true: each greedy step runs the whole sequence, for a clamp transformers leaves out of single steps
  keeps           as without, but no logit may move: what no program should read, or where programs differ unseen
Output: model*.safetensors; expected.json (ids; per layer and head the largest magnitude of K after RoPE and of V as
handed to the cache, null for a layer without attention; greedy continuation; largest magnitude of the input of every
matrix product, by the name of its weight on disk, of an expert over the tokens routed to it; how far the logits move,
relative to the largest, without each variation; bfloat16_rms: root mean square of what rounding the input and the
weight of every matrix product but the router's and the indexer's weights does to the logits, relative to theirs) and expected.safetensors (logits
[tokens, vocab]). Reference: float32, eager attention, batch 1, no padding. A seed is taken only if every expert is
chosen, every variation shows, no greedy step and no choice of experts or keys is nearly a tie, and bfloat16 moves the
logits little and no such choice.
"""
import argparse
import copy
import importlib
import json
import pathlib
import re
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors.torch import load_file, save, save_file
from torch.overrides import TorchFunctionMode
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM,
                          AutoModelForSeq2SeqLM)
from transformers.cache_utils import DynamicCache
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.minimax.modeling_minimax import MiniMaxCache

MODELS = pathlib.Path(__file__).parent.parent / "tests/fixtures" / "models"
NUM_GREEDY, MIN_MOVE, MIN_MARGIN, MIN_GAP, MAX_BYTES = 16, 0.01, 1e-3, 0.01, 300_000
MIN_SELECTION_GAP = 1e-3
MAX_BFLOAT16_RMS = 0.015
OUTSIDE = re.compile(r"vision|visual|projector|connector|image_newline|(image|audio)_embed")  # of the text model of a multimodal checkpoint


def merged(config, changes):
    result = dict(config)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


def auto_class(loaded):
    """A multimodal checkpoint is run by its own class, with text alone."""
    classes = AutoModelForImageTextToText, AutoModelForMultimodalLM, AutoModelForSeq2SeqLM
    return next((one for one in classes if type(loaded) in one._model_mapping), AutoModelForCausalLM)


def new_model(config):
    with tempfile.TemporaryDirectory() as folder:
        plain = {key: value for key, value in config.items() if key != "quantization_config"}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(plain))
        loaded = AutoConfig.from_pretrained(folder)
    model = auto_class(loaded).from_config(loaded, dtype=torch.float32, attn_implementation="eager",
                                             experts_implementation="eager")
    return model.eval()


def owner(model, name):
    return model.get_submodule(name.rpartition(".")[0])


def is_experts(model, name, tensor):
    """Whether a tensor holds a matrix an expert; the kernel of a convolution also has three dimensions."""
    is_of_text = not re.search(OUTSIDE, name)
    return is_of_text and tensor.dim() == 3 and not isinstance(owner(model, name), torch.nn.Conv1d)


def random_value(model, name, initial, noise):
    """Uneven on purpose: norms off their start, some K channels large, so that every step of the forward pass shows."""
    module = owner(model, name)
    if name.endswith(("A_log", "dt_bias")):
        return 0.7 * noise - 1.0  # states that live for several tokens
    if initial.dim() == 0 or re.search(r"slope_rate$|_decay$", name):
        return initial.clone()  # a constant of an activation, or of lightning attention
    if initial.dim() <= 1 or "norm" in name:
        is_plain = initial.unique().numel() == 1 and initial.flatten()[0] in (0, 1)
        base = initial if is_plain else torch.zeros_like(initial)
        if "norm" in name or base.flatten()[0] == 1:
            value = base + 0.2 * noise
            if re.search(r"\bk_(layer)?norm\b", name):
                value[..., ::7] += 2.0
            return value
        return base + (0.3 if name.endswith("bias") else 1.0) * noise
    if name.endswith("bias"):
        return 0.3 * noise
    if isinstance(module, torch.nn.Embedding):
        return noise
    inputs_first = type(module).__name__ == "Conv1D" or getattr(module, "is_transposed", False)
    value = noise * (1.6 / initial.shape[-2 if inputs_first else -1] ** 0.5)
    if name.endswith("k_proj.weight"):
        value[::7] *= 4.0
    elif re.search(r"qkv_proj|query_key_value|c_attn|kv_a_proj", name):
        value.mT[..., ::7] *= 2.0 if not inputs_first else 1.0
        value[..., ::7] *= 2.0 if inputs_first else 1.0
    return value


def as_float(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor


def tensors_of(model):
    """Parameters and stored buffers by name; a tied weight once."""
    stored = dict(model.named_parameters())
    saved = model.state_dict()
    stored.update({name: buffer for name, buffer in model.named_buffers() if name in saved})
    return stored


def random_weights(model, seed, dtype, options):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, initial in sorted(tensors_of(model).items()):
        if not initial.is_floating_point():  # numbers of a hash, which the config gives
            state[name] = initial.clone()
            continue
        noise = torch.randn(initial.shape, generator=generator)
        value = random_value(model, name, initial.detach(), noise)
        for pattern, factor in options.get("amplify", {}).items():
            value = value * factor if re.search(pattern, name) else value
        keep = re.search(options.get("float32", "$^"), name)
        state[name] = value if keep else value.to(dtype)
    return state


def fused_qkv(state, into, groups_of):
    """q, k, v of one layer as [kv head][its query heads, k, v][head_dim] rows."""
    result = {}
    for name, tensor in state.items():
        found = re.search(r"^(.*)\.q_proj\.(weight|bias)$", name)
        if found:
            stem, kind = found.groups()
            k, v = state[f"{stem}.k_proj.{kind}"], state[f"{stem}.v_proj.{kind}"]
            groups = tensor.shape[0] // groups_of["head_dim"] // groups_of["heads_per_group"]
            parts = [part.reshape(groups, -1, *part.shape[1:]) for part in (tensor, k, v)]
            result[f"{stem}.{into}.{kind}"] = torch.cat(parts, 1).reshape(-1, *tensor.shape[1:])
        elif not re.search(r"\.[kv]_proj\.(weight|bias)$", name):
            result[name] = tensor
    return result


def published(model, state, options):
    """The same tensors by the names and in the shapes of checkpoints on the hub."""
    state = {name: tensor.clone() for name, tensor in state.items()}
    state = revert_weight_conversion(model, state)
    if "fuse_qkv" in options:
        state = fused_qkv(state, options["fuse_qkv"]["into"], options["fuse_qkv"])
    result = {}
    for name, tensor in state.items():
        for pattern, replacement in options.get("rename", []):
            name = re.sub(pattern, replacement, name)
        is_transposed = re.search(options.get("transpose", "$^"), name)
        result[name] = (tensor.mT if is_transposed else tensor).clone().contiguous()
    return result


def in_blocks(scale, shape, block):
    return scale.repeat_interleave(block[0], 0)[:shape[0]].repeat_interleave(block[1], 1)[:, :shape[1]]


def as_fp8(weight, block):
    """Codes and one float32 scale a block (a short last block keeps its own), real = code * scale."""
    rows, cols = weight.shape
    padded = torch.zeros(-(-rows // block[0]) * block[0], -(-cols // block[1]) * block[1])
    padded[:rows, :cols] = weight.float()
    blocks = padded.reshape(padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
    scale = blocks.abs().amax((1, 3)) / 448.0
    codes = (weight.float() / in_blocks(scale, weight.shape, block)).to(torch.float8_e4m3fn)
    return codes, scale


def quantized(state, config, pattern):
    """On-disk tensors with block-scaled weights, and what they stand for."""
    block = config["quantization_config"]["weight_block_size"]
    disk, plain = {}, {}
    for name, tensor in state.items():
        disk[name] = plain[name] = tensor
        if re.search(pattern, name):
            disk[name], scale = as_fp8(tensor, block)
            disk[name + "_scale_inv"] = scale
            plain[name] = disk[name].float() * in_blocks(scale, tensor.shape, block)
    return disk, plain


def write_if_changed(path, content):
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write_weights(folder, state, shards):
    names = sorted(state)
    size = -(-len(names) // shards)
    weight_map, total, files = {}, 0, set()
    for shard in range(shards):
        part = {name: state[name] for name in (names if shards == 1 else names[shard * size:(shard + 1) * size])}
        file = "model.safetensors" if shards == 1 else f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        write_if_changed(folder / file, save(part, metadata={"format": "pt"}))
        files.add(file)
        weight_map.update({name: file for name in part})
        total += sum(tensor.numel() * tensor.element_size() for tensor in part.values())
    if shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_if_changed(folder / "model.safetensors.index.json", (json.dumps(index, indent=2) + "\n").encode())
        files.add("model.safetensors.index.json")
    for old in folder.glob("model*.safetensors*"):
        if old.name not in files:
            old.unlink()


def is_masked(scores):
    return scores < -1e30


def nearest_tie(scores, k):
    """Smallest distance of a chosen score to the best one left out: of logits as it is, of probabilities relative."""
    if k >= scores.shape[-1]:
        return 1.0
    best = scores.float().topk(k + 1, -1).values
    gaps = best[..., k - 1] - best[..., k]
    if is_masked(scores).any():  # keys of sparse attention: MIN_SELECTION_GAP of the largest score counts as MIN_GAP
        largest = scores.masked_fill(is_masked(scores), 0.0).abs().amax(-1)
        return (gaps / largest)[~is_masked(best[..., k])].min().item() * MIN_GAP / MIN_SELECTION_GAP
    return (gaps if scores.min() < 0 else gaps / best[..., k - 1]).min().item()


def rounded(tensor):
    return tensor.to(torch.bfloat16).to(torch.float32)


class ProductInputs(TorchFunctionMode):
    """Largest magnitude of what each parameter, or each expert's part of one, is multiplied with; experts chosen and
    the nearest top-k tie. As bfloat16, both sides of every product with a parameter are rounded, but for the router's:
    its choices are discrete; and those of hyper-connections, which are float32 everywhere."""

    PRODUCTS = {"linear", "matmul", "__matmul__", "addmm", "mm"}
    ROUTER = re.compile(r"\b(gate|router|router\.proj|shared_expert_gate|weights_proj)\.weight$|_hc\.fn$")

    def __init__(self, model, as_bfloat16=False):
        super().__init__()
        self.as_bfloat16 = as_bfloat16
        self.amax = {}
        self.gap = 1.0
        self.choices = []
        self.places = {}
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                self.places[parameter.data_ptr()] = (name, None)
            for expert in range(parameter.shape[0] if is_experts(model, name, parameter) else 0):
                self.places[parameter[expert].data_ptr()] = (name, expert)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.__name__ in self.PRODUCTS:
            with torch._C.DisableTorchFunction():
                # The bias of a linear map follows its weight and is no input.
                args = self.product(list(args), 2 if func.__name__ == "linear" else len(args))
        if func.__name__ == "bmm":
            with torch._C.DisableTorchFunction():
                args = self.products_of_experts(*args)
        result = func(*args, **kwargs)
        if func.__name__ == "topk" or (func.__name__ == "max" and "keepdim" in kwargs):
            with torch._C.DisableTorchFunction():
                self.gap = min(self.gap, nearest_tie(args[0], kwargs.get("k", args[1] if len(args) > 1 else 1)))
                # Of masked scores any may be chosen.
                indices = result.indices.masked_fill(is_masked(result.values), -1)
                self.choices.append(indices.sort(-1).values)
        return result

    def product(self, args, count):
        for at in range(1, count):
            left, right = args[at - 1:at + 1]
            if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
                continue
            is_second = right.data_ptr() in self.places
            place = self.places.get((right if is_second else left).data_ptr())
            inputs = left if is_second else right
            if place and inputs.numel():
                self.amax[place] = max(self.amax.get(place, 0.0), inputs.abs().max().item())
                if self.as_bfloat16 and not self.ROUTER.search(place[0]):
                    args[at - 1:at + 1] = rounded(left), rounded(right)
                    break
        return args

    def products_of_experts(self, inputs, weights):
        """Products of all experts at once; rows of zeros are those of tokens that the router gave to others."""
        if self.places.get(weights.data_ptr(), (None, None))[1] is None:
            return inputs, weights
        for expert in range(weights.shape[0]):
            place = self.places[weights[expert].data_ptr()]
            self.amax[place] = max(self.amax.get(place, 0.0), inputs[expert].abs().max().item())
        return (rounded(inputs), rounded(weights)) if self.as_bfloat16 else (inputs, weights)


def bfloat16_run(model, ids, exact, logits):
    """Relative distance of logits and whether the experts chosen are those of the exact products."""
    with torch.no_grad(), ProductInputs(model, as_bfloat16=True) as products:
        moved = model(torch.tensor([ids]), use_cache=False).logits[0]
    is_same = all(map(torch.equal, products.choices, exact.choices))
    assert not is_same or products.amax.keys() == exact.amax.keys()
    return ((moved - logits).square().mean() / logits.square().mean()).sqrt().item(), is_same


def disk_names(model, options):
    """(parameter, expert) of the module behind each published tensor: constants are sent through the renaming."""
    places, tagged = [], {}
    for name, tensor in tensors_of(model).items():
        tag = torch.zeros(tensor.shape, dtype=torch.float64)
        has_experts = is_experts(model, name, tensor)
        for expert in range(tensor.shape[0] if has_experts else 1):
            (tag[expert] if has_experts else tag).fill_(len(places))
            places.append((name, expert if has_experts else None))
        tagged[name] = tag
    names = {}
    for name, tensor in published(model, tagged, options).items():
        if tensor.dim() == 3 and places[int(tensor.flatten()[0])][1] is not None:
            for expert, tag in enumerate(tensor):
                names[f"{name}.{expert}"] = places[int(tag.flatten()[0])]
        elif tensor.dim() >= 2:
            names[name.removesuffix(".weight")] = places[int(tensor.flatten()[0])]
    return names


def input_amax(model, options, seen):
    head = model.get_output_embeddings().weight
    embedding = model.get_input_embeddings().weight
    result = {}
    for name, place in disk_names(model, options).items():
        if place in seen:
            if re.search(options.get("uncalibrated", "$^"), name):
                continue
            is_tied = model.get_parameter(place[0]) is embedding and head is embedding
            result["lm_head" if is_tied else name] = float(f"{seen[place]:.8g}")
    return result


def one_per_head(tensor):
    """Heads as cached, a head that was repeated for several queries once."""
    for count in range(1, tensor.shape[0]):
        if tensor.shape[0] % count == 0:
            groups = tensor.reshape(count, -1, *tensor.shape[1:])
            if torch.equal(groups, groups[:, :1].expand_as(groups)):
                return groups[:, 0]
    return tensor


def new_cache(model):
    """A cache that keeps every position, also outside a window, and the states of layers without attention."""
    config = model.config
    if hasattr(model, "new_cache"):
        return model.new_cache()
    if config.model_type == "minimax":
        return MiniMaxCache()
    types = getattr(config.get_text_config(), "layer_types", None) or []
    is_special = {"linear_attention", "indexed_attention", "minimax_m3_sparse", "conv", "hybrid",
                  "hybrid_sliding"} & set(types)
    if not is_special:
        return DynamicCache()
    whole = copy.deepcopy(config)  # layers with a window keep all tokens, too
    unbounded = {"sliding_attention": "full_attention", "hybrid_sliding": "hybrid"}
    if unbounded.keys() & set(types):
        whole.get_text_config().layer_types = [unbounded.get(kind, kind) for kind in types]
    return DynamicCache(config=whole)


def cached(cache, num_tokens, num_layers):
    """Layers behind the last that has a cache of its own are not in the cache."""
    layers = []
    for layer in cache.layers + [None] * (num_layers - len(cache.layers)):
        if getattr(layer, "keys", None) is None:
            layers.append(None)
            continue
        k, v = one_per_head(layer.keys[0]), one_per_head(layer.values[0])
        assert k.shape[1] == num_tokens
        if v.shape[2] == 0:  # beside a latent without a rotated key
            v = torch.zeros(*v.shape[:2], 1)
        layers.append({"k_head_amax": k.abs().amax((1, 2)).tolist(), "v_head_amax": v.abs().amax((1, 2)).tolist(),
                       "k_min": k.min().item(), "k_max": k.max().item(),
                       "v_min": v.min().item(), "v_max": v.max().item()})
    return layers


def greedy_text(model, prompt, use_cache):
    out = model.generate(torch.tensor([prompt]), max_new_tokens=NUM_GREEDY, do_sample=False, eos_token_id=None,
                         pad_token_id=0, return_dict_in_generate=True, output_logits=True, use_cache=use_cache)
    logits = torch.stack(out.logits)[:, 0]
    best = logits.topk(2, -1).values
    return out.sequences[0, len(prompt):].tolist(), ((best[:, 0] - best[:, 1]) / logits.abs().max()).min().item()


def expectations(model, options, ids):
    cache = new_cache(model)
    with torch.no_grad(), ProductInputs(model) as products:
        logits = model(torch.tensor([ids]), past_key_values=cache, use_cache=True).logits[0]
    with torch.no_grad():
        greedy, margin = greedy_text(model, ids[:8], not options.get("greedy_anew", False))
    expected = {"reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager",
                "ids": ids, "greedy_prompt": ids[:8], "greedy": greedy,
                "layers": cached(cache, len(ids), model.config.get_text_config().num_hidden_layers),
                "linear_input_amax": input_amax(model, options, products.amax)}
    distance, is_same_choice = bfloat16_run(model, ids, products, logits)
    expected["bfloat16_rms"] = float(f"{distance:.4g}")
    experts = {place for place in products.places.values() if place[1] is not None}
    fits = (margin > MIN_MARGIN and products.gap > MIN_GAP and not experts - products.amax.keys()
            and distance <= MAX_BFLOAT16_RMS and is_same_choice)
    changes = "" if is_same_choice else " and other experts"
    return logits.contiguous(), expected, fits, (f"margin {margin:.3f}, gap {products.gap:.3f}, "
                                                 f"bfloat16 {distance:.4f}{changes}")


def filled(tensor, value):
    rows = value if isinstance(value, dict) else {"rows": [1, 0, 1], "value": value}
    period, start, stop = rows["rows"]
    number = torch.arange(tensor.shape[0]) % period
    result = tensor.clone()
    result[(number >= start) & (number < stop)] = rows["value"]
    return result


def changed_logits(config, state, change, ids):
    other = new_model(merged(config, change.get("config", {})))
    changed = {name: as_float(tensor) for name, tensor in state.items()}
    for pattern, value in change.get("fill", {}).items():
        hits = [name for name in changed if re.search(pattern, name)]
        assert hits, f"{pattern} matches nothing"
        changed.update({name: filled(changed[name], value) for name in hits})
    other.load_state_dict(changed, strict=False)
    for module in other.modules():
        for attribute, value in change.get("attribute", {}).items():
            if hasattr(module, attribute):
                setattr(module, attribute, value)
    with torch.no_grad():
        return other(torch.tensor([ids])).logits[0]


def moves(config, state, changes, ids, logits):
    """Largest change of a logit, relative to the largest logit, of each of the changes alone."""
    return {label: ((changed_logits(config, state, change, ids) - logits).abs().max() / logits.abs().max()).item()
            for label, change in changes.items()}


def loaded_as_published(folder, model, omitted):
    """The judge's own loading of the folder must give exactly the model that was measured."""
    judge, report = type(model).from_pretrained(folder, config=type(model.config).from_pretrained(folder), dtype=torch.float32,
                                                attn_implementation="eager", output_loading_info=True)
    missing = [name for name in report["missing_keys"] if not re.search(omitted, name)]
    assert not missing and not report["mismatched_keys"], report
    for (name, ours), (_, theirs) in zip(sorted(model.state_dict().items()), sorted(judge.state_dict().items())):
        assert re.search(omitted, name) or torch.equal(ours, theirs), name


def attempt(config, options, seed):
    """A model of one seed: judge with its weights, tensors for the disk, tensors as the judge holds them."""
    stand_in = options.get("stand_in", config)
    model = new_model(stand_in)
    text = config.get("thinker_config", config).get("text_config", config)
    dtype = getattr(torch, config.get("torch_dtype", config.get("dtype", text.get("torch_dtype", "float32"))))
    state = random_weights(model, seed, dtype, options)
    if config.get("tie_word_embeddings", False):
        state.pop("lm_head.weight", None)
    disk = published(model, state, options)
    if "fp8" in options:
        disk, plain = quantized(disk, config, options["fp8"])
        with tempfile.TemporaryDirectory() as folder:
            rest = {key: value for key, value in config.items() if key != "quantization_config"}
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(rest))
            save_file(plain, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
            state = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    model.load_state_dict({name: as_float(tensor) for name, tensor in state.items()}, strict=False)
    model.tie_weights()
    noise = torch.Generator().manual_seed(seed + 1)
    for name, shape in options.get("extra", {}).items():
        disk[name] = torch.randn(shape, generator=noise).to(dtype)
    return model, stand_in, state, disk


def make(models, name):
    folder = models / name
    config = json.loads((folder / "config.json").read_text())
    options = json.loads((folder / "fixture.json").read_text()) if (folder / "fixture.json").exists() else {}
    if "reference" in options:
        importlib.import_module(options["reference"])
    first = options.get("fixed_seed", options.get("seed", zlib.crc32(name.encode()) % 100_000))
    for seed in range(first, first + (1 if "fixed_seed" in options else 500)):
        model, stand_in, state, disk = attempt(config, options, seed)
        vocab = config.get("thinker_config", config).get("text_config", config).get("vocab_size")
        ids = torch.randint(3, vocab, (options.get("num_tokens", 40),),
                            generator=torch.Generator().manual_seed(seed)).tolist()
        logits, expected, fits, note = expectations(model, options, ids)
        if not fits and "fixed_seed" not in options:
            continue
        expected["moves"] = moves(stand_in, state, options.get("without", {}), ids, logits)
        kept = moves(stand_in, state, options.get("keeps", {}), ids, logits)
        shows = all(move > MIN_MOVE for move in expected["moves"].values()) and not any(kept.values())
        if "fixed_seed" in options or shows:
            break
        print(f"  {name} seed {seed}: too weak: {expected['moves']}, must not show: {kept}", file=sys.stderr)
    else:
        raise SystemExit(f"{name}: no seed fits")
    omitted = options.get("omit", "$^")
    disk = {name: tensor for name, tensor in disk.items() if not re.search(omitted, name)}
    write_weights(folder, disk, options.get("shards", 1))
    if "stand_in" not in options and "fp8" not in options:
        loaded_as_published(folder, model, omitted)
    write_if_changed(folder / "expected.safetensors", save({"logits": logits}))
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < MAX_BYTES, f"{name}: {size} bytes"
    print(f"{name}: seed {seed}, {size // 1024} KiB, logits to {logits.abs().max():.1f}, {note},",
          {label: round(move, 3) for label, move in expected["moves"].items()}, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, default=MODELS)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    for chosen in arguments.names or sorted(path.parent.name for path in arguments.folder.glob("*/config.json")):
        make(arguments.folder, chosen)


if __name__ == "__main__":
    main()
