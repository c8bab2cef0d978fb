"""Generates short stories whose last word can be guessed from the story, not the last sentence.

Each plot function returns the sentences of a story and its last word.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tools.demo import lexicon as lex
from tools.demo.draw import PEOPLE, Person, a, capital, held_out, pick, pick_distinct

THINGS = tuple(noun.one for noun in lex.THINGS)
ANIMALS = tuple(noun.one for noun in lex.ANIMALS)


@dataclass(frozen=True)
class Story:
    """A story, whose last word is to be guessed; `key` decides whether it is test content."""

    sentences: tuple[str, ...]
    key: tuple[object, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


#: The people of a story.
Cast = list[Person]
Plot = Callable[[random.Random, Cast], tuple[list[str], str]]


def lost(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, friend = cast[:2]
    word, *others = pick_distinct(rng, THINGS, 3)
    places = pick_distinct(rng, lex.PLACES, 3)
    return [
        f"One morning {hero.name} could not find {hero.hers} {word}.",
        f"{capital(hero.she)} searched the {places[0].noun}, but saw only {a(others[0])}.",
        f"{friend.name} helped and looked {places[1].prep} the {places[1].noun}.",
        f"There {friend.she} found just {a(others[1])}.",
        f"Then {hero.name} and {friend.name} tried the {places[2].noun}.",
        f"There {hero.name} saw the {word}",
    ], word


def gift(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, friend, seller = cast[:3]
    goods = pick_distinct(rng, THINGS, 3)
    word = goods[0]
    shown = rng.sample(goods, 3)
    return [
        f"{friend.name} had always wanted {a(word)}.",
        f"{hero.name}, a good friend, knew it well.",
        f"So {hero.name} went to see {seller.name}, who sold things.",
        f"{seller.name} had {a(shown[0])}, {a(shown[1])} and {a(shown[2])}.",
        f"{hero.name} thought of {friend.name} and paid {seller.name}.",
        f"That evening {friend.name} thanked {hero.name} for the {word}",
    ], word


def hiding(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    seeker, *hiders = cast[:5]
    places = pick_distinct(rng, lex.PLACES, 4)
    told = [
        f"{hider.name} hid {place.prep} the {place.noun}."
        for hider, place in zip(hiders, places, strict=True)
    ]
    last = rng.randrange(4)
    found = [hiders[i].name for i in range(4) if i != last]
    rng.shuffle(found)
    return [
        f"In a game {seeker.name} had to count to {rng.choice(('ten', 'twenty', 'fifty'))}.",
        *told,
        f"{seeker.name} soon found {found[0]}, {found[1]} and {found[2]}.",
        f"Now only {hiders[last].name} was missing.",
        f"{seeker.name} thought about {hiders[last].name} and ran to the {places[last].noun}",
    ], places[last].noun


def helper(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, good, other = cast[:3]
    broken, place = pick(rng, THINGS), pick(rng, lex.PLACES)
    dish = pick(rng, lex.DISHES)
    return [
        f"The {broken} of {hero.name} was broken.",
        f"{other.name} saw the {broken} and only laughed.",
        f"{good.name} took the {broken} to the {place.noun} at night.",
        f"In the morning {hero.name} found the {broken} mended.",
        f"{hero.name} cooked {dish} and asked {other.name} about the {broken}.",
        f"{other.name} said no, and ate the {dish}.",
        f"So {hero.name} gave the rest of the {dish} to {good.name}",
    ], good.name


def race(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    first, second, third, judge = cast[:4]
    prize = pick(rng, THINGS)
    place = pick(rng, lex.PLACES)
    start = rng.sample((first, second, third), 3)
    bad_luck = [
        f"{third.name} was ahead, but {third.she} grew tired.",
        f"{second.name} fell and lost {second.hers} shoe.",
        f"{first.name} ran on like {a(pick(rng, ANIMALS))}.",
    ]
    rng.shuffle(bad_luck)
    return [
        f"{start[0].name}, {start[1].name} and {start[2].name} raced to the {place.noun}.",
        f"{judge.name} held the prize, {a(prize)}.",
        *bad_luck,
        f"At the {place.noun} {judge.name} gave the {prize} to {first.name}",
    ], first.name


def painting(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, friend, neighbor = cast[:3]
    colors = rng.sample(lex.COLORS, 3)
    what = rng.choice(("door", "fence", "boat", "gate", "wall", "cart", "roof", "table"))
    place = pick(rng, lex.PLACES)
    told = [
        f"{friend.name} spoke for {colors[0]}, but {hero.name} said no.",
        f"{neighbor.name} had {a(colors[1])} {what} and {hero.name} hated it.",
        f"The mother of {hero.name} once had {a(colors[2])} {what}, and {hero.name} loved it.",
    ]
    rng.shuffle(told)
    return [
        f"{hero.name} had an old {what} {place.prep} the {place.noun}.",
        f"Now {hero.name} wanted to paint the {what}.",
        *told,
        f"When {friend.name} came to the {place.noun}, the {what} was {colors[2]}",
    ], colors[2]


def noise(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, friend = cast[:2]
    word, *others = pick_distinct(rng, ANIMALS, 3)
    place = pick(rng, lex.PLACES)
    return [
        f"{hero.name} kept {a(word)} {place.prep} the {place.noun}.",
        f"One night {friend.name} heard a noise.",
        f"{friend.name} feared {a(others[0])}, or even {a(others[1])}.",
        f"{hero.name} took {hero.hers} {pick(rng, THINGS)} and went to the {place.noun}.",
        f"{friend.name} followed with {a(pick(rng, THINGS))}.",
        f"There {hero.name} laughed and showed {friend.name} the {word}",
    ], word


def lending(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, other, *chain = cast[:5]
    chain = chain[: rng.choice((2, 3))]
    thing = pick(rng, THINGS)
    passed = [
        f"{one.name} {rng.choice(('passed', 'handed'))} the {thing} on to {two.name}."
        for one, two in pairwise(chain)
    ]
    return [
        f"{hero.name} lent {hero.hers} {thing} to {chain[0].name}.",
        *passed,
        f"{other.name} asked {chain[0].name} as well, but too late.",
        f"After a week {hero.name} needed the {thing}.",
        f"{chain[0].name} told {hero.name} all about it.",
        f"So, with {other.name}, {hero.name} went to see {chain[-1].name}",
    ], chain[-1].name


def trading(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    hero, *others = cast[: rng.choice((3, 4))]
    goods = pick_distinct(rng, THINGS, len(others) + 1)
    place = pick(rng, lex.PLACES)
    traded = [
        rng.choice(
            (
                f"{one.name} gave {hero.her} {a(new)} for the {old}.",
                f"{one.name} liked the {old} and offered {hero.her} {a(new)}.",
            )
        )
        for one, old, new in zip(others, goods[:-1], goods[1:], strict=True)
    ]
    return [
        f"{hero.name} set out for the {place.noun} with {a(goods[0])}.",
        *traded,
        f"At home they asked {hero.name} about the {goods[0]}.",
        f"{hero.name} thought of {others[0].name} and showed them the {goods[-1]}",
    ], goods[-1]


def feast(rng: random.Random, cast: Cast) -> tuple[list[str], str]:
    people = cast[:4]
    dishes = pick_distinct(rng, lex.DISHES, 4)
    place = pick(rng, lex.PLACES)
    brought = [f"{one.name} brought {dish}." for one, dish in zip(people, dishes, strict=True)]
    left = rng.randrange(4)
    eaten = [i for i in range(4) if i != left]
    rng.shuffle(eaten)
    return [
        f"There was a feast {place.prep} the {place.noun}.",
        *brought,
        f"{people[eaten[1]].name} ate all of the {dishes[eaten[0]]}.",
        f"{people[eaten[2]].name} ate the {dishes[eaten[1]]}.",
        f"{people[eaten[0]].name} finished the {dishes[eaten[2]]}.",
        f"So {cast[4].name}, who came late, had {dishes[left]}",
    ], dishes[left]


PLOTS: dict[str, Plot] = {
    plot.__name__: plot
    for plot in (lost, gift, hiding, helper, race, painting, noise, lending, trading, feast)
}


def draw_story(
    rng: random.Random, *, test: bool, cast: Cast | None = None, plots: tuple[str, ...] = ()
) -> Story:
    """Returns a random story with up to three unrelated sentences in between.

    Args:
        rng: the random generator.
        test: whether the story is test content or training content.
        cast: five people who act in it; drawn at random by default.
        plots: names of the plots to choose from; all by default.
    """
    while True:
        people = cast if cast is not None else pick_distinct(rng, PEOPLE, 5)
        name = rng.choice(plots or tuple(PLOTS))
        people = rng.sample(people, len(people))
        sentences, word = PLOTS[name](rng, people)
        key = ("story", name, people[0].name, word)
        if held_out(*key) != test:
            continue
        for filler in rng.sample(lex.FILLERS, rng.choice((0, 1, 1, 2, 3))):
            sentences.insert(rng.randrange(1, len(sentences)), filler)
        return Story((*sentences[:-1], sentences[-1] + "."), key)


def draw_tale(rng: random.Random, chapters: int, *, test: bool) -> str:
    """Returns a text of `chapters` stories about the same people."""
    cast = pick_distinct(rng, PEOPLE, 5)
    return "\n\n".join(draw_story(rng, test=test, cast=cast).text for _ in range(chapters))


def story_document(rng: random.Random) -> str:
    """Returns a training document: mostly one story, sometimes several about the same people."""
    return draw_tale(rng, rng.choice((1, 1, 1, 1, 2, 3, 8)), test=False)
