"""The vocabulary of the generated texts."""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A countable noun: singular and plural."""

    one: str
    many: str


class Verb(NamedTuple):
    """A verb: base form, third person singular, past."""

    base: str
    third: str
    past: str


class Place(NamedTuple):
    """A place and its preposition, as in "at the market"."""

    prep: str
    noun: str


def words(text: str) -> tuple[str, ...]:
    """Returns the whitespace-separated words of `text`."""
    return tuple(text.split())


def _nouns(text: str) -> tuple[Noun, ...]:
    """Returns the nouns of `text`, written as `singular/plural` or, if regular, `singular`."""
    found = []
    for entry in text.split():
        one, _, many = entry.partition("/")
        found.append(Noun(one, many or one + "s"))
    return tuple(found)


def _verbs(text: str) -> tuple[Verb, ...]:
    """Returns the verbs of `text`, written as `base/third/past` entries."""
    return tuple(Verb(*entry.split("/")) for entry in text.split())


WOMEN = words(
    """Mira Ana Lena Rosa Nell Tilda Ida Vera Zoe Clara Greta Hanna Ines Julia Kira Lotte Maud
    Nora Olga Petra Ruth Sara Tessa Una Wilma Yara Alma Berta Celia Dora Edda Flora Gerda Hilda
    Irma Jana Karin Livia Marta Ottilie"""
)
MEN = words(
    """Tom Ben Karl Otto Finn Hugo Jan Leo Max Nils Oskar Paul Rolf Sven Theo Udo Viktor Willem
    Anton Bruno Cesar Dirk Emil Fritz Gustav Henrik Ivo Jonas Kurt Lars Moritz Noah Osvin Piet
    Quentin Ralf Stefan Tobias Ulrich Valentin"""
)
JOBS = _nouns(
    """baker farmer smith/smiths painter doctor sailor teacher miller gardener hunter weaver
    singer potter tailor mason clerk guard/guards fisherman/fishermen shepherd carpenter barber
    merchant judge piper/pipers"""
)
KIN_WOMEN = _nouns("girl woman/women aunt sister mother queen niece daughter lady/ladies")
KIN_MEN = _nouns("boy man/men uncle brother father king nephew son gentleman/gentlemen")
ANIMALS = _nouns(
    """dog cat horse goat hen fox/foxes mouse/mice goose/geese owl rabbit donkey crow bear hare
    calf/calves ox/oxen wolf/wolves duck frog swan"""
)
THINGS = _nouns(
    """kite lamp basket hat key drum spoon ring cup bell ball book boat rope box/boxes coat candle
    whistle mirror brush/brushes knife/knives ladder clock flute map bucket blanket glove purse
    saddle shovel kettle comb lantern needle trumpet wheel stool pillow chain"""
)
FOODS = _nouns(
    """fig apple egg plum nut bean pear berry/berries cake loaf/loaves onion carrot cherry/cherries
    coin shell button stone feather marble nail"""
)
DISHES = words("soup bread cheese cake honey rice salad porridge butter fish jam pie")
COLORS = words("red blue green yellow black white brown grey pink purple")
ADJECTIVES = words("old young tall small quiet clever tired happy proud poor brave kind")
PLACES = tuple(
    Place(*entry.split("/"))
    for entry in words(
        """in/mill in/garden in/kitchen at/market on/bridge in/barn in/church at/harbour
    in/forest at/school in/cellar in/tower on/hill in/stable at/inn in/library in/meadow at/well
    in/cave on/beach in/castle at/station in/orchard on/ferry in/attic in/courtyard in/bakery
    at/gate in/valley on/roof"""
    )
)
PLACE_TAILS = (
    "by the river",
    "behind the church",
    "near the old oak",
    "with the green door",
    "at the end of the lane",
    "beyond the fields",
    "next to the pond",
    "under the cliff",
    "outside the town",
    "across the street",
)
THING_TAILS = (
    "made of tin",
    "from the market",
    "with a silver star",
    "in a paper bag",
    "with a broken edge",
    "from far away",
    "tied with string",
    "with two stripes",
)
VERBS = _verbs(
    """sing/sings/sang sleep/sleeps/slept laugh/laughs/laughed dance/dances/danced
    work/works/worked wait/waits/waited run/runs/ran swim/swims/swam smile/smiles/smiled
    shout/shouts/shouted walk/walks/walked fall/falls/fell rest/rests/rested
    hide/hides/hid cry/cries/cried jump/jumps/jumped stand/stands/stood
    sit/sits/sat whisper/whispers/whispered wander/wanders/wandered listen/listens/listened
    cough/coughs/coughed sneeze/sneezes/sneezed yawn/yawns/yawned"""
)
SEEING = _verbs(
    """see/sees/saw like/likes/liked know/knows/knew hear/hears/heard help/helps/helped
    follow/follows/followed call/calls/called fear/fears/feared"""
)
SELF_VERBS = words(
    """washed hid taught cut saw trusted warmed blamed painted praised dressed found
    hurt forgave surprised"""
)
WHEN = (
    "every morning",
    "in the evening",
    "all day",
    "after supper",
    "near the river",
    "on the bridge",
    "in the rain",
    "by the fire",
    "at noon",
    "under the tree",
)
FILLERS = (
    "The sun was warm.",
    "It rained a little.",
    "A bell rang far away.",
    "The dog slept.",
    "Somebody was singing.",
    "Clouds came over the hills.",
    "There was a smell of bread.",
    "It was early.",
    "The grass was wet.",
    "A cart went by.",
    "The birds were loud.",
    "It was a long day.",
)
