"""Groups of channels that are normalised."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.rewrites.groups import spell_group_norms
from tests.models import floats, model_of, op_types
from tests.rewriting import rewritten

WRITTEN = ["Reshape", "InstanceNormalization", "Shape", "Reshape", "Reshape", "Reshape", "Mul", "Add"]


def a_model(shape: str, n_channels: int, attributes: str, opset: int = 21) -> onnx.ModelProto:
    body = f"h = Relu(x) y = GroupNormalization<{attributes}>(h, s, b)"
    constants = {"s": floats(n_channels), "b": floats(n_channels, seed=1)}
    return model_of(f"(float[{shape}] x) => (float[{shape}] y)", body, constants, opset=opset)


@given(
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from(["", ", epsilon=0.1"]),
)
def test_groups_are_instances(n: int, n_groups: int, width: int, places: list[int], epsilon: str) -> None:
    shape = ",".join(map(str, (n, n_groups * width, *places)))
    model = a_model(shape, n_groups * width, f"num_groups={n_groups}{epsilon}")
    found = rewritten(spell_group_norms, model, rtol=1e-4, atol=1e-4)
    assert op_types(found) == ["Relu", *WRITTEN]


def test_sizes_need_not_be_known() -> None:
    model = a_model("N,6,H,5", 6, "num_groups=3")
    found = rewritten(spell_group_norms, model, {"x": floats(2, 6, 4, 5)}, rtol=1e-4, atol=1e-4)
    assert op_types(found) == ["Relu", *WRITTEN]


def test_what_is_not_normalised_in_groups_of_channels_stays() -> None:
    model = model_of("(float[1,4] x) => (float[1,4] y)", "y = Relu(x)", {})
    assert spell_group_norms(model) is model


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_types_stay(dtype: str) -> None:
    to, kind = (10, np.float16) if dtype == "float16" else (11, np.float64)
    body = f"h = Cast<to={to}>(x) g = GroupNormalization<num_groups=2>(h, s, b) y = Cast<to=1>(g)"
    constants = {"s": floats(4).astype(kind), "b": floats(4).astype(kind)}
    model = model_of("(float[2,4,3] x) => (float[2,4,3] y)", body, constants, opset=21)
    assert op_types(spell_group_norms(model)) == ["Cast", "GroupNormalization", "Cast"]


def test_without_its_kind_nothing_is_written() -> None:
    """Whether the sizes of its input are unknown or the opset is older, where scales are of groups."""
    body = "r = Reshape(x, n) h = Relu(r) y = GroupNormalization<num_groups=2>(h, s, b)"
    constants = {"s": floats(4), "b": floats(4)}
    unknown = model_of("(float[24] x, int64[K] n) => (float[] y)", body, constants, opset=21)
    assert spell_group_norms(unknown) is unknown
    old = a_model("2,4,3", 2, "num_groups=2", opset=18)
    assert spell_group_norms(old) is old
