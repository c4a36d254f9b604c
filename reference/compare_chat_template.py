"""Renders conversations with chat templates, by transformers and by chat_template_dump (built with -DKVCAL_BENCH=ON),
and compares the texts exactly. Where transformers refuses, ours must refuse too.

Run: python3 reference/compare_chat_template.py DUMP FOLDER CONVERSATIONS.jsonl   a model folder's template
     python3 reference/compare_chat_template.py DUMP --templates FILE...          templates by themselves, each with
                                                          the conversations and settings of chat_templates.py
Versions: chat_template_reference.py.
"""

import json
import pathlib
import subprocess
import sys

from chat_template_reference import render
from chat_templates import BASE, CONVERSATIONS, SETTINGS


def ours(command, lines) -> list:
    run = subprocess.run(command, input="\n".join(map(json.dumps, lines)) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]


def judge(title, names, found, expected) -> int:
    """Prints what differs, returns how many do."""
    assert len(found) == len(expected), (len(found), len(expected))
    differing = [i for i, (own, theirs) in enumerate(zip(found, expected)) if own.get("text") != theirs.get("text")]
    for i in differing[:3]:
        print(f"{title}: {names[i]}:\n  ours   {found[i]!r}\n  theirs {expected[i]!r}")
    texts = sum("text" in theirs for theirs in expected)
    print(f"{title}: {texts} texts, {len(expected) - texts} refusals, {len(differing)} differ")
    return len(differing)


def compare_folder(dump, folder, path) -> int:
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    names, lines, expected = [], [], []
    for i, record in enumerate(records):
        for prompt in (False, True):
            names.append(f"conversation {i}")
            lines.append({"messages": record["messages"], "add_generation_prompt": prompt})
            try:
                text = tokenizer.apply_chat_template(record["messages"], tokenize=False, add_generation_prompt=prompt)
                expected.append({"text": text})
            except Exception as error:
                expected.append({"error": str(error)})
    return judge(folder, names, ours([dump, folder], lines), expected)


def compare_templates(dump, paths) -> int:
    differing = 0
    for path in paths:
        source = pathlib.Path(path).read_bytes().decode("utf-8")
        names, lines = [], []
        for setting, (more, chosen) in SETTINGS.items():
            for name in chosen or CONVERSATIONS:
                names.append(f"{name}, {setting}")
                lines.append({"template": source, "variables": {**BASE, **more, "messages": CONVERSATIONS[name]}})
        expected = [render(source, line["variables"]) for line in lines]
        differing += judge(pathlib.Path(path).name, names, ours([dump], lines), expected)
    print(f"{len(paths)} templates, {differing} texts differ")
    return differing


def main() -> int:
    dump, what, *paths = sys.argv[1:]
    differing = compare_templates(dump, paths) if what == "--templates" else compare_folder(dump, what, paths[0])
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
