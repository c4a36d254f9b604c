"""A model of lm-evaluation-harness, so that each of its tasks runs with every KV cache:

    python -m kvcal.lm_eval --model_args pretrained=DIR,kv_cache_dtype=fp8_e4m3,scales=PLACE --tasks arc_easy --limit 100

takes the harness's own command line. In Python, `import kvcal.lm_eval` registers the model `kvcal`:

    lm_eval.simple_evaluate(model="kvcal", model_args={"pretrained": DIR}, tasks=["arc_easy"])

Needs lm-eval (0.4.13 or later), and neither torch nor transformers. Prompts, tokens and limits are those of the
harness's backend `hf`.
"""

from __future__ import annotations

import inspect
import logging
import os
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import kvcal

from ._requests import command_line, fitted, known_arguments, order_of, prompt_of, sampling_of, slots_of, text_that_goes_on

try:
    from lm_eval import utils
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import (
        Collator,
        handle_stop_sequences,
        has_bos_prefix,
        normalize_gen_kwargs,
        postprocess_generated_text,
    )
    from tqdm import tqdm
except ModuleNotFoundError as missing:
    raise ImportError(f"kvcal.lm_eval needs lm-evaluation-harness (pip install lm-eval): {missing}") from missing

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    #: The strings of a request, or None of a window; the ids of its context and of its continuation.
    Tokens = tuple[Any, list[int], list[int]]

_log = logging.getLogger("lm_eval.kvcal")

#: Requests of one call are this many times as many as run together, so that the slots stay full; the harness's cache
#: keeps what calls have answered.
CALLS_BATCHES = 4
#: The harness names it where nobody does: a GPU, or the processor where there is none, which is kvcal's own default.
HARNESS_DEVICE = "cuda:0"
#: Texts that run together where memory decides, at most.
TEXTS_TOGETHER = 32


@register_model("kvcal")
class KvcalLM(TemplateLM):  # type: ignore[misc]
    """pretrained: a folder or an id of the hub. kv_cache_dtype, scales, unit_scales, family, family_file, device,
    inputs and threads: as for `kvcal.Session`; dtype: its compute_dtype. batch_size: texts that run together, or "auto".
    max_length, add_bos_token, prefix_token_id, think_end_token (a string), enable_thinking and chat_template_args: as
    of the harness's backend `hf`.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        kv_cache_dtype: str | None = None,
        scales: str | os.PathLike[str] | None = None,
        unit_scales: bool = False,
        dtype: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        think_end_token: str | None = None,
        enable_thinking: bool | None = None,
        chat_template_args: dict[str, Any] | None = None,
        family: str | None = None,
        family_file: str | None = None,
        device: str | None = None,
        inputs: str | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(think_end_token, int):
            raise ValueError(f"think_end_token: found the id {think_end_token}, expected the token's text")
        self._pretrained = str(pretrained)
        self.session = kvcal.Session(
            pretrained,
            kv_cache_dtype=kv_cache_dtype,
            scales=scales,
            unit_scales=unit_scales,
            family=family,
            family_file=family_file,
            device=device,
            compute_dtype=dtype,
            inputs=inputs,
            threads=threads,
        )
        #: "own": the checkpoint's, where the cache needs any.
        self._scales = "unit" if unit_scales else str(scales) if scales else "own"
        self._batch_size = slots_of(batch_size, max_batch_size)
        self._max_length = max_length
        self._add_bos_token = add_bos_token
        self._prefix_token_id = prefix_token_id
        self._think_end_token = think_end_token
        self._template_variables = dict(chat_template_args or {})
        self._enable_thinking = enable_thinking
        if enable_thinking is not None:
            self._template_variables["enable_thinking"] = enable_thinking

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> KvcalLM:
        return cls.create_from_arg_obj(utils.simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None) -> KvcalLM:
        """additional_config: the harness's options, such as --batch_size; the model's arguments go before them."""
        options = {name: value for name, value in (additional_config or {}).items() if value is not None}
        if options.get("device") == HARNESS_DEVICE:
            del options["device"]
        known = [name for name in inspect.signature(cls).parameters if name not in ("args", "kwargs")]
        return cls(**known_arguments({**options, **arg_dict}, known))

    @property
    def max_length(self) -> int:
        return self._max_length or self.session.info.max_length

    @property
    def max_gen_toks(self) -> int:
        return 256

    @property
    def batch_size(self) -> int | str:
        return self._batch_size or "auto"

    @property
    def eot_token_id(self) -> int | None:
        return self.session.info.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        info = self.session.info
        for token in (self._prefix_token_id, info.bos_token_id, info.eos_token_id):
            if token is not None:
                return token
        raise kvcal.Error(f"{self._pretrained}: the tokenizer has neither bos_token nor eos_token; give prefix_token_id")

    @property
    def tokenizer_name(self) -> str:
        return self._pretrained.replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        info = self.session.info
        return {
            "model_dtype": info.compute_dtype,
            "kv_cache_dtype": info.kv_cache_dtype,
            "kv_cache_scales": self._scales,
            "kvcal_version": kvcal.__version__,
        }

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The text of the template, for the harness's record."""
        return self.session.info.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The chat as a prompt; without add_generation_prompt up to the end of its last message, which goes on."""
        try:
            return self._render(chat_history, add_generation_prompt)
        except kvcal.Error:
            without_system = [message for message in chat_history if message["role"] != "system"]
            if self.session.info.chat_template is None or len(without_system) == len(chat_history):
                raise
            _log.warning("the chat template refuses the system message, which is left out")
            return self._render(without_system, add_generation_prompt)

    def _render(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        if add_generation_prompt:
            return self.session.chat(messages, variables=self._template_variables)
        return text_that_goes_on(
            messages, lambda chat: self.session.chat(chat, add_generation_prompt=False, variables=self._template_variables)
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            prefix = self.session.decode([self.prefix_token_id], skip_special_tokens=False)
            return self._encode(string, prefix)
        # What "special tokens" are is up to add_bos_token.
        return self.session.encode(string, add_bos_token=self._add_bos_token if add_special_tokens else False)

    def _encode(self, string: str, begin: str | None) -> list[int]:
        """Ids of the text; nothing is added to one that has `begin` already."""
        return self.session.encode(string, add_bos_token=False if has_bos_prefix(string, begin) else self._add_bos_token)

    def _calls(self) -> int:
        return CALLS_BATCHES * (self._batch_size or TEXTS_TOGETHER)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if self._enable_thinking:
            raise ValueError("enable_thinking is for tasks that generate, not for log-likelihoods")
        scores: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        return scores

    def _loglikelihood_tokens(
        self, requests: Sequence[Tokens], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        order = order_of([(context, continuation) for _, context, continuation in requests])
        scores: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            for first in range(0, len(order), self._calls()):
                chunk = order[first : first + self._calls()]
                texts = [self._fitted(requests[index]) for index in chunk]
                for index, score in zip(chunk, self.session.score(texts, batch_size=self._batch_size)):
                    scores[index] = score
                    if requests[index][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[index][0], score)
                    bar.update(1)
        return scores

    def _fitted(self, request: Tokens) -> tuple[list[int], list[int]]:
        """The request without the beginning of a context that is too long."""
        _, context, continuation = request
        text = fitted(context, continuation, self.max_length)
        if len(text[0]) < len(context):
            _log.warning(
                "context and continuation have %d tokens, the model's maximum is %d: the context loses its beginning",
                len(context) + len(continuation),
                self.max_length,
            )
        return text

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        windows: list[Tokens] = []
        counts = []
        for (string,) in (request.args for request in requests):
            rolling = utils.get_rolling_token_windows(
                token_list=self.tok_encode(string),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            before = len(windows)
            windows += [(None, *utils.make_disjoint_window(window)) for window in rolling]
            counts.append(len(windows) - before)
        scores = iter(self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm))
        totals = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        collator = Collator(
            [request.args for request in requests],
            sort_fn=lambda args: (-len(self.tok_encode(args[0])), args[0]),
            group_by="gen_kwargs",
            group_fn=lambda args: args[1],
        )
        texts: list[str] = []
        seed = random.getrandbits(31)  # the harness seeds this module with --seed
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests") as bar:
            for chunk in collator.get_batched(n=self._calls()):
                contexts = [context for context, _ in chunk]
                settings = chunk[0][1]
                for context, text in zip(contexts, self._continued(contexts, settings, seed + len(texts))):
                    texts.append(text)
                    self.cache_hook.add_partial("generate_until", (context, settings), text)
                    bar.update(1)
        ordered: list[str] = collator.get_original(texts)
        return ordered

    def _continued(self, contexts: Sequence[str], settings: dict[str, Any], seed: int) -> list[str]:
        """The texts behind contexts that have the same settings."""
        info = self.session.info
        given = dict(normalize_gen_kwargs(settings, self.max_gen_toks))
        eos = None if info.eos_token_id is None else self.session.decode([info.eos_token_id], skip_special_tokens=False)
        stop = handle_stop_sequences(given.pop("until"), eos=eos)
        new_tokens = given.pop("max_gen_toks")
        whole = given.pop("max_length", None)
        sampling = sampling_of(given, info.top_p, info.top_k)
        prompts = [prompt_of(self._encode(one, info.bos_token), new_tokens, self.max_length, whole) for one in contexts]
        texts = self.session.generate(prompts, stop=stop, batch_size=self._batch_size, seed=seed, **sampling)
        return [postprocess_generated_text(text, stop, self._think_end_token) for text in texts]


def main() -> None:
    """The harness's command line, whose model is `kvcal` unless it says otherwise."""
    from lm_eval.__main__ import cli_evaluate

    sys.argv[1:] = command_line(sys.argv[1:])
    try:
        cli_evaluate()
    except kvcal.Error as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
