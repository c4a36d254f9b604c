"""What the scripts about chat templates share: transformers' own renderer with a fixed clock.

Reference: transformers 5.17.0, jinja2 3.1.6, CPython 3.11.
"""

import datetime
import json

from transformers.utils import chat_template_utils

CLOCK = datetime.datetime(2024, 7, 26, 15, 4, 9)


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return CLOCK


chat_template_utils.datetime = FixedDatetime


def render(source: str, variables: dict) -> dict:
    """{"text": ...} or, where the renderer refuses, {"error": its message}."""
    try:
        compiled = chat_template_utils._compile_jinja_template(source)
        text = compiled.render(**variables)
        text.encode("utf-8")
        return {"text": text}
    except (Exception, RecursionError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def write_json(path, value) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")
