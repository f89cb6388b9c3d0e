import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.equalisation.channels import Channels, trace
from autoquant.equalisation.rescale import rescaled
from autoquant.equalisation.rules import RULES
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_outputs
from tests.models import feed_of, floats, model_of, outputs_of

Constants = dict[str, npt.NDArray[np.generic] | float]

UNARY = (
    "Relu({t})",
    "LeakyRelu<alpha=0.1>({t})",
    "PRelu({t}, slope)",
    "Clip({t}, zero)",
    "Clip({t}, zero, bound)",
    "Sigmoid({t})",
    "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>({t})",
    "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>({t})",
    "Conv<pads=[1,1,1,1]>({t}, full, bias)",
    "Conv<pads=[1,1,1,1]>({t}, full)",
    "Conv<pads=[1,1,1,1], group=4>({t}, depthwise, bias)",
    "Conv<pads=[1,1,1,1], group=2>({t}, grouped, bias)",
    "ConvTranspose<pads=[1,1,1,1], group=2>({t}, grouped_back, bias)",
    "ConvTranspose<pads=[1,1,1,1]>({t}, full, bias)",
    "BatchNormalization({t}, gamma, bias, bias, variance)",
    "Mul({t}, factor)",
    "Mul(scalar, {t})",
    "Add({t}, factor)",
    "Add({t}, scalar)",
    "Sub(factor, {t})",
    "Div({t}, factor)",
    "Mul({t}, {t})",
    "Transpose<perm=[0,1,3,2]>({t})",
    "Pad({t}, shift, , swapped)",
)
BINARY = ("Add({t}, {u})", "Sub({t}, {u})", "Mul({t}, {u})", "Sum({t}, {u}, {t})", "Max({t}, {u})", "MatMul({t}, {u})")
WIDE = (
    "c{i} = Concat<axis=1>({t}, {u}) t{i} = Conv(c{i}, narrow)",
    "c{i} = Concat<axis=1>({t}, {u}) t{i} = Slice(c{i}, two, six_i, one)",
    "c{i} = Concat<axis=1>({t}, {u}) d{i}, t{i} = Split<axis=1, num_outputs=2>(c{i})",
    "p{i} = GlobalAveragePool({t}) g{i} = Sigmoid(p{i}) t{i} = Mul(g{i}, {u})",
    "p{i} = ReduceMean<keepdims=1>({t}, spatial) q{i} = Conv(p{i}, square) t{i} = Add({u}, q{i})",
    "r{i} = Transpose<perm=[0,2,3,1]>({t}) f{i} = Reshape(r{i}, flat) k{i} = Transpose<perm=[0,2,1]>(f{i}) "
    "q{i} = MatMul(f{i}, k{i}) s{i} = Softmax(q{i}) v{i} = Reshape({u}, flat) g{i} = MatMul(v{i}, matrix) "
    "m{i} = MatMul(s{i}, g{i}) t{i} = Reshape(m{i}, square_shape)",
    "r{i} = Transpose<perm=[0,2,3,1]>({t}) f{i} = Reshape(r{i}, rows) s{i} = Transpose<perm=[0,2,3,1]>({u}) "
    "b{i} = Reshape(s{i}, rows) m{i} = Gemm(f{i}, matrix, b{i}) t{i} = Reshape(m{i}, square_shape)",
    "r{i} = Resize({t}, , doubled) t{i} = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r{i})",
    "r{i} = Pad({t}, pads) t{i} = Conv(r{i}, full)",
    'c{i} = Conv({t}, phases) d{i} = DepthToSpace<blocksize=2, mode="CRD">(c{i}) '
    "t{i} = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d{i})",
    "c{i} = Conv({t}, phases) d{i} = DepthToSpace<blocksize=2>(c{i}) "
    "t{i} = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d{i})",
    "c{i} = Conv({t}, phases) a{i} = Reshape(c{i}, columns) b{i} = Transpose<perm=[0,2,1]>(a{i}) "
    "e{i} = Reshape(b{i}, by_row) f{i} = Transpose<perm=[0,2,1,3]>(e{i}) g{i} = Reshape(f{i}, large) "
    "t{i} = Conv<strides=[2,2]>(g{i}, square)",
    "c{i} = Concat<axis=1>({t}, {u}, {u}, {t}) d{i} = DepthToSpace<blocksize=2>(c{i}) r{i} = Relu(d{i}) "
    "t{i} = Conv<strides=[2,2]>(r{i}, square)",
    "r{i} = Transpose<perm=[0,2,3,1]>({t}) g{i} = MatMul(r{i}, matrix) n{i} = LayerNormalization(g{i}, gamma, bias) "
    "k{i} = Squeeze(n{i}, first) l{i} = MatMul(k{i}, matrix) h{i} = Unsqueeze(l{i}, first) "
    "t{i} = Transpose<perm=[0,3,1,2]>(h{i})",
)
CONSTANTS: Constants = {
    "zero": 0.0,
    "bound": 0.5,
    "scalar": 0.7,
    "slope": np.array([0.1, 0.2, -0.3, 0.4], np.float32).reshape(4, 1, 1),
    "factor": floats(4, 1, 1),
    "gamma": floats(4),
    "bias": floats(4, seed=1),
    "variance": np.abs(floats(4)) + np.float32(1),
    "full": floats(4, 4, 3, 3, scale=0.2),
    "depthwise": floats(4, 1, 3, 3, scale=0.4),
    "grouped": floats(4, 2, 3, 3, scale=0.3),
    "grouped_back": floats(4, 2, 3, 3, seed=1, scale=0.3),
    "narrow": floats(4, 8, 1, 1, scale=0.4),
    "phases": floats(16, 4, 1, 1, scale=0.4),
    "square": floats(4, 4, 1, 1, scale=0.4),
    "matrix": floats(4, 4, scale=0.5),
    "spatial": np.array([2, 3]),
    "first": np.array([0]),
    "two": np.array([2]),
    "six_i": np.array([6]),
    "one": np.array([1]),
    "flat": np.array([1, 36, 4]),
    "rows": np.array([36, 4]),
    "columns": np.array([8, 2, 36]),
    "by_row": np.array([4, 2, 6, 12]),
    "large": np.array([1, 4, 12, 12]),
    "square_shape": np.array([1, 4, 6, 6]),
    "doubled": np.array([1, 1, 2, 2], np.float32),
    "nothing": np.zeros(0, np.float32),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "shift": np.array([1, 0, 0, 0, -1, 0, 0, 0]),
    "swapped": np.array([1, 0, 2, 3]),
}


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Nodes that read any earlier tensors; constants are shared, some tensors are graph outputs."""
    body, outputs = ["t0 = Conv<pads=[1,1,1,1]>(x, full, bias)"], []
    n_steps = draw(st.integers(2, 8))
    for i in range(1, n_steps + 1):
        names = {"t": f"t{i - 1}", "u": f"t{draw(st.integers(0, i - 1))}", "i": i}
        step = draw(st.sampled_from([*(f"t{{i}} = {op}" for op in (*UNARY, *UNARY, *BINARY)), *WIDE]))
        body.append(step.format(**names))
        if i == n_steps or draw(st.integers(0, 9)) == 0:
            outputs.append(f"float[1,4,6,6] t{i}")
    return model_of(f"(float[1,4,6,6] x) => ({', '.join(outputs)})", "\n".join(body), CONSTANTS)


def of_any_size(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with heights and widths that are not known."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.value_info[:]
    for value in (*found.graph.input, *found.graph.output):
        for dim, name in zip(value.type.tensor_type.shape.dim[2:], ("H", "W"), strict=False):
            dim.dim_param = name
    return onnx.shape_inference.infer_shapes(found, data_prop=True)


@settings(max_examples=200, deadline=None)
@given(given_model=models(), seed=st.integers(0, 99), is_static=st.booleans())
def test_every_tensor_is_its_own_channel_by_channel_divided_by_the_scales(
    given_model: onnx.ModelProto, seed: int, is_static: bool
) -> None:
    model = given_model if is_static else of_any_size(given_model)
    graph = Graph(model)
    before = model.SerializeToString(deterministic=True)
    channels = trace(graph, RULES)
    exponents = np.random.default_rng(seed).integers(-4, 5, channels.n)
    exponents[0] = 0
    changed = rescaled(graph, channels.constants, exponents)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(changed.model)
    assert [node.outputs for node in changed.nodes] == [node.outputs for node in graph.nodes]
    inner: dict[str, tuple[int, ...] | None] = {
        name: graph.shape(name) for name in graph.producer if name in graph.float_tensors
    }
    names = [*graph.outputs, *(name for name in inner if name not in graph.outputs)]
    feed = feed_of(given_model)
    plain, scaled = (outputs_of(with_outputs(g.model, inner), feed) for g in (graph, changed))
    for name, expected, found in zip(names, plain, scaled, strict=True):
        label = channels.labels.get(TensorName(name), np.zeros((), np.intp))
        np.testing.assert_array_equal(found, np.ldexp(expected, -exponents[label]), err_msg=name)


def channels_between(
    middle: str, shape: str = "1,4,6,6", last: str = "Conv(m, square)", *, is_static: bool = True
) -> Channels:
    """Of ``a``, written by a Conv, through operators that write ``m``, read by a linear operator."""
    body = f"a = Conv<pads=[1,1,1,1]>(x, full, bias) {middle} y = {last}"
    model = model_of(f"(float[1,4,6,6] x) => (float[{shape}] y)", body, CONSTANTS)
    return trace(Graph(model if is_static else of_any_size(model)), RULES)


@pytest.mark.parametrize(
    "middle",
    [
        "m = Relu(a)",
        "m = LeakyRelu(a)",
        "m = PRelu(a, slope)",
        "b = Mul(a, slope) m = Max(a, b)",
        "m = Min(a, factor)",
        "m = Clip(a, zero)",
        "m = MaxPool<kernel_shape=[1,1]>(a)",
        "m = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a)",
        "b = Relu(a) c = Conv(b, square) m = Add(a, c)",
        "b = Sigmoid(x) m = Mul(a, b)",
        "m = Add(a, factor)",
        "m = Mul(a, scalar)",
        "b = Transpose<perm=[0,2,3,1]>(a) m = Transpose<perm=[0,3,1,2]>(b)",
        "b = Resize(a, , doubled) m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)",
        "b = Resize(a, nothing, doubled) m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)",
        "m = Resize(a, nothing, nothing, square_shape)",
    ],
)
@pytest.mark.parametrize("is_static", [True, False])
def test_a_scale_per_channel_passes(middle: str, is_static: bool) -> None:
    channels = channels_between(middle, is_static=is_static)
    assert channels.n == 5
    assert channels.labels[TensorName("a")].ravel().tolist() == channels.labels[TensorName("m")].ravel().tolist()


@pytest.mark.parametrize(
    "middle",
    [
        "m = Clip(a, zero, bound)",  # a bound that would have to be another one for every channel
        "m = Sigmoid(a)",
        "m = Mul(a, a)",
        "m = Add(a, x)",
        "m = Add(a, scalar)",
        "b = Sigmoid(a) m = Mul(a, b)",
        "b = Softmax<axis=1>(a) m = Add(a, b)",
        "m = Max(a, zero)",
        "m = Pad(a, shift, , swapped)",
        "b = Identity(spatial) m = Slice(a, spatial, rows, b)",
        "b = Identity(two) m = Slice(a, two, six_i, one, b)",
    ],
)
def test_a_scale_per_channel_does_not_pass(middle: str) -> None:
    assert TensorName("a") not in channels_between(middle).labels


def test_a_concatenation_and_a_normalisation_of_tensors_of_any_size_pass() -> None:
    joined = channels_between("b = Relu(a) c = Concat<axis=1>(a, b) m = Conv(c, narrow)", is_static=False)
    assert joined.labels[TensorName("c")].ravel().tolist() == [1, 2, 3, 4] * 2
    normalised = channels_between(
        "r = Transpose<perm=[0,2,3,1]>(a) n = LayerNormalization(r, gamma, bias) p = MatMul(n, matrix)"
        " m = Transpose<perm=[0,3,1,2]>(p)",
        is_static=False,
    )
    assert normalised.labels[TensorName("n")].ravel().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("CRD", [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]), ("DCR", [1, 2, 3, 4] * 4)],
)
@pytest.mark.parametrize("is_static", [True, False])
def test_channels_that_become_neighbours_share_a_scale(mode: str, expected: list[int], *, is_static: bool) -> None:
    middle = f'c = Conv(x, phases) d = DepthToSpace<blocksize=2, mode="{mode}">(c) m = Relu(d)'
    channels = channels_between(middle, "1,4,12,12", is_static=is_static)
    labels = channels.labels[TensorName("c")].ravel()
    assert (labels - labels.min() + 1).tolist() == expected
    assert channels.labels[TensorName("m")].ravel().tolist() == sorted(set(labels.tolist()))


def test_channels_that_become_places_of_an_image_share_a_scale() -> None:
    middle = (
        "c = Conv(x, phases) p = Reshape(c, columns) q = Transpose<perm=[0,2,1]>(p) r = Reshape(q, by_row) "
        "s = Transpose<perm=[0,2,1,3]>(r) m = Reshape(s, large)"
    )
    channels = channels_between(middle, "1,4,12,12")
    labels = channels.labels[TensorName("c")].ravel()
    assert (labels - labels.min() + 1).tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert channels.labels[TensorName("m")].shape == (1, 4, 1, 1)


def test_channels_that_a_gemm_adds_keep_their_scale() -> None:
    body = "h = Gemm(x, matrix, bias) r = Relu(h) z = MatMul(r, matrix) y = Gemm(z, matrix, h)"
    channels = trace(Graph(model_of("(float[2,4] x) => (float[2,4] y)", body, CONSTANTS)), RULES)
    assert TensorName("h") not in channels.labels
    assert channels.labels[TensorName("z")].ravel().tolist() == [1, 2, 3, 4]


def test_channels_of_a_group_of_residual_sums_are_shared() -> None:
    channels = channels_between("b = Conv(a, square) c = Add(a, b) d = Conv(c, square) m = Add(c, d)")
    found = [channels.labels[TensorName(name)].ravel().tolist() for name in "abcdm"]
    assert found == [[1, 2, 3, 4]] * 5


def test_channels_on_both_sides_of_a_depthwise_convolution_are_their_own() -> None:
    channels = channels_between("b = Relu(a) m = Conv<group=4, pads=[1,1,1,1]>(b, depthwise, bias)")
    assert channels.n == 9
    assert channels.labels[TensorName("b")].ravel().tolist() == [1, 2, 3, 4]
    assert channels.labels[TensorName("m")].ravel().tolist() == [5, 6, 7, 8]


def test_a_graph_output_keeps_its_scale() -> None:
    body = "a = Conv<pads=[1,1,1,1]>(x, full) m = Relu(a) y = Conv(m, square)"
    graph = Graph(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] m)", body, CONSTANTS))
    assert trace(graph, RULES).n == 1


def test_queries_keys_and_values_share_the_channels_of_a_normalization() -> None:
    body = """n = LayerNormalization(x, gamma, bias) q = MatMul(n, matrix) k = MatMul(n, matrix) v = MatMul(n, matrix)
              s = Add(q, k) p = Softmax(s) m = Mul(p, v) y = MatMul(m, matrix)"""
    graph = Graph(model_of("(float[1,5,4] x) => (float[1,5,4] y)", body, CONSTANTS))
    channels = trace(graph, RULES)
    assert channels.labels[TensorName("n")].shape == (1, 1, 4)
    read = [found for found in channels.constants if graph.nodes[found.node].name in "qkv" and found.times.any()]
    assert len(read) == 3


def test_a_residual_around_a_normalization_keeps_its_scale() -> None:
    """As in BERT: what the normalization writes is added to, and normalized again."""
    body = """n = LayerNormalization(x, gamma, bias) f = MatMul(n, matrix) r = Add(n, f)
              o = LayerNormalization(r, gamma, bias) y = Softmax(o)"""
    graph = Graph(model_of("(float[1,5,4] x) => (float[1,5,4] y)", body, CONSTANTS))
    assert trace(graph, RULES).n == 1


def test_values_pass_an_attention_head_by_head() -> None:
    body = """v = MatMul(x, matrix) w = Reshape(v, heads) u = Transpose<perm=[0,2,1,3]>(w) s = Softmax(scores)
              a = MatMul(s, u) b = Transpose<perm=[0,2,1,3]>(a) c = Reshape(b, whole) y = MatMul(c, matrix)"""
    constants: Constants = {"heads": np.array([1, 5, 2, 2]), "whole": np.array([1, 5, 4]), **CONSTANTS}
    graph = Graph(model_of("(float[1,5,4] x, float[1,2,5,5] scores) => (float[1,5,4] y)", body, constants))
    channels = trace(graph, RULES)
    assert channels.labels[TensorName("a")].shape == (1, 2, 1, 2)
    assert channels.labels[TensorName("c")].ravel().tolist() == channels.labels[TensorName("v")].ravel().tolist()


def test_a_constant_that_is_not_finite_is_not_scaled() -> None:
    body = "a = Conv(x, w) y = Conv(a, w)"
    weight = np.full((4, 4, 1, 1), np.inf, np.float32)
    graph = Graph(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, {"w": weight}))
    assert trace(graph, RULES).n == 1


def test_a_weight_without_elements_keeps_its_scale() -> None:
    model = model_of(
        "(float[1,8] x, float[1,K] e) => (float[1,4] y)",
        "r = Relu(x) a = MatMul(r, w) z = MatMul(e, none) y = Add(a, z)",
        {"w": floats(8, 4), "none": np.zeros((0, 4), np.float32)},
    )
    graph = Graph(model)
    empty = next(i for i, node in enumerate(graph.nodes) if "none" in node.inputs)
    assert empty not in {constant.node for constant in trace(graph, RULES).constants}
