"""Text to tokens: in batches, equal texts once, with exactly one beginning-of-text token.

What a tokenizer adds around a text (a beginning, an end) is read off a probe. Texts are then
encoded bare, and the beginning is put before those that do not start with it already, as texts
from chat templates do. An end-of-text token is never put between a context and its continuation.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any

from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window, move_spaces, split_pair

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], list[list[int]]]
PROBE = "a"
SAMPLE = 16
SAMPLE_AGAIN = 2
"""Texts on which a quick way of encoding is compared with the tokenizer's own, first and later."""
LENGTH_WARNING = "sequence-length-is-longer-than-the-specified-maximum"
SHOWN = 80
"""Letters of a text that a message quotes."""


class TextEncoder:
    """One tokenizer, with the beginning and end that texts get."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        add_bos_token: bool | None,
        causal: bool,
        embeddings: int | None = None,
    ) -> None:
        """`embeddings` is how many tokens the model has, where the tokenizer has more."""
        self.tokenizer = tokenizer
        # What is too long is cut and counted later: no need to warn of indexing errors.
        getattr(tokenizer, "deprecation_warnings", {})[LENGTH_WARNING] = True
        self.embeddings = embeddings
        self.prefix, suffix = added_around(tokenizer)
        if add_bos_token is False:
            self.prefix = []
        elif add_bos_token and not self.prefix and tokenizer.bos_token_id is not None:
            self.prefix = [int(tokenizer.bos_token_id)]
        self.suffix = [] if causal else suffix
        self.splits_words = splits_words(tokenizer)
        self._compared = False
        self._encode: Encode | None = None

    def encode(self, text: str, special: bool | None = None) -> list[int]:
        """Encode one text; `special` False leaves beginning and end away."""
        bare: list[int] = list(self.tokenizer.encode(text, add_special_tokens=False))
        return bare if special is False else self.surround(bare)

    def encode_all(self, texts: Iterable[str], special: bool | None = None) -> dict[str, list[int]]:
        """Encode many texts, equal ones once."""
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return {}
        if self._encode is None:
            self._encode = quick_encoder(self.tokenizer, distinct[:SAMPLE])
        coded = self._encode(distinct)
        if self.embeddings is not None:
            for text, tokens in zip(distinct, coded, strict=True):
                self._refuse_unknown(text, tokens, self.embeddings)
        if special is not False:
            coded = [self.surround(tokens) for tokens in coded]
        return dict(zip(distinct, coded, strict=True))

    def _refuse_unknown(self, text: str, tokens: list[int], embeddings: int) -> None:
        top = max(tokens, default=0)
        if top >= embeddings:
            name = self.tokenizer.convert_ids_to_tokens(top)
            raise ModelError(
                f"tokenizer and model disagree: the token {name!r} ({top}) is none of the model's "
                f"{embeddings} embeddings, and stands in the text {shortened(text)!r}."
            )

    def surround(self, bare: list[int]) -> list[int]:
        """Put the beginning before tokens that lack it, and the end after them."""
        begun = not self.prefix or bare[: len(self.prefix)] == self.prefix
        whole = bare if begun else self.prefix + bare
        return whole + self.suffix if self.suffix else whole

    def encode_pairs(
        self, pairs: list[tuple[str, str]], prefix_token: int, *, causal: bool
    ) -> list[Window]:
        """Contexts and continuations as tokens, split where the context ends.

        For a causal model both are encoded together; an encoder-decoder reads them apart. Where
        the tokenizer splits words, long texts are not encoded again and again, and some pairs are
        compared with encoding them whole: if they differ, all are.
        """
        moved = [
            move_spaces(context, rest) if context else (context, rest) for context, rest in pairs
        ]
        windows = self._encode_moved(moved, prefix_token, causal)
        long = [i for i, (context, _) in enumerate(moved) if len(context) >= LONG]
        if causal and self.splits_words and long:
            count = SAMPLE_AGAIN if self._compared else SAMPLE
            sample = long[:: -(-len(long) // count)]
            self._compared = True
            self.splits_words = False
            whole = self._encode_moved([moved[i] for i in sample], prefix_token, causal)
            self.splits_words = whole == [windows[i] for i in sample]
            if not self.splits_words:
                return self._encode_moved(moved, prefix_token, causal)
        return windows

    def _encode_moved(
        self, moved: list[tuple[str, str]], prefix_token: int, causal: bool
    ) -> list[Window]:
        bare = self.encode_all(
            (rest for context, rest in moved if not causal or not context), False
        )
        contexts = self._encode_contexts(context for context, _ in moved if context)
        known = self._behind_long_contexts(moved, contexts) if causal else {}
        left = [pair for pair in moved if causal and pair[0] and pair not in known]
        whole = self.encode_all(context + rest for context, rest in left)
        windows = []
        for pair in moved:
            context, rest = pair
            if not context:
                windows.append(split_pair(bare[rest], [], prefix_token))
            elif not causal:
                windows.append((contexts[context], bare[rest]))
            elif pair in known:
                windows.append((contexts[context], known[pair]))
            else:
                windows.append(split_pair(whole[context + rest], contexts[context], prefix_token))
        return windows

    def _encode_contexts(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Encode contexts; what many of them begin with, such as solved examples, once.

        A tokenizer that first splits text into words encodes what precedes a space between two
        words, and what follows it, without regard to each other.
        """
        distinct = list(dict.fromkeys(texts))
        cuts = common_beginnings(distinct) if self.splits_words else {}
        beginnings = self.encode_all((text[:cut] for text, cut in cuts.items()), False)
        rests = self.encode_all((text[cut:] for text, cut in cuts.items()), False)
        coded = self.encode_all(text for text in distinct if text not in cuts)
        for text, cut in cuts.items():
            coded[text] = self.surround(beginnings[text[:cut]] + rests[text[cut:]])
        return coded

    def _behind_long_contexts(
        self, pairs: list[tuple[str, str]], contexts: Mapping[str, list[int]]
    ) -> dict[tuple[str, str], list[int]]:
        """What continuations become behind long contexts, without encoding those again.

        Where a tokenizer splits words, the last words of a context are encoded together with a
        continuation in place of the whole, unless these words end differently than their context.
        """
        if not self.splits_words:
            return {}
        tails = {context: tail for context in contexts if (tail := last_words(context))}
        ends = self.encode_all(tails.values(), False)
        fitting = {
            context: tail
            for context, tail in tails.items()
            if contexts[context][-len(ends[tail]) :] == ends[tail]
        }
        asked = [pair for pair in dict.fromkeys(pairs) if pair[0] in fitting]
        joined = self.encode_all((fitting[context] + rest for context, rest in asked), False)
        return {
            (context, rest): joined[fitting[context] + rest][len(ends[fitting[context]]) :]
            for context, rest in asked
        }


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


#: Steps before the merging of letters that look at words and their neighbours only.
WORD_SPLITTERS = {"ByteLevel", "Split", "Digits", "Whitespace", "WhitespaceSplit", "Punctuation"}
LOCAL_NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}
LONG = 160
"""Letters of a context, or of what several have in common, that are not encoded without need."""
ALIKE = 8
"""As many texts more must begin like one for their beginning to be encoded by itself."""
WORD = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


def splits_words(tokenizer: Any) -> bool:
    """Whether a tokenizer splits text into words before it encodes each by itself."""
    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    try:
        form = json.loads(core.to_str())
    except (AttributeError, ValueError):
        return False

    def kinds(step: Any) -> set[str]:
        if not step:
            return set()
        inner = step.get("pretokenizers") or step.get("normalizers")
        return set().union(*map(kinds, inner)) if inner else {step["type"]}

    splitters = kinds(form.get("pre_tokenizer"))
    return (
        bool(splitters)
        and splitters <= WORD_SPLITTERS
        and kinds(form.get("normalizer")) <= LOCAL_NORMALIZERS
    )


def common_beginnings(texts: Iterable[str]) -> dict[str, int]:
    """For texts that begin like several others, up to which space between two words they do."""
    ordered = sorted(texts)
    cuts: dict[str, int] = {}
    beginning = ""
    for text, other in zip_longest(ordered, ordered[ALIKE:], fillvalue=""):
        if not beginning or not text.startswith(beginning):
            # In order, whatever lies between two texts begins with what those have in common.
            common = common_length(text, other)
            spaces = WORD.finditer(text, max(0, common - LONG), common)
            *_, cut = 0, *(space.start() for space in spaces)
            beginning = text[: cut if cut >= LONG else 0]
        if beginning:
            cuts[text] = len(beginning)
    return cuts


def common_length(one: str, other: str) -> int:
    """How many letters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def last_words(context: str) -> str:
    """The end of a long context from a space between two words on; nothing if there is none."""
    if len(context) < LONG:
        return ""
    end = context[-LONG:]
    places = [match.start() for match in WORD.finditer(end, 0, LONG - 24)]
    return end[places[-1] :] if places else ""


def added_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and after a text of its own accord."""
    bare = list(tokenizer.encode(PROBE, add_special_tokens=False))
    whole = list(tokenizer.encode(PROBE))
    for begin in range(len(whole) - len(bare) + 1):
        if whole[begin : begin + len(bare)] == bare:
            return whole[:begin], whole[begin + len(bare) :]
    return [], []


def quick_encoder(tokenizer: Any, sample: list[str]) -> Encode:
    """The tokenizer's Rust core where it gives the same tokens, else the tokenizer itself."""

    def slow(texts: list[str]) -> list[list[int]]:
        return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]

    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(core, "encode_batch_fast"):
        return slow
    core.no_padding()
    core.no_truncation()

    def quick(texts: list[str]) -> list[list[int]]:
        return [code.ids for code in core.encode_batch_fast(texts, add_special_tokens=False)]

    try:
        same = quick(sample) == slow(sample)
    except Exception as error:  # a tokenizer of its own kind: the slow way is always right
        logger.debug("the tokenizer's core does not encode by itself: %s", error)
        return slow
    return quick if same else slow
