"""Attention that is recognised."""

import numpy as np
import pytest

from autoquant.model.attentions import attentions_of
from tests.attentions import CONSTANTS, FUSIBLE, OTHERWISE, PLAIN, SIGNATURE, D, H, S, a_case
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


def test_it_needs_an_opset_that_means_the_same_and_known_sizes() -> None:
    assert attentions_of(a_case(PLAIN).graph)
    assert not attentions_of(a_case(PLAIN, opset=20).graph)
    unknown = model_of(SIGNATURE.format(b="N"), PLAIN, CONSTANTS)
    assert not attentions_of(case_of(unknown, a_case(PLAIN).feed).graph)


def test_shapes_may_be_known_behind_a_reshape_alone() -> None:
    fixed = {**CONSTANTS, "heads": np.array([1, S, H, D])}
    model = model_of(SIGNATURE.format(b="N"), PLAIN, fixed)
    assert len(attentions_of(case_of(model, a_case(PLAIN).feed).graph)) == 1
