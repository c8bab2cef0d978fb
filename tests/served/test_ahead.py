"""Tests that prompts are tokenized while others are already sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lm_eval.api.instance import Instance
from lm_eval.errors import ConfigError
from lm_eval.models.planned import model as planned_model
from lm_eval.models.planned.ahead import computed_ahead
from lm_eval.models.served.model import ServedLM
from tests.served.stub_transport import StubTransport


def test_items_come_in_order_with_their_results() -> None:
    found = list(computed_ahead(lambda item: item * item, iter(range(20))))
    assert found == [(item, item * item) for item in range(20)]
    assert list(computed_ahead(lambda item: item, [])) == []


def test_the_next_item_is_computed_while_one_is_used() -> None:
    second = threading.Event()

    def compute(item: int) -> int:
        if item == 1:
            second.set()
        return item

    pairs = computed_ahead(compute, range(3))
    assert next(pairs) == (0, 0)
    assert second.wait(5)
    pairs.close()


def test_an_error_is_raised_at_its_item() -> None:
    def compute(item: int) -> int:
        return 1 // (2 - item)

    pairs = computed_ahead(compute, range(5))
    assert [next(pairs), next(pairs)] == [(0, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(pairs)


def test_abandoned_items_are_not_computed() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(1000):
            taken.append(item)
            yield item

    pairs = computed_ahead(lambda item: item, items())
    next(pairs)
    pairs.close()
    assert len(taken) <= 2


# -- in a model ---------------------------------------------------------------------------------


class SlowTokenizer:
    """Encodes a portion of prompts only after requests of the one before were answered."""

    name, object, bos_id, eos_id, eos_text = "slow", None, 0, 0, None

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        if len(self.calls) > 1:
            assert self.answered.wait(10), "no request was sent before all prompts were tokenized"
        self.calls.append(len(texts))
        return [[1, *map(ord, text)] for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens[1:]))


class Stubbed(ServedLM):
    """Sends requests to `stub`, without a probe."""

    def __init__(self, stub: StubTransport, tokenizer: Any = None, **arguments: Any) -> None:
        super().__init__(model="m", base_url="http://127.0.0.1:1", probe=False, **arguments)
        self._stub = stub
        vars(self)["served_tokenizer"] = tokenizer

    def make_transport(self) -> Any:
        return self._stub


def generations(*settings: dict[str, Any]) -> list[Instance]:
    """Returns one request per settings, with the prompts "0", "1" …"""
    return [
        Instance("generate_until", {}, (str(number), one), number, ("trial", number, 1))
        for number, one in enumerate(settings)
    ]


def test_requests_are_sent_before_all_prompts_are_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planned_model, "TOKENIZED_AT_ONCE", 4)
    tokenizer = SlowTokenizer()

    def answer(body: Any, attempt: int) -> Any:
        tokenizer.answered.set()
        return {"choices": [{"index": 0, "text": f"to {tokenizer.decode(body['prompt'])}"}]}

    lm = Stubbed(StubTransport(answer), tokenizer)
    answers = lm.generate_until(generations(*[{"until": ["\n"]}] * 18))
    assert answers == [f"to {number}" for number in range(18)]
    assert tokenizer.calls == [4, 4, 4, 4, 2]


def test_a_mistake_in_the_settings_is_reported_before_anything_is_sent() -> None:
    stub = StubTransport(lambda body, attempt: {"choices": [{"index": 0, "text": "yes"}]})
    with pytest.raises(ConfigError, match="until must be a string"):
        Stubbed(stub).generate_until(generations(*[{"until": ["\n"]}] * 5, {"until": 3}))
    assert not stub.sent


def test_prompts_of_equal_settings_share_a_request() -> None:
    def answer(body: Any, attempt: int) -> Any:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        texts = [f"{prompt}{body['max_tokens']}" for prompt in prompts]
        return {"choices": [{"index": n, "text": text} for n, text in enumerate(texts)]}

    stub = StubTransport(answer)
    lm = Stubbed(stub, batch_size=3)
    lm.dialect.accepts_lists = True
    lengths = [5, 6, 5, 6, 5, 6, 5, 5]
    answers = lm.generate_until(generations(*({"max_gen_toks": length} for length in lengths)))
    assert answers == [f"{number}{length}" for number, length in enumerate(lengths)]
    assert sum(stub.sent.values()) == 3, "two for the five of length 5, one for the others"
