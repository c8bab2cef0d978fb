"""Generates minimal pairs: a grammatical sentence, and one that breaks one rule of agreement.

Each phenomenon is a function that returns a random `Pair`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tools.demo import lexicon as lex
from tools.demo.draw import PEOPLE, capital, held_out, pick

BEINGS = tuple(
    noun
    for group in zip(
        lex.JOBS[:20], lex.ANIMALS, (lex.KIN_WOMEN + lex.KIN_MEN + lex.JOBS[20:])[:20], strict=True
    )
    for noun in group
)
NEW_WORDS, NEW_WORDS_TEST = 0.005, 0.5
ONSETS = lex.words("b bl d dr f fl g gl k l m n p pl r sn st t tr v w z")
CODAS = lex.words("b ck d ft g lk m mp n nd p rk rt t")
PREPS = ("near", "behind", "beside", "with", "before")
OBJECT_TALES = ("on the table", "in the old house", "under the stairs", "in the yard")


@dataclass(frozen=True)
class Pair:
    """A minimal pair: a grammatical and an ungrammatical sentence.

    `key` decides whether the pair is test or training content.
    """

    good: str
    bad: str
    key: tuple[object, ...]


def _number(rng: random.Random, noun: lex.Noun) -> tuple[bool, str]:
    """Returns whether a random number is plural, and the noun in that number."""
    many = rng.random() < 0.5
    return many, noun.many if many else noun.one


def _other(rng: random.Random, noun: lex.Noun, many: bool, test: bool) -> tuple[bool, str]:
    """Returns a form of `noun`, which comes between subject and verb, and whether it is plural.

    In a test it has the opposite number of the subject (`many`). In training its number is random:
    if it were always the opposite, it would reveal the correct verb form.
    """
    other = not many if test else rng.random() < 0.5
    return other, noun.many if other else noun.one


def _finite(verb: lex.Verb, many: bool) -> tuple[str, str]:
    """Returns the present-tense form that agrees with the subject, and the one that does not."""
    return (verb.base, verb.third) if many else (verb.third, verb.base)


def _noun(rng: random.Random, nouns: tuple[lex.Noun, ...], test: bool) -> lex.Noun:
    """Returns a random noun, sometimes an invented one, whose number only its ending shows.

    Invented nouns of the test never occur in the training text.
    """
    if rng.random() >= (NEW_WORDS_TEST if test else NEW_WORDS):
        return pick(rng, nouns)
    while True:
        syllables = rng.choice((1, 2, 2))
        word = "".join(rng.choice(ONSETS) + rng.choice("aeiou") for _ in range(syllables))
        word += rng.choice(CODAS)
        if held_out("new word", word) == test:
            return lex.Noun(word, word + "s")


def verb_agreement(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a verb must agree in number with the subject before it."""
    noun, verb = _noun(rng, BEINGS, test), pick(rng, lex.VERBS)
    many, word = _number(rng, noun)
    right, wrong = _finite(verb, many)
    head, tail = f"The {rng.choice(lex.ADJECTIVES)} {word}", rng.choice(lex.WHEN)
    return Pair(f"{head} {right} {tail}.", f"{head} {wrong} {tail}.", ("verb", noun.one, verb.base))


def verb_attractor(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a verb must agree with its subject, not with a noun in between."""
    noun, near = _noun(rng, BEINGS, test), pick(rng, BEINGS)
    verb = pick(rng, lex.VERBS)
    many, word = _number(rng, noun)
    right, wrong = _finite(verb, many)
    _, other = _other(rng, near, many, test)
    head, tail = f"The {word} {rng.choice(PREPS)} the {other}", rng.choice(lex.WHEN)
    return Pair(
        f"{head} {right} {tail}.",
        f"{head} {wrong} {tail}.",
        ("attractor", noun.one, near.one, verb.base),
    )


def verb_relative(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a verb must agree with its subject across a relative clause."""
    noun, near = _noun(rng, BEINGS, test), pick(rng, BEINGS)
    verb, seeing = pick(rng, lex.VERBS), rng.choice(lex.SEEING)
    many, word = _number(rng, noun)
    right, wrong = _finite(verb, many)
    near_many, other = _other(rng, near, many, test)
    clause = f"that the {other} {_finite(seeing, near_many)[0]}"
    head, tail = f"The {word} {clause}", rng.choice(lex.WHEN)
    return Pair(
        f"{head} {right} {tail}.",
        f"{head} {wrong} {tail}.",
        ("relative", noun.one, near.one, verb.base),
    )


def verb_stacked(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a verb must agree with its subject across two other nouns.

    The training text does not have this construction.
    """
    noun, near = _noun(rng, BEINGS, test), pick(rng, BEINGS)
    far, verb = pick(rng, BEINGS), pick(rng, lex.VERBS)
    many, word = _number(rng, noun)
    right, wrong = _finite(verb, many)
    one, two = (near.one, far.one) if many else (near.many, far.many)
    seeing = _finite(rng.choice(lex.SEEING), not many)[0]
    link = rng.choice((f"{rng.choice(PREPS)} the {two}", f"that the {two} {seeing}"))
    head, tail = f"The {word} {rng.choice(PREPS)} the {one} {link}", rng.choice(lex.WHEN)
    return Pair(f"{head} {right} {tail}.", f"{head} {wrong} {tail}.", ("stacked",))


def copula(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: the verb "be" must agree with its subject across another noun."""
    goods = lex.THINGS + lex.FOODS
    noun, near = _noun(rng, goods, test), pick(rng, goods)
    many, word = _number(rng, noun)
    _, other = _other(rng, near, many, test)
    adjective = rng.choice(lex.COLORS)
    past = rng.random() < 0.5
    right, wrong = ("were", "was") if past else ("are", "is")
    if not many:
        right, wrong = wrong, right
    head = f"The {word} {rng.choice(('beside', 'behind', 'under'))} the {other}"
    return Pair(
        f"{head} {right} {adjective}.", f"{head} {wrong} {adjective}.", ("be", noun.one, near.one)
    )


def determiner(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a noun must agree in number with its determiner, such as "these"."""
    noun, one = _noun(rng, lex.THINGS + lex.FOODS, test), pick(rng, PEOPLE)
    many, word = _number(rng, noun)
    other = noun.one if many else noun.many
    which = rng.choice(("these", "those", "many") if many else ("this", "that", "every"))
    color = rng.choice(lex.COLORS)
    seeing = rng.choice(lex.SEEING[:4]).past
    tail = rng.choice(OBJECT_TALES)
    head = f"{one.name} {seeing} {which} {color}"
    return Pair(
        f"{head} {word} {tail}.", f"{head} {other} {tail}.", ("determiner", noun.one, color)
    )


def reflexive_gender(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: the pronoun "himself" or "herself" must agree in gender with the person."""
    one, verb = rng.choice(PEOPLE), rng.choice(lex.SELF_VERBS)
    tail = rng.choice(lex.WHEN)
    other = "himself" if one.herself == "herself" else "herself"
    head = f"{one.name} {verb}"
    return Pair(
        f"{head} {one.herself} {tail}.", f"{head} {other} {tail}.", ("gender", one.name, verb)
    )


def reflexive_number(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: a reflexive pronoun must agree in number with its subject."""
    women = rng.random() < 0.5
    noun = pick(rng, lex.KIN_WOMEN if women else lex.KIN_MEN)
    near, verb = pick(rng, BEINGS), rng.choice(lex.SELF_VERBS)
    many, word = _number(rng, noun)
    single = "herself" if women else "himself"
    right, wrong = ("themselves", single) if many else (single, "themselves")
    _, other = _other(rng, near, many, test)
    head, tail = f"The {word} {rng.choice(PREPS)} the {other} {verb}", rng.choice(lex.WHEN)
    return Pair(
        f"{head} {right} {tail}.",
        f"{head} {wrong} {tail}.",
        ("self", noun.one, near.one, verb),
    )


def tense(rng: random.Random, test: bool) -> Pair:
    """Returns a pair: the verb must fit the time given at the start, such as "Yesterday"."""
    noun, verb = _noun(rng, BEINGS, test), pick(rng, lex.VERBS)
    many, word = _number(rng, noun)
    adjective, tail = rng.choice(lex.ADJECTIVES), rng.choice(lex.WHEN)
    present = _finite(verb, many)[0]
    if rng.random() < 0.5:
        when = rng.choice(("Yesterday", "Last week", "Long ago", "A year ago"))
        right, wrong = verb.past, present
    else:
        when = rng.choice(("Tomorrow", "Next week", "One day soon"))
        right, wrong = f"will {verb.base}", f"will {verb.past}"
    head = f"{when} the {adjective} {word}"
    return Pair(
        f"{head} {right} {tail}.", f"{head} {wrong} {tail}.", ("tense", noun.one, verb.base)
    )


PHENOMENA: dict[str, Callable[[random.Random, bool], Pair]] = {
    maker.__name__: maker
    for maker in (
        verb_agreement,
        verb_attractor,
        verb_relative,
        verb_stacked,
        copula,
        determiner,
        reflexive_gender,
        reflexive_number,
        tense,
    )
}


UNSEEN = frozenset({verb_stacked.__name__})
"""Phenomena that occur in the test only."""


def draw_pair(rng: random.Random, phenomenon: str, *, test: bool) -> Pair:
    """Returns a random minimal pair of a phenomenon; `test` selects test or training content."""
    while True:
        pair = PHENOMENA[phenomenon](rng, test)
        if phenomenon in UNSEEN or held_out(*pair.key) == test:
            return pair


def sentence_document(rng: random.Random) -> str:
    """Returns a training document of 3 to 10 grammatical sentences, on one line or one per line."""
    names = [name for name in PHENOMENA if name not in UNSEEN]
    count = rng.randint(3, 10)
    good = [capital(draw_pair(rng, rng.choice(names), test=False).good) for _ in range(count)]
    return rng.choice((" ", "\n")).join(good)
