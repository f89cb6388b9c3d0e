import numpy as np
import onnx

from autoquant.graph.levels import are_alike, levels_of
from tests.branching import RATE, a_branching_model, feed_at, two_branches
from tests.models import floats, model_of, op_types, outputs_of

W = {"w": floats(2, 2)}


def nested(second: str = "Neg") -> onnx.ModelProto:
    """An If in a branch, of which the other side is one operator."""
    inner = two_branches("p = Gemm(h, w)", f"q = {second}(h)", "t", "d", "pq")
    body = two_branches(f"h = Gemm(x, w) {inner}", "e = Neg(x)")
    return model_of("(float[N,2] x, bool c, bool d) => (float[N,2] y)", body, W)


def feed(*, c: bool = True, d: bool = True) -> dict[str, np.ndarray]:
    return {"x": floats(2, 2), "c": np.array(c), "d": np.array(d)}


def test_ifs_in_branches_that_are_taken_are_a_level_behind() -> None:
    levels, model = levels_of(nested(), [feed()] * 2)
    assert [[(choice.condition, holds) for choice, holds in level.same] for level in levels] == [
        [("c", True)],
        [("d", True)],
    ]
    assert op_types(model) == ["Gemm", "Gemm"]
    assert [op_types(level.with_branches(taken=False)) for level in levels] == [["Neg"], ["Gemm", "Neg"]]


def test_what_samples_choose_unlike_ends_the_levels() -> None:
    levels, model = levels_of(nested(), [feed(), feed(d=False)])
    assert [len(level.same) for level in levels] == [1, 0]
    assert [choice.condition for choice in levels[1].others] == ["d"]
    assert op_types(model) == ["Gemm", "If"]
    np.testing.assert_array_equal(outputs_of(model, feed(d=False))[0], outputs_of(nested(), feed(d=False))[0])
    levels, model = levels_of(nested(), [feed(), feed(c=False)])
    assert [len(level.same) for level in levels] == [0]
    assert op_types(model) == ["If"]


def test_branches_that_no_sample_takes_are_compared_on_each_level() -> None:
    given, _ = levels_of(nested(), [feed()])
    assert are_alike(given, given, feed())
    assert not are_alike(given, levels_of(nested("Abs"), [feed()])[0], feed())
    assert not are_alike(given, given[:1], feed())


def test_what_takes_no_sample_is_not_compared() -> None:
    levels, _ = levels_of(a_branching_model(), [feed_at(RATE)])
    assert are_alike(levels, levels, {"x": floats(2, 7), "rate": np.array(RATE)})
