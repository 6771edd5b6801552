"""The embedded corpus: English-German sentence pairs made by a small grammar written for this project.

An `Author` rolls dice for the ingredients of a construction and puts them into words twice. What English leaves open is
decided once: "you" is du, the simple past becomes the Perfekt, a teacher is a Lehrer.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeVar

from tools.embedded_corpus.clauses import (
    ACC,
    ADJECTIVE,
    DAT,
    ENDING,
    GEN,
    MODE,
    NOM,
    Clause,
    Nominal,
    Phrase,
    Verb,
    clock,
    entries,
    noun_phrase,
    number,
    prepositional,
    read_noun,
    read_verb,
    rows,
    table,
    words,
)
from tools.embedded_corpus.lexicon import (
    CONSTRUCTIONS,
    DETERMINERS,
    MEN,
    NOUNS,
    PHRASES,
    PRONOUNS,
    USUAL,
    VERBS,
    WOMEN,
)

Split = Literal["train", "valid", "test"]
T = TypeVar("T")

DETERMINER = table(DETERMINERS)
KINDS = {kind: (words(usual), [*map(read_noun, entries(nouns))]) for kind, usual, nouns in rows(NOUNS)}
USUAL_OF = {kind: words(usual) for kinds, usual in rows(USUAL) for kind in kinds.split()}
GROUPS: dict[str, list[Verb]] = {}
for header, verbs in rows(VERBS):
    group, *government = header.split()
    GROUPS.setdefault(group, []).extend(read_verb(entry, *government) for entry in entries(verbs))
PRONOUN = {who: Nominal(x[0], x[1], x[2:5], int(x[5]), x[6]) for who, x in table(PRONOUNS).items()}
SPEAKERS = [PRONOUN[name] for name in ("I", "I", "you", "you", "we", "m", "f", "p")]
NAMED = [Nominal(name, name, (name,) * 3, 2, "f", "name") for name in WOMEN.split()]
NAMED += [Nominal(name, name, (name,) * 3, 2, "m", "name") for name in MEN.split()]
COUNTS = [number(n) for n in range(2, 101)]
HOURS = [clock(hour, minute) for hour in range(1, 13) for minute in range(0, 60, 5)]
PHRASE = {name: entries(phrases) for name, phrases in rows(PHRASES)} | {"hour": HOURS}
PHRASE["clock"] = [Phrase(f"at {hour.english}", f"um {hour.german}") for hour in HOURS]
PHRASE["price"] = [Phrase(f"{n.english} euros", f"{n.german} Euro") for n in COUNTS[18:]]
PHRASE["age"] = [Phrase(f"{n.english} years old", f"{n.german} Jahre alt") for n in COUNTS]
PHRASE["home"] = [Phrase(f"in {city.english}", f"in {city.german}") for city in PHRASE["city"]]
PHRASE["flight"] = [Phrase(f"to {city.english}", f"nach {city.german}") for city in PHRASE["city"]]
OWN = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
COLORS = ("black", "white", "brown", "red", "blue", "green", "grey")
PEOPLE = ("relative", "person", "youth")
GOODS = ("clothes", "gift", "device", "vehicle", "furniture", "standing")


class Author:
    """Makes ingredients by rolling dice and writes sentence pairs with them."""

    def __init__(self, seed: int) -> None:
        self.roll = random.Random(seed).random  # what builds upon it may change between versions of Python

    def pick(self, options: Sequence[T]) -> T:
        """Take one of the options."""
        return options[int(self.roll() * len(options))]

    def one(self, word: str) -> str:
        """Name what was chosen."""
        return word

    def some(self, name: str) -> Phrase:
        """Take a phrase from a table; times in the future fit all modals."""
        return self.pick(PHRASE.get(name, PHRASE["future"]))

    def thing(self, kind: str, article: str = "", owner: Nominal | None = None, negated: str = "") -> Nominal:
        """Make a noun phrase of a kind, or of goods of any kind."""
        kind = self.pick(GOODS) if kind == "goods" else kind
        adjectives, nouns = KINDS[kind]
        noun = self.pick(nouns)
        plural = noun.gender == "p" or (noun.plural != () and self.roll() < 0.25)
        article = article or self.pick(USUAL_OF.get(kind, USUAL_OF["other"]))
        if article == "own":
            article = OWN.get(self.again(owner).english if owner else "") or self.pick([*OWN.values()])
        if article == "a" and (plural or not noun.plural):
            many = plural and noun.gender != "p" and not negated
            article = "many" if many and (kind in PEOPLE or self.roll() < 0.3) else "bare"
        article = f"not {article}" if negated and article in ("a", "bare") else article
        adjective = self.pick(adjectives) if self.roll() < 0.4 else ""
        return noun_phrase(DETERMINER[article], adjective, noun, plural, kind)

    def person(self, other: Nominal | None = None, negated: str = "") -> Nominal:
        """Find somebody other than the other, and not of the same first or second person: "I see us"."""
        kind = self.pick(("pronoun", "pronoun", "name", *PEOPLE))
        if kind in PEOPLE:
            somebody = self.thing(kind, owner=other, negated=negated)
        else:
            somebody = self.pick(NAMED if kind == "name" else SPEAKERS)
        same_word = other and somebody.english.split()[-1] == other.english.split()[-1]
        if other and (same_word or somebody.person % 3 == other.person % 3 < 2):
            return self.person(other, negated)
        return somebody

    def known(self) -> Nominal:
        """Find somebody to whom he, she or they can refer."""
        somebody = self.person()
        return self.known() if somebody.gender == "n" else somebody

    def again(self, known: Nominal) -> Nominal:
        """Refer to somebody or something by a pronoun, if there is one."""
        name = f"it {known.gender}" if known.kind in GOODS else known.gender
        return known if known.kind == "pronoun" else PRONOUN.get(name, PRONOUN.get(known.gender, known))

    def doing(self, mode: str) -> Nominal:
        """Give somebody a relative clause: the man who ..., der Mann, der ...,."""
        head = self.thing("person", "the")
        pronoun = replace(head, english="who", german=ENDING["der"][head.gender], kind="pronoun")
        clause = self.act("deed", mode, pronoun)
        german = f"{head.german[NOM]}, {clause:end},"
        return replace(head, english=f"{head.english} {clause}", german=(german,))

    def owned(self) -> Nominal:
        """Name the owner of something: my uncle's car, das Auto meines Onkels."""
        owner, thing = self.thing("relative"), self.thing("goods", "whose")
        ending = "'" if owner.english.endswith("s") else "'s"
        german = f"{thing.german[NOM]} {owner.german[GEN]}"
        return replace(thing, english=f"{owner.english}{ending} {thing.english}", german=(german,))

    def quality(self, thing: Nominal) -> Phrase:
        """Describe something: very old, sehr alt."""
        degree, adjective = self.some("degree"), self.pick(KINDS[thing.kind][0])
        if adjective in COLORS or adjective in thing.english:  # neither "very red" nor "the old car is old"
            return self.quality(thing)
        return Phrase(f"{degree.english} {adjective}", f"{degree.german} {ADJECTIVE[adjective]}")

    def compared(self, thing: Nominal) -> Phrase:
        """Compare something with another of its kind: older than this car, älter als dieses Auto."""
        other, more = self.thing(thing.kind, "this"), self.some("more")
        return Phrase(f"{more.english} than {other.object}", f"{more.german} als {other.german[NOM]}")

    def counted(self, kind: str) -> Phrase:
        """Count things: twenty-one books, einundzwanzig Bücher."""
        count, (adjectives, nouns) = self.pick(COUNTS), KINDS[kind]
        adjective = self.pick(adjectives) if self.roll() < 0.3 else ""
        determiner = ("", count.english, count.german, "none", "strong")
        things = noun_phrase(determiner, adjective, self.pick(nouns), plural=True)
        return Phrase(things.english, things.german[ACC])

    def where(self, group: str, subject: Nominal) -> tuple[Phrase, ...]:
        """Add the company and place that go with a group of verbs, in German order."""
        if group in ("posture", "lying", "standing", "put"):
            spot, thing = self.some("spot"), self.thing("furniture", "the")
            german = prepositional(spot.german, thing.german[ACC if group == "put" else DAT])
            return (Phrase(f"{spot.english} {thing.object}", german),)
        if group == "journey":
            return self.some("means"), self.some("flight")
        if group not in PHRASE:
            return ()
        friend, place = self.person(subject), self.some(group)
        company = Phrase(f"with {friend.object}", f"mit {friend.german[DAT]}")
        if self.roll() < 0.3:
            company = Phrase(f"without {friend.object}", f"ohne {friend.german[ACC]}")
        return (company, place) if self.roll() < 0.5 else (place,)

    def when(self, mode: str, negated: str) -> Phrase | None:
        """Add a time, without which the past would be ambiguous (they read) and a habit unlikely."""
        if mode not in ("habit", "past") and self.roll() < 0.6:
            return None
        if negated:
            return PHRASE.get(mode, PHRASE["future"])[0]
        return self.some("early" if mode == "habit" and self.roll() < 0.4 else mode)

    def act(self, group: str, mode: str, subject: Nominal | None = None, negated: str = "") -> Clause:
        """Let somebody do something from a group of verbs, to an object that makes sense."""
        subject = subject or self.person()
        if group == "any":
            group = self.pick(("deed", "deed", {"habit": "state", "past": "mishap"}.get(mode, "deed")))
        verb, thing = self.pick(GROUPS[group]), None
        if verb.kinds:
            kind, negative = self.pick(verb.kinds), "" if verb.preposition else negated
            people = kind == "people"
            thing = self.person(subject, negative) if people else self.thing(kind, "", subject, negative)
        recipient = self.person(subject) if group == "giving" else None
        when = None if group == "state" else self.when(mode, negated)
        return Clause(subject, verb, mode, thing, recipient, when, self.where(group, subject), bool(negated))

    def dated(self, clause: Clause, when: Phrase | None = None) -> Clause:
        """Give a clause another time or none."""
        return replace(clause, when=when)

    def plain(self, mode: str, subject: Nominal | None = None) -> Clause:
        """Let somebody do something at no given time."""
        return self.dated(self.act("deed", mode, subject))

    def gap(self, mode: str) -> Clause:
        """Leave out the thing to ask for."""
        clause = self.plain(mode)
        asked = clause.object and not clause.verb.preposition and "people" not in clause.verb.kinds
        return replace(clause, object=None) if asked else self.gap(mode)

    def trade(self, thing: Nominal) -> Clause:
        """Let somebody buy something."""
        return Clause(self.person(), GROUPS["trade"][0], "past", thing, when=self.some("past"))

    def be(self, group: str, subject: Nominal, *what: Phrase) -> Clause:
        """Say what somebody or something is, has, costs ..."""
        verb = self.pick(GROUPS[group])
        return Clause(subject, verb, "habit" if verb.english[0] else "present", where=what)

    def write(self) -> tuple[str, str]:
        """Write a sentence pair."""
        english, german, recipe = self.pick(WHEEL)
        made: dict[str, Any] = {"who": PRONOUN["who"]}
        for (name,), (method,), *choices in recipe:
            chosen = map(self.pick, choices)
            arguments = [self.some(word[1:]) if word[0] == "*" else made.get(word, word) for word in chosen]
            made[name] = getattr(self, method)(*arguments)
        english, german = english.format(**made), german.format(**made)
        return english[0].upper() + english[1:], german[0].upper() + german[1:]


WHEEL: list[tuple[str, str, list[list[list[str]]]]] = []  # every construction as often as its share
for line in CONSTRUCTIONS.replace("MODE", "/".join(MODE)).strip().split("\n"):
    share, english, german, recipe = line.split(" | ")
    steps = [[word.split("/") for word in step.replace("=", " ").split()] for step in recipe.split(",")]
    WHEEL += [(english, german, steps)] * int(share)


@cache
def corpus() -> list[tuple[str, str]]:
    """Write 41,000 pairs among which no English and no German sentence occurs twice."""
    author = Author(seed=2060)  # with this seed every word to test is in training four times
    seen: set[str] = set()
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 41_000:
        pair = author.write()
        if seen.isdisjoint(pair):
            seen.update(pair)
            pairs.append(pair)
    return pairs


def sentence_pairs(split: Split) -> list[tuple[str, str]]:
    """The (English, German) pairs of a split: every 82nd is for testing, the one behind it for validation."""
    places = {"test": range(1), "valid": range(1, 2), "train": range(2, 82)}[split]
    return [pair for index, pair in enumerate(corpus()) if index % 82 in places]
