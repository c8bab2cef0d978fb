"""Generates scenes, in which people have things at places, and questions about them."""

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
    """One person of a scene: name, job, place, and the thing that the person has."""

    person: Person
    job: str
    place: lex.Place
    place_tail: str
    thing: str
    color: str
    thing_tail: str

    @property
    def key(self) -> tuple[object, ...]:
        """The key for `held_out`, which decides whether this is test or training content."""
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
        return f"{a(self.color)} {self.thing} {self.thing_tail}"


@dataclass(frozen=True)
class Scene:
    """The text of a scene, and where its people are and what they have at its end."""

    text: str
    actors: tuple[Actor, ...]


@dataclass(frozen=True)
class Question:
    """A question, its answer in every style of `STYLES`, and wrong answers from the same scene."""

    question: str
    answer: dict[str, str]
    wrong: list[dict[str, str]]


def draw_scene(
    rng: random.Random, *, test: bool, rich: bool = True, sizes: tuple[int, ...] = (2, 3, 3, 4)
) -> Scene:
    """Returns a random scene: each person is introduced, then sometimes one event follows.

    Without `rich`, jobs, colors and details of places and things are left out; such easier scenes
    help the model to learn the rich ones. `sizes` are the possible numbers of people.
    """
    count = rng.choice(sizes)
    people = pick_distinct(rng, PEOPLE, count)
    jobs = rng.sample([job.one for job in lex.JOBS], count)
    colors = rng.sample(lex.COLORS, count)
    used_places: set[str] = set()
    used_things: set[str] = set()
    actors = []
    for person, job, color in zip(people, jobs, colors, strict=True):

        def draw(person: Person = person, job: str = job, color: str = color) -> Actor:
            place = pick(rng, [p for p in lex.PLACES if p.noun not in used_places])
            thing = pick(rng, [n.one for n in lex.THINGS if n.one not in used_things])
            tails = rng.choice(lex.PLACE_TAILS), rng.choice(lex.THING_TAILS)
            return Actor(person, job, place, tails[0], thing, color, tails[1])

        actor = until_split(draw, lambda drawn: [drawn.key], test=test)
        used_places.add(actor.place.noun)
        used_things.add(actor.thing)
        actors.append(actor)
    sentences = [(_introduce if rich else _introduce_briefly)(rng, actor) for actor in actors]
    event = _draw_event(rng, actors, test=test)
    if event is not None:
        sentence, actors = event
        sentences.append(sentence)
    return Scene(" ".join(sentences), tuple(actors))


def _introduce(rng: random.Random, one: Actor) -> str:
    """Returns an introduction of a person with all details."""
    form = rng.randrange(6)
    if form < 2:
        return f"{one.named} is {one.where_full} and has {one.thing_full}."
    if form < 4:
        return f"{one.named} is {one.where_full}. {one.person.name} has {one.thing_full}."
    she = capital(one.person.she)
    return f"{one.named} has {one.thing_full}. {she} is {one.where_full}."


def _introduce_briefly(rng: random.Random, one: Actor) -> str:
    """Returns a short introduction of a person, without job, color and details."""
    name, thing = one.person.name, a(one.thing)
    return rng.choice(
        (
            f"{name} is {one.where} and has {thing}.",
            f"{name} is {one.where}. {name} has {thing}.",
            f"{name} has {thing}. {name} is {one.where}.",
        )
    )


def _draw_event(
    rng: random.Random, actors: list[Actor], *, test: bool
) -> tuple[str, list[Actor]] | None:
    """Returns a random event and the people after it: one walks to another, or two swap things.

    Returns None if nothing happens, or if the result would be test content in a training scene.
    """
    if rng.random() < 0.6:
        return None
    first, second = rng.sample(range(len(actors)), 2)
    one, two = actors[first], actors[second]
    after = list(actors)
    if rng.random() < 0.5:
        after[first] = replace(one, place=two.place, place_tail=two.place_tail)
        told = f"Then {one.person.name} walks to the {two.place.noun}."
    else:
        after[first] = replace(one, thing=two.thing, color=two.color, thing_tail=two.thing_tail)
        after[second] = replace(two, thing=one.thing, color=one.color, thing_tail=one.thing_tail)
        told = (
            f"Then {one.person.name} and {two.person.name} swap the {one.thing} and the "
            f"{two.thing}."
        )
    if not test and any(held_out(*actor.key) for actor in after):
        return None
    return told, after


def ask(rng: random.Random, scene: Scene, kind: str) -> Question | None:
    """Returns a question of this `kind` (see `KINDS`) about a random person of the scene.

    None if the answer is ambiguous.
    """
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
    return Question(question, answer, list(wrong.values()))


def _ask_any(rng: random.Random, scene: Scene) -> Question:
    """Returns a question of a random kind about the scene."""
    while True:
        asked = ask(rng, scene, rng.choice(KINDS))
        if asked is not None:
            return asked


def _ask_many(rng: random.Random, scene: Scene, count: int) -> list[Question]:
    """Returns up to `count` different questions about a scene.

    Only answers can be predicted from the text, so training needs many of them per scene.
    """
    asked = {
        question.question: question for question in (_ask_any(rng, scene) for _ in range(count))
    }
    return list(asked.values())


def scene_document(rng: random.Random) -> str:
    """Returns a training document of scenes and questions in one of several layouts.

    All answers of a document have the same style, as in a prompt with few-shot examples.
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
