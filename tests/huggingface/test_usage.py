"""Tests the counts of read, shared and generated tokens, and when prefixes are shared."""

from __future__ import annotations

from typing import Any

import pytest

from lm_eval.api.model import CacheHook
from lm_eval.models.huggingface.scoring import PlainScorer
from tests.huggingface.conftest import Make, ask

CHOICES = [
    ask("loglikelihood", f"Tom has {n} apples and Mira has", f" {n + k} pears")
    for n in range(3)
    for k in range(4)
]


def reads(lm: Any) -> list[tuple[int, ...]]:
    """Returns the tokens that the model reads for each request: all but the last."""
    return [tuple(lm.tok_encode("".join(request.args))[:-1]) for request in CHOICES]


def test_tokens_are_counted_as_given_and_as_shared(make_lm: Make) -> None:
    lm = make_lm()
    lm.loglikelihood(CHOICES)
    given = reads(lm)
    prefixes = {read[:end] for read in given for end in range(1, len(read) + 1)}
    used = lm.usage()
    assert used["tokens_in"] == sum(map(len, given))
    assert used["tokens_shared"] == used["tokens_in"] - len(prefixes)
    assert (used["tokens_out"], used["truncated"], used["failed"]) == (0, 0, 0)


def test_without_sharing_only_equal_reads_are_computed_once(make_lm: Make) -> None:
    lm = make_lm(prefix_sharing=False)
    lm.loglikelihood(CHOICES)
    given = reads(lm)
    assert lm.usage()["tokens_in"] == sum(map(len, given))
    assert lm.usage()["tokens_shared"] == sum(map(len, given)) - sum(map(len, set(given)))


@pytest.mark.parametrize("extra", [{}, {"repetition_penalty": 1.0}])
def test_written_tokens_are_counted(make_lm: Make, extra: dict[str, float]) -> None:
    """Also when transformers generates, which it does for settings that our loop does not know."""
    lm = make_lm()
    settings = {"max_gen_toks": 5, **extra}
    texts = ["Tom has", "Tom has", "Mira and her brother"]
    lm.generate_until([ask("generate_until", text, settings) for text in texts])
    sizes = [len(lm.tok_encode(text)) for text in texts]
    assert lm.usage()["tokens_in"] == sum(sizes)
    assert lm.usage()["tokens_shared"] == sizes[0]
    assert lm.usage()["tokens_out"] == 3 * 5


def rows_run(lm: Any, windows: list[tuple[list[int], list[int]]], patch: Any) -> int:
    """Returns how many requests are computed without prefix sharing."""
    found = []
    launch = PlainScorer._launch

    def spy(self: PlainScorer, windows: Any, rows: Any, alike: Any) -> Any:
        found.extend(rows)
        return launch(self, windows, rows, alike)

    patch.setattr(PlainScorer, "_launch", spy)
    lm._loglikelihood_tokens([(None, *window) for window in windows])
    return len(found)


def test_what_shares_nothing_and_needs_no_padding_is_run_in_rows(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = [([n] * 20, [7]) for n in range(10, 40)]
    assert rows_run(make_lm(), alike, monkeypatch) == 30


def test_what_shares_or_needs_padding_is_run_as_a_tree(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = [([9] * 20 + [n], [7]) for n in range(10, 40)]
    uneven = [([n] * n, [7]) for n in range(10, 60)]
    assert rows_run(make_lm(), shared, monkeypatch) == 0
    assert rows_run(make_lm(), uneven, monkeypatch) == 0


def test_a_text_is_reported_as_soon_as_it_is_read(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm(max_length=32, batch_size=1)
    runs = 0
    hidden = lm._network.hidden

    def counted(*args: Any) -> Any:
        nonlocal runs
        runs += 1
        return hidden(*args)

    reported: list[tuple[int, float]] = []
    monkeypatch.setattr(lm._network, "hidden", counted)
    lm.set_cache_hook(CacheHook(lambda kind, args, found: reported.append((runs, found))))
    asked = [ask("loglikelihood_rolling", f"{n} ducks swam. " * 9) for n in range(6)]
    answers = lm.loglikelihood_rolling(asked)
    assert sorted(found for _, found in reported) == sorted(answers)
    assert reported[0][0] < runs / 2
