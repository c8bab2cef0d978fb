"""Scenes of people with things at places, and the questions one can ask about them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tools.demo import lexicon as lex
from tools.demo.draw import (
    PEOPLE,
    Person,
    a,
    capital,
    held_out,
    pick,
    pick_distinct,
    until_split,
)

KINDS = ("where_person", "where_thing", "who_has", "who_is_at", "what_has")
STYLES = ("short", "sentence", "full")
STYLE_WEIGHTS = (40, 20, 40)


@dataclass(frozen=True)
class Actor:
    """One person of a scene with all that is told of them."""

    person: Person
    job: str
    place: lex.Place
    place_tail: str
    thing: str
    colour: str
    thing_tail: str

    @property
    def key(self) -> tuple[object, ...]:
        """What decides on which side of the split this actor falls."""
        return ("scene", self.person.name, self.thing, self.place.noun)

    @property
    def where(self) -> str:
        return f"{self.place.prep} the {self.place.noun}"

    @property
    def where_full(self) -> str:
        return f"{self.where} {self.place_tail}"

    @property
    def named(self) -> str:
        return f"{self.person.name} the {self.job}"

    @property
    def thing_full(self) -> str:
        return f"{a(self.colour)} {self.thing} {self.thing_tail}"


@dataclass(frozen=True)
class Scene:
    """A told scene and the state of the world at its end."""

    text: str
    actors: tuple[Actor, ...]


@dataclass(frozen=True)
class Asked:
    """A question with its answer in every style, and answers that are wrong here."""

    question: str
    answer: dict[str, str]
    wrong: list[dict[str, str]]


def draw_scene(
    rng: random.Random, *, test: bool, rich: bool = True, sizes: tuple[int, ...] = (2, 3, 3, 4)
) -> Scene:
    """Draw a scene: everybody is introduced, then perhaps something happens.

    A plain scene leaves out jobs, colours and whereabouts; it is the easier reading that makes the
    rich ones learnable.
    """
    count = rng.choice(sizes)
    people = pick_distinct(rng, PEOPLE, count)
    jobs = rng.sample([job.one for job in lex.JOBS], count)
    colours = rng.sample(lex.COLOURS, count)
    used_places: set[str] = set()
    used_things: set[str] = set()
    actors = []
    for person, job, colour in zip(people, jobs, colours, strict=True):

        def draw(person: Person = person, job: str = job, colour: str = colour) -> Actor:
            place = pick(rng, [p for p in lex.PLACES if p.noun not in used_places])
            thing = pick(rng, [n.one for n in lex.THINGS if n.one not in used_things])
            tails = rng.choice(lex.PLACE_TAILS), rng.choice(lex.THING_TAILS)
            return Actor(person, job, place, tails[0], thing, colour, tails[1])

        actor = until_split(draw, lambda drawn: [drawn.key], test=test)
        used_places.add(actor.place.noun)
        used_things.add(actor.thing)
        actors.append(actor)
    sentences = [(_introduce if rich else _name)(rng, actor) for actor in actors]
    happening = _happen(rng, actors, test=test)
    if happening is not None:
        sentence, actors = happening
        sentences.append(sentence)
    return Scene(" ".join(sentences), tuple(actors))


def _introduce(rng: random.Random, one: Actor) -> str:
    form = rng.randrange(6)
    if form < 2:
        return f"{one.named} is {one.where_full} and has {one.thing_full}."
    if form < 4:
        return f"{one.named} is {one.where_full}. {one.person.name} has {one.thing_full}."
    she = capital(one.person.she)
    return f"{one.named} has {one.thing_full}. {she} is {one.where_full}."


def _name(rng: random.Random, one: Actor) -> str:
    """Introduce somebody in as few words as possible."""
    name, thing = one.person.name, a(one.thing)
    return rng.choice(
        (
            f"{name} is {one.where} and has {thing}.",
            f"{name} is {one.where}. {name} has {thing}.",
            f"{name} has {thing}. {name} is {one.where}.",
        )
    )


def _happen(
    rng: random.Random, actors: list[Actor], *, test: bool
) -> tuple[str, list[Actor]] | None:
    """Let somebody walk to somebody else, or two people swap their things."""
    if rng.random() < 0.6:
        return None
    first, second = rng.sample(range(len(actors)), 2)
    one, two = actors[first], actors[second]
    after = list(actors)
    if rng.random() < 0.5:
        after[first] = replace(one, place=two.place, place_tail=two.place_tail)
        told = f"Then {one.person.name} walks to the {two.place.noun}."
    else:
        after[first] = replace(one, thing=two.thing, colour=two.colour, thing_tail=two.thing_tail)
        after[second] = replace(two, thing=one.thing, colour=one.colour, thing_tail=one.thing_tail)
        told = (
            f"Then {one.person.name} and {two.person.name} swap the {one.thing} and the "
            f"{two.thing}."
        )
    if not test and any(held_out(*actor.key) for actor in after):
        return None
    return told, after


def ask(rng: random.Random, scene: Scene, kind: str) -> Asked | None:
    """Ask one question of a scene; None where the scene leaves its answer open."""
    actors = list(scene.actors)
    rng.shuffle(actors)
    one, others = actors[0], actors[1:]
    if kind == "who_is_at" and any(o.place == one.place for o in others):
        return None
    name, thing, where = one.person.name, one.thing, one.where
    question = {
        "where_person": f"Where is {name}?",
        "where_thing": f"Where is the {thing}?",
        "who_has": f"Who has the {thing}?",
        "who_is_at": f"Who is {where}?",
        "what_has": f"What does {name} have?",
    }[kind]
    frame = {
        "where_person": f"{name} is {{}}.",
        "where_thing": f"The {thing} is {{}}.",
        "who_has": f"{{}} has the {thing}.",
        "who_is_at": f"{{}} is {where}.",
        "what_has": f"{name} has {{}}.",
    }[kind]

    def styles(actor: Actor) -> dict[str, str]:
        if kind.startswith("where"):
            short, full = actor.where, actor.where_full
        elif kind.startswith("who"):
            short, full = actor.person.name, actor.named
        else:
            short, full = a(actor.thing), actor.thing_full
        return {"short": short, "full": full, "sentence": frame.format(short)}

    answer = styles(one)
    wrong = {found["short"]: found for found in map(styles, others)}
    wrong.pop(answer["short"], None)
    return Asked(question, answer, list(wrong.values()))


def _ask_any(rng: random.Random, scene: Scene) -> Asked:
    while True:
        asked = ask(rng, scene, rng.choice(KINDS))
        if asked is not None:
            return asked


def _ask_many(rng: random.Random, scene: Scene, count: int) -> list[Asked]:
    """Different questions of one scene: answers are what there is to learn, so they are dense."""
    asked = {
        question.question: question for question in (_ask_any(rng, scene) for _ in range(count))
    }
    return list(asked.values())


def scene_document(rng: random.Random) -> str:
    """A training document of scenes and questions in one of several layouts.

    The style of the answers is one and the same throughout a document, as a reader of several
    solved examples would expect.
    """
    rich = rng.random() < 0.55
    style = rng.choices(STYLES[: 2 + rich], STYLE_WEIGHTS[: 2 + rich])[0]
    layout = rng.randrange(20)
    if layout < 8:
        ask_label, answer_label = ("Question", "Answer") if layout < 7 else ("Q", "A")
        blocks = []
        for _ in range(rng.choice((1, 1, 1, 2, 4, 7))):
            scene = draw_scene(rng, test=False, rich=rich)
            asked = _ask_any(rng, scene)
            blocks.append(
                f"{scene.text}\n{ask_label}: {asked.question}\n"
                f"{answer_label}: {asked.answer[style]}"
            )
        return "\n\n".join(blocks)
    scene = draw_scene(rng, test=False, rich=rich)
    questions = _ask_many(rng, scene, rng.randint(4, 12))
    if layout < 18:
        pairs = [f"Question: {q.question}\nAnswer: {q.answer[style]}" for q in questions]
        return scene.text + "\n" + "\n\n".join(pairs)
    speaker = pick(rng, PEOPLE).name
    lines = [scene.text]
    for q in questions:
        spoken = capital(q.answer[style]).rstrip(".")
        lines.append(f'"{q.question}" asks {speaker}. "{spoken}," is the answer.')
    return "\n".join(lines)
