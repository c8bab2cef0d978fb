"""The model class `NameHere`: `lm-eval run --model name_here.py:NameHere --tasks demo_choice`."""

import math
from collections.abc import Iterator

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM


class NameHere(LM):
    """A toy model: every character is equally likely. Replace the methods with calls to yours."""

    def __init__(self, alphabet: int = 128, batch_size: int | str | None = None) -> None:
        """`--model_args alphabet=64` sets `alphabet`. `--batch_size` arrives as `batch_size`, a
        number or "auto"; this toy ignores it.
        """
        super().__init__()
        self.alphabet = alphabet

    # Each method may return a list, or yield its answers one by one, in the order of the requests.
    # Yielded answers are stored at once, so that an interrupted run can be resumed.

    def loglikelihood(self, requests: list[Instance]) -> Iterator[tuple[float, bool]]:
        """Yields one pair per request: the log-probability of the continuation given the context,
        and whether greedy decoding would produce exactly the continuation.
        """
        for request in requests:
            context, continuation = request.args
            yield self._log_probability(continuation), continuation == self._answer(context)

    def loglikelihood_rolling(self, requests: list[Instance]) -> Iterator[float]:
        """Yields one number per request: the log-probability of the whole text."""
        for request in requests:
            (text,) = request.args
            yield self._log_probability(text)

    def generate_until(self, requests: list[Instance]) -> Iterator[str]:
        """Yields one text per request, which ends before the first stop string."""
        for request in requests:
            context, settings = request.args
            text = self._answer(context)
            stops = settings.get("until") or []
            for stop in [stops] if isinstance(stops, str) else stops:
                text = text.split(stop)[0]
            yield text

    def _answer(self, context: str) -> str:
        return context.split()[-1] if context.split() else ""

    def _log_probability(self, text: str) -> float:
        return -len(text) * math.log(self.alphabet)
