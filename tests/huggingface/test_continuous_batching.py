"""Tests that continuous batching over a paged key-value cache gives the plain loop's answers.

Without a GPU, attention over pages is computed by torch; `make test-kernels` lets our kernels do it
in Triton's interpreter. Captured steps are tested in `test_decoding_graphs.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from lm_eval.api.usage import Usage
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface import answering, continuous_batching, generation
from lm_eval.models.huggingface.admission import WaitingPrompts
from lm_eval.models.huggingface.attention import NO_KERNELS
from lm_eval.models.huggingface.continuous_batching import ContinuousBatch, Decoding
from lm_eval.models.huggingface.generation import Prompt, generate, random_draws
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.pages import (
    MIN_BYTES_SAVED,
    PAGE,
    SCRATCH_PAGE,
    Group,
    OutOfPagesError,
    PagePool,
    find_groups,
    longest_first,
    make_tiles,
)
from lm_eval.models.partial_answers import StopConditions
from tests.huggingface.conftest import (
    ARCHITECTURES,
    LONGEST,
    VOCABULARY,
    Make,
    ask,
    make_model,
    torch,
)

CPU = torch.device("cpu")
STOPS = StopConditions(frozenset(range(1, 30)), ("77", "x"))
RARE_STOPS = StopConditions(frozenset(range(1, 8)), ())
"""Stop conditions with which most answers are long."""


def draw_prompts(count: int, repeats: int = 1) -> list[Prompt]:
    """Returns random prompts of 1 to 150 tokens; two of three begin with the same 70 tokens."""
    rng = random.Random(count)

    def tokens(length: int) -> list[int]:
        return [rng.randrange(1, 1000) for _ in range(length)]

    stem = tokens(70)
    return [
        Prompt(
            str(i),
            (stem if i % 3 else []) + tokens(rng.randrange(1, 80)),
            tuple(range(i * repeats, (i + 1) * repeats)),
        )
        for i in range(count)
    ]


def decode(tokens: list[int]) -> str:
    return " ".join(map(str, tokens))


Answers = dict[int, list[int]]


def plainly(
    model: Any, prompts: list[Prompt], settings: Generation, stops: StopConditions = STOPS
) -> Answers:
    found = generate(
        Network(model), decode, prompts, settings, stops, seed=1, device=CPU, max_tokens=300,
        attention_kernels=NO_KERNELS, usage=Usage(),
    )  # fmt: skip
    return {request: answer.tokens for request, answer in found}


def answered(batch: ContinuousBatch) -> list[tuple[int, list[int]]]:
    """Returns the request index and the tokens of each answer."""
    found = list(batch.run())
    assert all(answer.text == decode(answer.tokens) for _, answer in found)
    return [(request, answer.tokens) for request, answer in found]


def make_batch(
    model: Any,
    prompts: list[Prompt],
    settings: Generation,
    stops: StopConditions = STOPS,
    **options: Any,
) -> ContinuousBatch:
    options = {"max_rows": 16, "decoding": Decoding(), "min_pages_saved": 1, **options}
    return ContinuousBatch(
        Network(model), decode, prompts, settings, stops, seed=1, device=CPU, max_tokens=300,
        attention_kernels=NO_KERNELS, usage=Usage(), **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "repeats", "options"),
    [
        (Generation(max_gen_toks=60), 1, {}),
        (Generation(max_gen_toks=60), 1, {"max_rows": 3}),
        (Generation(max_gen_toks=60), 1, {"decoding": Decoding(cascade=False)}),
        (Generation(max_gen_toks=1), 1, {}),
        (Generation(max_gen_toks=40, temperature=0.8, top_k=50), 5, {}),
        (Generation(max_gen_toks=40, temperature=1.2, top_p=0.9), 5, {"max_rows": 7}),
    ],
)
def test_answers_are_those_of_the_plain_loop(
    llama: Any, settings: Generation, repeats: int, options: dict[str, Any]
) -> None:
    """Also if there are few rows."""
    prompts = draw_prompts(30 // repeats, repeats)
    expected = plainly(llama, prompts, settings)
    batch = make_batch(llama, prompts, settings, **options)
    found = answered(batch)
    assert len(found) == len(expected)
    assert dict(found) == expected
    assert batch.pool.free == batch.cache.pages - 1
    # Tokens that were still to come when an answer ended are not counted.
    written = sum(map(len, expected.values()))
    most = written + continuous_batching.STEPS_PER_READ * len(expected)
    assert batch.usage.tokens_out == written <= batch.usage.tokens_generated <= most


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if ARCHITECTURES[name][3]])
def test_all_architectures_that_share_prefixes_decode_in_pages(name: str) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    prompts, settings = draw_prompts(6), Generation(max_gen_toks=12)
    found = answered(make_batch(model, prompts, settings, max_rows=4))
    expected = plainly(model, prompts, settings)
    assert dict(found) == expected


def test_a_cache_without_room_for_one_answer_is_refused(llama: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="room for 64 tokens"):
        make_batch(llama, draw_prompts(3), Generation(max_gen_toks=60), max_pages=2)


@pytest.fixture
def make_continuous(make_lm: Make) -> Make:
    """Returns a function that makes an `HFLM` that uses continuous batching, although on a CPU."""

    def make(*args: Any, **options: Any) -> Any:
        lm = make_lm(*args, **options)
        lm._execution_modes = dataclasses.replace(lm.execution_modes, decoding=Decoding())
        return lm

    return make


TEXTS = ["Tom has", "Mira saw a bird in the garden. Mira saw a", "Tom has 3 apples and", "A"]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_gen_toks": 20, "until": ["e", "\n"]},
        {"max_gen_toks": 9, "do_sample": True, "temperature": 1.3},
    ],
)
def test_a_model_answers_the_same_with_continuous_batching(
    make_lm: Make, make_continuous: Make, settings: dict[str, Any]
) -> None:
    asked = [ask("generate_until", text, settings) for text in TEXTS * 2]
    expected = make_lm().generate_until(asked)
    for options in ({}, {"batch_size": 3}, {"batch_size": 1}):
        lm = make_continuous(**options)
        assert lm.generate_until(asked) == expected
        assert lm.generate_until(asked[:3]) == expected[:3]


def test_scores_that_are_not_numbers_are_reported(make_continuous: Make) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    lm = make_continuous(model)
    with torch.no_grad():
        model.model.embed_tokens.weight[lm.tok_encode(" seven")[0]] = torch.nan
    asked = [
        ask("generate_until", text, {"max_gen_toks": 4}, task=task, number=number)
        for text, task, number in [
            ("Mira saw a bird", "good", 1),
            ("Tom has seven apples", "broken", 42),
            ("Tom has", "good", 2),
        ]
    ]
    with pytest.raises(ModelError, match=r"task 'broken', document 42: .*not numbers"):
        lm.generate_until(asked)


def test_memory_that_runs_out_halves_the_batch(
    make_lm: Make, make_continuous: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class ShortOfMemory(ContinuousBatch):
        def run(self) -> Iterator[Any]:
            sizes.append(self.max_rows)
            for number, found in enumerate(super().run()):
                if self.max_rows > 1 and number:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                yield found

    settings = {"max_gen_toks": 6, "do_sample": True, "temperature": 1.3}
    asked = [ask("generate_until", text, settings) for text in TEXTS]
    expected = make_lm().generate_until(asked)
    monkeypatch.setattr(answering, "ContinuousBatch", ShortOfMemory)
    assert make_continuous().generate_until(asked) == expected
    assert sizes[:1] == [4]
    assert sizes == sorted(sizes, reverse=True)


def test_equal_beginnings_share_full_pages() -> None:
    pool = PagePool(10)
    tokens = np.arange(3 * PAGE + 5)
    one, unwritten = pool.share(tokens)
    assert (len(one), unwritten) == (3, [0, 1, 2])
    other = np.append(tokens[: 2 * PAGE + 1], tokens[: PAGE - 1])
    two, unwritten = pool.share(other)
    assert two[:2] == one[:2]
    assert unwritten == [2]
    assert pool.free == 9 - 4
    pool.release(one)
    assert pool.free == 9 - 3
    pool.release(two)
    assert pool.free == 9
    assert pool.share(tokens)[1] == [0, 1, 2]


def test_pages_that_run_out_are_all_given_back() -> None:
    pool = PagePool(4)
    with pytest.raises(OutOfPagesError):
        pool.share(np.arange(4 * PAGE))
    assert pool.free == 3


def test_rows_are_grouped_such_that_most_reads_are_saved() -> None:
    """Two halves with two more pages each save more than all rows with one common page."""
    table = np.array([[1, 2 + n // 4, 4 + n // 4, 10 + n] for n in range(8)])
    full = np.full(8, 3)
    groups = find_groups(table, full, 9, 1)
    assert [(group.rows.tolist(), group.pages) for group in groups] == [
        ([0, 1, 2, 3], 3),
        ([4, 5, 6, 7], 3),
    ]
    (whole,) = find_groups(table, np.full(8, 1), 9, 1)
    assert (len(whole.rows), whole.pages) == (8, 1)
    assert find_groups(table, np.zeros(8, dtype=np.int64), 9, 1) == []
    # Each group of four rows saves three times three reads.
    assert len(find_groups(table, full, 2, 18)) == 2
    assert find_groups(table, full, 2, 19) == []
    # Groups for which no tile is left save nothing.
    assert [group.rows.tolist() for group in find_groups(table, full, 1, 9)] == [[0, 1, 2, 3]]
    assert find_groups(table, full, 1, 10) == []
    rows, count, pages = make_tiles(groups, 3)
    assert (count.tolist(), pages.tolist()) == ([4, 4, 0], [3, 3, 0])
    assert rows[:2, :4].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    many = [Group(np.arange(40), 2)]
    assert make_tiles(many, 3)[1].tolist() == [16, 16, 8]
    assert many[0].tiles == 3


def test_few_common_pages_are_read_by_each_row(llama: Any) -> None:
    """A kernel for them would take longer than it saves."""
    batch = make_batch(llama, draw_prompts(6), Generation(max_gen_toks=9), min_pages_saved=None)
    page = PAGE * 2 * 2 * 8 * 4  # keys and values of two heads, eight numbers of four bytes
    assert batch.min_pages_saved * page == MIN_BYTES_SAVED
    grouped: list[int] = []
    batch.step.place_rows = lambda table, position, chosen, groups: grouped.append(len(groups))  # type: ignore[method-assign]
    with torch.inference_mode():
        batch.start()
        batch._launch_steps(1)
        batch.min_pages_saved = 2
        batch._launch_steps(1)
    assert grouped == [0, 1]


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 20)), min_size=1, max_size=40)
)
def test_rows_with_most_keys_of_their_own_come_first(rows: list[tuple[int, int]]) -> None:
    own = np.array([keys for keys, _ in rows])
    shared = np.array([pages for _, pages in rows])
    order = longest_first(own + shared * PAGE, shared)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert own[order].tolist() == sorted(own.tolist(), reverse=True)


def test_pages_are_allocated_while_the_device_reads_prompts(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of prompts does not wait until all prompts have pages."""
    events: list[str] = []
    prefill, allocate = ContinuousBatch._prefill, WaitingPrompts._allocate

    def counted_prefill(self: Any, admitted: Any) -> None:
        events.append("read")
        prefill(self, admitted)

    def counted_allocate(self: Any, *given: Any) -> Any:
        events.append("allocate")
        return allocate(self, *given)

    monkeypatch.setattr(ContinuousBatch, "_prefill", counted_prefill)
    monkeypatch.setattr(WaitingPrompts, "_allocate", counted_allocate)
    prompts = draw_prompts(12)
    batch = make_batch(llama, prompts, Generation(max_gen_toks=5))
    assert len(dict(answered(batch))) == len(prompts)
    runs = [(name, len(list(group))) for name, group in itertools.groupby(events)]
    assert [name for name, _ in runs] == ["allocate", "read"] * (len(runs) // 2)
    assert len(runs) > 2
    assert sum(count for name, count in runs if name == "allocate") == len(prompts)


def test_the_cache_takes_its_share_of_what_copies_of_weights_leave(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [1 << 30]

    def merge(network: Any, device: Any) -> Any:
        left[0] = 30 * batch_of_one._page_bytes
        return network

    batch_of_one = make_batch(llama, draw_prompts(1), Generation(max_gen_toks=5))
    monkeypatch.setattr(continuous_batching, "network_for_steps", merge)
    monkeypatch.setattr(continuous_batching, "free_memory", lambda device: left[0])
    batch = make_batch(llama, draw_prompts(16), Generation(max_gen_toks=60))
    assert batch.cache.pages == int(continuous_batching.MEMORY_SHARE * 30)


@pytest.mark.parametrize("pages", [12, 20, 30, 45])
def test_prompts_wait_until_all_rows_can_grow(llama: Any, pages: int) -> None:
    batch = make_batch(llama, draw_prompts(16), Generation(max_gen_toks=60), max_pages=pages)
    with torch.inference_mode():
        rows = len(batch.start())
    assert 0 < rows < 16
    assert batch.pool.free >= rows


@pytest.mark.parametrize("repeats", [1, 5])
def test_prompts_are_projected_to_logits_in_few_sizes(
    llama: Any, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_batching, "ROUNDED_SIZE_DEVICES", ("cpu",))
    monkeypatch.setattr(continuous_batching, "PROJECTED_ROWS", (4, 8))
    sizes: set[int] = set()
    plain = Network.logits

    def counted(self: Any, hidden: Any) -> Any:
        sizes.add(len(hidden))
        return plain(self, hidden)

    settings = Generation(max_gen_toks=20, temperature=0.8, top_k=50 * (repeats > 1))
    prompts = draw_prompts(30 // repeats, repeats)
    expected = plainly(llama, prompts, settings)
    monkeypatch.setattr(Network, "logits", counted)
    batch = make_batch(llama, prompts, settings, max_rows=12)
    assert dict(answered(batch)) == expected
    assert sizes <= {4, 8, *batch.step.sizes}
    assert len(sizes) > 1


def test_a_prompt_whose_pages_are_all_stored_is_read_again(llama: Any) -> None:
    """Its repeats do not fit into the batch at once; full pages need not be written again."""
    tokens = random.Random(0).choices(range(30, 1000), k=2 * PAGE)
    prompts = [Prompt("a", tokens, (n,), (n,)) for n in range(6)]
    settings = Generation(max_gen_toks=40, temperature=0.8, top_k=50)
    expected = plainly(llama, prompts, settings, STOPS)
    batch = make_batch(llama, prompts, settings, STOPS, max_rows=2)
    assert dict(answered(batch)) == expected


def test_prompts_wait_until_rows_are_free(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    launch = ContinuousBatch._launch_steps

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        sizes.append(len(self._rows))
        launch(self, *args, **kwargs)

    monkeypatch.setattr(ContinuousBatch, "_launch_steps", counted)
    monkeypatch.setattr(continuous_batching, "ADMISSION_SHARE", 4)
    batch = make_batch(llama, draw_prompts(30), Generation(max_gen_toks=60), max_rows=4)
    assert len(answered(batch)) == 30
    assert max(sizes) == 4
    # Answers end at different times, and others follow at once: the batch is rarely empty.
    assert np.mean(sizes[:-8]) > 3


def test_no_position_beyond_the_longest_answer_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2 has no embeddings for later positions: a GPU would stop with an error.

    An answer that needs two more tokens takes part in eight steps if others need more.
    """
    monkeypatch.setattr(continuous_batching, "ADMISSION_SHARE", 4)
    model = make_model(*ARCHITECTURES["gpt2"][:3])
    stops = StopConditions(frozenset(range(1, 60)), ())
    settings = Generation(max_gen_toks=3 + 5 * continuous_batching.STEPS_PER_READ)
    rng = np.random.default_rng(0)
    prompts = [
        Prompt(str(i), rng.integers(60, VOCABULARY, LONGEST - settings.max_gen_toks).tolist(), (i,))
        for i in range(16)
    ]
    positions: list[int] = []
    hidden = Network.hidden

    def counted(self: Any, tokens: Any, position: Any) -> Any:
        positions.append(int(position.max()))
        return hidden(self, tokens, position)

    expected = plainly(model, prompts, settings, stops)
    monkeypatch.setattr(Network, "hidden", counted)
    batch = make_batch(model, prompts, settings, stops, max_rows=3)
    assert dict(answered(batch)) == expected
    assert max(positions) == LONGEST - 1  # there were steps after the end of an answer


@pytest.mark.parametrize(
    ("settings", "repeats"),
    [
        (Generation(max_gen_toks=60), 1),
        (Generation(max_gen_toks=100, temperature=0.8, top_k=50), 3),
    ],
)
def test_answers_are_begun_again_if_pages_run_out(
    llama: Any, settings: Generation, repeats: int
) -> None:
    prompts = draw_prompts(18 // repeats, repeats)
    expected = plainly(llama, prompts, settings, RARE_STOPS)
    batch = make_batch(llama, prompts, settings, RARE_STOPS, max_pages=25)
    evicted: list[int] = []
    evict = batch._evict

    def counted() -> None:
        evicted.append(1)
        evict()

    batch._evict = counted  # type: ignore[method-assign]
    found = answered(batch)
    assert evicted
    assert len(found) == len(expected)
    assert dict(found) == expected
    assert batch.pool.free == batch.cache.pages - 1
    # Prompts that are read again do not count twice.
    assert batch.usage.tokens_in == repeats * sum(len(prompt.tokens) for prompt in prompts)


def test_random_numbers_are_less_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers close to 1 are rounded to 1 in float32; they would choose the last token."""

    class Highest:
        def random(self, count: int) -> Any:
            return np.full(count, np.nextafter(1.0, 0.0))

    monkeypatch.setattr(generation, "answer_rng", lambda *args: Highest())
    settings = Generation(max_gen_toks=3, temperature=1.0)
    draws = random_draws([(Prompt("", [1], (0,)), 0)], settings, seed=1)
    assert draws.dtype == np.float32
    assert (draws < 1).all()


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("guesses", [True, False])
def test_callers_do_not_run_in_inference_mode(
    continuous: bool, guesses: bool, make_lm: Make, make_continuous: Make, monkeypatch: Any
) -> None:
    """Otherwise a caller that fails while it takes answers could not train its model later."""
    if not guesses:
        monkeypatch.setattr(answering, "LOOKUP_DEVICES", ())
    lm = (make_continuous if continuous else make_lm)()
    asked = [ask("generate_until", text, {"max_gen_toks": 5}) for text in TEXTS]
    found = lm._generator().answer(asked)
    next(found)
    assert not torch.is_inference_mode_enabled()
    assert len(list(found)) == len(TEXTS) - 1


class PageChecker:
    """Checks before every portion of steps that rows share no page but full pages of prompts."""

    def __init__(self, batch: ContinuousBatch) -> None:
        self.batch = batch
        self.place_rows = batch.step.place_rows
        batch.step.place_rows = self.check  # type: ignore[method-assign]

    def check(self, table: Any, position: Any, chosen: Any, groups: Any) -> None:
        batch = self.batch
        users: dict[int, list[tuple[int, int]]] = {}
        for n, (row, pages) in enumerate(zip(batch._rows, table, strict=True)):
            assert row.full_pages == len(row.prompt.tokens) // PAGE
            assert position[n] == len(row.prompt.tokens) + chosen[n] - 1
            for place, page in enumerate(pages):
                users.setdefault(page, []).append((n, place))
        assert SCRATCH_PAGE not in users
        assert batch.pool.free + len(users) == batch.cache.pages - 1
        for rows in users.values():
            begins = {
                (place, tuple(batch._rows[n].prompt.tokens[: (place + 1) * PAGE]))
                for n, place in rows
            }
            assert len(begins) == 1
            if len(rows) > 1:
                assert all(place < batch._rows[n].full_pages for n, place in rows)
        grouped = [n for group in groups for n in group.rows.tolist()]
        assert len(grouped) == len(set(grouped))
        for group in groups:
            assert len({tuple(table[n][: group.pages]) for n in group.rows}) == 1
            assert all(group.pages <= batch._rows[n].full_pages for n in group.rows)
        self.place_rows(table, position, chosen, groups)


@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_no_page_is_lost_or_given_to_two_answers(llama: Any, data: st.DataObject) -> None:
    """Prompts have any lengths and common beginnings; there are few rows and few pages."""
    rng = random.Random(data.draw(st.integers(0, 1000)))
    stem = [rng.randrange(8, 1000) for _ in range(130)]
    shapes = data.draw(
        st.lists(st.tuples(st.integers(0, 130), st.integers(0, 40)), min_size=1, max_size=8)
    )
    repeats = data.draw(st.integers(1, 3))
    prompts = [
        Prompt(
            str(i),
            stem[:shared] + [rng.randrange(8, 1000) for _ in range(own or not shared)],
            tuple(range(i * repeats, (i + 1) * repeats)),
        )
        for i, (shared, own) in enumerate(shapes)
    ]
    temperature = data.draw(st.sampled_from([0.0, 1.5]))
    settings = Generation(max_gen_toks=data.draw(st.integers(1, 70)), temperature=temperature)
    stops = data.draw(st.sampled_from([STOPS, RARE_STOPS]))
    longest = max(len(prompt.tokens) for prompt in prompts) + settings.max_gen_toks
    # Room for one prompt with its repeats, at least.
    least = repeats * (longest + 3 * continuous_batching.STEPS_PER_READ) // PAGE + 3 * repeats
    batch = make_batch(
        llama,
        prompts,
        settings,
        stops,
        max_rows=data.draw(st.integers(repeats, 12)),
        max_pages=least + data.draw(st.integers(1, 40)),
        min_pages_saved=1,
    )
    PageChecker(batch)
    found = answered(batch)
    assert batch.pool.free == batch.cache.pages - 1
    assert not batch.pool._page_of
    expected = plainly(llama, prompts, settings, stops)
    assert len(found) == len(expected)
    for request, tokens in dict(found).items():
        if tokens != expected[request]:
            tokens_of = next(p.tokens for p in prompts if request in p.requests)
            pairs = zip(tokens, expected[request], strict=False)
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            assert not temperature
            assert is_tie(llama, [*tokens_of, *tokens[:same]])


def is_tie(model: Any, tokens: list[int]) -> bool:
    """Returns whether the two most likely next tokens differ by no more than rounding does."""
    with torch.no_grad():
        scores = copy.deepcopy(model).double()(torch.tensor([tokens])).logits[0, -1]
    first, second = scores.topk(2).values
    return bool(first - second < 1e-5)


@hypothesis.given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=12),
    st.lists(st.integers(0, 11), max_size=12),
    st.integers(3, 20),
)
def test_prompts_share_a_page_exactly_if_they_agree_up_to_its_end(
    blocks: list[list[int]], ended: list[int], count: int
) -> None:
    """`blocks` are prompts of full pages that consist of one token each."""
    pool = PagePool(count)
    held: dict[int, list[int]] = {}
    for n, block in enumerate(blocks):
        before = pool.free
        try:
            held[n], unwritten = pool.share(np.repeat(np.array(block), PAGE))
            assert len(unwritten) == before - pool.free
        except OutOfPagesError:
            assert pool.free == before
        if n in ended and n in held:
            pool.release(held.pop(n))
        prefix_of: dict[int, tuple[int, ...]] = {}
        for m, pages in held.items():
            for place, page in enumerate(pages):
                prefix = tuple(blocks[m][: place + 1])
                assert prefix_of.setdefault(page, prefix) == prefix
        assert len(set(prefix_of.values())) == len(prefix_of)
        assert pool.free == count - 1 - len(prefix_of)
    for pages in held.values():
        pool.release(pages)
    assert pool.free == count - 1
