"""Which scales of what a Concat joins are those of the Concat."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import Scheme
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, optimized, run, scheme
from tests.models import constants_of, floats, model_of

IMAGE = "float[1,4,6,6]"
TWO = "a = Conv(x, v) b = Conv(x, w)"
LAST = "y = Conv(j, z)"


def a_case(body: str, outputs: str = f"{IMAGE} y", *, ratio: float = 3.0) -> Case:
    """``a`` covers less than ``b`` by a ratio."""
    w = floats(4, 4, 1, 1)
    constants = {"w": w, "v": w / np.float32(ratio), "z": floats(4, 8, 1, 1), "u": floats(4, 4, 1, 1, seed=2)}
    return case_of(model_of(f"({IMAGE} x) => ({outputs})", body, constants))


def roots(case: Case, taken: Scheme = U8S8_CHANNEL, *, without: str = "") -> dict[str, str]:
    """Whose range each tensor has that is quantized where it is written."""
    plan = case.quantized(exact(taken), dict.fromkeys(without.split())).plan
    return {tensor: key.root for tensor, key in plan.produced.items()}


@pytest.mark.parametrize(
    "joined",
    [
        f"{TWO} j = Concat<axis=1>(a, b)",
        "c = Conv(x, v) a = Relu(c) d = Conv(x, w) b = Relu(d) j = Concat<axis=1>(a, b)",
        f"{TWO} p = MaxPool<kernel_shape=[1,1]>(a) j = Concat<axis=1>(p, b)",
        "c = Conv(x, v) d = Conv(x, w) a = Sigmoid(c) b = Add(d, x) j = Concat<axis=1>(a, b)",
    ],
)
def test_what_a_concat_alone_reads_is_written_on_its_scale(joined: str, tmp_path: Path) -> None:
    case = a_case(f"{joined} {LAST}")
    found = roots(case)
    assert found["a"] == found["b"] == found["j"] == "j"
    ours = case.quantized(exact(U8S8_CHANNEL)).model
    assert {"j", "y"} <= optimized(ours, tmp_path).integer_nodes
    (output,), (expected,) = run(ours, case.feed), run(case.graph.model, case.feed)
    assert 10 * np.log10((expected**2).sum() / ((output - expected) ** 2).sum()) > 25


def test_concats_of_concats_have_the_last_scale() -> None:
    body = f"{TWO} i = Concat<axis=1>(a, b) c = Conv(i, z) d = Conv(x, u) k = Concat<axis=2>(c, d) e = Conv(x, w)"
    found = roots(a_case(f"{body} y = Concat<axis=2>(k, e)", "float[1,4,18,6] y"))
    assert found == {"a": "i", "b": "i", "i": "i", "c": "y", "d": "y", "k": "y", "e": "y", "y": "y"}


def test_what_a_pool_means_is_not_clipped_to_the_range_of_its_means() -> None:
    pool = "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>"
    case = a_case(f"s = Add(x, x) p = {pool}(s) b = Conv(x, v) j = Concat<axis=1>(p, b) {LAST}")
    found = roots(case)
    assert found["p"] == found["s"] == "s"
    assert found["b"] == "j"


@pytest.mark.parametrize(("ratio", "is_shared"), [(1.0, True), (1.1, True), (1.3, False)])
def test_what_others_read_too_becomes_hardly_coarser(ratio: float, is_shared: bool) -> None:
    case = a_case(f"{TWO} j = Concat<axis=1>(a, b) e = Conv(a, u) f = Conv(j, z) y = Add(e, f)", ratio=ratio)
    assert roots(case)["a"] == ("j" if is_shared else "a")


def test_what_two_concats_join_is_clipped_by_neither_less_than_before() -> None:
    """``r`` takes the scale of one Concat; that of the other one has values below 0."""
    body = (
        "c = Conv(x, w) r = Relu(c) d = Conv(x, v) s = Relu(d) e = Conv(x, w) t = LeakyRelu<alpha=0.13>(e)"
        " j = Concat<axis=1>(r, t) k = Concat<axis=1>(r, s) f = Conv(j, z) g = Conv(k, z) y = Add(f, g)"
    )
    case = a_case(body)
    assert roots(case)["r"] == "k"
    (output,), (expected,) = run(case.quantized(exact(U8S8_CHANNEL)).model, case.feed), run(case.graph.model, case.feed)
    assert 10 * np.log10((expected**2).sum() / ((output - expected) ** 2).sum()) > 30


def test_what_others_read_too_is_not_cut_off() -> None:
    """A hard swish makes the range of the Concat begin at -3, where another reader needs less."""
    w = floats(4, 4, 1, 1)
    constants = {"w": w, "u": floats(4, 4, 1, 1, seed=2), "z": floats(4, 8, 1, 1)}
    low, high = np.full(4, -2, np.float32), np.full(4, 2, np.float32)
    body = (
        "a = Conv(x, w, low) b = Conv(x, w, high) j = Concat<axis=1>(a, b) h = HardSigmoid<alpha=0.16666667>(j)"
        " m = Mul(j, h) e = Conv(a, u) f = Conv(m, z) y = Add(e, f)"
    )
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, {**constants, "low": low, "high": high}))
    assert roots(case)["a"] == "a"


@pytest.mark.parametrize("ratio", [1.1, 3.0])
def test_outputs_of_the_graph_keep_their_scale(ratio: float) -> None:
    found = roots(a_case(f"{TWO} j = Concat<axis=1>(a, b) {LAST}", f"{IMAGE} y, {IMAGE} a", ratio=ratio))
    assert (found["a"], found["b"]) == ("a", "j")


@pytest.mark.parametrize(
    "made",
    [
        "g = GlobalAveragePool(x) a = Resize(g, none, none, sizes)",
        "c = Conv(x, v) a = Softmax<axis=1>(c)",
        "c = Conv(x, v) a = HardSigmoid(c)",
    ],
)
def test_what_is_written_on_a_scale_of_its_own_keeps_it(made: str) -> None:
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)",
        f"{made} b = Conv(x, w) j = Concat<axis=1>(a, b) {LAST}",
        {
            "w": 9 * floats(4, 4, 1, 1),
            "v": floats(4, 4, 1, 1),
            "z": floats(4, 8, 1, 1),
            "none": np.zeros(0, np.float32),
            "sizes": np.array([1, 4, 6, 6]),
        },
    )
    found = roots(case_of(model))
    assert found["a"] != "j"
    assert found["b"] == "j"


def test_a_relu_that_the_scale_of_the_concat_would_not_make_redundant_keeps_its_own() -> None:
    found = roots(a_case(f"c = Conv(x, v) a = Relu(c) b = Conv(x, w) j = Concat<axis=1>(a, b) {LAST}"))
    assert (found["a"], found["b"]) == ("a", "j")


def test_other_types_and_float_concats_leave_scales_as_they_are() -> None:
    case = a_case(f"{TWO} j = Concat<axis=1>(a, b) {LAST}")
    assert roots(case, without="j") == {"a": "a", "b": "b", "y": "y"}
    wide = scheme("u16:tensor:asym", "s8:channel:sym")
    plan = case.quantized(exact(U8S8_CHANNEL), {"a": wide}).plan
    assert plan.produced[TensorName("a")].root == "a"
    assert plan.produced[TensorName("b")].root == "j"


def test_integers_are_copied(tmp_path: Path) -> None:
    """Equal scales and zero points are what QLinearConcat copies by."""
    ours: onnx.ModelProto = a_case(f"{TWO} j = Concat<axis=1>(a, b) {LAST}").quantized(exact(U8S8_CHANNEL)).model
    pairs = [node for node in ours.graph.node if node.op_type == "QuantizeLinear" and node.input[0] in ("a", "b", "j")]
    assert len(pairs) == 3
    assert len({tuple(node.input[1:]) for node in pairs}) == 1
    assert {constants_of(ours)[name].size for name in pairs[0].input[1:]} == {1}
    assert "j" in optimized(ours, tmp_path).integer_nodes
