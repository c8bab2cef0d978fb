"""Keeps secrets out of answers before they are stored or scored."""

from __future__ import annotations

from typing import Any

from lm_eval.api.instance import Completion, Failure
from lm_eval.redaction import SHORTEST_IN_DATA, Redactor, hide_in_text


def without_known_secrets(outcome: Any, redactor: Redactor) -> Any:
    """Returns an outcome without the secrets that `redactor` knows; the same object if it has none.

    A model may repeat a key that it was sent in an answer or an error. In answers only long secrets
    are replaced, because a short one may be part of a text by chance.
    """
    if isinstance(outcome, Failure):
        reason = hide_in_text(outcome.reason)
        return outcome if reason == outcome.reason else Failure(reason)
    if not redactor or not isinstance(outcome, str):
        return outcome
    text = redactor.text(str(outcome), SHORTEST_IN_DATA)
    if not isinstance(outcome, Completion):
        return outcome if text == outcome else text
    reasoning = outcome.reasoning and redactor.text(outcome.reasoning, SHORTEST_IN_DATA)
    if text == outcome and reasoning == outcome.reasoning:
        return outcome
    return outcome.changed(text, reasoning=reasoning)
