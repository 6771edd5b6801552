"""English sentences with their constituency trees from a small grammar, for trying a parser without a treebank.

A sentence is a function of its number. Prepositional phrases are attached to verbs or nouns by the preposition, so that
there is something to learn; the sentences are far simpler than real ones.
"""

import random

_WORDS = {
    "DT": "the a this every some".split(),
    "NN": "cat dog child teacher garden house book letter train river friend doctor song window".split(),
    "NNS": "cats dogs children teachers gardens houses books letters trains rivers friends doctors".split(),
    "NNP": "Anna Ben Clara David Berlin Paris Emma Oslo".split(),
    "JJ": "old small green quiet happy young new long".split(),
    "PRP": "she he they it we".split(),
    "VBD": "saw found liked painted heard followed remembered".split(),
    "INTRANSITIVE": "slept laughed waited sang left arrived".split(),
    "SAYING": "said thought knew hoped".split(),
    "MD": "can will must should".split(),
    "VB": "see find like paint hear follow".split(),
    "RB": "often never quickly today again".split(),
    "IN": "in near behind with".split(),
    "CC": "and or".split(),
}


def make_tree(seed: int) -> str:
    """Return a tree in treebank brackets."""
    rng = random.Random(seed)
    mark = rng.choice([".", ".", ".", "!"])
    return f"(ROOT (S {_clause(rng, 2)} (. {mark})))"


def _word(rng: random.Random, tag: str, kind: str | None = None) -> str:
    return f"({tag} {rng.choice(_WORDS[kind or tag])})"


def _clause(rng: random.Random, depth: int) -> str:
    """Return a subject and a verb phrase."""
    adverb = "(ADVP (RB " + rng.choice(["Today", "Often", "Again"]) + ")) (, ,) " if rng.random() < 0.1 else ""
    return f"{adverb}{_noun_phrase(rng, depth, '-SBJ')} {_verb_phrase(rng, depth)}"


def _noun_phrase(rng: random.Random, depth: int, function: str = "") -> str:
    roll = rng.random()
    if roll < 0.2:
        return f"(NP{function} {_word(rng, 'PRP')})"
    if roll < 0.35:
        return f"(NP{function} {_word(rng, 'NNP')})"
    adjective = f" {_word(rng, 'JJ')}" if rng.random() < 0.3 else ""
    noun = f"(NP {_word(rng, 'DT')}{adjective} {_word(rng, 'NN')})"
    if rng.random() < 0.3:
        noun = f"(NP{adjective} {_word(rng, 'NNS')})".replace("(NP ", "(NP ", 1)
    if not depth:
        return noun.replace("(NP", f"(NP{function}", 1)
    if roll < 0.5:
        return f"(NP{function} {noun} (PP (IN of) {_noun_phrase(rng, depth - 1)}))"
    if roll < 0.58:
        return f"(NP{function} {noun} {_word(rng, 'CC')} {_noun_phrase(rng, 0)})"
    if roll < 0.68:
        return f"(NP{function} {noun} (SBAR (WHNP (WDT that)) (S {_verb_phrase(rng, depth - 1)})))"
    return noun.replace("(NP", f"(NP{function}", 1)


def _verb_phrase(rng: random.Random, depth: int) -> str:
    roll = rng.random()
    adverb = f"(ADVP {_word(rng, 'RB')}) " if rng.random() < 0.15 else ""
    if depth and roll < 0.15:
        return f"(VP {_word(rng, 'VBD', 'SAYING')} (SBAR (IN that) (S {_clause(rng, depth - 1)})))"
    if roll < 0.3:
        return f"(VP {_word(rng, 'MD')} (VP {adverb}{_word(rng, 'VB')} {_noun_phrase(rng, max(0, depth - 1))}))"
    place = f" (PP-LOC {_word(rng, 'IN')} {_noun_phrase(rng, max(0, depth - 1))})" if rng.random() < 0.4 else ""
    if roll < 0.55:
        return f"(VP {adverb}{_word(rng, 'VBD', 'INTRANSITIVE')}{place})"
    return f"(VP {adverb}{_word(rng, 'VBD')} {_noun_phrase(rng, max(0, depth - 1))}{place})"
