"""The model fixtures in transformers with a function of ours around attention. Used by query_extremes.py, attention_damage.py and attention_choice.py."""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"


def probe(name, probed):
    """What probed saw of each layer of a fixture over its ids, in order; None for a layer without attention.

    probed(attention, seen) stands for a family's eager attention, and puts what it sees into seen[layer].
    """
    folder = FIXTURES / "models" / name
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    seen = {}
    code = {sys.modules[type(module).__module__] for module in model.modules()}
    for module in [module for module in code if hasattr(module, "eager_attention_forward")]:
        module.eager_attention_forward = probed(module.eager_attention_forward, seen)
    ids = json.loads((folder / "expected.json").read_text())["ids"]
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    assert seen, name
    return [seen.get(layer) for layer in range(model.config.get_text_config().num_hidden_layers)]


def write_probed(file, names, probed):
    """Writes tests/fixtures/<file>: what probe gives for each fixture, and the versions that gave it."""
    reference = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    lines = [f'"{name}": {json.dumps(probe(name, probed))}' for name in names]
    text = f'{{"reference": "{reference}",\n"models": {{\n' + ",\n".join(lines) + "}}\n"
    (FIXTURES / file).write_text(text)
