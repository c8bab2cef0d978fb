"""Few-shot samplers, which choose the examples that precede a question.

A sampler never chooses the document that is being evaluated. Task files select one by name with
`fewshot_config: {sampler: first_n}`; `register_sampler` adds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from random import Random
from typing import Any

from lm_eval.api.registry import register_sampler, sampler_registry
from lm_eval.errors import ConfigError

Doc = Any


class FewshotCountError(ConfigError, AssertionError):
    """A number of few-shot examples that is negative or larger than the number of documents.

    It is also an `AssertionError`, which the published samplers raise.
    """


@register_sampler("default")
class ContextSampler:
    """The default few-shot sampler, which draws examples at random, and the base class of samplers.

    One sampler is created per task, with the documents to draw from. It is seeded with `set_rnd`.
    Then `sample` is called for each document to be evaluated, in order. With the same seed and
    order, the examples are always the same. A sampler usually overrides `sample` only.

    Example::

        @register_sampler("last_n")
        class LastNSampler(ContextSampler):
            draws_at_random = False

            def sample(self, n, eval_doc=None, df=None, **kwargs):
                pool = [doc for doc in self.df if doc != eval_doc]
                return pool[-n:]
    """

    draws_at_random: bool = True
    """Whether the sampler draws at random.

    It matters if `sample` was called without `eval_doc` and returned the evaluated document. If
    True, that document is replaced by another random one. If False, `sample` is called again, with
    `eval_doc`.
    """

    def __init__(
        self,
        df: Sequence[Doc] | None = None,
        *,
        rnd: int | None = None,
        fewshot_indices: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Stores the documents to draw from.

        Args:
            df: the documents to draw from; None for none.
            rnd: the seed; None for a random one.
            fewshot_indices: the indices (from 0) of the documents in `df` to draw from; None or an
                empty list means all.
            **kwargs: ignored.
        """
        self.set_rnd(rnd)
        self.df: list[Doc] = list(df or [])
        if fewshot_indices:
            self.df = [self.df[i] for i in fewshot_indices]

    def set_rnd(self, rnd: int | None) -> ContextSampler:
        """Sets the seed, which restarts the sequence of draws. Returns the sampler itself.

        None stands for a random seed.
        """
        self.rnd = Random(rnd)
        return self

    def replace_df(self, df: Sequence[Doc]) -> ContextSampler:
        """Sets the documents to draw from. Returns the sampler itself."""
        self.df = list(df)
        return self

    def fewshot_docs(self) -> list[Doc]:
        """Returns the documents to draw from."""
        return self.df

    def sample(
        self,
        n: int,
        eval_doc: Doc | None = None,
        df: Sequence[Doc] | None = None,
        **kwargs: Any,
    ) -> Sequence[Doc]:
        """Returns `n` example documents drawn at random, none of which equals `eval_doc`.

        Called once for each evaluated document. Returns an empty list if `n` is 0.

        Args:
            n: the number of examples.
            eval_doc: the evaluated document, which must not be among the examples. None if it is
                not in the documents to draw from.
            df: replaces the documents to draw from, also for later calls, if it is not empty.
            **kwargs: ignored.

        Raises:
            FewshotCountError: `n` is negative; or there are fewer than `n` documents to draw from
                or, with `eval_doc`, fewer than `n + 1`, or fewer than `n` that differ from it.
        """
        # With `eval_doc`, one more example than needed is drawn, and `eval_doc` (or else the last
        # example) is dropped. The published harness draws in this way, so the examples are equal.
        if n <= 0:
            self._check_pool_size(n, 0)
            return []
        if df:
            self.df = list(df)
        pool = self.fewshot_docs()
        if not eval_doc:
            self._check_pool_size(n, len(pool))
            return self.rnd.sample(pool, n)
        self._check_pool_size(n + 1, len(pool))
        drawn = self.rm_eval_doc(eval_doc, self.rnd.sample(pool, n + 1), n)
        if len(drawn) < n:  # The pool contains `eval_doc` more than once.
            others = self.rm_eval_doc(eval_doc, pool)
            self._check_pool_size(n, len(others))
            drawn = self.rnd.sample(others, n)
        return drawn

    @staticmethod
    def rm_eval_doc(doc: Doc, _iter: Iterable[Doc], n: int | None = None) -> list[Doc]:
        """Returns the documents of `_iter` that differ from `doc`, in order.

        Only the first `n` of them are returned, or all if `n` is None.
        """
        others = [other for other in _iter if other != doc]
        return others if n is None else others[:n]

    @staticmethod
    def _check_pool_size(needed: int, available: int) -> None:
        """Raises `FewshotCountError` if `needed` documents cannot be drawn from `available`."""
        if needed < 0:
            raise FewshotCountError(
                f"the number of few-shot examples must be 0 or more, not {needed}."
            )
        if needed > available:
            raise FewshotCountError(
                f"{needed} few-shot examples are needed, but there are only {available} documents "
                "to draw from. Lower num_fewshot, or set fewshot_split to a larger split."
            )


@register_sampler("first_n")
class FirstNSampler(ContextSampler):
    """A sampler that returns the first documents in order.

    It is for benchmarks whose few-shot examples are fixed.
    """

    draws_at_random = False

    def sample(
        self,
        n: int,
        eval_doc: Doc | None = None,
        df: Sequence[Doc] | None = None,
        **kwargs: Any,
    ) -> Sequence[Doc]:
        """Returns the first `n` documents that do not equal `eval_doc`, in order.

        Raises `FewshotCountError` if there are fewer than `n`, or if `n` is negative. `df` and
        `kwargs` are ignored.
        """
        pool = self.df if eval_doc is None else self.rm_eval_doc(eval_doc, self.df)
        self._check_pool_size(n, len(pool))
        return pool[:n]


def replace_eval_doc(
    sampler: ContextSampler, doc: Doc, drawn: Sequence[Doc], spare: Random
) -> Sequence[Doc]:
    """Returns the examples `drawn`, with the evaluated document `doc` replaced if it is among them.

    A sampler that does not draw at random is called again, with `doc` as `eval_doc`. Otherwise the
    replacement is drawn from the other documents and comes last.

    Args:
        sampler: the sampler that drew the examples.
        doc: the document that is being evaluated.
        drawn: the examples.
        spare: a separate random generator for replacements, so that the sampler's own sequence of
            draws stays that of the published harness.

    Raises:
        FewshotCountError: there are not enough other documents.
    """
    if doc not in drawn:
        return drawn
    if not getattr(sampler, "draws_at_random", True):
        return sampler.sample(len(drawn), eval_doc=doc)
    kept = ContextSampler.rm_eval_doc(doc, drawn)
    others = [other for other in sampler.df if other != doc and other not in kept]
    ContextSampler._check_pool_size(len(drawn), len(kept) + len(others))
    return kept + spare.sample(others, len(drawn) - len(kept))


class _SamplerRegistry(MutableMapping[str, type[Any]]):
    """A mapping view of the registered samplers by name.

    Published task folders use `SAMPLER_REGISTRY` like a dictionary, so items can be set, too.
    """

    def __getitem__(self, name: str) -> type[Any]:
        return sampler_registry.get(name)

    def __setitem__(self, name: str, sampler: type[Any]) -> None:
        sampler_registry.register(name)(sampler)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the few-shot sampler {name!r} cannot be removed from the registry.")

    def __contains__(self, name: object) -> bool:
        return name in sampler_registry

    def __iter__(self) -> Iterator[str]:
        return iter(sampler_registry)

    def __len__(self) -> int:
        return len(sampler_registry)


SAMPLER_REGISTRY = _SamplerRegistry()
