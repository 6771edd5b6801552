"""Words, noun phrases and clauses of the embedded corpus, in English and in German.

A `Clause` is who does what to whom; it is put into words twice: English keeps subject, verb and object together;
German moves the verb, declines the nouns and splits separable verbs.
"""

import re
from dataclasses import dataclass
from functools import cache

from tools.embedded_corpus.lexicon import ADJECTIVES, CONTRACTIONS, ENDINGS, IRREGULAR, MODES, NUMBERS, PHRASES

NOM, ACC, DAT, GEN = range(4)
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


# What the rules above look up

BY_PERSON, MODE = table(IRREGULAR), table(MODES)
ENDING = {name: dict(zip("mfnp", map(words, forms), strict=True)) for name, *forms in rows(ENDINGS)}
ADJECTIVE = {entry.english: entry.german for entry in entries(ADJECTIVES)}
# dunkel and teuer lose an e before an ending
STEM = {english: re.sub("e(?=l$|(?<=ue)r$)", "", german) for english, german in ADJECTIVE.items()}
CONTRACTED = {entry.english: entry.german for entry in entries(CONTRACTIONS)}
EARLY = {phrase.english for name, phrases in rows(PHRASES) if name == "early" for phrase in entries(phrases)}
