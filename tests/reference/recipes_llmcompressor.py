#!/usr/bin/env python3
"""Reads our recipes with llm-compressor, and keeps what it saves and matches as expectations.

Run with Python 3.11, llmcompressor 0.14.0.1, compressed-tensors 0.19.0, transformers 5.17, torch 2.13:
    python tests/reference/recipes_llmcompressor.py

1. Every recipes/*.yaml must give exactly one QuantizationModifier, whose kv_cache_scheme is what the file
   says, through a file and through its text. The script stops where it does not.
2. tests/fixtures/recipe/saved/<name>.out.yaml: how llm-compressor saves <name>.in.yaml and each recipe of
   recipes/; saved form must read back as the same modifier. Our to_yaml writes the same bytes.
3. tests/fixtures/recipe/matches.json: compressed-tensors' match_name on patterns and module names, for
   matches_target.
"""

import json
import pathlib

import yaml
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.utils.match import match_name
from llmcompressor.recipe import Recipe

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
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


def only_modifier(recipe: Recipe):
    assert len(recipe.modifiers) == 1, recipe.modifiers
    modifier = recipe.modifiers[0]
    assert type(modifier).__name__ == "QuantizationModifier", modifier
    return modifier


def kv_scheme_of(text: str) -> QuantizationArgs:
    (stage,) = yaml.safe_load(text).values()
    (group,) = stage.values()
    (fields,) = group.values()
    return QuantizationArgs(**fields["kv_cache_scheme"])


def check_and_save(path: pathlib.Path, name: str) -> None:
    text = path.read_text()
    from_file = Recipe.create_instance(str(path))
    modifier = only_modifier(from_file)
    assert modifier.kv_cache_scheme == kv_scheme_of(text), name
    assert only_modifier(Recipe.create_instance(text)).model_dump() == modifier.model_dump(), name
    saved = from_file.yaml()
    assert only_modifier(Recipe.create_instance(saved)).model_dump() == modifier.model_dump(), name
    (FIXTURES / "saved" / f"{name}.out.yaml").write_text(saved)
    print(name, modifier.kv_cache_scheme.strategy, modifier.kv_cache_scheme.observer)


def main() -> None:
    (FIXTURES / "saved").mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        check_and_save(path, path.stem)
    for path in sorted((FIXTURES / "saved").glob("*.in.yaml")):
        check_and_save(path, path.name.removesuffix(".in.yaml"))
    # match_name also answers for patterns that a recipe of ours may not hold ("", "re:").
    matches = {target: [match_name(name, target) for name in NAMES] for target in TARGETS}
    rows = ",\n".join(f"  {json.dumps(target)}: {json.dumps(row)}" for target, row in matches.items())
    (FIXTURES / "matches.json").write_text(
        '{"names": ' + json.dumps(NAMES) + ',\n "matches": {\n' + rows + "\n}}\n")


if __name__ == "__main__":
    main()
