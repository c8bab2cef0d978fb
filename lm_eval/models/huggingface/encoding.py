"""Text to tokens: in batches, equal texts once, with exactly one beginning-of-text token.

The special tokens that a tokenizer adds around a text are found out with a short text. Texts are
then encoded without special tokens. The beginning-of-text token is put before those that do not
begin with it already, as texts from chat templates do. No end-of-text token is ever put between a
context and its continuation.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

import tokenizers

from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window, move_spaces, split_pair

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], list[list[int]]]
PROBE = "a"
"""The text with which `added_tokens` finds out what a tokenizer adds."""
SAMPLE_SIZE = 16
LATER_SAMPLE_SIZE = 2
"""How many texts are used to compare a fast way of encoding with the tokenizer's own, the first
time and later."""
SAMPLE_CHARS = 200
"""How many characters at the beginning and end of most texts of a sample are compared."""
LENGTH_WARNING = "sequence-length-is-longer-than-the-specified-maximum"
"""The key of transformers' warning about long texts."""
MAX_QUOTED_CHARS = 80
"""Maximum number of characters of a text that an error message quotes."""


class TextEncoder:
    """Encodes texts with one tokenizer, and adds its special tokens."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        add_bos_token: bool | None,
        causal: bool,
        embeddings: int | None = None,
    ) -> None:
        """Finds out what the tokenizer adds around a text.

        Args:
            tokenizer: a tokenizer of transformers.
            add_bos_token: whether texts begin with the beginning-of-text token; None leaves it to
                the tokenizer.
            causal: whether the model is causal; then no end-of-text token is added.
            embeddings: the model's number of embeddings if the tokenizer has more tokens, else
                None.
        """
        self.tokenizer = tokenizer
        # Texts that are too long are truncated and counted later, so transformers need not warn.
        getattr(tokenizer, "deprecation_warnings", {})[LENGTH_WARNING] = True
        self.embeddings = embeddings
        self.prefix, suffix = added_tokens(tokenizer)
        if add_bos_token is False:
            self.prefix = []
        elif add_bos_token and not self.prefix and tokenizer.bos_token_id is not None:
            self.prefix = [int(tokenizer.bos_token_id)]
        self.suffix = [] if causal else suffix
        self.splits_words = splits_words(tokenizer)
        self._compared = False
        self._encode: Encode | None = None

    def encode(self, text: str, special: bool | None = None) -> list[int]:
        """Returns the tokens of one text, with special tokens unless `special` is False.

        Unlike `encode_all`, it does not check that the model has embeddings for them.
        """
        bare: list[int] = list(self.tokenizer.encode(text, add_special_tokens=False))
        return bare if special is False else self.add_special_tokens_to(bare)

    def encode_all(self, texts: Iterable[str], special: bool | None = None) -> dict[str, list[int]]:
        """Returns the tokens of each text, by text; equal texts are encoded once.

        Special tokens are added unless `special` is False. Raises `ModelError` if a text contains a
        token for which the model has no embedding.
        """
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return {}
        coded = self._encoder(distinct)(distinct)
        if self.embeddings is not None:
            for text, tokens in zip(distinct, coded, strict=True):
                self._check_known(text, tokens, self.embeddings)
        if special is not False:
            coded = [self.add_special_tokens_to(tokens) for tokens in coded]
        return dict(zip(distinct, coded, strict=True))

    def _check_known(self, text: str, tokens: list[int], embeddings: int) -> None:
        """Raises `ModelError` if one of the tokens of `text` has no embedding in the model."""
        top = max(tokens, default=0)
        if top >= embeddings:
            name = self.tokenizer.convert_ids_to_tokens(top)
            raise ModelError(
                f"the tokenizer does not fit the model: the token {name!r} ({top}) is not one of "
                f"the model's {embeddings} embeddings. It occurs in the text {shortened(text)!r}. "
                "Pass the tokenizer that belongs to the model (tokenizer=…)."
            )

    def add_special_tokens_to(self, bare: list[int]) -> list[int]:
        """Returns the tokens `bare` of a text with the beginning and end tokens of this encoder.

        The beginning is not added if the tokens begin with it already.
        """
        has_prefix = not self.prefix or bare[: len(self.prefix)] == self.prefix
        whole = bare if has_prefix else self.prefix + bare
        return whole + self.suffix if self.suffix else whole

    def encode_pairs(
        self, pairs: list[tuple[str, str]], prefix_token: int, *, causal: bool
    ) -> list[Window]:
        """Returns the tokens of each context and continuation.

        For a causal model, both are encoded as one text and the tokens are split where the context
        ends. An encoder-decoder model reads them separately. Spaces at the end of a context are
        moved to the continuation first. A continuation may have no tokens.

        If the tokenizer splits text into words, long contexts are encoded in parts, which saves
        time. Some pairs are then compared with encoding them as a whole. If they differ, no context
        is encoded in parts from then on.

        Args:
            pairs: contexts and continuations.
            prefix_token: the token that is read in place of an empty context.
            causal: whether the model is causal.

        Raises:
            ModelError: if a text contains a token for which the model has no embedding.
        """
        moved = [
            move_spaces(context, rest) if context else (context, rest) for context, rest in pairs
        ]
        if moved:
            self._encoder("".join(pair) for pair in moved)
        in_parts = causal and self.splits_words
        windows = self._encode_moved(moved, prefix_token, causal, in_parts)
        if in_parts and (sample := self._sample([context for context, _ in moved])):
            whole = self._encode_moved([moved[i] for i in sample], prefix_token, causal, False)
            if whole != [windows[i] for i in sample]:
                self.splits_words = False
                return self._encode_moved(moved, prefix_token, causal, False)
        return windows

    def encode_contexts(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Returns the tokens of each context, by text, as `encode_all` does.

        If the tokenizer splits text into words, beginnings that many contexts share are encoded
        once, and compared as in `encode_pairs`.
        """
        distinct = list(dict.fromkeys(texts))
        if not self.splits_words or not distinct:
            return self.encode_all(distinct)
        self._encoder(distinct)
        coded, in_parts = self._encode_contexts(distinct)
        whole = self.encode_all(in_parts[i] for i in self._sample(in_parts))
        if any(coded[text] != tokens for text, tokens in whole.items()):
            self.splits_words = False
            return self.encode_all(distinct)
        return {text: coded[text] for text in distinct}

    def _encoder(self, texts: Iterable[str]) -> Encode:
        """Returns the function that encodes texts; the first call finds it with some of them."""
        if self._encode is None:
            self._encode = fast_encoder(self.tokenizer, list(islice(texts, SAMPLE_SIZE)))
        return self._encode

    def _sample(self, contexts: Sequence[str]) -> list[int]:
        """Returns the indices of the long contexts to compare: more of them in the first call."""
        long = [i for i, context in enumerate(contexts) if len(context) >= LONG_CHARS]
        most = LATER_SAMPLE_SIZE if self._compared else SAMPLE_SIZE
        self._compared = self._compared or bool(long)
        return long[:: max(1, -(-len(long) // most))]

    def _encode_moved(
        self, moved: list[tuple[str, str]], prefix_token: int, causal: bool, in_parts: bool
    ) -> list[Window]:
        """Returns the tokens of each pair, after spaces were moved from contexts to continuations.

        `in_parts` is whether long contexts are encoded in parts.
        """
        bare = self.encode_all(
            (rest for context, rest in moved if not causal or not context), False
        )
        distinct = list(dict.fromkeys(context for context, _ in moved if context))
        contexts = self._encode_contexts(distinct)[0] if in_parts else self.encode_all(distinct)
        known = self._encode_after_long_contexts(moved, contexts) if in_parts else {}
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

    def _encode_contexts(self, texts: list[str]) -> tuple[dict[str, list[int]], list[str]]:
        """Returns the tokens of each context, and the contexts that were encoded in two parts.

        Beginnings shared by many contexts are encoded once.

        Few-shot examples are such beginnings. This is exact if the tokenizer first splits text into
        words: then the text before a space between two words does not affect the tokens after it,
        and vice versa.
        """
        cuts = shared_beginnings(texts, self.splits_at)
        beginnings = self.encode_all((text[:cut] for text, cut in cuts.items()), False)
        rests = self.encode_all((text[cut:] for text, cut in cuts.items()), False)
        coded = self.encode_all(text for text in texts if text not in cuts)
        for text, cut in cuts.items():
            coded[text] = self.add_special_tokens_to(beginnings[text[:cut]] + rests[text[cut:]])
        return coded, list(cuts)

    def _encode_after_long_contexts(
        self, pairs: list[tuple[str, str]], contexts: Mapping[str, list[int]]
    ) -> dict[tuple[str, str], list[int]]:
        """Returns the tokens of the continuations of long contexts, by pair.

        To save time, only the last words of a context are encoded together with the continuation.
        Pairs are left out if the tokens of their context do not end with the tokens of these words.
        """
        tails = {context: context[cut:] for context in contexts if (cut := self._last_cut(context))}
        ends = self.encode_all(tails.values(), False)
        fitting = {
            context: tail
            for context, tail in tails.items()
            if contexts[context][-len(ends[tail]) :] == ends[tail]
        }
        wanted = [pair for pair in dict.fromkeys(pairs) if pair[0] in fitting]
        joined = self.encode_all((fitting[context] + rest for context, rest in wanted), False)
        return {
            (context, rest): joined[fitting[context] + rest][len(ends[fitting[context]]) :]
            for context, rest in wanted
        }

    def _last_cut(self, context: str) -> int:
        """Returns the index at which the last words of a long context begin.

        Returns 0 if the context is short, or cannot be cut there.
        """
        cut = last_space(context, len(context) - TAIL_CHARS) if len(context) >= LONG_CHARS else 0
        return cut if cut and self.splits_at(context, cut) else 0

    def splits_at(self, text: str, place: int) -> bool:
        """Returns whether the tokenizer splits `text` at index `place` before encoding it."""
        begin = max(0, place - CHARS_AROUND_CUT)
        split: Any = self.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
        return any(
            begin + first == place
            for _, (first, _) in split(text[begin : place + CHARS_AROUND_CUT])
        )


def shortened(text: str) -> str:
    """Returns the text for an error message: after `MAX_QUOTED_CHARS` characters, "…" follows."""
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…"


#: Tokenizer steps whose result depends only on a word and the characters next to it.
WORD_SPLITTERS = {"ByteLevel", "Split", "Digits", "Punctuation"}
LOCAL_NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}
LONG_CHARS = 160
"""Contexts, and beginnings shared by several contexts, are encoded in parts from this many
characters on."""
TAIL_CHARS = 24
"""Minimum number of characters at the end of a context that are encoded again with each
continuation."""
CHARS_AROUND_CUT = 16
"""How many characters on both sides of a cut are shown to the tokenizer to see whether it splits
there."""
MIN_SHARING_TEXTS = 8
"""A beginning is encoded separately if at least this many further texts share it."""
SPACE_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


def splits_words(tokenizer: Any) -> bool:
    """Returns whether the tokenizer splits text into words and then encodes each word separately.

    Only steps that are known to work so (`WORD_SPLITTERS`, `LOCAL_NORMALIZERS`) count.
    """
    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(core, tokenizers.Tokenizer):
        return False
    try:  # the settings of each step, without the vocabulary
        steps = [
            None if step is None else step.__getstate__()
            for step in (core.pre_tokenizer, core.normalizer)
        ]
    except Exception as error:  # tokenizers raises plain `Exception` for steps written in Python
        logger.info(
            "Long contexts are encoded as a whole, not in parts, which is slower: %s", error
        )
        return False
    splitting, normalizing = (None if step is None else json.loads(step) for step in steps)
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
        bool(splitters) and splitters <= WORD_SPLITTERS and kinds(normalizing) <= LOCAL_NORMALIZERS
    )


def hides_spaces(token: Any) -> bool:
    """Returns whether an added token can contain or absorb a space between two letters.

    It can if its text has a space between two letters, or if the text begins (ends) with a letter
    and the token takes the spaces before (after) it: `lstrip` (`rstrip`). So `<mask>` with `lstrip`
    cannot. Added tokens are found before text is split into words, so it is not split there.
    """
    text = str(token.content)
    before = token.lstrip and text[:1].isalpha()
    after = token.rstrip and text[-1:].isalpha()
    return bool(SPACE_BETWEEN_WORDS.search(text) or before or after)


def shared_beginnings(
    texts: Iterable[str], splits_at: Callable[[str, int], bool]
) -> dict[str, int]:
    """Returns the length of the long beginning that a text shares with several others, by text.

    At least `MIN_SHARING_TEXTS` others share it, and it has at least `LONG_CHARS` characters. It
    ends at a space between two words where the tokenizer splits, which `splits_at(text, index)`
    tells. Texts without a shared beginning are left out.
    """
    ordered = sorted(texts)
    cuts: dict[str, int] = {}
    beginning = ""
    for text, other in zip_longest(ordered, ordered[MIN_SHARING_TEXTS:], fillvalue=""):
        if not beginning or not text.startswith(beginning):
            # The texts are sorted: all texts between two of them begin with their common prefix.
            cut = last_space(text, common_prefix_length(text, other))
            beginning = text[:cut] if cut >= LONG_CHARS and splits_at(text, cut) else ""
        if beginning:
            cuts[text] = len(beginning)
    return cuts


def common_prefix_length(one: str, other: str) -> int:
    """Returns how many leading characters two texts have in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def last_space(text: str, before: int) -> int:
    """Returns the index of the last space between two words before index `before`, near it.

    Returns 0 if there is none in the `LONG_CHARS` characters before it. The letter after the space
    is before `before` too, so that all texts that agree up to there have the same two words around
    the space.
    """
    if before < 2:
        return 0
    least = max(1, before - LONG_CHARS)
    place = text.rfind(" ", least, before - 1)
    while place > 0 and not SPACE_BETWEEN_WORDS.match(text, place):
        place = text.rfind(" ", least, place)
    return max(0, place)


def added_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Returns the tokens that a tokenizer adds before and after a text by default.

    They are found with a short text. Both lists are empty if the tokens of that text are not found
    among those with special tokens.
    """
    bare = list(tokenizer.encode(PROBE, add_special_tokens=False))
    whole = list(tokenizer.encode(PROBE))
    for begin in range(len(whole) - len(bare) + 1):
        if whole[begin : begin + len(bare)] == bare:
            return whole[:begin], whole[begin + len(bare) :]
    return [], []


def fast_encoder(tokenizer: Any, sample: list[str]) -> Encode:
    """Returns a function from texts to their tokens, without special tokens.

    It uses the tokenizer's Rust core, which encodes in batches, if that gives the same tokens on
    the texts `sample`, of most of which only beginnings and ends are compared. Otherwise it uses
    the tokenizer itself.
    """

    def encode_one_by_one(texts: list[str]) -> list[list[int]]:
        return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]

    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(core, "encode_batch_fast"):
        return encode_one_by_one
    core.no_padding()
    core.no_truncation()

    def encode_batch(texts: list[str]) -> list[list[int]]:
        return [code.ids for code in core.encode_batch_fast(texts, add_special_tokens=False)]

    # The tokenizer itself is slow.
    short = [text[:SAMPLE_CHARS] + text[SAMPLE_CHARS:][-SAMPLE_CHARS:] for text in sample]
    compared = sample[:LATER_SAMPLE_SIZE] + short[LATER_SAMPLE_SIZE:]
    try:
        same = encode_batch(compared) == encode_one_by_one(compared)
    except Exception as error:  # tokenizers raises plain `Exception`
        logger.info("Texts are encoded one by one, not in batches, which is slower: %s", error)
        return encode_one_by_one
    return encode_batch if same else encode_one_by_one
