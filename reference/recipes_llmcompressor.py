#!/usr/bin/env python3
"""Reads our recipes with llm-compressor, and keeps what it saves and matches as expectations.

Run with Python 3.11, llmcompressor 0.14.0.1, compressed-tensors 0.19.0, transformers 5.17, torch 2.13:
    python reference/recipes_llmcompressor.py

1. Every recipes/*.yaml must give QuantizationModifiers whose groups llm-compressor resolves, the same through a file and
   through its text, and a kv_cache_scheme that is what the file says. The script stops where it does not. (It only reads
   the observers percentile and entropy, which are ours, as it reads any name.)
2. tests/fixtures/recipe/saved/<name>.out.yaml: how llm-compressor saves <name>.in.yaml and each recipe of
   recipes/; saved form must read back as the same modifiers. Our to_yaml writes the same bytes.
3. tests/fixtures/recipe/groups.json: the config groups of all these, resolved: presets looked up, observers named, with
   compressed-tensors' format for a Linear, and whether data is needed. Where a recipe
   names no observer of static inputs llm-compressor takes minmax and we static_minmax; the recipes here name one, and
   strategies too, as llm-compressor saves what it does not find in a form that it cannot read.
4. tests/fixtures/recipe/matches.json: compressed-tensors' match_name on patterns and module names, for
   matches_target.
"""

import json
import pathlib

import torch
import yaml
from compressed_tensors.compressors.format import infer_module_format
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.utils.match import match_name
from llmcompressor.recipe import Recipe

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "recipe"

NAMES = [
    "lm_head", "model", "model.embed_tokens", "model.norm", "model.layers.0.self_attn",
    "model.layers.1.self_attn", "model.layers.11.self_attn", "model.layers.1.self_attn.k_proj",
    "model.layers.1.mlp.down_proj", "model.layers.11.mlp.experts.3.gate_proj",
    "language_model.model.layers.0.self_attn", "transformer.h.0.attention", "décodeur.0.self_attn",
]
TARGETS = [
    "lm_head", "LM_HEAD", "model.layers.1.self_attn", "self_attn", "model.layers.1", "", "model.*",
    "re:lm_head", "re:.*lm_head", "re:head", "re:model", "re:model$", "re:.*self_attn$", "re:.*self_attn",
    "re:.*(self_attn|attention)$", "re:.*layers\\.1\\.", "re:.*layers\\.(0|1)\\.", "re:.*layers.1",
    "re:.*\\.\\d+\\.self_attn$", "re:.*layers\\.[0-9]\\.", "re:(?i)MODEL", "re:(?!model)", "re:^model",
    "re:model\\.layers\\.(?P<index>\\d)(?P=index)", "re:.*experts\\.\\d", "re:\\w+\\.0", "re:\\w+$",
    "re:[^.]+\\.layers\\.(?:0|11)\\.self_attn$", "re:.*mlp.*", "re:.*(?<=gate_)proj", "re:", "re:()",
    "re:(?:.*\\.)?self_attn", "re:.{5}$", "re:model\\.(?=norm)", "re:[a-zé]+\\.0\\.", "re:.*_proj\\b",
]


def modifiers_of(recipe: Recipe) -> list:
    assert recipe.modifiers, "no modifier"
    for modifier in recipe.modifiers:
        assert type(modifier).__name__ == "QuantizationModifier", modifier
    return recipe.modifiers


def dumps_of(recipe: Recipe) -> list[dict]:
    resolved(recipe)  # names the observers, as a run does
    return [{**modifier.model_dump(), "group": None} for modifier in modifiers_of(recipe)]


def fields_of(text: str) -> list[dict]:
    """The modifiers' fields as written."""
    stages = [stage for key, stage in yaml.safe_load(text).items() if key.endswith("_stage")]
    return [fields for stage in stages for group in stage.values() for fields in group.values()]


def group_of(scheme) -> dict:
    dump = scheme.model_dump(mode="json")
    dump["format"] = scheme.format or infer_module_format(torch.nn.Linear, scheme).value
    return dump


def resolved(recipe: Recipe) -> list[dict]:
    result = []
    for modifier in modifiers_of(recipe):
        has_groups = modifier.scheme is not None or modifier.config_groups is not None
        groups = modifier.resolved_config.config_groups if has_groups else {}
        result.append({
            "groups": {name: group_of(scheme) for name, scheme in groups.items()},
            "needs_data": modifier.requires_calibration_data,
        })
    return result


def check_and_save(path: pathlib.Path, name: str) -> list[dict]:
    text = path.read_text()
    from_file = Recipe.create_instance(str(path))
    for modifier, fields in zip(modifiers_of(from_file), fields_of(text), strict=True):
        written = fields.get("kv_cache_scheme")
        assert modifier.kv_cache_scheme == (written and QuantizationArgs(**written)), name
    groups = resolved(from_file)
    assert dumps_of(Recipe.create_instance(text)) == dumps_of(from_file), name
    saved = from_file.yaml()
    assert dumps_of(Recipe.create_instance(saved)) == dumps_of(from_file), name
    (FIXTURES / "saved" / f"{name}.out.yaml").write_text(saved)
    print(name, [list(modifier["groups"]) for modifier in groups])
    return groups


def main() -> None:
    (FIXTURES / "saved").mkdir(parents=True, exist_ok=True)
    groups = {}
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        groups[path.stem] = check_and_save(path, path.stem)
    for path in sorted((FIXTURES / "saved").glob("*.in.yaml")):
        name = path.name.removesuffix(".in.yaml")
        groups[name] = check_and_save(path, name)
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(modifiers)}" for name, modifiers in groups.items())
    (FIXTURES / "groups.json").write_text("{\n" + rows + "\n}\n")
    # match_name also answers for patterns that a recipe of ours may not hold ("", "re:").
    matches = {target: [match_name(name, target) for name in NAMES] for target in TARGETS}
    rows = ",\n".join(f"  {json.dumps(target)}: {json.dumps(row)}" for target, row in matches.items())
    (FIXTURES / "matches.json").write_text(
        '{"names": ' + json.dumps(NAMES) + ',\n "matches": {\n' + rows + "\n}}\n")


if __name__ == "__main__":
    main()
