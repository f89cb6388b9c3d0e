"""Attention that is recognised."""

import numpy as np
import pytest

from autoquant.model.attentions import attentions_of
from tests.attentions import (
    ANY_LENGTH,
    CONSTANTS,
    FUSIBLE,
    LENGTHS_LEFT,
    OF_ANY_LENGTH,
    OTHERWISE,
    PLAIN,
    SIGNATURE,
    D,
    H,
    S,
    a_case,
    a_case_of_any_length,
)
from tests.graphs import case_of
from tests.models import model_of


@pytest.mark.parametrize("body", FUSIBLE.values(), ids=FUSIBLE)
def test_it_is_found_whatever_its_spelling(body: str) -> None:
    case = a_case(body)
    (found,) = attentions_of(case.graph).values()
    assert found.shape[:3] == (1, H, S)
    assert [node.op_type for node in found.nodes[-2:]] == ["MatMul", "Transpose"]
    assert {"Softmax", "MatMul"} <= {node.op_type for node in found.nodes}


@pytest.mark.parametrize("body", OTHERWISE.values(), ids=OTHERWISE)
def test_what_only_resembles_it_is_not(body: str) -> None:
    assert not attentions_of(a_case(body).graph)


def test_it_needs_an_opset_that_means_the_same() -> None:
    assert attentions_of(a_case(PLAIN).graph)
    assert not attentions_of(a_case(PLAIN, opset=20).graph)


@pytest.mark.parametrize("name", OF_ANY_LENGTH)
def test_lengths_may_be_left_open(name: str) -> None:
    (found,) = attentions_of(a_case_of_any_length(FUSIBLE[name]).graph).values()
    assert found.sizes("queries") == (1, -1, H, D)
    assert found.sizes("keys") == (1, -1, H, D)
    assert found.sizes("scores") == (1, H, -1, -1)
    assert found.sizes("written")[:2] == (1, -1)


def test_so_may_the_batch() -> None:
    graph = case_of(model_of(SIGNATURE.format(b="N"), PLAIN, CONSTANTS), a_case(PLAIN).feed).graph
    (found,) = attentions_of(graph).values()
    assert found.sizes("values") == (-1, S, H, D)
    assert found.sizes("scores") == (-1, H, S, S)


@pytest.mark.parametrize(
    ("signature", "rows"),
    [
        (ANY_LENGTH.replace("1,N,32", "B,N,32"), [0, -1, H, D]),
        (ANY_LENGTH.replace("1,N,32", "1,?,32"), [1, -1, H, D]),
        (ANY_LENGTH, [-1, S, H, D]),
    ],
    ids=["batch and length", "a length without a name", "a batch of as many as fit"],
)
def test_what_no_reshape_can_say_stays(signature: str, rows: list[int]) -> None:
    constants = {**CONSTANTS, **LENGTHS_LEFT, "heads": np.array(rows), "rows": np.array([*rows[:2], 32])}
    assert not attentions_of(case_of(model_of(signature, PLAIN, constants), a_case(PLAIN).feed).graph)


def test_shapes_may_be_known_behind_a_reshape_alone() -> None:
    fixed = {**CONSTANTS, "heads": np.array([1, S, H, D])}
    model = model_of(SIGNATURE.format(b="N"), PLAIN, fixed)
    assert len(attentions_of(case_of(model, a_case(PLAIN).feed).graph)) == 1
