"""Shuffled channels."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.shuffles import gather_channels
from tests.models import Array, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: dict[str, Array] = {
    "apart": np.array([2, 3, 4, 5, 6]),
    "lines": np.array([2, 3, 4, 30]),
    "whole": np.array([2, 12, 5, 6]),
    "other": np.array([2, 12, 30]),
    "unlike": np.array([2, 3, 4, 6, 5]),
    "halves": np.array([5, 7]),
    "zeroth": np.array([0]),
    "five": np.array([5]),
    "back": np.array([-7]),
    "far": np.array([99]),
    "channels": np.array([1]),
    "rows": np.array([2]),
    "two": np.array([2]),
}
SHUFFLED = "a = Reshape(x, apart) t = Transpose<perm=[0,2,1,3,4]>(a) s = Reshape(t, whole)"


def a_model(body: str, written: str = "float[] y", sizes: str = "2,12,5,6") -> onnx.ModelProto:
    return model_of(f"(float[{sizes}] x) => ({written})", body, used_in(body, CONSTANTS))


def left_of(model: onnx.ModelProto) -> list[str]:
    found = rewritten(gather_channels, model)
    assert (found is model) is (op_types(found) == op_types(model))
    return op_types(found)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("y = Neg(s)", ["Gather", "Neg"]),
        ("p, q = Split<axis=1>(s, halves) y = Concat<axis=1>(q, p)", ["Gather", "Gather", "Concat"]),
        ("p = Slice(s, zeroth, five, channels) q = Slice(s, back, far, channels) y = Concat<axis=1>(q, p)",
         ["Gather", "Gather", "Concat"]),
        ("p = Slice(s, zeroth, five, channels) n = Neg(s) y = Concat<axis=1>(n, p)",
         ["Gather", "Slice", "Neg", "Concat"]),
        ("y = Slice(s, zeroth, five, rows)", ["Gather", "Slice"]),
        ("y = Slice(s, zeroth, far, channels, two)", ["Gather", "Slice"]),
        ("p, q = Split<axis=2,num_outputs=2>(s) y = Concat<axis=2>(q, p)", ["Gather", "Split", "Concat"]),
    ],
    ids=["all", "split", "slices", "all beside a part", "rows", "every second", "split rows"],
)  # fmt: skip
def test_a_shuffle_is_a_gather(behind: str, expected: list[str]) -> None:
    model = a_model(f"{SHUFFLED} {behind}")
    assert left_of(model) == expected


def test_what_is_written_out_is_gathered_whole() -> None:
    model = a_model(f"{SHUFFLED} y = Slice(s, zeroth, five, channels)", "float[] y, float[] s")
    assert left_of(model) == ["Gather", "Slice"]


@pytest.mark.parametrize(
    "body",
    [
        SHUFFLED.replace("[0,2,1,3,4]", "[0,1,2,4,3]").replace("s =", "y ="),
        SHUFFLED.replace("whole", "other").replace("s =", "y ="),
        SHUFFLED.replace("apart", "unlike").replace("s =", "y ="),
        SHUFFLED.replace("apart", "lines").replace("[0,2,1,3,4]", "[0,2,1,3]").replace("s =", "y ="),
        "t = Transpose<perm=[0,1,3,2]>(x) y = Reshape(t, whole)",
        "y = Reshape(x, other)",
    ],
    ids=["places turned", "another shape", "places too", "lines", "no groups", "a shape"],
)
def test_others_stay(body: str) -> None:
    model = a_model(body)
    assert left_of(model) == op_types(model)


def test_of_unknown_sizes_it_stays() -> None:
    model = a_model(f"{SHUFFLED} y = Neg(s)", sizes="2,12,n,6")
    assert gather_channels(model) is model
