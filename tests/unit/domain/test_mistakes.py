from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoquant.domain.mistakes import Location, did_you_mean, first_mistake, key_of, unknown


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: Annotated[int, Field(ge=1)] = 1


class _Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: int = Field(alias="schema")
    inner: dict[str, list[_Inner]] = Field(default_factory=dict)


def table_at(location: Location) -> type[BaseModel]:
    return _Outer if len(location) == 1 else _Inner


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"schema": 1, "sechma": 1}, "sechma: 'sechma' is unknown, did you mean 'schema'?"),
        ({"schema": 1, "version": 1}, "version: 'version' is unknown, choose from: inner, schema"),
        ({}, "schema: this key is missing, add it"),
        ({"schema": 1, "inner": {"a.b": [{}, {"sise": 1}]}}, "inner.\"a.b\"[1].sise: 'sise' is unknown, did you mean"),
        (
            {"schema": 1, "inner": {"a": [{"size": 0}]}},
            "inner.a[0].size: input should be greater than or equal to 1, it is 0",
        ),
    ],
)
def test_the_first_mistake_is_told_with_its_key(content: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Outer.model_validate(content)
    assert first_mistake(caught.value, table_at).startswith(expected)


def test_keys_are_spelled_as_in_the_file() -> None:
    assert key_of(("rules", 2, "op_types")) == "rules[2].op_types"
    assert key_of(("schemes", "p99.9", "weight")) == 'schemes."p99.9".weight'


def test_a_word_that_is_close_to_none_is_told_with_all_that_are_known() -> None:
    assert did_you_mean("kiwi", ["b", "a"]) == ""
    assert unknown("kiwi", ["b", "a"]) == "'kiwi' is unknown, choose from: a, b"
