import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.model.graph import Graph, Node
from autoquant.rounding import products
from autoquant.rounding.products import Layout, as_columns, as_weight, inputs_of_products, layout_of
from tests.models import Floats, floats, model_of, outputs_of

RNG = np.random.default_rng(0)
EVERY = 10**6
MATRICES = [
    ("MatMul", (5, 4), (4, 3)),
    ("MatMul", (2, 3, 5, 4), (4, 3)),
    ("MatMul", (4,), (4, 3)),
    ("Gemm", (5, 4), (4, 3)),
    ("Gemm <transB=1>", (5, 4), (3, 4)),
    ("Gemm <transA=1>", (4, 5), (4, 3)),
]


def model_with(call: str, input_shape: tuple[int, ...], weight: Floats) -> onnx.ModelProto:
    """``y = call`` of the input ``x`` and the constant ``w``."""
    model = model_of(f"(float[{','.join(map(str, input_shape))}] x) => (float y)", f"y = {call}(x, w)", {"w": weight})
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def node_of(model: onnx.ModelProto) -> Node:
    return Graph(model).nodes[0]


@pytest.mark.parametrize(("call", "input_shape", "weight_shape"), MATRICES)
def test_products_with_a_matrix_are_the_output(
    call: str, input_shape: tuple[int, ...], weight_shape: tuple[int, ...]
) -> None:
    x, weight = floats(*input_shape), floats(*weight_shape)
    model = model_with(call, input_shape, weight)
    found = inputs_of_products(x, node_of(model), weight.shape, RNG, EVERY) @ as_columns(weight, node_of(model))
    (expected,) = outputs_of(model, {"x": x})
    np.testing.assert_allclose(found[0], expected.reshape(-1, 3), rtol=1e-4, atol=1e-5)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Operator, shape of the input, shape of the weight."""
    n_axes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    numbers = st.lists(st.integers(1, 3), min_size=n_axes, max_size=n_axes)
    kernel, strides, dilations = draw(numbers), draw(numbers), draw(numbers)
    given = [f"group={groups}", f"strides={strides}"]
    mode = draw(st.sampled_from(["", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode:
        given.append(f'auto_pad="{mode}"')
    else:
        given.append(f"pads={draw(st.lists(st.integers(0, 2), min_size=2 * n_axes, max_size=2 * n_axes))}")
    if not mode.startswith("SAME"):  # onnxruntime takes no dilations there
        given.append(f"dilations={dilations}")
    sizes = draw(st.lists(st.integers(7, 9), min_size=n_axes, max_size=n_axes))
    per_group = draw(st.integers(1, 3))
    n_outputs = groups * draw(st.integers(1, 2))
    return f"Conv <{', '.join(given)}>", (2, groups * per_group, *sizes), (n_outputs, per_group, *kernel)


@given(convolutions())
def test_products_with_patches_are_the_output_of_a_convolution(
    case: tuple[str, tuple[int, ...], tuple[int, ...]],
) -> None:
    call, input_shape, weight_shape = case
    x, weight = floats(*input_shape), floats(*weight_shape, seed=1)
    model = model_with(call, input_shape, weight)
    found = inputs_of_products(x, node_of(model), weight.shape, RNG, EVERY) @ as_columns(weight, node_of(model))
    (expected,) = outputs_of(model, {"x": x})
    by_place = np.moveaxis(expected, 1, -1).reshape(found.shape[1], len(found), -1).swapaxes(0, 1)
    np.testing.assert_allclose(found, by_place, rtol=1e-4, atol=1e-4)


def test_a_convolution_without_attributes_has_the_defaults_of_onnx() -> None:
    x, weight = floats(1, 2, 5, 5), floats(3, 2, 2, 2)
    model = model_with("Conv", x.shape, weight)
    found = inputs_of_products(x, node_of(model), weight.shape, RNG, EVERY) @ as_columns(weight, node_of(model))
    np.testing.assert_allclose(found[0].T.reshape(1, 3, 4, 4), outputs_of(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "input_shape", "weight_shape", "expected", "of_few"),
    [
        *((*case, Layout(1, 1, 4), Layout(1, 2, 2)) for case in MATRICES),
        ("Conv", (1, 4, 5, 5), (6, 4, 2, 3), Layout(1, 1, 24), Layout(1, 24, 1)),
        ("Conv <group=2>", (1, 4, 5, 5), (6, 2, 2, 3), Layout(2, 1, 12), Layout(2, 12, 1)),
        ("Conv <group=4>", (1, 4, 5), (4, 1, 3), Layout(4, 1, 3), Layout(4, 3, 1)),
        ("Conv <group=2>", (1, 4, 5), (4, 2, 1), Layout(2, 1, 2), Layout(2, 1, 2)),
    ],
)
@pytest.mark.parametrize("most_inputs", [products.MAX_INPUTS, 3])
def test_columns_can_be_made_a_weight_again(
    call: str,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    expected: Layout,
    of_few: Layout,
    most_inputs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "MAX_INPUTS", most_inputs)
    weight = floats(*weight_shape)
    node = node_of(model_with(call, input_shape, weight))
    n_groups, n_parts, size = expected if most_inputs > 3 else of_few
    assert layout_of(node, weight_shape) == (n_groups, n_parts, size)
    assert as_columns(weight, node).shape[:2] == (n_groups * n_parts, size)
    again = as_weight(as_columns(weight, node), node, weight_shape)
    np.testing.assert_array_equal(again, weight)
    assert again.flags.c_contiguous


@pytest.mark.parametrize("n_parts", [1, 2, 3])
@pytest.mark.parametrize(
    ("call", "input_shape", "weight_shape"),
    [
        ("MatMul", (5, 12), (12, 3)),
        ("Gemm <transB=1>", (5, 12), (3, 12)),
        ("Conv <group=2>", (1, 8, 6, 6), (4, 4, 3, 1)),
        ("Conv", (1, 4, 6), (5, 4, 3)),
    ],
)
def test_sums_over_parts_are_those_of_the_whole(
    call: str,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    n_parts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, weight = floats(*input_shape), floats(*weight_shape, seed=1)
    node = node_of(model_with(call, input_shape, weight))
    n_groups = layout_of(node, weight_shape).n_groups

    def by_group() -> Floats:
        found = inputs_of_products(x, node, weight_shape, RNG, EVERY) @ as_columns(weight, node)
        return np.asarray(found.reshape(n_groups, -1, *found.shape[1:]).sum(axis=1))

    whole = by_group()
    monkeypatch.setattr(products, "layout_of", lambda *_: Layout(n_groups, n_parts, 12 // n_parts))
    np.testing.assert_allclose(by_group(), whole, rtol=1e-5, atol=1e-5)


def test_inputs_are_as_few_parts_as_their_moments_may_be_large() -> None:
    model = model_with("MatMul", (1, 9216), np.zeros((9216, 1), np.float32))
    assert layout_of(node_of(model), (9216, 1)) == Layout(1, 3, 3072)
    assert layout_of(node_of(model), (products.MAX_INPUTS, 1)) == Layout(1, 1, products.MAX_INPUTS)


@pytest.mark.parametrize(("call", "input_shape", "weight_shape"), [MATRICES[1], ("Conv", (2, 4, 6, 6), (3, 4, 3, 3))])
def test_of_many_products_some_are_chosen_by_the_seed(
    call: str, input_shape: tuple[int, ...], weight_shape: tuple[int, ...]
) -> None:
    x, weight = floats(*input_shape), floats(*weight_shape)
    node = node_of(model_with(call, input_shape, weight))
    every = {row.tobytes() for row in inputs_of_products(x, node, weight.shape, RNG, EVERY)[0]}
    some = [inputs_of_products(x, node, weight.shape, np.random.default_rng(seed), 7)[0] for seed in (1, 1, 2)]
    assert {row.tobytes() for row in some[0]} < every
    assert [len(each) for each in some] == [7, 7, 7]
    np.testing.assert_array_equal(some[0], some[1])
    assert (some[0] != some[2]).any()
