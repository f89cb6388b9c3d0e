import numpy as np
import numpy.typing as npt
import pytest

from autoquant.domain.region import TensorName
from autoquant.equalisation.channels import Tracing, trace
from autoquant.equalisation.rules import RULES
from autoquant.equalisation.ties import FIXED
from autoquant.model.graph import Graph
from tests.models import a_convnet, a_mlp, floats, model_of


def test_without_rules_every_tensor_keeps_its_scale() -> None:
    channels = trace(Graph(a_convnet()), {})
    assert (channels.n, channels.labels, channels.constants) == (1, {}, ())


def test_channels_begin_in_a_weight_and_its_bias_and_end_in_the_next_weight() -> None:
    graph = Graph(a_convnet())
    channels = trace(graph, RULES)
    assert list(channels.labels) == ["a", "a_relu", "b", "b_relu", "c", "pooled", "flat"]
    assert channels.n == 1 + 3 * 8
    changed = [
        (str(graph.nodes[found.node].inputs[found.slot]), bool(found.times.any()), bool(found.over.any()))
        for found in channels.constants
    ]
    assert changed == [
        ("wa", False, True),
        ("ba", False, True),
        ("wb", True, True),
        ("bb", False, True),
        ("wc", True, True),
        ("wy", True, False),
    ]


def test_tensors_of_unknown_rank_keep_their_scale_and_those_of_unknown_sizes_need_not() -> None:
    model = a_mlp()
    assert trace(Graph(model), RULES).n > 1
    del model.graph.value_info[:]
    assert trace(Graph(model), RULES).n == 1


@pytest.mark.parametrize(
    "body",
    [
        "h = Gemm(x, w) b = Slice(h, e, m, e2) c = Concat<axis = 1>(h, b) y = Gemm(c, w2)",
        "h = Gemm(x, w) b = Slice(h, e, e, e2) z = MatMul(b, none) c = Add(h, z) y = Gemm(c, w2)",
    ],
    ids=["concatenated", "multiplied"],
)
def test_what_holds_nothing_keeps_its_scale(body: str) -> None:
    constants: dict[str, npt.NDArray[np.generic] | float] = {
        "w": floats(4, 8),
        "w2": floats(8, 2),
        "none": np.zeros((0, 8), np.float32),
        "e": np.array([8]),
        "m": np.array([2**31 - 1]),
        "e2": np.array([1]),
    }
    model = model_of("(float[1,4] x) => (float[1,2] y)", body, constants)
    channels = trace(Graph(model), RULES)
    assert "h" not in channels.labels


def test_a_shape_that_is_declared_wrongly_ends_what_follows_it() -> None:
    body = "h = Gemm(x, w) r = Reshape(h, s) y = Relu(r)"
    constants: dict[str, npt.NDArray[np.generic] | float] = {"w": floats(4, 8), "s": np.array([2, 4])}
    model = model_of("(float[1,4] x) => (float[2,4] y)", body, constants)
    for value in model.graph.value_info:
        if value.name == "r":
            value.type.tensor_type.shape.dim[0].dim_value = 3
    assert trace(Graph(model), RULES).n == 1


def test_constants_that_are_scaled_are_finite_float32() -> None:
    constants: dict[str, npt.NDArray[np.generic] | float] = {
        "good": floats(4),
        "huge": np.full(4, 1e38, np.float32),
        "whole": np.arange(4),
    }
    tracing = Tracing(Graph(model_of("(float[4] x) => (float[4] y)", "y = Relu(x)", constants)))
    found = {name: tracing.is_scalable(TensorName(name)) for name in (*constants, "x", "nowhere")}
    assert found == {"good": True, "huge": False, "whole": False, "x": False, "nowhere": False}


def test_what_is_read_inside_a_body_or_is_no_float_keeps_its_scale() -> None:
    body = """a = Conv(x, w) i = Cast<to=7>(a)
              y = If(flag) <then_branch = t () => (float[1,4,6,6] u) { u = Relu(a) },
                            else_branch = e () => (float[1,4,6,6] v) { v = Identity(a) }>"""
    model = model_of("(float[1,4,6,6] x, bool flag) => (float[1,4,6,6] y)", body, {"w": floats(4, 4, 1, 1)})
    tracing = Tracing(Graph(model))
    for name in ("a", "i"):
        made = tracing.ties.fresh(4).reshape(1, 4, 1, 1)
        tracing.put(TensorName(name), made)
        assert tracing.ties.is_fixed(made)
        assert (tracing.of(TensorName(name)) == FIXED).all()
