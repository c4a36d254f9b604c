"""Writes spm_legacy.json of tests/fixtures/text/tokenizers: ids of transformers' own sentencepiece tokenizer (slow
LlamaTokenizer, the last version that has it) for our small models, with tokenizer_config.json variants.

Usage: tokenizers_legacy.py OUT      needs: pip install transformers==4.46.3 sentencepiece==0.2.1 protobuf
"""
import json
import os
import shutil
import sys
import tempfile

from transformers import LlamaTokenizer

from tokenizers_texts import HARD

TEXTS = [t for t in HARD if len(t) < 60] + [
    "</s>a</s> b </s>", "<s>hello</s>", "a <unk> b", "x<extra>y", "x <extra> y", "  <extra>", "<pad>", "</s>", "</s> ", " </s>",
    "Hello </s>world", "▁Hello", "▁▁Hello ▁", " Hello", "<wide>x", "x  <wide>  y"]
CONFIGS = {
    "legacy": {"legacy": True},
    "new": {"legacy": False},
    "new_no_prefix": {"legacy": False, "add_prefix_space": False},
    "eos": {"legacy": True, "add_bos_token": False, "add_eos_token": True},
    "added": {"legacy": False, "added_tokens_decoder": {
        "700": {"content": "<extra>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True},
        "701": {"content": "<wide>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False, "special": False}}},
}


def main(out):
    result = {"texts": TEXTS, "configs": {}}
    for name, extra in CONFIGS.items():
        config = dict({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                       "clean_up_tokenization_spaces": False}, **extra)
        decoder = config.get("added_tokens_decoder", {})
        if decoder:
            for i, content in enumerate(("<unk>", "<s>", "</s>")):
                decoder[str(i)] = dict(decoder["700"], content=content)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(out, "spm_bpe.model"), os.path.join(folder, "tokenizer.model"))
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
                json.dump(config, file)
            tokenizer = LlamaTokenizer.from_pretrained(folder)
            rows = [[tokenizer.encode(t, add_special_tokens=False), tokenizer.encode(t)] for t in TEXTS]
        result["configs"][name] = {"config": config, "rows": rows}
    with open(os.path.join(out, "spm_legacy.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
