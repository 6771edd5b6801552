"""Questions about facts: a second reading of the facts gives the same answers."""

import re
from collections import Counter

import pytest

from multihead.tasks.questions import ANSWERS, KINDS, NO, NOBODY, YES, Kind, make_question


def answer_of(facts: list[str], question: str) -> str:
    """Answer a question by replaying the sentences."""
    place: dict[str, str] = {}
    holder: dict[str, str | None] = {}
    left: dict[str, str] = {}
    for fact in facts:
        words = fact.removesuffix(" .").split()
        match words:
            case [person, "went", "to", "the", there]:
                place[person] = there
            case [person, "took", "the", thing]:
                assert holder.get(thing) is None and left.get(thing, place[person]) == place[person]
                holder[thing] = person
            case [person, "dropped", "the", thing]:
                assert holder[thing] == person
                holder[thing], left[thing] = None, place[person]
            case [person, "gave", "the", thing, "to", other]:
                assert holder[thing] == person and place[person] == place[other] and person != other
                holder[thing] = other
            case _:
                raise AssertionError(fact)

    def where(name: str) -> str:
        if name not in holder:
            return place[name]
        owner = holder[name]
        return place[owner] if owner else left[name]

    if found := re.fullmatch(r"where is (?:the )?(\w+) \?", question):
        return where(found[1])
    if found := re.fullmatch(r"who has the (\w+) \?", question):
        return holder[found[1]] or NOBODY
    found = re.fullmatch(r"is (?:the )?(\w+) in the (\w+) \?", question)
    assert found
    return YES if where(found[1]) == found[2] else NO


@pytest.mark.parametrize("n_facts", [1, 4, 8, 20])
def test_the_answer_follows_from_the_facts(n_facts: int) -> None:
    for seed in range(500):
        question = make_question(seed, n_facts)
        assert len(question.facts) == n_facts
        assert question.answer == answer_of(question.facts, question.question)
        assert question.answer in ANSWERS


def test_a_question_is_a_function_of_its_number() -> None:
    assert make_question(7) == make_question(7)
    assert len({make_question(seed).text for seed in range(1000)}) == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_be_chosen(kind: Kind) -> None:
    assert all(make_question(seed, kind=kind).kind == kind for seed in range(100))


def test_all_kinds_are_asked_and_no_answer_is_a_safe_guess() -> None:
    questions = [make_question(seed) for seed in range(3000)]
    assert min(Counter(question.kind for question in questions).values()) > 800
    answers = Counter(question.answer for question in questions)
    assert set(answers) == set(ANSWERS)
    assert max(answers.values()) < 0.25 * len(questions)
