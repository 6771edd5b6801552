"""Tasks on sequences of digits: each target follows from its source."""

import pytest

from multihead.tasks.sequences import SEQUENCE_TASKS


def expected(name: str, source: str) -> list[str]:
    if name == "add":
        one, other = (int(number.replace(" ", "")) for number in source.split(" + "))
        return list(str(one + other))
    words = source.split()
    return {"copy": words, "reverse": [*reversed(words)], "sort": sorted(words)}[name]


@pytest.mark.parametrize("name", SEQUENCE_TASKS)
def test_the_target_follows_from_the_source(name: str) -> None:
    for seed in range(300):
        source, target = SEQUENCE_TASKS[name](seed)
        assert target.split() == expected(name, source)


@pytest.mark.parametrize("name", SEQUENCE_TASKS)
def test_a_pair_is_a_function_of_its_number(name: str) -> None:
    assert SEQUENCE_TASKS[name](3) == SEQUENCE_TASKS[name](3) != SEQUENCE_TASKS[name](4)
