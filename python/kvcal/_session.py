"""A model that stays loaded between calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _kvcal
from ._call import Progress, given, reporter


@dataclass(frozen=True)
class SessionInfo:
    """What a loaded model is."""

    max_length: int  #: tokens that its positions hold
    vocab_size: int
    compute_dtype: str
    kv_cache_dtype: str
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_id: int | None
    chat_template: str | None
    top_p: float | None  #: of generation_config.json
    top_k: int | None


class Session:
    """A model with one KV cache, loaded once and asked many things:

        with kvcal.Session("./FP8-KV") as session:
            ids = session.encode("The sea was")
            [(log_probability, is_greedy)] = session.score([(ids, session.encode(" calm"))])
            [text] = session.generate([(ids, 20)], stop=["."])

    kv_cache_dtype, scales, unit_scales and kv_cache_dtype_skip_layers choose the cache as in `evaluate`; the other arguments are options of
    `kvcal eval`. Answers do not depend on what is asked together or before, nor on batch_size. The methods raise
    `kvcal.Error`, and Ctrl-C leaves them as it leaves the functions.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        kv_cache_dtype: str | None = None,
        scales: str | os.PathLike[str] | None = None,
        unit_scales: bool = False,
        kv_cache_dtype_skip_layers: int | Sequence[int] | None = None,
        family: str | None = None,
        family_file: str | os.PathLike[str] | None = None,
        device: str | None = None,
        compute_dtype: str | None = None,
        inputs: str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "progress")}
        self._report = reporter(progress)
        self._model: object | None = _kvcal.open_session(json.dumps(given(arguments)), self._report)
        self.info = SessionInfo(**self._run("info"))

    def _run(self, command: str, **arguments: Any) -> dict[str, Any]:
        if self._model is None:
            raise ValueError("the session is closed")
        answer: dict[str, Any] = json.loads(
            _kvcal.run_session(self._model, command, json.dumps(given(arguments)), self._report)
        )
        return answer

    def encode(self, text: str, *, add_bos_token: bool | None = None) -> list[int]:
        """Ids of text; add_bos_token: behind bos_token, or behind nothing; None: what the tokenizer adds on its own."""
        ids: list[int] = self._run("encode", text=text, add_bos_token=add_bos_token)["ids"]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self._run("decode", ids=list(ids), skip_special_tokens=skip_special_tokens)["text"]
        return text

    def chat(
        self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool = True, variables: dict[str, Any] | None = None
    ) -> str:
        """The messages in the model's chat template; variables: more of what the template may ask for."""
        text: str = self._run(
            "chat", messages=list(messages), add_generation_prompt=add_generation_prompt, variables=variables
        )["text"]
        return text

    def score(
        self, texts: Iterable[tuple[Sequence[int], Sequence[int]]], *, batch_size: int | None = None
    ) -> list[tuple[float, bool]]:
        """Of each (context, continuation), both ids: ln of the continuation's probability, and whether greedy decoding
        writes it. batch_size: texts that are run together; None: as many as memory allows, 32 at most."""
        pairs = [[list(context), list(continuation)] for context, continuation in texts]
        scores = self._run("score", texts=pairs, batch_size=batch_size)["scores"]
        return [(log_probability, is_greedy) for log_probability, is_greedy in scores]

    def generate(
        self,
        prompts: Iterable[tuple[Sequence[int], int]],
        *,
        stop: Sequence[str] = (),
        repetition_penalty: float | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> list[str]:
        """Continues each (ids, number of new tokens), up to the model's end of text or the first of the strings in stop,
        which is cut off. temperature 0: greedily; else text i draws with the seed `seed` + i, of all tokens where top_p is
        1 and top_k 0. repetition_penalty: None: generation_config.json's."""
        sampling = {name: value for name, value in locals().items() if name not in ("self", "prompts", "stop")}
        pairs = [[list(ids), count] for ids, count in prompts]
        texts: list[str] = self._run("generate", prompts=pairs, stop=list(stop), **sampling)["texts"]
        return texts

    def close(self) -> None:
        """Frees the model; the garbage collector does it, too."""
        self._model = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
