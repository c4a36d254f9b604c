#!/usr/bin/env python3
"""Writes tests/fixtures/family/model_types.tsv: the model types that transformers maps to a model that writes text: a causal
language model, one of images and text, of any inputs, an encoder with a decoder, or one of speech.

usage: model_types.py
needs: transformers 5.24 (its version is the first line of the file)

A row a type: model_type, the first of these that names it ("text", "image", "multimodal", "seq2seq", "speech"), the class, and the type of its text_config where the class of its config.json
has one by default ("-": none).
"""
import logging
import pathlib

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

MAPPINGS = {"text": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            "image": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
            "multimodal": modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
            "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            "speech": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES}
TARGET = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "family" / "model_types.tsv"


def text_type(model_type):
    if "text_config" not in CONFIG_MAPPING[model_type].sub_configs:
        return "-"
    try:
        text = CONFIG_MAPPING[model_type]().text_config
    except Exception:  # a config that has no defaults
        return "-"
    return text.model_type if text else "-"


def main():
    logging.disable(logging.CRITICAL)
    rows = {}
    for task, mapping in MAPPINGS.items():
        for model_type, name in mapping.items():
            rows.setdefault(model_type, (model_type, task, name, text_type(model_type)))
    lines = [f"# transformers {transformers.__version__}: model_type, task, class, type of its text_config"]
    lines += ["\t".join(row) for row in sorted(rows.values())]
    TARGET.write_text("\n".join(lines) + "\n")
    print(f"{TARGET.name}: {len(rows)} types")


if __name__ == "__main__":
    main()
