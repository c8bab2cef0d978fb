"""Draw few-shot examples: at random with a seed, or the first ones; never the question itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from random import Random
from typing import Any

from lm_eval.api.registry import register_sampler, sampler_registry
from lm_eval.errors import ConfigError

Doc = Any


@register_sampler("default")
class ContextSampler:
    """Draws at random. One seed, one sequence of draws: document after document."""

    draws_at_random: bool = True
    """False for a sampler that is asked again, without the question, if it has drawn that."""

    def __init__(
        self,
        df: Sequence[Doc] | None = None,
        *,
        rnd: int | None = None,
        fewshot_indices: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        self.set_rnd(rnd)
        self.df: list[Doc] = list(df or [])
        if fewshot_indices:
            self.df = [self.df[i] for i in fewshot_indices]

    def set_rnd(self, rnd: int | None) -> ContextSampler:
        """Start the sequence of draws anew."""
        self.rnd = Random(rnd)
        return self

    def replace_df(self, df: Sequence[Doc]) -> ContextSampler:
        self.df = list(df)
        return self

    def fewshot_docs(self) -> list[Doc]:
        return self.df

    def sample(
        self,
        n: int,
        eval_doc: Doc | None = None,
        df: Sequence[Doc] | None = None,
        **kwargs: Any,
    ) -> Sequence[Doc]:
        """`n` examples, none of them equal to `eval_doc`.

        One more than needed is drawn where the question is in the pool, and it is dropped if it
        came up: so the draws stay the published ones.
        """
        if n <= 0:
            return []
        if df:
            self.df = list(df)
        pool = self.fewshot_docs()
        if not eval_doc:
            self._check(n, len(pool))
            return self.rnd.sample(pool, n)
        self._check(n + 1, len(pool))
        drawn = self.rm_eval_doc(eval_doc, self.rnd.sample(pool, n + 1), n)
        if len(drawn) < n:  # the pool holds the question more than once
            others = self.rm_eval_doc(eval_doc, pool)
            self._check(n, len(others))
            drawn = self.rnd.sample(others, n)
        return drawn

    @staticmethod
    def rm_eval_doc(doc: Doc, _iter: Iterable[Doc], n: int | None = None) -> list[Doc]:
        others = [other for other in _iter if other != doc]
        return others if n is None else others[:n]

    @staticmethod
    def _check(needed: int, available: int) -> None:
        if needed > available:
            raise ConfigError(
                f"{needed} few-shot examples are needed, but only {available} documents can be "
                "drawn from; lower num_fewshot or name a larger fewshot_split."
            )


@register_sampler("first_n")
class FirstNSampler(ContextSampler):
    """The first examples in order, as benchmarks with canonical shots have them."""

    draws_at_random = False

    def sample(
        self,
        n: int,
        eval_doc: Doc | None = None,
        df: Sequence[Doc] | None = None,
        **kwargs: Any,
    ) -> Sequence[Doc]:
        pool = self.df if eval_doc is None else self.rm_eval_doc(eval_doc, self.df)
        self._check(n, len(pool))
        return pool[:n]


def without_question(
    sampler: ContextSampler, doc: Doc, drawn: Sequence[Doc], spare: Random
) -> Sequence[Doc]:
    """The same draw with the question, should it be there, exchanged for another document.

    The exchange has a generator of its own, so that all other draws stay the published ones.
    """
    if doc not in drawn:
        return drawn
    if not getattr(sampler, "draws_at_random", True):
        return sampler.sample(len(drawn), eval_doc=doc)
    kept = ContextSampler.rm_eval_doc(doc, drawn)
    others = [other for other in sampler.df if other != doc and other not in kept]
    ContextSampler._check(len(drawn), len(kept) + len(others))
    return kept + spare.sample(others, len(drawn) - len(kept))


class _Samplers(MutableMapping[str, type[Any]]):
    """The registered samplers as a mapping, as task folders know `SAMPLER_REGISTRY`."""

    def __getitem__(self, name: str) -> type[Any]:
        return sampler_registry.get(name)

    def __setitem__(self, name: str, sampler: type[Any]) -> None:
        sampler_registry.register(name)(sampler)

    def __delitem__(self, name: str) -> None:
        raise TypeError("a registered few-shot sampler cannot be removed.")

    def __contains__(self, name: object) -> bool:
        return name in sampler_registry

    def __iter__(self) -> Iterator[str]:
        return iter(sampler_registry)

    def __len__(self) -> int:
        return len(sampler_registry)


SAMPLER_REGISTRY = _Samplers()
