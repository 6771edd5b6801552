"""Questions about a few facts, for memory networks and for `multihead train --task questions`.

People go to places, and take, pass on and drop things. The answer follows from the facts, of which the latest counts:

    mary went to the kitchen . mary took the ball . mary went to the garden .   where is the ball ?   garden

The place of a thing takes two facts (who has it, and where that person is), or three if it was passed on or dropped.
"""

import random
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from multihead.errors import UsageError

PEOPLE = ("anna", "ben", "clara", "david", "emma", "felix")
PLACES = ("bathroom", "garden", "hall", "kitchen", "office", "park")
THINGS = ("apple", "ball", "book", "cup")
NOBODY, YES, NO = "nobody", "yes", "no"
ANSWERS = (*PEOPLE, *PLACES, NOBODY, YES, NO)

Kind = Literal["where", "who", "yes-no"]
KINDS: tuple[Kind, ...] = ("where", "who", "yes-no")


class Question(NamedTuple):
    """Facts in the order in which they happened, a question about them, and the answer in one word."""

    facts: list[str]
    question: str
    answer: str
    kind: Kind

    @property
    def text(self) -> str:
        """The facts and the question as one line."""
        return " ".join([*self.facts, self.question])


@dataclass(slots=True)
class _World:
    """Where people and things are after the facts so far."""

    place: dict[str, str] = field(default_factory=dict)  # of each person who went somewhere
    holder: dict[str, str] = field(default_factory=dict)  # of each thing that somebody has
    dropped: dict[str, str] = field(default_factory=dict)  # the place of each thing that was dropped

    def place_of(self, thing: str) -> str | None:
        return self.place[self.holder[thing]] if thing in self.holder else self.dropped.get(thing)

    def near(self, person: str) -> list[str]:
        """Return what a person can take: things that nobody has seen yet, and those dropped in the same place."""
        return [
            thing
            for thing in THINGS
            if thing not in self.holder and self.dropped.get(thing, self.place[person]) == self.place[person]
        ]


def make_question(seed: int, n_facts: int = 8, kind: Kind | None = None) -> Question:
    """Return the question with this number, about `n_facts` facts; its kind is drawn from the seed unless given."""
    if kind == "who" and n_facts < 2:
        raise UsageError(f"who has something takes two facts to know, not {n_facts}")
    rng = random.Random(seed)
    kinds: tuple[Kind, ...] = KINDS if n_facts > 1 else ("where", "yes-no")
    asked = rng.choice(kinds) if kind is None else kind
    while True:
        world = _World()
        facts = [_next_fact(world, rng) for _ in range(n_facts)]
        if asked != "who" or world.holder or world.dropped:
            break  # otherwise no fact is about a thing
    question, answer = _ask(world, asked, rng)
    return Question(facts, question, answer, asked)


def _next_fact(world: _World, rng: random.Random) -> str:
    """Let something happen and say it."""
    person = rng.choice(PEOPLE)
    if person not in world.place or rng.random() < 0.4:
        return _go(world, person, rng)
    actions = [_go]
    held = [thing for thing in THINGS if world.holder.get(thing) == person]
    others = [other for other in PEOPLE if other != person and world.place.get(other) == world.place[person]]
    if world.near(person):
        actions += [_take, _take]
    if held:
        actions.append(_drop)
    if held and others:
        actions += [_give, _give]
    return rng.choice(actions)(world, person, rng)


def _go(world: _World, person: str, rng: random.Random) -> str:
    world.place[person] = rng.choice([place for place in PLACES if place != world.place.get(person)])
    return f"{person} went to the {world.place[person]} ."


def _take(world: _World, person: str, rng: random.Random) -> str:
    thing = rng.choice(world.near(person))
    world.dropped.pop(thing, None)
    world.holder[thing] = person
    return f"{person} took the {thing} ."


def _drop(world: _World, person: str, rng: random.Random) -> str:
    thing = rng.choice([thing for thing in THINGS if world.holder.get(thing) == person])
    del world.holder[thing]
    world.dropped[thing] = world.place[person]
    return f"{person} dropped the {thing} ."


def _give(world: _World, person: str, rng: random.Random) -> str:
    thing = rng.choice([thing for thing in THINGS if world.holder.get(thing) == person])
    receiver = rng.choice(
        [other for other in PEOPLE if other != person and world.place.get(other) == world.place[person]]
    )
    world.holder[thing] = receiver
    return f"{person} gave the {thing} to {receiver} ."


def _ask(world: _World, kind: Kind, rng: random.Random) -> tuple[str, str]:
    """Return a question about what the facts tell, and its answer."""
    known = [thing for thing in THINGS if thing in world.holder or thing in world.dropped]
    if kind == "who":
        thing = rng.choice(known)
        return f"who has the {thing} ?", world.holder.get(thing, NOBODY)
    if known and rng.random() < 0.5:
        thing = rng.choice(known)
        name, place = f"the {thing}", world.place_of(thing)
    else:
        name = rng.choice(sorted(world.place))
        place = world.place[name]
    assert place is not None
    if kind == "where":
        return f"where is {name} ?", place
    asked = place if rng.random() < 0.5 else rng.choice([other for other in PLACES if other != place])
    return f"is {name} in the {asked} ?", YES if asked == place else NO
