"""Which columns are split at once, and that every output stays as it is."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from autoquant.rewrites.columns import split_columns
from tests.models import floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, npt.NDArray[np.generic]] = {
    **{f"n{i}": np.array(i) for i in range(5)},
    **{f"t{i}": floats(6, 3, seed=i) for i in range(5)},
    "last": np.array(-1),
    "list": np.array([1]),
    "one": np.array([1]),
    "two": np.array([2]),
}
FEED = {"x": np.random.default_rng(0).integers(0, 6, (7, 5))}


def column(i: int, *, number: str = "", axis: str = "one") -> str:
    return f"g{i} = Gather<axis=1>(x, {number or f'n{i}'}) r{i} = Gather(t{i}, g{i}) u{i} = Unsqueeze(r{i}, {axis})"


def model_with(body: str, n: int, *, opset: int = 21) -> onnx.ModelProto:
    whole = f"{body} y = Concat<axis=1>({', '.join(f'u{i}' for i in range(n))})"
    return model_of("(int64[N,5] x) => (float[N,M,3] y)", whole, used_in(whole, CONSTANTS), opset=opset)


def test_columns_that_are_looked_up_keep_their_axis() -> None:
    found = rewritten(split_columns, model_with(" ".join(map(column, range(4))), 4), FEED)
    assert op_types(found) == ["Split", *4 * ["Gather"], "Concat"]
    assert [node.name for node in found.graph.node if node.op_type == "Gather"] == ["r0", "r1", "r2", "r3"]


def test_they_may_be_taken_in_any_order_and_more_than_once() -> None:
    body = " ".join(column(i, number=number) for i, number in enumerate(("n3", "last", "n0", "n3", "n1")))
    found = rewritten(split_columns, model_with(body, 5), FEED)
    assert op_types(found) == ["Split", *5 * ["Gather"], "Concat"]


@pytest.mark.parametrize(
    "first",
    [
        "g0 = Gather<axis=1>(x, list) s0 = Squeeze(g0, one) r0 = Gather(t0, s0) u0 = Unsqueeze(r0, one)",
        "g0 = Gather<axis=1>(x, n0) r0 = Gather(t0, g0) v0 = Unsqueeze(r0, two) u0 = Transpose<perm=[0,2,1]>(v0)",
        "g0 = Gather<axis=1>(x, n0) h0 = Add(g0, n0) r0 = Gather(t0, h0) u0 = Unsqueeze(r0, one)",
        "g0 = Gather<axis=1>(x, n0) q0 = Add(g0, g0) r0 = Gather(t0, g0) u0 = Unsqueeze(r0, one)",
        "g0 = Gather<axis=1>(x, n0) r0 = Gather(t0, g0) q0 = Abs(r0) u0 = Unsqueeze(r0, one)",
    ],
    ids=["a list of one", "another axis", "another number", "read twice", "looked up for others"],
)
def test_others_stay(first: str) -> None:
    model = model_with(" ".join([first, *map(column, range(1, 4))]), 4)
    assert split_columns(model) is model
    found = rewritten(split_columns, model_with(" ".join([first, *map(column, range(1, 5))]), 5), FEED)
    assert op_types(found).count("Split") == 1
    assert op_types(found).count("Unsqueeze") == 1


def test_few_columns_stay() -> None:
    few = model_with(" ".join(map(column, range(3))), 3)
    assert split_columns(few) is few
