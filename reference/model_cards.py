#!/usr/bin/env python3
"""huggingface_hub as the judge of model cards: it reads the cards that kvcal writes for sources with cards of all kinds.

    pip install huggingface_hub==2.4.0;  KVCAL=build/cpu/kvcal reference/model_cards.py
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from huggingface_hub import ModelCard

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
KVCAL = os.environ["KVCAL"]
FULL = ("---\nlicense: other\nlicense_name: llama3.2\nlicense_link: LICENSE\nlanguage:\n- en\n- no\npipeline_tag: text-generation\n"
        "library_name: transformers\ndatasets:\n- owner/name\ntags:\n- chat\n- 'a: b'\nmodel-index: []\n---\n# Title\n\n---\n\nText\n")
# Name → bytes of the source's card, and what of it must be in the output's.
CARDS = {
    "none": (None, {}, ""),
    "empty": (b"", {}, ""),
    "no_front_matter": (b"# Title\n", {}, "# Title"),
    "full": (FULL.encode(), {"license": "other", "license_name": "llama3.2", "license_link": "LICENSE", "language": ["en", "no"],
                             "pipeline_tag": "text-generation", "library_name": "transformers", "datasets": ["owner/name"]}, "# Title\n\n---\n\nText"),
    "crlf": (FULL.replace("\n", "\r\n").encode(), {"license": "other", "language": ["en", "no"]}, "# Title\n\n---\n\nText"),
    "byte_order_mark": (b"\xef\xbb\xbf" + FULL.encode(), {"license": "other"}, "Text"),
    "single_values": (b"---\nlicense: mit\nlanguage: no\n---\nText\n", {"license": "mit", "language": "no"}, "Text"),
    "broken": (b"---\nlicense: [mit\n---\nText\n", {}, "license: [mit"),
    "list": (b"---\n- a\n---\nText\n", {}, "- a"),
    "nothing_between": (b"---\n---\nText\n", {}, "Text"),
    "without_end": (b"---\nlicense: mit\n", {}, "license: mit"),
    "words_that_are_none": (b"---\nlicense: 'yes'\ntags: ['1.0', 'null', '2020-01-01', '#x']\n---\n", {"license": "yes"}, ""),
    "long": (FULL.encode() + b"line\n" * 100_000, {"license": "other"}, "line\nline"),
    "other_base": (b"---\nbase_model: owner/base\n---\nText\n", {"base_model": None}, "Text"),
    "no_utf8": (b"---\nlicense: mit\n---\n\xff\n", {}, ""),
}


def kvcal(*words):
    subprocess.run([KVCAL, *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(folder, wanted, text, tags):
    card = ModelCard.load(folder / "README.md")
    fields = card.data.to_dict()
    for key, value in wanted.items():
        assert fields.get(key) == value, (folder, key, fields)
    assert set(tags) | {"kvcal"} <= set(fields["tags"]), (folder, fields)
    assert text in card.text, (folder, text)
    assert "/tmp" not in card.content and str(folder.parent) not in card.content, folder
    # What huggingface_hub writes again is what it read.
    assert ModelCard(str(card)).data.to_dict() == fields, folder
    return card


def main():
    with tempfile.TemporaryDirectory() as scratch:
        for name, (source, wanted, text) in CARDS.items():
            root = pathlib.Path(scratch) / name
            shutil.copytree(TESTS / "fixtures/models/llama", root / "model")
            if source is not None:
                (root / "model/README.md").write_bytes(source)
            data = ["--recipe", "fp8_kv_tensor", "--dataset", TESTS / "cli/data/small.jsonl", "--device", "reference", "--reproducible"]
            kvcal("calibrate", root / "model", *data, "-o", root / "out")
            first = check(root / "out", wanted, text, ["fp8", "fp8-kv-cache", "compressed-tensors"])
            kvcal("calibrate", root / "model", *data, "-o", root / "again")
            assert (root / "out/README.md").read_bytes() == (root / "again/README.md").read_bytes(), name
            kvcal("quantize", root / "model", "--scheme", "NVFP4A16", "-o", root / "rounded")
            check(root / "rounded", wanted, text, ["nvfp4a16", "compressed-tensors"])
            # Conversions of conversions: the card neither grows nor loses anything.
            kvcal("convert", root / "out", "--format", "modelopt", "-o", root / "second")
            check(root / "second", wanted, text, ["modelopt"])
            kvcal("convert", root / "second", "--format", "compressed-tensors", "-o", root / "third")
            third = check(root / "third", wanted, text, ["compressed-tensors"])
            assert third.text[third.text.index("<!-- kvcal: end"):] == first.text[first.text.index("<!-- kvcal: end"):], name
            assert (root / "third/source_README.md").exists() == (name == "no_utf8"), name
        print(f"{len(CARDS)} kinds of card")


if __name__ == "__main__":
    main()
