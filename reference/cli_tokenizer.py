"""Writes tests/cli/data/tokenizer.json: a byte-level BPE of 140 ids, for the models of 160 that the
tests of the program use. Needs Python 3.9 only: python reference/cli_tokenizer.py OUT
"""

import json
import sys

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
MERGES = [
    "t h", "th e", "Ġ t", "Ġ a", "i n", "o n", "e r", "Ġ the", "r e", "a t", "o u", "e n", "i s",
    "Ġ s", "Ġ w", "Ġ b", "Ġ o", "i t", "e s", "Ġ c", "o r", "Ġ f", "Ġ m", "e d", "Ġ d", "Ġ p",
    "a n", "a r", "Ġ h", "in g", "Ġ in", "Ġ is", "h e", "l l", "l o", "Ġ n", "Ġ l", "u s", "e l",
]


def main():
    # Line feed and space as byte-level BPE writes them, then printable ASCII.
    pieces = SPECIAL + ["Ċ", "Ġ"] + [chr(c) for c in range(33, 127)]
    pieces += [merge.replace(" ", "") for merge in MERGES]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(pieces)},
            "merges": [merge.split(" ") for merge in MERGES],
        },
    }
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(tokenizer, out, ensure_ascii=False, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
