#!/usr/bin/env python3
"""engines_unseen.py KVCAL SCRATCH SEED ENGINE@VERSION=PYTHON ... [--cells N] [--family NAME ...] [--list]

Whether `kvcal verify` says of checkpoints that no record holds what an engine's own code does. Each of N (120) checkpoints is drawn by SEED: a family (NAME, any of
tests/fixtures/models or COMBINED; without --family those of UNSEEN and COMBINED), a method, names of scales, their dtype, shape and places, and a change of the
configuration. SCRATCH keeps checkpoints and answers; "-" for PYTHON takes these alone. For each engine it prints counts and every cell in which verify says something else, or exits 0 where scales are lost, refused or other; the exit
status is 1 where there is such an exit. --list prints the drawn cells alone.

A cell's name says what was drawn, so that a cell can be made again: "17 voxtral/quark, output, F16 [], told".
"""
import argparse
import json
import pathlib
import random
import shutil
import struct
import sys

from engines_checkpoints import header, keep_tensors, kvcal, make_family, write_tensors
from check_engine.checkpoint import is_scale, unpack  # which the line before finds
from engines_families import CONFIGS, SAME_AS, fixture_config, part_of
from engines_names import METHODS, NAMES, modules_of, value
from engines_table import FP8, answer_of, general, reason_of, run_judge, same

# Fixtures of which no engine's answers are recorded.
UNSEEN = ("dbrx_norm ernie4_5_moe_biased gemma3_text_v5 gpt2_scaled hunyuan_v1_moe_topk jamba_biased lfm2_moe_plain llama4_yarn llama_biased_v5 llama_rope_llama3 nanochat_yarn "
          "nemotron_h_latent opt_plain opt_post_norm phi3_longrope_long phi_normed qwen2_window qwen3_5_biased qwen3_next_biased smollm3_window").split()


def around(outer, inner, **more):
    text = {key: value for key, value in fixture_config(inner).items() if key not in ("architectures", "transformers_version", "quantization_config")}
    return outer, dict(text_config=text) | more


# Multimodal types around another text model than in the fixture, and texts of other sizes: {NAME: (the fixture, what differs)}.
COMBINED = {"llava_qwen3": around("llava", "qwen3"), "llava_next_granite": around("llava_next", "granite"), "llava_onevision_llama": around("llava_onevision", "llama"),
            "mistral3_qwen2": around("mistral3", "qwen2"), "internvl_qwen3_moe": around("internvl", "qwen3_moe"), "aya_vision_cohere": around("aya_vision", "cohere"),
            "idefics3_smollm3": around("idefics3", "smollm3"), "vipllava_mixtral": around("vipllava", "mixtral"),
            "llama_one_head": ("llama", dict(num_key_value_heads=1, num_hidden_layers=3, attention_bias=True)),
            "qwen3_tied": ("qwen3", dict(tie_word_embeddings=True, num_hidden_layers=3)), "mixtral_window": ("mixtral", dict(sliding_window=16)),
            "granite_wide": ("granite", dict(num_hidden_layers=5)), "gemma2_bf16": ("gemma2", dict(torch_dtype="bfloat16", num_hidden_layers=3))}
# Beside those of engines_names.py: names that no engine's source has, or for other parts.
MORE_NAMES = {"attn shared": "{m}.attn.kv_scale", "attn output": "{m}.attn.{s}_proj.output_scale", "impl": "{m}.attn.impl.{s}_scale", "private": "{m}._{s}_scale",
              "weight": "{m}.{s}_scale.weight", "quantizer": "{m}.{s}_bmm_quantizer.scale", "inverse": "{m}.{s}_scale_inv", "kv_proj": "{m}.kv_proj.{s}_scale",
              "float": "{m}.{s}_scale_float", "cache in module": "{m}.kv_cache.{s}_scale", "long": "{m}.{w}_scale", "plural": "{m}.{s}_scales"}
ALL_NAMES = NAMES | MORE_NAMES
USUAL = ["plain", "attn", "modelopt", "output", "shared", "fused"]  # which some engine loads
PREFIXES = {"": lambda name: name, "no model.": lambda name: name.removeprefix("model."), "model. twice": lambda name: "model." + name,
            "module.": lambda name: "module." + name}
SHAPES = ([], [1], [1, 1])
DTYPES = {"F32": lambda x: struct.pack("<f", x), "F16": lambda x: struct.pack("<e", x), "BF16": lambda x: struct.pack("<f", x)[2:]}
CHANGES = {"compressed-tensors": {"no scheme": dict(kv_cache_scheme=None), "symmetric 1": dict(kv_cache_scheme=dict(symmetric=1)), "dynamic": dict(kv_cache_scheme=dict(dynamic=True)),
                                  "int8": dict(kv_cache_scheme=dict(type="int")), "heads": dict(kv_cache_scheme=dict(strategy="attn_head")), "no ignore": dict(ignore=[])},
           "fp8": {"dynamic": dict(activation_scheme="dynamic"), "no scheme": dict(kv_cache_scheme=None), "auto scheme": dict(kv_cache_scheme="auto")},
           "modelopt": {"no cache": dict(kv_cache_scheme=None), "dynamic": dict(kv_cache_scheme=dict(dynamic=True)), "nvfp4 cache": dict(kv_cache_quant_algo="NVFP4")},
           "quark": {"no group": dict(export=dict(kv_cache_group=[])), "group text": dict(export=dict(kv_cache_group="*k_proj")),
                     "short group": dict(export=dict(kv_cache_group=["k_proj", "v_proj"]))}}


def draw(seed, number, families):
    rng = random.Random(f"{seed}/{number}")
    family, method = rng.choice(families), rng.choice(list(METHODS))
    names = rng.choices([USUAL, list(NAMES), list(ALL_NAMES)], [4, 1, 1])[0]
    kind = rng.choices(["one", "by layer", "by side", "beside"], [6, 1, 1, 1])[0]
    cell = dict(number=number, family=family, method=method, kind=kind, names=rng.sample(names, 2), prefix=rng.choices(list(PREFIXES), [15, 1, 1, 1])[0],
                dtype=rng.choices(list(DTYPES), [4, 1, 1])[0], shape=rng.choice(SHAPES), left=rng.choices(["", "V", "layer 0"], [8, 1, 1])[0],
                change=rng.choice(["", "", "", *CHANGES[method]]), told=rng.choice([True, METHODS[method][1] != ""]))
    parts = [cell["names"][0] if kind == "one" else f"{kind} {cell['names'][0]} + {cell['names'][1]}", f"{cell['dtype']} {cell['shape']}"]
    parts += [part for part in (cell["prefix"], cell["left"] and f"without {cell['left']}", cell["change"], "told" if cell["told"] else "") if part]
    return cell | dict(name=f"{number} {family}/{method}, " + ", ".join(parts))


def tensors_of(cell, modules, heads):
    """{name: bytes} of the file, and {layer: {side: number, or a list for heads}} as they are meant."""
    tensors, wanted = {}, {}
    packed = DTYPES[cell["dtype"]]
    for index, (layer, module) in sorted(modules.items()):
        if cell["left"] == "layer 0" and index == min(modules):
            wanted[index] = dict(k=1.0, v=1.0)
            continue
        for side in "k" if cell["left"] == "V" else "kv":
            first, second = (ALL_NAMES[name] for name in cell["names"])
            templates = {"one": [first], "by layer": [(first, second)[index % 2]], "by side": [first if side == "k" else second], "beside": [first, second]}[cell["kind"]]
            for template in templates:
                number = value(index, side if "{s}" in template or "{w}" in template else "k")
                name = template.format(m=module, l=layer, s=side, w=dict(k="key", v="value")[side])
                numbers = [number * (1 + head / 8) for head in range(heads)]
                tensors[PREFIXES[cell["prefix"]](name)] = b"".join(map(packed, numbers))
                held = [unpack(packed(one), cell["dtype"])[0] for one in numbers]
                wanted.setdefault(index, {}).setdefault(side, held if heads > 1 else held[0])
        wanted[index].setdefault("v", wanted[index]["k"])  # as engines of one scale for both take it
    return tensors, wanted


def merged(config, change):
    for key, more in change.items():
        config[key] = config[key] | more if isinstance(more, dict) and isinstance(config.get(key), dict) else more
    return config


def make(home, folder, cell):
    """The checkpoint's folder; what its scales are meant to be."""
    text = json.loads((home / "base" / "config.json").read_text())
    text = text.get("text_config", text)
    heads = text.get("num_key_value_heads") or 1 if cell["change"] == "heads" else 1
    shape = [heads, 1, 1] if cell["change"] == "heads" else cell["shape"]
    tensors, wanted = tensors_of(cell, modules_of(home / "compressed-tensors"), heads)
    if not folder.exists():
        shutil.copytree(home / METHODS[cell["method"]][0], folder)
        path = folder / "model.safetensors"
        keep_tensors(path, lambda name: not is_scale(name))
        entries, start = header(path)
        data = path.read_bytes()[start:]
        for name, packed in tensors.items():
            entries[name] = dict(dtype=cell["dtype"], shape=shape, data_offsets=[len(data), len(data) + len(packed)])
            data += packed
        write_tensors(path, entries, data)
        if cell["change"]:
            config = json.loads((folder / "config.json").read_text())
            merged(config["quantization_config"], CHANGES[cell["method"]][cell["change"]])
            (folder / "config.json").write_text(json.dumps(config))
    return wanted


def families_of(options):
    for name, (fixture, differs) in COMBINED.items():
        SAME_AS[name], CONFIGS[name] = fixture, CONFIGS.get(fixture, {}) | differs
    return options.family or [*UNSEEN, *COMBINED]


def made_cells(options):
    """The cells whose family kvcal makes a checkpoint of, with "folder" and "wanted"."""
    made = []
    for number in range(options.cells):
        cell = draw(options.seed, number, families_of(options))
        home = options.scratch / cell["family"]
        if options.list:
            print(cell["name"])
            continue
        make_family(options, cell["family"], ["weights", *(form for form, _ in METHODS.values())])
        if not (home / METHODS[cell["method"]][0]).exists() or not (home / "compressed-tensors").exists():
            continue
        folder = options.scratch / f"cells_{options.seed}" / str(number)
        wanted = make(home, folder, cell)
        made.append(cell | dict(folder=folder, wanted=wanted, base=home / "base"))
    return made


def jobs_of(cells, engine):
    for cell in cells:
        told = FP8.get(engine.partition("@")[0], "fp8") if cell["told"] and not engine.startswith("transformers") else "auto"
        yield dict(name=f"{cell['family']}/base", folder=str(cell["base"]))
        yield dict(name=cell["name"], base=f"{cell['family']}/base", folder=str(cell["folder"]), kv_cache_dtype=told)


def verified(options, engine, cell):
    """verify's answer, numbers by layer, exit status, and whether it says that it does not know or what makes the cache FP8."""
    told = ["--kv-cache-dtype", "fp8"] if cell["told"] and not engine.startswith("transformers") else []
    done = kvcal(options, "verify", cell["folder"], "--engine", engine, "--json", *told)
    if not done.stdout:
        return "error: " + done.stderr.strip()[-200:], {}, done.returncode, False
    report = json.loads(done.stdout)
    layers = {layer["layer"]: {"k": layer["k_scale"], "v": layer["v_scale"]} for layer in report["layers"]}
    is_open = any("not known" in finding["message"] or finding["remedy"].startswith("start it with ") for finding in report["findings"])
    return answer_of(cell["wanted"], report["loads"], report["kv_cache_dtype"], layers), layers, done.returncode, is_open


def compare(options, engine, cell, seen, base):
    layers = {int(layer): sides for layer, sides in seen.get("layers", {}).items()}
    did = answer_of(cell["wanted"], seen["loads"], seen.get("cache_dtype", ""), layers)
    said, numbers, code, is_open = verified(options, engine, cell)
    agrees = did == said and (did not in ("partly", "rounded") or all(
        same(layers.get(layer, {}).get(side), numbers.get(layer, {}).get(side)) for layer in cell["wanted"] for side in "kv"))
    is_bad = did in ("lost", "partly", "refused") or (did == "16-bit" and not is_open)
    if not base["loads"]:
        did = "no model"
    return dict(name=cell["name"], did=did, said=said, exit=code, agrees=agrees, is_open=is_open, is_hidden=is_bad and code == 0, why=reason_of(seen, did))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kvcal", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("seed")
    parser.add_argument("engines", nargs="*")
    parser.add_argument("--cells", type=int, default=120)
    parser.add_argument("--family", nargs="+")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    cells, hidden = made_cells(options), 0
    for engine, _, python in (text.partition("=") for text in options.engines):
        seen = run_judge(options.scratch, list({job["name"]: job for job in jobs_of(cells, engine)}.values()), python, engine, f"unseen_{options.seed}_{engine}")
        rows = [compare(options, engine, cell, seen[cell["name"]], seen[f"{cell['family']}/base"]) for cell in cells if cell["name"] in seen]
        other = [row for row in rows if not row["agrees"]]
        hidden += sum(row["is_hidden"] for row in rows)
        starts = sum(row["did"] != "no model" for row in rows)
        print(f"{engine}: {len(rows)} cells, {starts} of models that start; {len(other)} disagree, {sum(row['is_hidden'] for row in rows)} exit 0 and lose scales")
        for row in rows:
            if not row["agrees"] or row["is_hidden"]:
                mark = "EXIT 0: " if row["is_hidden"] else ""
                print(f"  {mark}{row['name']}: {row['did']}, verify: {row['said']}, exit {row['exit']}{', open' if row['is_open'] else ''}: {general(row['why'] or '')}")
    sys.exit(1 if hidden else 0)


if __name__ == "__main__":
    main()
