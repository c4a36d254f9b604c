"""Renders every conversation of a JSONL file with a model folder's chat template, by transformers and by
chat_template_dump (built with -DKVCAL_BENCH=ON), and compares the texts exactly.

Run: python3 tests/reference/compare_chat_template.py DUMP FOLDER CONVERSATIONS.jsonl
Versions: chat_template_reference.py.
"""

import json
import subprocess
import sys

from transformers import PreTrainedTokenizerFast


def main() -> int:
    dump, folder, path = sys.argv[1:4]
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    lines, expected = [], []
    for record in records:
        for prompt in (False, True):
            lines.append(json.dumps({"messages": record["messages"], "add_generation_prompt": prompt}))
            try:
                text = tokenizer.apply_chat_template(record["messages"], tokenize=False, add_generation_prompt=prompt)
                expected.append({"text": text})
            except Exception as error:
                expected.append({"error": str(error)})
    run = subprocess.run([dump, folder], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]
    assert len(found) == len(expected), (len(found), len(expected))
    differing = [i for i, (ours, theirs) in enumerate(zip(found, expected)) if ours.get("text") != theirs.get("text")]
    for i in differing[:5]:
        print(f"conversation {i // 2}:\n  ours   {found[i]!r}\n  theirs {expected[i]!r}")
    texts = sum("text" in theirs for theirs in expected)
    print(f"{len(records)} conversations, {texts} texts, {len(expected) - texts} refusals, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
