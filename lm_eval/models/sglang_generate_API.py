"""Models on an SGLang server, through its native API."""

# ruff: noqa: N999, because the published module has this name

from __future__ import annotations

from typing import Any, ClassVar

from lm_eval.api.registry import register_model
from lm_eval.models.openai_completions import LocalCompletionsAPI, listed


@register_model("sglang-generate")
class SGLANGGENERATEAPI(LocalCompletionsAPI):
    """A model on an SGLang server, through its path `/generate`."""

    kind: ClassVar[str] = "sglang"
    key_variable: ClassVar[str] = ""
    request_path: ClassVar[str] = "/generate"

    def _create_payload(
        self,
        messages: Any,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        is_text = isinstance(messages, str) or isinstance(messages[0], str)
        if not generate:
            if is_text:
                raise ValueError("SGLang measures log-probabilities of token ids, not of text")
            return {
                "input_ids": messages,
                "sampling_params": {"max_new_tokens": 1, "temperature": 0},
                "logprob_start_len": 0,
                "top_logprobs_num": 1,
                "return_logprob": True,
            }
        length, temperature, stop, others = self._read_settings(gen_kwargs, eos)
        return {
            "sampling_params": {
                "max_new_tokens": length,
                "temperature": temperature,
                "stop": stop,
                **others,
            },
            "text" if is_text else "input_ids": messages,
        }

    @staticmethod
    def parse_logprobs(
        outputs: Any,
        tokens: list[list[int]] | None = None,
        ctxlens: list[int] | None = None,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        found = []
        for reply, start in zip(listed(outputs), ctxlens or (), strict=False):
            if start < 1:
                raise ValueError("the context must have at least one token")
            entries = reply["meta_info"]["input_token_logprobs"][start:]
            tops = reply["meta_info"]["input_top_logprobs"][start:]
            # Each entry is a log-probability, a token id and a text.
            greedy = all(one[1] == top[0][1] for one, top in zip(entries, tops, strict=False))
            found.append((sum(one[0] for one in entries), greedy))
        return found

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[Any]:
        return [reply["text"] for reply in listed(outputs)]
