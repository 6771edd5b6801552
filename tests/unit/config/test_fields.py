"""Settings are validated alike by our check of simple values and by pydantic."""

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from multihead.config.fields import conforms
from multihead.config.resolve import search_config
from multihead.config.schema import DataConfig, ModelConfig, ModelSearch, SearchConfig, TrainConfig
from multihead.errors import UsageError

SETTINGS: list[Any] = [ModelConfig, DataConfig, TrainConfig, ModelSearch, SearchConfig]
KINDS: dict[str, Any] = {f"{one.__name__}.{field.name}": field.type for one in SETTINGS for field in fields(one)}

values = st.one_of(
    st.integers(-2, 3),
    st.floats(-2, 3),
    st.sampled_from([float("nan"), float("inf"), 0.0, 1.0]),
    st.booleans(),
    st.none(),
    st.sampled_from(["auto", "attention", "post", "scaled", "1", "true", ""]),
    st.lists(st.integers(), max_size=1),
)


@given(st.sampled_from(sorted(KINDS)), values)
def test_a_value_that_conforms_is_one_that_pydantic_leaves_unchanged(name: str, value: object) -> None:
    try:
        validated = TypeAdapter(KINDS[name]).validate_python(value)
    except ValidationError:
        assert not conforms(value, KINDS[name])
    else:
        is_unchanged = type(validated) is type(value) and validated == value
        assert conforms(value, KINDS[name]) == is_unchanged


def test_other_values_are_converted() -> None:
    config = SearchConfig(beam="8", alpha=1, sample="yes")  # type: ignore[arg-type]
    assert (config.beam, config.alpha, config.sample) == (8, 1.0, True)
    assert isinstance(config.alpha, float)


@pytest.mark.parametrize(("name", "value"), [("beam", 0), ("alpha", -0.5), ("top_p", 0.0), ("top_p", 1.5)])
def test_a_value_outside_of_its_bounds_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"^{name}={value} must be (at least|more than|at most|less than)"):
        search_config(**{name: value})


def test_a_misspelled_search_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no setting 'bem'; did you mean 'beam'"):
        search_config(bem=4)


def test_settings_that_conform_need_no_pydantic() -> None:
    code = (
        "import sys; sys.modules['pydantic'] = None; from multihead.config import RunConfig; print(RunConfig().model)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "d_model=512" in result.stdout
