"""Writes tests/fixtures/text/templates/conversations.json and one <template>.json for each *.jinja there:
every conversation rendered by transformers' own renderer, or refused.

The templates are ours. Each is named by the construct that it shares with published ones.
Run: python3 reference/chat_templates.py   (versions: chat_template_reference.py)
"""

import pathlib

from chat_template_reference import render, write_json

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures/text/templates"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_train",
            "description": "Finds trains.\nOnly \"direct\" ones.",
            "parameters": {
                "type": "object",
                "properties": {
                    "origin": {"type": "string", "description": "where from"},
                    "stops": {"type": "array", "items": {"type": "string"}},
                    "class": {"type": "integer", "enum": [1, 2], "default": 2},
                    "when": {"type": "object", "properties": {"day": {"type": "string"}, "hour": {"type": "number"}}, "required": ["day"]},
                    "extras": {"type": ["string", "null"], "description": "wünsche 🚆"},
                },
                "required": ["origin", "when"],
            },
            "return": {"type": "array", "items": {"type": "object"}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "Add",
            "description": "Adds <numbers> & more",
            "parameters": {
                "type": "object",
                "properties": {
                    "b": {"type": "number", "nullable": True},
                    "A": {"oneOf": [{"type": "number", "description": "n"}, {"type": "string", "enum": ["x", "y"]}], "type": ["number", "string"]},
                    "rows": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
                    "table": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "any": {"type": "object"},
                },
                "required": [],
            },
        },
    },
]


def call(name, arguments, identifier="abcdefghi"):
    return {"type": "function", "id": identifier, "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "Be kind.\nBe brief. /quick"}
USER = {"role": "user", "content": " How far is it? "}
ANSWER = {"role": "assistant", "content": "\nNot far.\n"}

CONVERSATIONS = {
    "one_user": [{"role": "user", "content": "Hello"}],
    "system_and_user": [SYSTEM, USER],
    "turns": [USER, ANSWER, {"role": "user", "content": "And back?"}, {"role": "assistant", "content": "The same."}],
    "system_and_turns": [SYSTEM, USER, ANSWER, {"role": "user", "content": "Thanks!\r\n\r\nBye"}],
    "unicode": [
        {"role": "system", "content": "Antworte höflich – „gern“."},
        {"role": "user", "content": "\u3000你好，世界！\u00a0👩‍👩‍👧 مرحبا e\u0301 \u202eabc\u202c\t\u0000\u001f\u007f"},
        {"role": "assistant", "content": "𝒪k ﬁn ß İ Σ\u2028line\u0085next"},
    ],
    "template_in_content": [{"role": "user", "content": "{{ 7 * 7 }} {% if true %}<|im_end|>{% endif %} {# c #} \\n '\"\\"}],
    "empty_content": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "two_users": [USER, {"role": "user", "content": "Well?"}],
    "assistant_first": [ANSWER, USER],
    "late_system": [USER, ANSWER, {"role": "system", "content": "New rules."}, {"role": "user", "content": "ok"}],
    "system_alone": [SYSTEM],
    "strange_role": [{"role": "narrator", "content": "Once"}, USER],
    "empty": [],
    "reasoning": [
        USER,
        {"role": "assistant", "content": "<why>\nhidden\n</why>\n\nshown"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "reasoning_content": "\nkept\n", "content": "final", "thinking": "hm"},
    ],
    "tool_use": [
        SYSTEM,
        {"role": "user", "content": "A train, please"},
        {"role": "assistant", "content": "", "tool_calls": [call("find_train", {"origin": "Zürich", "when": {"day": "Mon", "hour": 7.5}, "class": 1, "extras": None})]},
        {"role": "tool", "content": "{\"trains\": []}", "tool_call_id": "abcdefghi", "name": "find_train"},
        {"role": "assistant", "content": "None today."},
        {"role": "user", "content": "Then add"},
    ],
    "many_calls": [
        {"role": "user", "content": "Both"},
        {"role": "assistant", "content": None, "tool_calls": [call("Add", {"A": 1, "b": 2.0}), call("Add", {}, "short")]},
        {"role": "tool", "content": "3.0", "tool_call_id": "abcdefghi"},
        {"role": "tool", "content": "nothing", "tool_call_id": "short"},
    ],
    "calls_as_text": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Going.", "tool_calls": [{"name": "Add", "arguments": "{\"A\": 1}", "id": "123456789"}]},
        {"role": "tool", "content": {"content": "done", "n": [1, True, None, 1e22]}, "tool_call_id": "123456789"},
    ],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "Look closely."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is it? "}, {"type": "text", "text": "…"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
    ],
    "wrong_part": [{"role": "user", "content": [{"type": "video", "url": "x"}, "loose"]}],
    "missing_content": [{"role": "user"}],
    "numbers_as_content": [{"role": "user", "content": 12}, {"role": "assistant", "content": 1.5}],
    "message_tools": [{"role": "system", "content": "s", "tools": "[{}]"}, {"role": "user", "content": "u", "metadata": "m"}, {"role": "assistant", "content": "a<br>b", "metadata": "py"}],
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
BASE = {"tools": None, "documents": None, **TOKENS}

# Each is rendered with every conversation, or with those it names.
SETTINGS = {
    "plain": ({"add_generation_prompt": False}, None),
    "prompt": ({"add_generation_prompt": True}, None),
    "tools": ({"add_generation_prompt": True, "tools": TOOLS}, ["one_user", "system_and_turns", "tool_use", "many_calls", "calls_as_text", "empty", "system_alone"]),
    "options": (
        {
            "add_generation_prompt": True,
            "enable_thinking": False,
            "code_tools": ["find_train", "code"],
            "today": "2 Feb 2222",
            "max_turns": 1,
            "use_preamble": True,
            "effort": "high",
            "documents": [{"title": "T", "text": "Text\nof it"}, {"title": "Ü", "n": 1}],
            "care": "none",
        },
        ["one_user", "system_and_turns", "reasoning", "tool_use"],
    ),
}


def main() -> None:
    settings = {name: {**BASE, **more} for name, (more, _) in SETTINGS.items()}
    write_json(FOLDER / "conversations.json", {"conversations": CONVERSATIONS, "settings": settings})
    total = refused = 0
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_bytes().decode("utf-8")
        cases = []
        for setting, (_, chosen) in SETTINGS.items():
            for name in chosen or CONVERSATIONS:
                result = render(source, {**settings[setting], "messages": CONVERSATIONS[name]})
                cases.append({"conversation": name, "setting": setting, **result})
        total += len(cases)
        refused += sum("error" in case for case in cases)
        write_json(path.with_suffix(".json"), cases)
    print(total, "cases,", refused, "refused")


if __name__ == "__main__":
    main()
