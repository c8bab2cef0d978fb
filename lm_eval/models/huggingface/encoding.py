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

import tokenizers

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
        compared with encoding them whole: should they differ, nothing is cut from then on.
        """
        moved = [
            move_spaces(context, rest) if context else (context, rest) for context, rest in pairs
        ]
        if self._encode is None and moved:
            self._encode = quick_encoder(self.tokenizer, ["".join(pair) for pair in moved[:SAMPLE]])
        cut = causal and self.splits_words
        windows = self._encode_moved(moved, prefix_token, causal, cut)
        long = [i for i, (context, _) in enumerate(moved) if len(context) >= LONG]
        if cut and long:
            sample = long[:: -(-len(long) // (SAMPLE_AGAIN if self._compared else SAMPLE))]
            self._compared = True
            whole = self._encode_moved([moved[i] for i in sample], prefix_token, causal, False)
            if whole != [windows[i] for i in sample]:
                self.splits_words = False
                return self._encode_moved(moved, prefix_token, causal, False)
        return windows

    def _encode_moved(
        self, moved: list[tuple[str, str]], prefix_token: int, causal: bool, cut: bool
    ) -> list[Window]:
        bare = self.encode_all(
            (rest for context, rest in moved if not causal or not context), False
        )
        distinct = list(dict.fromkeys(context for context, _ in moved if context))
        contexts = self._encode_contexts(distinct) if cut else self.encode_all(distinct)
        known = self._behind_long_contexts(moved, contexts) if cut else {}
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

    def _encode_contexts(self, texts: list[str]) -> dict[str, list[int]]:
        """Encode contexts; what many of them begin with, such as solved examples, once.

        A tokenizer that first splits text into words encodes what precedes a space between two
        words, and what follows it, without regard to each other.
        """
        cuts = common_beginnings(texts, self.splits_at)
        beginnings = self.encode_all((text[:cut] for text, cut in cuts.items()), False)
        rests = self.encode_all((text[cut:] for text, cut in cuts.items()), False)
        coded = self.encode_all(text for text in texts if text not in cuts)
        for text, cut in cuts.items():
            coded[text] = self.surround(beginnings[text[:cut]] + rests[text[cut:]])
        return coded

    def _behind_long_contexts(
        self, pairs: list[tuple[str, str]], contexts: Mapping[str, list[int]]
    ) -> dict[tuple[str, str], list[int]]:
        """What continuations become behind long contexts, without encoding those again.

        The last words of a context are encoded together with a continuation in place of the whole,
        unless these words end differently than their context.
        """
        tails = {context: context[cut:] for context in contexts if (cut := self._last_cut(context))}
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

    def _last_cut(self, context: str) -> int:
        """Where the last words of a long context begin; 0 if there is no such place."""
        cut = last_space(context, len(context) - TAIL) if len(context) >= LONG else 0
        return cut if cut and self.splits_at(context, cut) else 0

    def splits_at(self, text: str, place: int) -> bool:
        """Whether the tokenizer splits a text at a place, before it encodes the parts."""
        begin = max(0, place - AROUND)
        split: Any = self.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
        return any(begin + first == place for _, (first, _) in split(text[begin : place + AROUND]))


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


#: Steps before the merging of letters that look at words and their neighbours only.
WORD_SPLITTERS = {"ByteLevel", "Split", "Digits", "Punctuation"}
LOCAL_NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}
LONG = 160
"""Letters of a context, or of what several have in common, that are not encoded without need."""
TAIL = 24
"""Fewest letters of a context that are encoded again with each continuation."""
AROUND = 16
"""Letters on both sides of a cut by which the tokenizer shows whether it splits there."""
ALIKE = 8
"""As many texts more must begin like one for their beginning to be encoded by itself."""
WORD = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


def splits_words(tokenizer: Any) -> bool:
    """Whether a tokenizer splits text into words before it encodes each separately."""
    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(core, tokenizers.Tokenizer):
        return False
    try:  # the settings of each step, without the vocabulary
        steps = [
            None if step is None else step.__getstate__()
            for step in (core.pre_tokenizer, core.normalizer)
        ]
    except Exception as error:  # tokenizers raises plain `Exception` for steps written in Python
        logger.info("Long contexts are encoded whole, not in parts: %s", error)
        return False
    splitting, normalising = (None if step is None else json.loads(step) for step in steps)
    added = core.get_added_tokens_decoder().values()
    if any(hides_spaces(token) for token in added):
        return False

    def kinds(step: Any) -> set[str]:
        if not step:
            return set()
        inner = step.get("pretokenizers") or step.get("normalizers")
        return set().union(*map(kinds, inner)) if inner else {step["type"]}

    splitters = kinds(splitting)
    return (
        bool(splitters) and splitters <= WORD_SPLITTERS and kinds(normalising) <= LOCAL_NORMALIZERS
    )


def hides_spaces(token: Any) -> bool:
    """Whether an added token, which is found before anything is split, takes a space with it."""
    text = str(token.content)
    before = token.lstrip and text[:1].isalpha()
    after = token.rstrip and text[-1:].isalpha()
    return bool(WORD.search(text) or before or after)


def common_beginnings(
    texts: Iterable[str], splits_at: Callable[[str, int], bool]
) -> dict[str, int]:
    """For texts that begin like several others, up to which space between two words they do."""
    ordered = sorted(texts)
    cuts: dict[str, int] = {}
    beginning = ""
    for text, other in zip_longest(ordered, ordered[ALIKE:], fillvalue=""):
        if not beginning or not text.startswith(beginning):
            # In order, whatever lies between two texts begins with what those have in common.
            cut = last_space(text, common_length(text, other))
            beginning = text[:cut] if cut >= LONG and splits_at(text, cut) else ""
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


def last_space(text: str, before: int) -> int:
    """The last space between two words before a place, not far from it; 0 if there is none.

    The letter that follows the space stands before the place too: whatever shares the text up to
    there has the same two words around the space.
    """
    least = max(1, before - LONG)
    place = text.rfind(" ", least, before - 1)
    while place > 0 and not WORD.match(text, place):
        place = text.rfind(" ", least, place)
    return max(0, place)


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
    except Exception as error:  # tokenizers raises plain `Exception`
        logger.info("Texts are encoded one by one, not in batches: %s", error)
        return slow
    return quick if same else slow
