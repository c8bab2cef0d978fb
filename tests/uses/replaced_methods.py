"""Projects that replace methods of `HFLM`: on the class, on the object, or in a subclass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any

from .support import HF, answers_of, llama, shipped_tokenizer, use


def other_logits(lm: Any, inps: Any, attn_mask: Any = None, labels: Any = None) -> Any:
    import torch

    with torch.no_grad():
        return lm.model(inps).logits.flip(-1)


def scores_by_length(lm: Any, requests: Any, disable_tqdm: bool = False, **kwargs: Any) -> Any:
    return [(-float(len(context) + 100 * len(rest)), False) for _, context, rest in requests]


def repeated_token(lm: Any, context: Any, max_length: int, stop: Any, **kwargs: Any) -> Any:
    import torch

    new = context[:, -1:].repeat(1, max_length - context.shape[1])
    return torch.cat([context, new], dim=1)


def lower_tokens(lm: Any, string: str, *args: Any, **kwargs: Any) -> Any:
    return lm.tokenizer.encode(string.lower(), add_special_tokens=False)


def short_batch(
    lm: Any,
    strings: Any,
    padding_side: str = "left",
    left_truncate_len: Any = None,
    truncation: bool = False,
) -> Any:
    import torch

    rows = [lm.tokenizer.encode(text, add_special_tokens=False)[:2] for text in strings]
    ids = torch.tensor(rows)
    return ids, torch.ones_like(ids)


def shouted_text(lm: Any, tokens: Any, skip_special_tokens: bool = True) -> str:
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)).upper()


def fixed_pair(lm: Any, context: str, continuation: str) -> Any:
    return [5, 6, 7], [8, 9]


PATCHES: dict[str, Callable[..., Any]] = {
    "_model_call": other_logits,
    "_loglikelihood_tokens": scores_by_length,
    "_model_generate": repeated_token,
    "tok_encode": lower_tokens,
    "tok_batch_encode": short_batch,
    "tok_decode": shouted_text,
    "_encode_pair": fixed_pair,
}


@contextlib.contextmanager
def patched_on(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Assigns an attribute of a class, and takes it back at the end."""
    before = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def unpatched(model: Any = None, text: Any = None) -> Any:
    """Returns a plain `HFLM`, by default of the tiny model."""
    from lm_eval.models.huggingface import HFLM

    given = {"pretrained": model or llama(), "tokenizer": text or shipped_tokenizer()}
    return HFLM(**given, batch_size=2)


def on_the_class(name: str) -> Any:
    """Returns the answers of a model after a method of its class was replaced."""
    from lm_eval.models.huggingface import HFLM

    lm = unpatched()
    with patched_on(HFLM, name, PATCHES[name]):
        return answers_of(lm)


def on_the_base_class(name: str) -> Any:
    from lm_eval.api.model import TemplateLM

    lm = unpatched()
    with patched_on(TemplateLM, name, PATCHES[name]):
        return answers_of(lm)


def on_the_object(name: str) -> Any:
    lm = unpatched()
    setattr(lm, name, MethodType(PATCHES[name], lm))
    return answers_of(lm)


def in_a_subclass(name: str) -> Any:
    from lm_eval.models.huggingface import HFLM

    made = type("Subclass", (HFLM,), {name: PATCHES[name]})
    return answers_of(made(pretrained=llama(), tokenizer=shipped_tokenizer(), batch_size=2))


def _add(name: str, where: Callable[[str], Any]) -> None:
    """Adds the use that replaces the method `name`."""

    def run(folder: Path) -> Any:
        return where(name)

    run.__name__ = f"{name.lstrip('_')}_replaced_{where.__name__}"
    place = where.__name__.replace("_", " ")
    if name == "tok_encode":
        change = "here, it encodes the prompts of generation as well, which it only sorts there"
        use(
            f"a project that replaces {name} {place}",
            needs=HF,
            difference=change,
            differs_in=("generate_until",),
        )(run)
    else:
        use(f"a project that replaces {name} {place}", needs=HF)(run)


for _name in PATCHES:
    for _where in (on_the_class, on_the_object, in_a_subclass):
        _add(_name, _where)
_add("_encode_pair", on_the_base_class)
