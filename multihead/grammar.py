"""The embedded corpus: English-German sentence pairs made by a small grammar written for this project.

An `Author` rolls dice for the ingredients of a construction and puts them into words twice: English keeps
subject, verb and object together; German moves the verb, declines the nouns and splits separable verbs. What
English leaves open is decided once: "you" is du, the simple past becomes the Perfekt, a teacher is a Lehrer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar

from multihead.lexicon import (
    ADJECTIVES,
    CONSTRUCTIONS,
    CONTRACTIONS,
    DETERMINERS,
    ENDINGS,
    IRREGULAR,
    MEN,
    MODES,
    NOUNS,
    NUMBERS,
    PHRASES,
    PRONOUNS,
    USUAL,
    VERBS,
    WOMEN,
)

DESCRIPTION = (
    "41,000 English-German sentence pairs made by a grammar written for this project, not collected text: "
    "good for trying the software, useless as a general translator."
)

# ---- Words -------------------------------------------------------------------------------------------------

NOM, ACC, DAT, GEN = range(4)
T = TypeVar("T")
Forms = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """The same words in both languages."""

    english: str
    german: str


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in English and in the German cases; the plural may be missing."""

    english: str
    english_plural: str
    gender: str
    singular: Forms
    plural: Forms


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with its forms, what it governs and the kinds of object that make sense."""

    english: Forms  # infinitive, past, -ing form, what follows the verb
    german: Forms  # prefix, infinitive, participle, auxiliary of the perfect
    present: Forms
    preposition: str
    case: int
    kinds: Forms


def spaced(*parts: str) -> str:
    """Join the parts that are not empty."""
    return " ".join(filter(None, parts))


def words(text: str) -> Forms:
    """Split at spaces, where "-" stands for nothing and "_" for a space."""
    return tuple("" if word == "-" else word.replace("_", " ") for word in text.split())


def entries(text: str) -> list[Phrase]:
    """Read "cat=Katze, dog=Hund"."""
    return [Phrase(*" ".join(entry.split()).split("=")) for entry in text.split(",")]


def table(text: str) -> dict[str, Forms]:
    """Read the entries of a table of forms."""
    return {entry.english: words(entry.german) for entry in entries(text)}


def rows(text: str) -> list[list[str]]:
    """Read the rows of a table as the parts between their colons."""
    return [row.split(": ") for row in " ".join(text.split()).split("; ")]


@cache
def with_ending(word: str, ending: str) -> str:
    """Add -s, -ed or -ing to an English word: tries, planned, writing."""
    if ending == "s":
        word = re.sub("(s|x|ch|sh|o)$", r"\1e", word)
    else:
        word = re.sub("^([^aeiou]*[aeiou])([bdgmnpt])$", r"\1\2\2", word).removesuffix("e")
    if ending != "ing":
        word = re.sub("(?<=[^aeiou])y$", "ie" if ending == "s" else "i", word)
    return word + ending


def read_noun(entry: Phrase) -> Noun:
    """Decline "boy=der Junge ~n weak": weak masculines end like their plural in all but the nominative."""
    one, _, many = entry.english.partition("/")
    article, singular, plural, weak = (*entry.german.split(), "", "")[:4]
    gender = {"der": "m", "die": "f", "das": "n", "pl": "p"}[article]
    plural = singular if gender == "p" else plural.replace("~", singular).strip("-")
    oblique = plural if weak else singular
    syllables = re.findall("[aeiouäöü]+", singular.lower())
    genitive = oblique if weak or gender == "f" else singular + ("es" if len(syllables) == 1 else "s")
    plurals = (plural, plural, plural if plural.endswith(("n", "s")) else plural + "n", plural)
    many = many or (one if gender == "p" else with_ending(one, "s"))
    return Noun(one, many, gender, (singular, oblique, oblique, genitive), plurals if plural else ())


def conjugate(entry: str) -> tuple[Forms, Forms]:
    """Make of "auf|stehen ist gestanden" prefix, infinitive, participle, auxiliary; and the present tense."""
    compound, *told = entry.split()
    prefix, _, infinitive = compound.replace("_", " ").rpartition("|")
    participle = told.pop() if told and told[-1] != "ist" else ""
    third = told[0] if told and told[0] != "ist" else ""
    stem = infinitive.removesuffix("n").removesuffix("e")
    linked = stem + "e" if stem.endswith(("t", "d", "ffn", "chn")) else stem  # arbeitet, öffnet
    changed = third.removesuffix("t") or linked
    second = changed + ("t" if changed.endswith(("s", "ß", "z")) else "st")
    present = (stem + "e", second, third or linked + "t", infinitive, linked + "t", infinitive)
    ge = "" if infinitive.startswith(("be", "ver", "er")) or stem.endswith("ier") else "ge"
    german = (prefix, infinitive, participle or f"{ge}{linked}t", "sein" if "ist" in told else "haben")
    return german, BY_PERSON.get(infinitive, present)


def read_verb(entry: Phrase, government: str, *kinds: str) -> Verb:
    """Read "get up/got=auf|stehen ist gestanden" and what it governs."""
    phrase, past, ing = (*entry.english.split("/"), "", "")[:3]
    base, _, tail = phrase.partition(" ")
    preposition, _, case = government.rpartition("+")
    english = (base, past or with_ending(base, "ed"), ing or (base and with_ending(base, "ing")), tail)
    return Verb(english, *conjugate(entry.german), preposition, DAT if case == "dat" else ACC, kinds)


def number(n: int) -> Phrase:
    """A number up to a hundred: twenty-one, einundzwanzig."""
    if n < 20 or n == 100:
        return Phrase("a hundred", "hundert") if n == 100 else entries(NUMBERS)[n]
    ten, one = entries(NUMBERS)[18 + n // 10], number(n % 10)
    german = f"{'ein' if n % 10 == 1 else one.german}und{ten.german}"
    return Phrase(f"{ten.english}-{one.english}", german) if n % 10 else ten


def clock(hour: int, minute: int) -> Phrase:
    """A time of day: half past three, halb vier."""
    this, following = number(hour), number(hour % 12 + 1)
    if minute == 0:
        return Phrase(f"{this.english} o'clock", f"{'ein' if hour == 1 else this.german} Uhr")
    if minute == 30:
        return Phrase(f"half past {this.english}", f"halb {following.german}")
    near, to, vor = (this, "past", "nach") if minute < 30 else (following, "to", "vor")
    minutes = Phrase("quarter", "Viertel") if minute in (15, 45) else number(min(minute, 60 - minute))
    german = f"{minutes.german} {vor} {near.german}"
    if minute in (25, 35):  # German counts from the half hour
        german = f"fünf {'vor' if minute == 25 else 'nach'} halb {following.german}"
    return Phrase(f"{minutes.english} {to} {near.english}", german)


# ---- Noun phrases and clauses ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nominal:
    """A pronoun, name or noun phrase: in English as subject and object, in German by case."""

    english: str
    object: str
    german: Forms
    person: int  # which of ich, du, er, wir, ihr, sie
    gender: str
    kind: str = "pronoun"
    definite: bool = True


@cache
def noun_phrase(determiner: Forms, adjective: str, noun: Noun, plural: bool, kind: str = "") -> Nominal:
    """Decline determiner, adjective and noun together."""
    one, many, article, endings, adjectival = determiner
    gender, first, last = ("p", many, noun.english_plural) if plural else (noun.gender, one, noun.english)
    english = spaced(first, adjective, last)
    if first == "a" and english[2] in "aeiou":
        english = f"an {english[2:]}"
    articles = [article + ending for ending in ENDING[endings][gender]]
    adjectives = [STEM[adjective] + ending if adjective else "" for ending in ENDING[adjectival][gender]]
    german = tuple(map(spaced, articles, adjectives, noun.plural if plural else noun.singular))
    definite = article not in ("ein", "kein", "viel") and endings != "none"
    return Nominal(english, english, german, 5 if plural else 2, gender, kind, definite)


def prepositional(preposition: str, german: str) -> str:
    """Put a German preposition before a noun phrase and contract it with the article: im Garten."""
    article, _, rest = german.partition(" ")
    pair = f"{preposition} {article}"
    return spaced(CONTRACTED.get(pair, pair) if rest else pair, rest)


@dataclass(frozen=True, slots=True)
class Clause:
    """Who does what to whom, when and where (in German order); formatting it puts it into words."""

    subject: Nominal
    verb: Verb
    mode: str
    object: Nominal | None = None
    recipient: Nominal | None = None
    when: Phrase | None = None
    where: tuple[Phrase, ...] = ()
    negated: bool = False

    def __format__(self, order: str) -> str:
        """English statement, "?" question, "to" infinitive; German verb "1", "2", at the "end", with "zu"."""
        return self.german(order) if order in ("1", "2", "end", "zu") else self.english(order)

    def english(self, order: str) -> str:
        """Put the clause into English: is + buying, does + want to buy."""
        kind, link, _ = MODE[self.mode]
        base, past, ing, _ = self.verb.english
        auxiliary = BY_PERSON.get(kind, (kind,) * 6)[self.subject.person]
        main = ing if kind == "be" and not link else spaced(link, base)
        if order == "to":
            return self.predicate(base)
        if order == "?":
            return spaced(auxiliary, self.subject.english, self.predicate(main))
        if self.negated:
            auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
        elif kind in ("do", "did"):
            first, _, rest = main.partition(" ")
            third = "has" if first == "have" else with_ending(first, "s")
            main = past if kind == "did" else spaced(third, rest) if auxiliary == "does" else main
            auxiliary = ""
        return spaced(self.subject.english, auxiliary, self.predicate(main))

    def predicate(self, verb: str) -> str:
        """The English verb with its objects and adverbials."""
        tail, thing = self.verb.english[3], self.object.object if self.object else ""
        tail = tail.replace("_", thing).strip() if "_" in tail else spaced(tail, thing)
        recipient = self.recipient.object if self.recipient else ""
        where = (phrase.english for phrase in reversed(self.where))
        when = self.when.english if self.when else ""
        early, late = (when, "") if when in EARLY else ("", when)
        return spaced(early, verb, recipient, tail, *where, late)

    def german(self, order: str) -> str:
        """Put the clause into German: finite verb and end embrace the middle field or meet behind it."""
        prefix, infinitive, participle, auxiliary = self.verb.german
        person, modal = self.subject.person, MODE[self.mode][2]
        finite, end = self.verb.present[person], prefix
        if modal:
            finite, end = BY_PERSON[modal][person], prefix + infinitive
        elif self.mode == "past":
            finite, end = BY_PERSON[auxiliary][person], prefix + participle
        subject, middle = self.subject.german[NOM], self.middle()
        if order == "end":
            return spaced(subject, middle, end + finite if end == prefix else f"{end} {finite}")
        if order == "zu":
            return spaced(middle, f"{prefix}zu{'' if prefix.isalpha() else ' '}{infinitive}")
        start = (finite, subject) if order == "1" else (subject, finite)
        return spaced(*start, middle, end.strip())

    def middle(self) -> str:
        """The German middle field: pronouns, time, what is known, nicht, what is new, place."""
        known = 2 if self.negated else 4
        ranked = [(3.0, self.when.german if self.when else ""), (8, spaced(*(p.german for p in self.where)))]
        if self.recipient:
            ranked.append((1 if self.recipient.kind == "pronoun" else known, self.recipient.german[DAT]))
        if self.object and self.verb.preposition:
            ranked.append((9, prepositional(self.verb.preposition, self.object.german[self.verb.case])))
        elif self.object:
            rank = 0 if self.object.kind == "pronoun" else known + 0.5 if self.object.definite else 7
            ranked.append((rank, self.object.german[self.verb.case]))
        if self.negated and all(rank != 7 for rank, _ in ranked):  # an indefinite object has kein instead
            ranked.append((6, "nicht"))
        return spaced(*(text for _, text in sorted(ranked)))


# ---- The author --------------------------------------------------------------------------------------------

BY_PERSON, MODE, DETERMINER = table(IRREGULAR), table(MODES), table(DETERMINERS)
ENDING = {name: dict(zip("mfnp", map(words, forms), strict=True)) for name, *forms in rows(ENDINGS)}
ADJECTIVE = {entry.english: entry.german for entry in entries(ADJECTIVES)}
# dunkel and teuer lose an e before an ending
STEM = {english: re.sub("e(?=l$|(?<=ue)r$)", "", german) for english, german in ADJECTIVE.items()}
CONTRACTED = {entry.english: entry.german for entry in entries(CONTRACTIONS)}
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
EARLY = {phrase.english for phrase in PHRASE["early"]}
OWN = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
COLOURS = ("black", "white", "brown", "red", "blue", "green", "grey")
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
        if adjective in COLOURS or adjective in thing.english:  # neither "very red" nor "the old car is old"
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
    author, seen = (
        Author(seed=2060),
        set[str](),
    )  # with this seed every word to test is in training four times
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 41_000:
        pair = author.write()
        if seen.isdisjoint(pair):
            seen.update(pair)
            pairs.append(pair)
    return pairs


def sentence_pairs(split: Literal["train", "valid", "test"]) -> list[tuple[str, str]]:
    """The (English, German) pairs of a split: every 82nd is for testing, the one behind it for validation."""
    places = {"test": range(1), "valid": range(1, 2), "train": range(2, 82)}[split]
    return [pair for index, pair in enumerate(corpus()) if index % 82 in places]
