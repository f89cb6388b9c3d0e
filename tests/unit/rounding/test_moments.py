from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.model.copies import to_bytes
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_outputs
from autoquant.rounding import moments as module
from autoquant.rounding import products
from autoquant.rounding.moments import Moments, readers_of
from autoquant.runtime.session import Session, open_session
from tests.models import Array, Floats, floats, model_of

W, V = TensorName("w"), TensorName("v")
TWO_LAYERS = model_of(
    "(float[3,4] x) => (float[3,2] y)",
    "h = MatMul(x, w) y = Gemm <transB=1> (h, v)",
    {"w": floats(4, 5), "v": floats(2, 5)},
)
X = floats(5, 3, 4)
FEEDS: list[Feed] = [{"x": sample} for sample in X]


class Opener:
    """Opens sessions of a graph and remembers which activations they had to give."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.asked: list[list[TensorName]] = []

    def __call__(self, tensors: Sequence[TensorName]) -> Session:
        self.asked.append(list(tensors))
        model = with_outputs(self.graph.model, {name: self.graph.shape(name) for name in tensors})
        session: Session = open_session(to_bytes(model), Target())
        return session


def moments_of(model: onnx.ModelProto, feeds: Sequence[Feed], seed: int = 0) -> tuple[Moments, Opener]:
    graph = Graph(model)
    opener = Opener(graph)
    return Moments(graph, opener, feeds, seed), opener


def moment(moments: Moments, weight: TensorName) -> Floats:
    return moments.of(weight).mean


def test_a_moment_is_the_mean_over_all_products_of_all_samples() -> None:
    moments, _ = moments_of(TWO_LAYERS, FEEDS)
    x = X.reshape(-1, 4)
    h = x @ floats(4, 5)
    np.testing.assert_allclose(moment(moments, W), (x.T @ x / len(x))[np.newaxis], rtol=1e-4)
    np.testing.assert_allclose(moment(moments, V), (h.T @ h / len(h))[np.newaxis], rtol=1e-4, atol=1e-6)


def test_all_moments_are_made_in_one_pass() -> None:
    moments, opener = moments_of(TWO_LAYERS, FEEDS)
    moments.of(W)
    moments.of(V)
    assert opener.asked == [["h"]]


def test_little_memory_takes_more_passes_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = moments_of(TWO_LAYERS, FEEDS)
    monkeypatch.setattr(module, "_PASS_BYTES", 1)
    moments, opener = moments_of(TWO_LAYERS, FEEDS)
    for name in (V, W, V):
        np.testing.assert_array_equal(moment(moments, name), moment(expected, name))
    assert opener.asked == [["h"], [], ["h"]]


def test_activations_of_dynamic_shapes_take_more_passes_where_the_largest_sample_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = "h = MatMul(x, w) r = Relu(h) y = MatMul(r, v)"
    model = model_of("(float[N,4] x) => (float[N,2] y)", body, {"w": floats(4, 5), "v": floats(5, 2)})
    monkeypatch.setattr(module, "_PASS_BYTES", 4 * 10 * (4 + 5))
    for n_rows, expected in ((10, [["r"]]), (11, [[], ["r"]])):
        moments, opener = moments_of(model, [{"x": floats(3, 4)}, {"x": floats(n_rows, 4)}])
        assert all(moments.of(weight).n_products == 3 + n_rows for weight in (W, V))
        assert opener.asked == expected


def test_the_products_of_all_readers_count() -> None:
    body = "a = MatMul(x, w) b = Relu(a) y = MatMul(b, w)"
    moments, _ = moments_of(model_of("(float[3,4] x) => (float[3,4] y)", body, {"w": floats(4, 4)}), FEEDS)
    x = X.reshape(-1, 4)
    inputs = np.concatenate([x, np.maximum(x @ floats(4, 4), 0)])
    np.testing.assert_allclose(moment(moments, W), (inputs.T @ inputs / len(inputs))[np.newaxis], rtol=1e-4, atol=1e-6)


def test_of_a_convolution_with_many_places_some_are_taken_by_the_seed() -> None:
    model = model_of(
        "(float[1,2,80,80] x) => (float[1,2,80,80] y)",
        "y = Conv <pads=[1,1,1,1], group=2> (x, w)",
        {"w": floats(2, 1, 3, 3)},
    )
    feeds = [{"x": floats(1, 2, 80, 80) + 1}]
    found = [moment(moments_of(model, feeds, seed)[0], W) for seed in (0, 0, 1)]
    assert all(each.shape == (2, 9, 9) for each in found)
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0
    np.testing.assert_allclose(found[0], found[2], atol=0.2)


def test_of_very_many_groups_fewer_products_of_a_sample_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    signature, body = "(float[1,4,40] x) => (float[1,4,38] y)", "y = Conv <group=4> (x, w)"
    feeds = [{"x": floats(1, 4, 40)}] * 2
    monkeypatch.setattr(module, "_MOST_VALUES", 10 * 4 * 3)
    moments, _ = moments_of(model_of(signature, body, {"w": floats(4, 1, 3)}), feeds)
    assert moments.of(W).n_products == 2 * 10


def test_of_very_many_inputs_moments_are_those_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = moment(moments_of(TWO_LAYERS, FEEDS)[0], W)
    monkeypatch.setattr(products, "MAX_INPUTS", 3)
    parts = moment(moments_of(TWO_LAYERS, FEEDS)[0], W)
    np.testing.assert_allclose(parts, [whole[0, :2, :2], whole[0, 2:, 2:]], rtol=1e-6)


@pytest.mark.parametrize(("answers", "n_samples"), [([False], 1), ([True, True, False], 3), ([True] * 4, 5)])
def test_samples_are_taken_as_long_as_it_goes_on(answers: list[bool], n_samples: int) -> None:
    moments, _ = moments_of(TWO_LAYERS, FEEDS)
    left = iter(answers)
    found = moments.of(W, lambda: next(left))
    x = X[:n_samples].reshape(-1, 4)
    assert found.n_products == len(x)
    np.testing.assert_allclose(found.mean, (x.T @ x / len(x))[np.newaxis], rtol=1e-4, atol=1e-6)


def test_numbers_that_cannot_be_squared_are_a_data_error() -> None:
    moments, _ = moments_of(TWO_LAYERS, [{"x": np.full((3, 4), 1e30, np.float32)}])
    with pytest.raises(DataError, match="weight 'w' is multiplied with numbers"):
        moments.of(W)


def test_numbers_that_another_weight_is_multiplied_with_need_not_be_squared() -> None:
    body = "h = MatMul(x, w) r = Mul(h, c) y = MatMul(r, v)"
    model = model_of("(float[3,4] x) => (float[3,2] y)", body, {"w": floats(4, 5), "v": floats(5, 2), "c": 1e30})
    moments, opener = moments_of(model, FEEDS)
    assert np.isfinite(moment(moments, W)).all()
    with pytest.raises(DataError, match="weight 'v' is multiplied with numbers"):
        moments.of(V)
    assert opener.asked == [["r"]]


def test_weights_of_other_types_are_not_observed() -> None:
    body = "h = MatMul(x, w) d = Cast<to=11>(h) y = MatMul(d, v)"
    constants: dict[str, Array | float] = {"w": floats(4, 5), "v": floats(5, 2).astype(np.float64)}
    moments, opener = moments_of(model_of("(float[3,4] x) => (double[3,2] y)", body, constants), FEEDS)
    assert np.isfinite(moment(moments, W)).all()
    assert opener.asked == [[]]
    assert readers_of(V, moments.graph) == ()


@pytest.mark.parametrize(
    ("signature", "body", "weight_shape"),
    [
        ("(float[1,2,4,4] x) => (float[1,3,5,5] y)", "y = ConvTranspose(x, w)", (2, 3, 2, 2)),
        ("(float[2,3,4] x) => (float[2,3,4] y)", "y = MatMul(x, w)", (2, 4, 4)),
        ("(float[4,4] x) => (float[4,4] y)", "a = MatMul(x, w) y = Gemm <transB=1> (a, w)", (4, 4)),
        ("(float[4,4] x) => (float[4,4] y)", "a = MatMul(x, w) y = Add(a, w)", (4, 4)),
        ("(float[4,4] x) => (float[4,4] y)", "y = MatMul(w, x)", (4, 4)),
        ("(float[4,4] x) => (float[4,4] y)", "y = Relu(x)", (4, 4)),
    ],
)
def test_weights_without_a_moment_have_no_readers(signature: str, body: str, weight_shape: tuple[int, ...]) -> None:
    assert readers_of(W, Graph(model_of(signature, body, {"w": floats(*weight_shape)}))) == ()


def test_weights_of_very_many_elements_have_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(TWO_LAYERS)
    monkeypatch.setattr(module, "MAX_WEIGHTS", 19)
    assert (len(readers_of(W, graph)), len(readers_of(V, graph))) == (0, 1)
