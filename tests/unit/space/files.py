"""Space files that tests write."""

from pathlib import Path

import pytest

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.space import SpaceDefinition
from autoquant.errors import SpaceError
from autoquant.space.schema import read_space

__all__ = ["GROUP", "RULE", "SCHEME_A", "SCHEME_B", "SECTION", "read", "refused", "text"]

SECTION = """
schemes = ["a", "b"]
op_types = ["Conv", "Add"]
"""
SCHEME_A = """
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "min-max"
"""
SCHEME_B = """
activation = "s8:tensor:sym"
weight = "u8:tensor:asym"
ranges = "percentile-99.99"
operators = "linear"
"""
RULE = """
op_types = ["Softmax"]
nodes = "^/head/"
schemes = ["float", "a"]
"""
GROUP = """
name = "head"
nodes = "^/head/"
"""


def text(
    *,
    schema: str = "schema = 1",
    section: str = SECTION,
    scheme_a: str = SCHEME_A,
    scheme_b: str = SCHEME_B,
    rule: str = RULE,
    group: str = GROUP,
    more: str = "",
) -> str:
    return (
        f"{schema}\n[ep.cpu]{section}[schemes.a]{scheme_a}[schemes.b]{scheme_b}[[rules]]{rule}[[groups]]{group}\n{more}"
    )


def read(folder: Path, content: str, *, ep: str = "cpu", accuracy: Accuracy | None = None) -> SpaceDefinition:
    path = folder / "cnn.toml"
    path.write_text(content, encoding="utf-8")
    return read_space(str(path), ep=ep, accuracy=accuracy)


def refused(folder: Path, content: str, *, ep: str = "cpu") -> str:
    with pytest.raises(SpaceError) as error:
        read(folder, content, ep=ep)
    return str(error.value).removeprefix(f"{folder}/")
