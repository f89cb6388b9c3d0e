import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.ops import is_quantizable
from autoquant.rewrites.exponentials import FEWEST_ELEMENTS, split_exponentials
from tests.models import model_of, op_types, outputs_of
from tests.rewriting import rewritten

SIZE = f"2,{FEWEST_ELEMENTS // 2}"
MISH = "s = Softplus(x) t = Tanh(s) y = Mul(x, t)"
BODIES = {"Elu": "y = Elu(x)", "Softplus": "y = Softplus(x)", "Mish": MISH, "operator": "y = Mish(x)"}


def a_model(body: str, *, size: str = SIZE, outputs: str = "float[] y", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => ({outputs})", body, {}, opset=opset)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@settings(max_examples=25, deadline=None)
@given(width=st.floats(1e-3, 200), seed=st.integers(0, 100))
def test_outputs_are_those_of_the_activation(body: str, width: float, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-width, width, (2, FEWEST_ELEMENTS // 2)).astype(np.float32)
    found = rewritten(split_exponentials, a_model(body), {"x": values}, rtol=1e-5, atol=2e-7 * max(1.0, width))
    assert {"Elu", "Softplus", "Mish", "Tanh"}.isdisjoint(op_types(found))


@pytest.mark.parametrize("body", [BODIES["Softplus"], MISH], ids=["Softplus", "Mish"])
def test_what_is_nearly_zero_far_below_zero_is_exact_as_a_logarithm_behind_it_may_need(body: str) -> None:
    values = np.linspace(-80, 5, FEWEST_ELEMENTS).reshape(2, -1)
    (found,) = outputs_of(split_exponentials(a_model(body)), {"x": values.astype(np.float32)})
    exact = values.astype(np.float32).astype(np.float64)
    softplus = np.log1p(np.exp(exact))
    np.testing.assert_allclose(found, exact * np.tanh(softplus) if body == MISH else softplus, rtol=2e-6)


@pytest.mark.parametrize("body", [BODIES["Elu"], BODIES["Softplus"]], ids=["Elu", "Softplus"])
def test_what_is_no_number_stays_what_it_is(body: str) -> None:
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, 3e38, -3e38, 1e-38, 89.0], np.float32)
    values = np.resize(odd, (2, FEWEST_ELEMENTS // 2))
    model = a_model(body)
    one, other = (outputs_of(each, {"x": values})[0] for each in (split_exponentials(model), model))
    np.testing.assert_array_equal(one, other)


def test_mish_has_no_part_that_overflows() -> None:
    values = np.resize(np.array([3e38, 1e5, 100.0, -100.0, -1e5, -3e38], np.float32), (2, FEWEST_ELEMENTS // 2))
    (found,) = outputs_of(split_exponentials(a_model(MISH)), {"x": values})
    np.testing.assert_allclose(found, np.where(values > 0, values, 0), atol=1e-30)


@pytest.mark.parametrize(("body", "products"), [(BODIES["Elu"], []), (BODIES["Softplus"], []), (MISH, ["y"])])
def test_no_part_has_an_integer_kernel_but_the_product_that_there_was(body: str, products: list[str]) -> None:
    graph = Graph(onnx.shape_inference.infer_shapes(split_exponentials(a_model(body))))
    own = {"Add", "Mul", "Sigmoid", "LeakyRelu", "Concat"}
    assert [node.name for node in graph.nodes if node.op_type in own and is_quantizable(node, graph)] == products


def test_nodes_keep_their_names_and_the_others_are_called_after_them() -> None:
    found = split_exponentials(a_model(MISH))
    assert [node.name for node in found.graph.node] == [
        *("t_clip", "t_exp", "t_square", "t_twice", "t_n", "t_sum", "t", "y"),
    ]


@pytest.mark.parametrize(
    "model",
    [
        a_model("y = Elu<alpha=0.5>(x)"),
        a_model("y = Tanh(x)"),
        a_model(BODIES["Elu"], size=f"{FEWEST_ELEMENTS - 1}"),
        a_model(MISH, size=f"{FEWEST_ELEMENTS - 1}"),
        a_model(BODIES["Softplus"], size="n,4096"),
        a_model(BODIES["Elu"], opset=10),
        model_of("(float16[4096] x) => (float16[4096] y)", BODIES["Softplus"]),
    ],
    ids=["alpha", "other", "small", "small gate", "size unknown", "old", "halves"],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert split_exponentials(model) is model


def test_a_name_that_another_node_has_is_left_to_it() -> None:
    found = split_exponentials(a_model("y_exp = Tanh(x) y = Elu(y_exp)"))
    assert [node.name for node in found.graph.node] == ["y_exp", "y_clip", "y_exp_", "y_less", "y"]


def test_a_softplus_that_others_read_too_is_written_by_itself() -> None:
    model = a_model("s = Softplus(x) t = Tanh(s) y = Mul(x, t) z = Neg(s)", outputs="float[] y, float[] z")
    found = rewritten(split_exponentials, model, rtol=1e-5, atol=1e-6)
    assert op_types(found).count("Tanh") == 1
    assert TensorName("s") in Graph(found).producer
