import numpy as np
import onnx
import pytest

from autoquant.domain.region import NodeName, TensorName
from autoquant.model.rewrite import with_outputs
from autoquant.model.segments import Segment, segments
from tests.graphs import U8S8_CHANNEL, case_of, opened
from tests.models import Array, a_convnet, a_residual_net, feed_of, floats, model_of


def run_in_parts(model: onnx.ModelProto, parts: list[Segment], feed: dict[str, Array]) -> dict[str, Array]:
    """What every part's last node writes, by tensor."""
    live, found = dict(feed), dict[str, Array]()
    for part in parts:
        session = opened(part.model({name: live[name].dtype for name in part.reads}), is_optimized=False)
        written = session.run(list(part.writes), {name: live[name] for name in part.reads})
        live = {name: array for name, array in live.items() if name in part.kept}
        live |= dict(zip(part.writes, written, strict=True))
        found[part.target] = live[part.target]
    return found


def convolutions(model: onnx.ModelProto) -> list[NodeName]:
    return [NodeName(node.name) for node in model.graph.node if node.op_type in ("Conv", "Gemm")]


@pytest.mark.parametrize("model", [a_convnet(), a_residual_net()])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_parts_one_after_the_other_compute_what_the_whole_does(model: onnx.ModelProto, is_quantized: bool) -> None:
    feed = feed_of(model)
    whole = case_of(model).quantized(U8S8_CHANNEL).model if is_quantized else model
    parts = list(segments(whole, convolutions(whole)[::-1]))
    assert [part.end for part in parts] == convolutions(whole)
    found = run_in_parts(whole, parts, dict(feed))
    names = [part.target for part in parts]
    session = opened(with_outputs(whole, dict.fromkeys(names)), is_optimized=False)
    for name, expected in zip(names, session.run(names, feed), strict=True):
        np.testing.assert_array_equal(found[name], expected)


def test_integers_go_from_part_to_part() -> None:
    whole = case_of(a_residual_net()).quantized(U8S8_CHANNEL).model
    first, *others = segments(whole, convolutions(whole))
    assert first.reads == ("x",)
    assert not [name for part in others for name in part.reads if "Dequantize" in name]


def test_what_no_later_part_reads_is_not_written() -> None:
    model = model_of(
        "(float[2,2] x) => (float[2,2] z, float[2,2] extra)",
        "a = Relu(x) extra = Neg(a) b = MatMul(a, w) z = Add(b, x)",
        {"w": floats(2, 2)},
    )
    (part,) = segments(model, [NodeName("b")])
    assert part.reads == ("x",)
    assert part.writes == ("b",)
    assert part.kept == {"b", "x"}
    assert [tensor.name for tensor in part.model({TensorName("x"): np.dtype(np.float32)}).graph.initializer] == ["w"]


def test_what_a_body_reads_goes_there() -> None:
    model = model_of(
        "(float[2,2] x, bool c) => (float[2,2] y)",
        """a = MatMul(x, w)
           b = If (c) <then_branch = t () => (float[2,2] p) { p = Add(a, w) },
                       else_branch = e () => (float[2,2] q) { q = Sub(a, x) }>
           y = MatMul(b, w)""",
        {"w": floats(2, 2)},
    )
    feed: dict[str, Array] = {"x": floats(2, 2), "c": np.array(True)}
    parts = list(segments(model, [NodeName("a"), NodeName("y")]))
    assert set(parts[1].reads) == {"a", "c", "x"}
    (expected,) = opened(model, is_optimized=False).run(None, feed)
    np.testing.assert_array_equal(run_in_parts(model, parts, feed)["y"], expected)


def test_outputs_and_inputs_that_are_left_out_go_nowhere() -> None:
    model = model_of(
        "(float[1,1,4,4] x, bool c) => (float[1,1,3,3] y)",
        """z, i = MaxPool<kernel_shape=[1,1]>(x)
           f = Cast<to=1>(i) a = Conv(f, w)
           b = If (c) <then_branch = t () => (float[1,1,4,4] p) { p = Clip(a, , h) },
                       else_branch = e () => (float[1,1,4,4] q) { q = Identity(a) }>
           y = Conv(b, v)""",
        {"w": floats(1, 1, 1, 1), "v": floats(1, 1, 2, 2), "h": 1.0},
    )
    model.graph.node[0].output[0] = ""
    parts = list(segments(model, [NodeName("a"), NodeName("y")]))
    assert all("" not in (*part.reads, *part.writes, *part.kept) for part in parts)
    assert set(parts[1].reads) == {"a", "c"}


SEQUENCE = "s = SplitToSequence<axis=1>(x, one)"
OF_A_BODY = """s = If (c) <then_branch = t () => (seq(float[2,1]) p) { p = SplitToSequence<axis=1>(x, one) },
                           else_branch = e () => (seq(float[2,1]) q) { q = SplitToSequence<axis=1>(x, one) }>"""


@pytest.mark.parametrize("body", [SEQUENCE, f"{SEQUENCE.replace('s =', 'r =')} s = Identity(r)", OF_A_BODY])
def test_nothing_is_cut_where_a_sequence_goes_on(body: str) -> None:
    model = model_of(
        "(float[2,2] x, bool c) => (float[2,3] y)",
        f"z = MatMul(x, w) {body} f = SequenceAt(s, first) a = MatMul(f, v) n = Add(a, z) g = SequenceAt(s, second)"
        " b = MatMul(g, v) d = Add(n, b) y = MatMul(d, u)",
        {
            "one": np.array(1),
            "first": np.array(0),
            "second": np.array(1),
            "v": floats(1, 3),
            "w": floats(2, 3),
            "u": floats(3, 3),
        },
    )
    feed: dict[str, Array] = {"x": floats(2, 2), "c": np.array(True)}
    parts = list(segments(model, [NodeName(name) for name in ("z", "a", "b", "y")]))
    assert [part.end for part in parts] == ["z", "b", "y"]
    (expected,) = opened(model, is_optimized=False).run(None, feed)
    np.testing.assert_array_equal(run_in_parts(model, parts, feed)["y"], expected)


def test_nothing_is_cut_where_no_node_ends_a_part() -> None:
    assert list(segments(a_convnet(), [])) == []
