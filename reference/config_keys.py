#!/usr/bin/env python3
"""What transformers makes of every key of the fixtures' configs: tests/fixtures/config_keys.json.

usage: config_keys.py [NAME ...]      (the others' lines stay as they are)
       config_keys.py --missing        (those without a line; a run that ended goes on)
needs: torch 2.13, transformers 5.24, safetensors

Of each fixture of tests/fixtures/models one key of config.json is changed at a time: a key of the file, and one that its class
in transformers has and the file has not. A key gets other plausible values, none (null), and is taken away. transformers
loads the fixture's own weights with the changed config and runs its tokens in float32 with eager attention.

Output, a line a fixture: by key, dotted where it is in an object, the changes as [value, result], or [result] for a key taken away
("a>b": the value of a is under b instead, the name that transformers' class has for it, or the other way round):
  0           the numbers stay: logits, K and V within SAME
  [numbers]   root mean square of all logits and of the last token's, then of each layer with a cache of its own the largest
              magnitude of K and of V
A change that transformers refuses is left out, and so is one whose weights do not fit, whose numbers are not finite, or whose
numbers float64 would give otherwise: a near tie among experts or keys.
"defaults": by fixture, what the class has for keys that the file may leave out.
Fixtures whose weights transformers does not load as they are (stand_in, fp8) have no line.
"""
import argparse
import contextlib
import copy
import importlib
import io
import json
import pathlib
import re
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache
from transformers.models.minimax.modeling_minimax import MiniMaxCache

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"
OUTPUT = FIXTURES / "config_keys.json"
SAME, STEADY, AS_RECORDED = 1e-6, 2e-5, 1e-4
MISSING = object()
REFUSED, UNSTEADY = "refused", "unsteady"
# Keys of training and of generation, which PLAIN tries alone.
COMMON = re.compile(r"^(initializer_range|use_cache|.*dropout.*|.*drop|(bos|eos)_token_id|router_aux_loss_coef|output_router_logits)$")
PLAIN = "llama"
# The model itself, and what lies beside its text model.
SKIPPED = re.compile(r"^(model_type|architectures|auto_map|transformers_version|torch_dtype|dtype|quantization_config|_name_or_path|"
                     r".*(vision|audio|qformer|perceiver|vq|speech|backbone|sound)_config|vocabulary_map|projector_patch_to_query_dict|"
                     r"architectures|id2label|label2id|problem_type|per_layer_config)$")
WORDS = {"scoring_func": ["softmax", "sigmoid"], "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"],
         "rope_type": ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"],
         "type": ["default", "linear", "dynamic", "yarn"], "position_embedding_type": ["rope", "nope"],
         "cache_implementation": ["hybrid"]}
KINDS = {"layer_types": ["sliding_attention", "full_attention"], "mlp_layer_types": ["sparse", "dense"],
         "layers_block_type": ["mamba", "attention"]}
ROPES = ("rope_parameters", "rope_scaling")


def text_of(config):
    """The object of the text model's keys, and the prefix of their names."""
    return (config["text_config"], "text_config.") if "text_config" in config else (config, "")


def own_keys(loaded):
    """Keys that the class of the text model has, with what each is where the file lacks it."""
    common = set(PreTrainedConfig().to_dict()) | {"num_labels"}
    hints = {key: hint for kind in reversed(type(loaded).__mro__) for key, hint in getattr(kind, "__annotations__", {}).items()}
    fields = {key: value for key, value in loaded.to_dict().items() if key not in common and not key.startswith("_")}
    return fields, {key: str(hint) for key, hint in hints.items()}


def defaults_of(loaded):
    """What the class has for a key, where it is one number, word or truth value."""
    kinds = (bool, int, float, str)
    fields, _ = own_keys(loaded)
    defaults = {key: getattr(type(loaded), key, None) for key in fields if not SKIPPED.match(key)}
    if "rope_parameters" in fields and getattr(type(loaded), "rope_parameters", None) is None:
        defaults.setdefault("rope_theta", getattr(loaded, "default_theta", None))
    return {key: value for key, value in defaults.items() if isinstance(value, kinds)}


def other_list(key, value):
    kinds = KINDS.get(key)
    if not value or not isinstance(value[0], (str, int, float)):
        return []
    if isinstance(value[0], str):
        kinds = kinds if kinds and set(value) <= set(kinds) else sorted(set(value))
        turned = [kinds[(kinds.index(word) + 1) % len(kinds)] for word in value]
        return [turned] + [[word] * len(value) for word in kinds]
    if isinstance(value[0], bool):
        return [[not entry for entry in value]]
    first = other_number(key, value[0])
    return [[entry] + value[1:] for entry in first]


def other_number(key, value):
    if isinstance(value, float):
        if re.search("eps", key):
            return [0.02]
        return [value / 2 if value else 0.5] + ([1.0] if 0.0 < value < 1.0 else [])
    return [value // 2, value + 1] if value > 1 else [value + 1, 1 - value] if value >= 0 else [4]


def others(key, value, hint, seen):
    """Plausible other values of a key."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return other_number(key, value)
    if isinstance(value, str):
        if value in ACT2FN and "act" in key:
            return ["relu", "gelu_pytorch_tanh", "silu", "sigmoid"]
        return WORDS.get(key, []) + sorted(seen.get(key, set()))
    if isinstance(value, list):
        return other_list(key, value)
    if value is None:
        if key in ROPES:
            return [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "default", "rope_theta": 5000.0}]
        if "bool" in hint:
            return [True]
        if "float" in hint:
            return [0.5]
        return [4] if "int" in hint else []
    return []


def rope_changes(name, rope):
    """Whole objects that stand in the place of a rope."""
    theta = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    yield name, {**theta, "rope_type": "linear", "factor": 2.0}
    yield name, {**theta, "rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16}
    yield name, {**theta, "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}


def changes_of(prefix, values, hints, seen, present):
    """(dotted name, value or MISSING) of each change of the object's keys."""
    for key, value in values.items():
        name = prefix + key
        if SKIPPED.match(key) or key.startswith("_") or key == "text_config":
            continue
        if key in present:
            yield name, MISSING
            if value is not None:
                yield name, None
        if isinstance(value, dict):
            yield from changes_of(name + ".", value, {}, seen, value if key in present else {})
            if key in ROPES and not any(isinstance(entry, dict) for entry in value.values()):
                yield from rope_changes(name, value)
        else:
            for other in others(key, value, hints.get(key, ""), seen):
                yield name, other
    if values.get("layer_types") is None and isinstance(values.get("num_hidden_layers"), int):
        words = KINDS["layer_types"]
        yield prefix + "layer_types", [words[i % 2] for i in range(values["num_hidden_layers"])]


def renames_of(prefix, loaded, present):
    """Keys that the class knows under another name, too."""
    for other, key in type(loaded).attribute_map.items():
        for old, new in ((other, key), (key, other)):
            if old in present and new not in present:
                yield f"{prefix}{old}>{prefix}{new}", MISSING


def changed(config, name, value):
    if ">" in name:
        old, new = name.split(">")
        return changed(changed(config, old, MISSING), new, value_of(config, old))
    result = json.loads(json.dumps(config))
    *outer, key = name.split(".")
    place = result
    for part in outer:
        place = place.setdefault(part, {})
    if value is MISSING:
        place.pop(key, None)
    else:
        place[key] = value
    return result


def value_of(config, name):
    for part in name.split("."):
        config = config[part]
    return config


def new_cache(model):
    """A cache that keeps every position, also outside a window, and the states of layers without attention."""
    config = model.config
    if hasattr(model, "new_cache"):
        return model.new_cache()
    if config.model_type == "minimax":
        return MiniMaxCache()
    types = getattr(config.get_text_config(), "layer_types", None) or []
    is_special = {"linear_attention", "indexed_attention", "minimax_m3_sparse", "conv", "hybrid", "hybrid_sliding"} & set(types)
    if not is_special:
        return DynamicCache()
    whole = copy.deepcopy(config)  # layers with a window keep all tokens, too
    without = {"sliding_attention": "full_attention", "hybrid_sliding": "hybrid"}
    if without.keys() & set(types):
        whole.get_text_config().layer_types = [without.get(kind, kind) for kind in types]
    return DynamicCache(config=whole)


class Runner:
    """transformers with a fixture's weights and any config."""

    def __init__(self, folder, ids, omitted):
        self.folder, self.ids, self.omitted = folder, torch.tensor([ids]), omitted

    @staticmethod
    def config(config):
        with tempfile.TemporaryDirectory() as scratch:
            plain = {key: value for key, value in config.items() if key != "auto_map"}
            (pathlib.Path(scratch) / "config.json").write_text(json.dumps(plain))
            return AutoConfig.from_pretrained(scratch)

    def load(self, config, dtype):
        loaded = self.config(config)
        multimodal = AutoModelForImageTextToText
        auto = multimodal if type(loaded) in multimodal._model_mapping else AutoModelForCausalLM
        model, report = auto.from_pretrained(self.folder, config=loaded, dtype=dtype, attn_implementation="eager",
                                             experts_implementation="eager", output_loading_info=True)
        missing = [key for key in report["missing_keys"] if not re.search(self.omitted, key)]
        if missing or report["mismatched_keys"] or report["unexpected_keys"]:
            raise ValueError(f"weights do not fit: {report}")
        return model.eval()

    def run(self, config, dtype=torch.float32):
        """Logits, and K and V of each layer that has a cache of its own."""
        model = self.load(config, dtype)
        cache = new_cache(model)
        with torch.no_grad():
            logits = model(self.ids, cache=cache, use_cache=True).logits[0]
        numbers = [logits]
        for layer in cache.layers:
            if getattr(layer, "keys", None) is not None:
                has_values = layer.values.numel() > 0  # none beside a latent without a rotated key
                numbers += [layer.keys[0], layer.values[0] if has_values else torch.zeros(1)]
        if not all(tensor.isfinite().all() for tensor in numbers):
            raise ValueError("not finite")
        return numbers


def summary(numbers):
    rms = [tensor.float().square().mean().sqrt().item() for tensor in (numbers[0], numbers[0][-1])]
    return rms + [tensor.abs().max().item() for tensor in numbers[1:]]


def distance(ours, theirs):
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return 1.0
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in zip(ours, theirs))


def close(some, others, tolerance):
    return len(some) == len(others) and all(abs(a - b) <= tolerance * abs(b) for a, b in zip(some, others))


def rounded(numbers):
    return [float(f"{number:.6g}") for number in numbers]


def result_of(runner, config, base, plain):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            if runner.config(config).to_dict() == plain:  # the same model
                return 0
            numbers = runner.run(config)
        except Exception:
            return REFUSED
        if distance(numbers, base) <= SAME:
            return 0
        seen = summary(numbers)
        if not re.search("expert|topk|top_k", json.dumps(config)):
            return rounded(seen)
        try:
            exact = summary(runner.run(config, torch.float64))
        except Exception:
            exact = seen
    return rounded(seen) if close(seen, exact, STEADY) else UNSTEADY


def record(name, seen):
    folder = FIXTURES / "models" / name
    config = json.loads((folder / "config.json").read_text())
    options = json.loads((folder / "fixture.json").read_text()) if (folder / "fixture.json").exists() else {}
    expected = json.loads((folder / "expected.json").read_text())
    if "reference" in options:
        importlib.import_module(options["reference"])
    runner = Runner(folder, expected["ids"], options.get("omit", "$^"))
    base_config, plain = runner.load(config, torch.float32).config, runner.config(config).to_dict()
    base = runner.run(config)
    check_base(name, base, expected)
    text, prefix = text_of(config)
    loaded = base_config.get_text_config()
    fields, hints = own_keys(loaded) if not prefix else ({}, {})
    all_changes = list(changes_of(prefix, {**fields, **text}, hints, seen, text))
    all_changes += renames_of(prefix, loaded, text)
    if name == PLAIN:
        all_changes.append(("is_causal", False))  # no class has it, and every mask of transformers reads it
    if prefix:
        all_changes += changes_of("", {key: value for key, value in config.items()}, {}, seen, config)
    results, tried, counts = {}, set(), {}
    for key, value in all_changes:
        if COMMON.match(key.rpartition(".")[2]) and name != PLAIN:
            continue
        other = changed(config, key, value)
        text = json.dumps(other)
        if other == config and value is not None or text in tried:
            continue
        tried.add(text)
        result = result_of(runner, other, base, plain)
        kind = result if isinstance(result, str) else "moved" if result else "same"
        counts[kind] = counts.get(kind, 0) + 1
        if kind in ("moved", "same"):
            results.setdefault(key, []).append([result] if value is MISSING else [value, result])
    print(name, counts, flush=True)
    return results, {} if prefix else defaults_of(loaded)


def check_base(name, base, expected):
    """The fixture as it is gives what was recorded with it."""
    layers = [layer for layer in expected["layers"] if layer]
    wanted = [value for layer in layers for value in (max(layer["k_head_amax"]), max(layer["v_head_amax"]))]
    assert close(summary(base)[2:], wanted, AS_RECORDED), (name, summary(base)[2:], wanted)


def seen_words():
    words = {}
    for path in (FIXTURES / "models").glob("*/config.json"):
        text = text_of(json.loads(path.read_text()))[0]
        for key, value in text.items():
            if isinstance(value, str):
                words.setdefault(key, set()).add(value)
    return {key: values for key, values in words.items() if len(values) < 6}


def is_judged(name):
    options = FIXTURES / "models" / name / "fixture.json"
    told = json.loads(options.read_text()) if options.exists() else {}
    return "fp8" not in told and ("stand_in" not in told or name == "exaone")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--missing", action="store_true")
    options = parser.parse_args()
    names = options.names or sorted(path.parent.name for path in (FIXTURES / "models").glob("*/config.json"))
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    told = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"models": {}, "defaults": {}}
    seen, failed = seen_words(), []
    for name in filter(is_judged, names):
        if options.missing and name in told["models"]:
            continue
        try:
            told["models"][name], told["defaults"][name] = record(name, seen)
        except Exception as error:
            failed.append(f"{name}: {error!r}")
            continue
        write(told)
    sys.exit("\n".join(failed))


def write(told):
    """A line a fixture."""
    def lines(part):
        return ",\n".join(f'"{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in sorted(told[part].items()) if value)
    reference = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    OUTPUT.write_text(f'{{"reference": "{reference}",\n"models": {{\n{lines("models")}}},\n"defaults": {{\n{lines("defaults")}}}}}\n')


if __name__ == "__main__":
    main()
