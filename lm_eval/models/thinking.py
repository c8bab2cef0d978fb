"""Thoughts of reasoning models: a limit of their length, and their separation from the answer.

All that comes before the end mark (`think_end_token`) is the thought. With `thinking_budget=N`, a
thought is cut after N tokens: a model first generates up to N tokens, and if they do not contain
the mark, it is appended and the model continues with its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.config.generation import MAX_LENGTH_NAMES
from lm_eval.errors import ConfigError, nearest


def read_budget(value: Any, end_mark: Any, enable_thinking: Any = None) -> int | None:
    """Returns the argument `thinking_budget` as a number; None if it is not set.

    Raises `ConfigError` if it is not a positive integer, if there is no `think_end_token`
    (`end_mark`), or if thinking is switched off (`enable_thinking`).
    """
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number < 1 or isinstance(value, bool) or number != float(value):
        raise ConfigError(f"thinking_budget must be an integer of at least 1, not {value!r}.")
    if end_mark is None or end_mark == "":
        raise ConfigError(
            "thinking_budget needs think_end_token, which is appended to a thought that is cut. "
            "Add think_end_token=… (for example </think>)."
        )
    if enable_thinking is False:
        raise ConfigError(
            "thinking_budget and enable_thinking=False contradict each other: remove one of them."
        )
    return number


def check_budget(
    arguments: Mapping[str, Any],
    context_length: int | None = None,
    tokenizer: Callable[[], Any] | None = None,
) -> None:
    """Raises `ConfigError` for a `thinking_budget` that cannot work, before the model is loaded.

    Args:
        arguments: the `model_args` of the run.
        context_length: the maximum number of tokens of prompt and answer; None if it is not known.
        tokenizer: loads the tokenizer; called only if there is a budget. It may return None.
    """
    mark = arguments.get("think_end_token")
    budget = read_budget(arguments.get("thinking_budget"), mark, arguments.get("enable_thinking"))
    if budget is None:
        return
    if context_length is not None and budget >= context_length - 1:
        raise ConfigError(
            f"thinking_budget={budget} leaves no room for a prompt and an answer: the context "
            f"length is {context_length} tokens. Pass a smaller one."
        )
    found = None if tokenizer is None else tokenizer()
    if found is not None:
        check_mark(mark, found)


def check_mark(mark: Any, tokenizer: Any) -> None:
    """Raises `ConfigError` if a `think_end_token` is no token of a transformers tokenizer.

    A mark of several tokens is accepted if the chat template of the tokenizer contains it.
    """
    if isinstance(mark, int) or (isinstance(mark, str) and mark.isdigit()):
        if not 0 <= int(mark) < len(tokenizer):
            raise ConfigError(
                f"think_end_token={mark} is no token: the tokenizer has {len(tokenizer)} tokens."
            )
        return
    vocabulary = tokenizer.get_vocab()
    if mark in vocabulary or mark in str(getattr(tokenizer, "chat_template", None) or ""):
        return
    added = [str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values()]
    close = nearest(str(mark), added, 2)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise ConfigError(
        f"think_end_token={mark!r} is no token of the tokenizer, nor part of its chat template, so "
        f"the model would not know it as the end of a thought.{hint}"
    )


def check_room(arguments: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises `ConfigError` if a thought may fill the whole answer to a task.

    Also if a task sets `max_length`, which counts the prompt: a thought could not be cut.
    `arguments` are the `model_args` of the run, `settings` the generation settings of each task
    that generates text, by name. The maximum length counts the thought and the answer together.
    """
    budget = arguments.get("thinking_budget")
    if isinstance(budget, str) and budget.isdigit():
        budget = int(budget)
    if not isinstance(budget, int):
        return
    for task, given in settings.items():
        if given.get("max_length") is not None:
            raise ConfigError(
                f"task {task!r}: the generation setting max_length cannot be combined with "
                "thinking_budget. Set max_gen_toks instead, which counts thought and answer."
            )
        lengths = (given[name] for name in MAX_LENGTH_NAMES if given.get(name) is not None)
        length = next(lengths, arguments.get("max_gen_toks"))
        if isinstance(length, (int, float)) and length <= budget + 1:
            raise ConfigError(
                f"task {task!r}: thinking_budget={budget} leaves no room for an answer: its "
                f"max_gen_toks is {length:g}, which counts thought and answer together. Raise it "
                f"with --gen_kwargs max_gen_toks={2 * budget}, or pass a smaller budget."
            )


def check_answer_room(budget: int, mark_length: int, max_gen_toks: int) -> None:
    """Raises `ConfigError` if a request has no room for an answer after a thought and its mark."""
    if max_gen_toks <= budget + mark_length:
        raise ConfigError(
            f"thinking_budget={budget} leaves no room for an answer: max_gen_toks is "
            f"{max_gen_toks}, which counts thought and answer together. Raise it with "
            f"--gen_kwargs max_gen_toks={2 * budget}."
        )


def budget_settings(server: str, budget: int) -> dict[str, Any]:
    """Returns the settings with which a server cuts thoughts itself; empty if it has none.

    `server` is the kind of the server and its version, as the probe found it.
    """
    kind = server.lower()
    if kind.startswith("vllm"):
        return {"thinking_token_budget": budget}
    if kind.startswith("sglang"):
        return {"custom_params": {"thinking_budget": budget}}
    return {}


def special_token_settings(server: str) -> dict[str, Any]:
    """Returns the settings with which a server keeps special tokens in texts; empty if it has none.

    `server` is as for `budget_settings`.
    """
    keeps = server.lower().startswith(("vllm", "sglang"))
    return {"skip_special_tokens": False, "spaces_between_special_tokens": False} if keeps else {}


def is_special(mark: str | None, coder: Any) -> bool:
    """Returns whether a mark is a special token, which servers leave out of texts.

    `coder` is a `TokenCoder`; False if it is None, or if its library does not tell special tokens.
    """
    tokenizer = getattr(coder, "object", None)
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is None:
        added = getattr(tokenizer, "get_added_tokens_decoder", dict)()
    return any(str(getattr(one, "content", one)) == mark and one.special for one in added.values())


def split_thought(text: str, mark: str | None) -> tuple[str, str]:
    """Returns `(thought, answer)`: what comes before the last end mark, and what comes after.

    Whitespace around both is removed. Without a mark in the text, all of it is the answer, as it
    is, and the thought is "".
    """
    thought, found, answer = text.rpartition(mark) if mark else ("", "", text)
    return (thought.strip(), answer.lstrip()) if found else ("", text)


def count_until_mark(decode: Callable[[list[int]], str], tokens: Sequence[int], mark: str) -> int:
    """Returns how many tokens there are up to the last end mark, which is included.

    0 if their text does not contain it. `decode` returns the text of tokens.
    """
    total = decode(list(tokens)).count(mark)
    if not total:
        return 0
    low, high = 1, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if decode(list(tokens[:middle])).count(mark) >= total:
            high = middle
        else:
            low = middle + 1
    return low


def joined(first: Completion, mark: str, second: Completion) -> Completion:
    """Returns the answer that two steps have generated.

    `first` is what was generated within the budget, `mark` the end mark if it was appended (else
    ""), `second` what followed.
    """
    tokens = None
    if first.tokens is not None and second.tokens is not None:
        tokens = first.tokens + second.tokens
    parts = [part for part in (first.reasoning, second.reasoning) if part]
    thought = first.tokens if mark else None
    return Completion(
        f"{first}{mark}{second}",
        "\n".join(parts) or None,
        second.finish_reason,
        tokens,
        thought if thought is not None else second.reasoning_tokens,
    )
