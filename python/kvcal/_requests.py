"""Rules for requests of lm-evaluation-harness that need none of its packages.

Source: lm_eval 0.4.13, models/huggingface.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._kvcal import Error

#: Ends the message that goes on, to be found in what the template makes of it. The blank tells whether it strips.
END_MARK = "END-OF-THE-MESSAGE-THAT-GOES-ON "

#: Of `generate` in transformers where neither the task nor generation_config.json says it.
DEFAULT_TOP_K = 50


def slots_of(batch_size: int | str | None, most: int | None) -> int | None:
    """Texts that run together; None: as memory allows."""
    if batch_size is None or str(batch_size).startswith("auto"):
        return most
    try:
        slots = int(batch_size)
    except ValueError:
        slots = 0
    if slots < 1:
        raise Error(f"batch_size: found {batch_size!r}, expected auto, or a number of texts from 1 on")
    return slots


def known_arguments(given: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The arguments of --model_args; trust_remote_code, which the harness adds, is left out: no code of a model runs."""
    names = sorted(known)
    for name in given:
        if name not in names and name != "trust_remote_code":
            raise Error(f"--model_args: unknown argument '{name}', expected one of {', '.join(names)}")
    return {name: value for name, value in given.items() if name != "trust_remote_code"}


def order_of(texts: Sequence[tuple[list[int], list[int]]]) -> list[int]:
    """Places of (context, continuation) in the order to run: those of one context together, since what they share is run
    once; the contexts with the longest texts first."""
    longest: dict[tuple[int, ...], int] = {}
    for context, continuation in texts:
        key = tuple(context)
        longest[key] = max(longest.get(key, 0), len(context) + len(continuation))
    return sorted(
        range(len(texts)),
        key=lambda place: (-longest[tuple(texts[place][0])], texts[place][0], -len(texts[place][1]), texts[place][1]),
    )


def fitted(context: list[int], continuation: list[int], max_length: int) -> tuple[list[int], list[int]]:
    """(context, continuation) without the beginning of a context that is too long; the last token is fed to nobody."""
    if len(continuation) > max_length:
        raise Error(f"a continuation has {len(continuation)} tokens, the model's maximum is {max_length}")
    room = max_length + 1 - len(continuation)
    return context[-room:], continuation


def prompt_of(ids: list[int], new_tokens: int, max_length: int, whole: int | None) -> tuple[list[int], int]:
    """The end of a context that leaves room for the new tokens, and their number. whole: of context and text, or None."""
    room = max_length - new_tokens
    if room <= 0:
        raise Error(f"max_gen_toks is {new_tokens}, the model's maximum of {max_length} tokens leaves no context")
    kept = ids[-room:]
    return kept, new_tokens if whole is None else max(whole - len(kept), 0)


def sampling_of(settings: dict[str, Any], default_top_p: float | None, default_top_k: int | None) -> dict[str, Any]:
    """Arguments of `Session.generate` for a task's settings, as the harness normalizes them, without those of length and
    stops. The defaults are those of generation_config.json. Fails for a setting that would change a text and is not followed."""
    given = dict(settings)
    arguments = {"repetition_penalty": given.pop("repetition_penalty", None)}
    samples = given.pop("do_sample", False)
    temperature = float(given.pop("temperature", None) or 0.0)
    top_p, top_k = given.pop("top_p", None), given.pop("top_k", None)
    for name in ("seed", "use_cache"):  # --seed is the harness's own; a cache is always used
        given.pop(name, None)
    if not samples:
        given.pop("min_p", None)
    if given:
        raise Error(f"generation settings that kvcal does not have: {', '.join(sorted(given))}")
    if not samples:
        return arguments
    if temperature <= 0.0:
        raise Error("do_sample: a text that is sampled needs a temperature over 0; give one with --gen_kwargs, or do_sample=False")
    top_p = default_top_p if top_p is None else top_p
    top_k = default_top_k if top_k is None else top_k
    return {
        **arguments,
        "temperature": temperature,
        "top_p": 1.0 if top_p is None else float(top_p),
        "top_k": DEFAULT_TOP_K if top_k is None else int(top_k),
    }


def text_that_goes_on(messages: Sequence[dict[str, Any]], render: Callable[[list[dict[str, Any]]], str]) -> str:
    """The chat up to the end of its last message, which goes on. render: the template without a prompt for an answer.

    Source: transformers 5.23, `render_jinja_template` with continue_final_message.
    """
    last = {**messages[-1], "content": messages[-1]["content"] + END_MARK}
    text = render([*messages[:-1], last])
    begin, mark, _ = text.rpartition(END_MARK.strip())
    if not mark:
        raise Error("the chat template leaves the last message out, which was to go on")
    return begin if text[len(begin) :].startswith(END_MARK) else begin.rstrip()


def command_line(words: list[str]) -> list[str]:
    """The harness's command line, whose model is kvcal and whose texts run together unless it says otherwise."""
    names = {word.partition("=")[0] for word in words}
    runs = bool(words) and words != ["run"] and words[0] not in ("ls", "validate")
    if not runs or names & {"-h", "--help", "--config", "-C"}:
        return words
    more = [] if names & {"--model", "-M"} else ["--model", "kvcal"]
    # The harness's own default is one text at a time.
    return [*words, *more, *([] if names & {"--batch_size", "-b"} else ["--batch_size", "auto"])]
