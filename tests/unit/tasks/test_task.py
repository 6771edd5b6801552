"""Tasks as corpora."""

import pytest

from multihead.config.resolve import configure
from multihead.errors import UsageError
from multihead.tasks.task import N_TEST, N_VALID, SMALL, distinct, make_task


def test_the_settings_of_tasks_are_settings() -> None:
    assert configure(SMALL).model.d_model == 64


def test_a_task_has_separate_examples_for_each_purpose() -> None:
    task = make_task("reverse")
    groups = [set(task.text.train), set(task.text.valid or ()), {(s.encode(), t.encode()) for s, t in task.test}]
    assert [len(group) for group in groups[1:]] == [N_VALID, N_TEST]
    assert len(set.union(*groups)) == sum(map(len, groups))


def test_the_text_of_a_task_is_identified_by_its_content() -> None:
    assert make_task("copy").text.sums == make_task("copy").text.sums != make_task("sort").text.sums


def test_examples_are_not_repeated() -> None:
    assert distinct(lambda seed: seed // 2, [3, 2, 1]) == [[3, 4, 5], [1, 2], [0]]


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="reverse"):
        make_task("revers")
