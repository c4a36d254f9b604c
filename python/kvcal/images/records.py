"""Conversations with pictures: JSON lines in OpenAI's form, or a folder of pictures with one prompt. Needs no package."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from .errors import BadInput

JSON_LINES = (".jsonl", ".ndjson")
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Address of another machine, or of a scheme that is no file.
SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]+):")
DATA_URL = re.compile(r"^data:(image|video)/[\w.+-]+(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)
#: {type of a part: what it is called where transformers takes it}
KINDS = {"image_url": "image", "video_url": "video"}
SHOWN = 60  # characters of a value in a message


@dataclass
class Picture:
    """A picture or a video. place: file and line that name it. source: a file, or the bytes of one."""

    place: str
    source: Path | bytes
    is_video: bool = False


@dataclass
class Record:
    """messages: of the form that transformers' chat templates take; `{"type": "image"}` or "video" stands where one does, in their order."""

    place: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    pictures: list[Picture] = field(default_factory=list)


def read_records(dataset: Path, prompt: str | None) -> Iterator[Record]:
    if dataset.is_dir():
        if not prompt:
            raise BadInput(f"{dataset}: a folder of pictures needs --prompt TEXT, the user's words beside each picture")
        return folder_records(dataset, prompt)
    if not dataset.is_file():
        raise BadInput(f"{dataset}: found no such file or folder")
    if dataset.suffix.lower() not in JSON_LINES:
        raise BadInput(f"{dataset}: expected a file of JSON lines ({', '.join(JSON_LINES)}), or a folder of pictures")
    if prompt:
        raise BadInput(f"{dataset}: --prompt is for a folder of pictures; the records of a file have words of their own")
    return json_records(dataset)


def folder_records(folder: Path, prompt: str) -> Iterator[Record]:
    """One user's turn for each picture, in the order of the names; other files are left alone."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES and not file.name.startswith("."))
    if not files:
        raise BadInput(f"{folder}: found no picture, expected files that end with {', '.join(PICTURES)}")
    for file in files:
        content = [{"type": "image"}, {"type": "text", "text": prompt}]
        yield Record(str(file), [{"role": "user", "content": content}], None, [Picture(str(file), file)])


def json_records(file: Path) -> Iterator[Record]:
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            place = f"{file}:{number}"
            if line.strip():
                yield record_of(parsed(line, place), place, file.parent)


def parsed(line: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"{place}: is no JSON: {error}") from error
    if not isinstance(value, dict):
        wrong(place, value, 'an object with "messages"')
    return value


def wrong(place: str, value: object, expected: str) -> NoReturn:
    found = json.dumps(value, ensure_ascii=False)
    raise BadInput(f"{place}: found {found if len(found) <= SHOWN else found[:SHOWN] + '…'}, expected {expected}")


def record_of(value: dict[str, Any], place: str, folder: Path) -> Record:
    messages, tools = value.get("messages"), value.get("tools")
    if not isinstance(messages, list) or not messages:
        wrong(place, messages, '"messages", a list of turns')
    if tools is not None and not isinstance(tools, list):
        wrong(f"{place}: tools", tools, "a list")
    record = Record(place, [], tools)
    for number, message in enumerate(messages):
        where = f"{place}: messages[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            wrong(where, message, 'an object with "role" and "content"')
        content = message.get("content")
        record.messages.append({**message, "content": parts_of(content, where, folder, record.pictures)})
    return record


def parts_of(content: object, place: str, folder: Path, pictures: list[Picture]) -> list[dict[str, Any]]:
    """The content as a list of parts; a turn of tool calls alone has none."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        wrong(f"{place}.content", content, "a string or a list of parts")
    return [part_of(part, f"{place}.content[{number}]", folder, pictures) for number, part in enumerate(content)]


def part_of(part: object, place: str, folder: Path, pictures: list[Picture]) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict) and kind == "text":
        if not isinstance(part.get("text"), str):
            wrong(place, part, '{"type": "text", "text": …}')
        return {"type": "text", "text": part["text"]}
    if isinstance(part, dict) and isinstance(kind, str) and kind in KINDS:
        held = part.get(kind)
        url = held.get("url") if isinstance(held, dict) else None
        if not isinstance(url, str) or not url:
            wrong(place, part, f'{{"type": "{kind}", "{kind}": {{"url": …}}}}')
        pictures.append(Picture(place, source_of(url, place, folder, KINDS[kind]), KINDS[kind] == "video"))
        return {"type": KINDS[kind]}
    if isinstance(kind, str) and "audio" in kind:
        raise BadInput(f"{place}: found a part of type {kind!r}: only text, pictures and videos are read, no sound")
    wrong(place, part, 'a part of type "text", "image_url" or "video_url"')


def source_of(url: str, place: str, folder: Path, kind: str) -> Path | bytes:
    """A path is relative to the folder of the data set. kind: image or video."""
    shown = url if len(url) <= SHOWN else url[:SHOWN] + "…"
    scheme = SCHEME.match(url)
    name = scheme[1].lower() if scheme else ""
    if name == "data":
        return data_of(url, place, shown, kind)
    if name == "file":
        path = Path(unquote(re.sub(r"^file:(//(localhost)?)?", "", url, flags=re.IGNORECASE)))
    elif name:
        raise BadInput(f"{place}: found the address {shown}, expected a path or a data: URL: nothing is fetched; download it first")
    else:
        path = folder / url
    if "\0" in url or not path.is_file():
        raise BadInput(f"{place}: found no file {str(path)!r}")
    return path


def data_of(url: str, place: str, shown: str, kind: str) -> bytes:
    head = DATA_URL.match(url)
    if not head or head[1].lower() != kind:
        raise BadInput(f"{place}: found {shown}, expected data:{kind}/…;base64,…")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{place}: the data: URL is no base64: {error}") from error
    if not data:
        raise BadInput(f"{place}: the data: URL is empty")
    return data
