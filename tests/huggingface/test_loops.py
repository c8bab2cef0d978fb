"""Tests that subclasses with their own loops find the helpers of the published harness."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import (
    Collator,
    clear_torch_cache,
    configure_pad_token,
    get_dtype,
    handle_stop_sequences,
    normalize_gen_kwargs,
    pad_and_concat,
    postprocess_generated_text,
    stop_sequences_criteria,
)
from lm_eval.models.utils_hf import MultiTokenEOSCriteria
from tests.huggingface.conftest import Make, ask, torch


class Looping(HFLM):
    """Scores and generates in its own batches, as subclasses of the published `HFLM` do."""

    def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> list[tuple[float, bool]]:
        found = []
        collator = Collator(
            requests,
            sort_fn=lambda request: -len(request[1] + request[2]),
            group_by="contexts",
            group_fn=lambda request: request[1] + request[2][:-1],
        )
        for chunk in collator.get_batched(n=0, batch_fn=self._batch_scheduler):
            reads = [torch.tensor((context + rest)[:-1]) for _, context, rest in chunk]
            rows = pad_and_concat(max(map(len, reads)), list(reads))
            logs = torch.log_softmax(self._model_call(rows), dim=-1)
            for (asked, context, rest), read, row in zip(chunk, reads, logs, strict=True):
                own = self._select_cont_toks(row, contlen=len(rest), inplen=len(read))[None]
                for _, tokens, scores in collator.get_cache(asked, context, rest, own):
                    wanted = torch.tensor(tokens)
                    total = scores[0].gather(1, wanted[:, None]).sum()
                    found.append((float(total), bool((scores[0].argmax(-1) == wanted).all())))
        return collator.get_original(found)

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        found = []
        collator = Collator(
            [request.args for request in requests],
            sort_fn=lambda request: -len(self.tok_encode(request[0])),
            group_by="gen_kwargs",
        )
        for chunk in collator.get_batched(n=2):
            contexts, settings = zip(*chunk, strict=True)
            assert all(one == settings[0] for one in settings)
            read = normalize_gen_kwargs(settings[0], self.max_gen_toks)
            stops = handle_stop_sequences(read.pop("until"), eos="<|endoftext|>")
            ids, mask = self.tok_batch_encode(contexts)
            made = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_length=ids.shape[1] + read["max_gen_toks"],
                stopping_criteria=stop_sequences_criteria(
                    self.tokenizer, stops, ids.shape[1], len(ids)
                ),
                do_sample=read["do_sample"],
            )
            for row in made:
                text = self.tok_decode(row[ids.shape[1] :])
                found.append(postprocess_generated_text(text, stops, None))
        return collator.get_original(found)


def test_loops_of_their_own_give_the_same_answers(
    make_lm: Make, llama: Any, tokenizer: Any
) -> None:
    lm, plain = Looping(pretrained=llama, tokenizer=tokenizer), make_lm()
    words = ("three", "four apples", "four pears", "a")
    asked = [
        ask("loglikelihood", context, f" {word}")
        for context in ("Tom has", "Mira and her brother saw")
        for word in words
    ]
    found, expected = lm.loglikelihood(asked), plain.loglikelihood(asked)
    assert [a for a, _ in found] == pytest.approx([b for b, _ in expected], abs=1e-3)
    assert [a for _, a in found] == [b for _, b in expected]
    written = [
        ask("generate_until", text, {"max_gen_toks": 8, "until": [stop]})
        for stop in ("e", "o")
        for text in ("Tom has", "Mira", "A bird")
    ]
    assert lm.generate_until(written) == plain.generate_until(written)


def test_helpers_of_the_published_module(tokenizer: Any) -> None:
    assert get_dtype("bfloat16") == torch.bfloat16
    assert configure_pad_token(tokenizer) is tokenizer
    clear_torch_cache()
    rows = [torch.tensor([1, 2]), torch.tensor([[3]])]
    assert pad_and_concat(3, rows, "left").tolist() == [[0, 1, 2], [0, 0, 3]]
    assert normalize_gen_kwargs({"max_tokens": 9, "temperature": 0.5, "seed": 1}) == {
        "until": [],
        "max_gen_toks": 9,
        "do_sample": True,
        "temperature": 0.5,
        "seed": 1,
    }
    assert postprocess_generated_text("hm </think> yes\nno", "\n", "</think>") == "yes"


def test_generation_stops_at_the_string_that_an_older_class_names(tokenizer: Any) -> None:
    rows = [tokenizer.encode(text) for text in ("Tom has three", "Tom has apples")]
    ids = pad_and_concat(max(map(len, rows)), [torch.tensor(row) for row in rows], "left")
    stop = MultiTokenEOSCriteria(" three", tokenizer, 0, 2)
    assert stop(ids, None).tolist() == [True, False]


def test_a_tokenizer_given_as_an_object_can_pad_for_loops_of_a_subclass(
    llama: Any, tokenizer: Any
) -> None:
    other = copy.deepcopy(tokenizer)
    other.pad_token = None
    lm = Looping(pretrained=llama, tokenizer=other)
    rows = lm.tokenizer(["Tom", "Tom has three apples"], padding=True)["input_ids"]
    assert len({len(row) for row in rows}) == 1
