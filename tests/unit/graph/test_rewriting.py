from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given

from autoquant.errors import ModelError
from autoquant.graph.rewriting import Rewrite, fast_kernels, kept_rewrites, rewritten
from autoquant.model.copies import Model
from autoquant.model.graph import Graph
from autoquant.model.ops import LINEAR, VIEWS
from tests.models import floats, model_of, op_types

N = 12


def named(i: int) -> Rewrite:
    def rewrite(model: Model) -> Model:
        raise AssertionError

    rewrite.__name__ = f"_rewrite_{i}"
    return rewrite


REWRITES = [named(i) for i in range(N)]


def refusing(faulty: set[int]) -> Callable[[Sequence[Rewrite]], list[int]]:
    def apply(rewrites: Sequence[Rewrite]) -> list[int]:
        places = [REWRITES.index(rewrite) for rewrite in rewrites]
        wrong = [i for i in places if i in faulty]
        if wrong:
            raise ModelError(f"it is {wrong[0]}")
        return places

    return apply


@given(st.sets(st.integers(0, N - 1)))
def test_what_is_wrong_is_left_out_with_its_reason_and_all_else_is_kept(faulty: set[int]) -> None:
    kept, left_out = kept_rewrites(REWRITES, refusing(faulty))
    assert kept == [i for i in range(N) if i not in faulty]
    assert left_out == {f"rewrite {i}": f"it is {i}" for i in faulty}


def test_what_fails_without_any_rewrite_is_no_fault_of_one() -> None:
    def apply(rewrites: Sequence[Rewrite]) -> None:
        raise ModelError("cannot be opened")

    with pytest.raises(ModelError, match="cannot be opened"):
        kept_rewrites(REWRITES, apply)


def test_a_rewrite_that_raises_is_a_model_error_in_one_line() -> None:
    def fails(model: Model) -> Model:
        raise IndexError("axis 3\nof 2")

    model = model_of("(float[4] x) => (float[4] y)", "y = Relu(x)")
    with pytest.raises(ModelError, match=r"^it fails, IndexError: axis 3"):
        rewritten(model, [fails])


def test_a_rewrite_that_goes_too_deep_is_a_model_error_too() -> None:
    def goes_on(model: Model) -> Model:
        return goes_on(model)

    with pytest.raises(ModelError, match=r"^it fails, RecursionError"):
        rewritten(model_of("(float[4] x) => (float[4] y)", "y = Relu(x)"), [goes_on])


@pytest.mark.parametrize("is_for_cpu", [True, False])
def test_each_rewrite_leaves_a_model_that_has_nothing_for_it(is_for_cpu: bool) -> None:
    model = model_of("(float[4] x) => (float[4] y)", "y = Relu(x)")
    assert rewritten(model, fast_kernels(is_for_cpu=is_for_cpu)) == model


def test_a_resize_behind_the_convolution_that_was_behind_it_is_a_product_too() -> None:
    constants = {"n": np.array([1, 8, 8, 8]), "w": floats(8, 8, 1, 1)}
    model = model_of(
        "(float[1,8,4,4] x) => (float[] y)", 'r = Resize<mode="cubic">(x, , , n) y = Conv(r, w)', constants
    )
    found = op_types(rewritten(model, fast_kernels(is_for_cpu=False)))
    assert found[0] == "Conv"
    assert "Resize" not in found


def test_what_is_left_of_repeated_rows_is_seen_to_be_enlarged() -> None:
    constants = {"n": np.array([1, 64, 8, 8]), "w": floats(64, 192, 1, 1)}
    parts = [f'{name} = Resize<mode="linear">({source}, , , n)' for name, source in ("pa", "qb")]
    body = f"{' '.join(parts)} j = Concat<axis=1>(p, q, c) y = Conv(j, w)"
    model = model_of("(float[1,64,1,1] a, float[1,64,4,4] b, float[1,64,8,8] c) => (float[] y)", body, constants)
    found = op_types(rewritten(model, fast_kernels(is_for_cpu=False)))
    assert found == ["Conv", "Resize", "Conv", "Add", "Conv", "Add"]


def test_a_convolution_of_lines_is_beside_its_pool() -> None:
    shapes = "u = Unsqueeze(e, last) p = MaxPool<kernel_shape=[2,1], strides=[2,1]>(u) s = Squeeze(p, last)"
    model = model_of(
        "(float[1,8,64] x) => (float[] y)",
        f"c = Conv<pads=[1,1]>(x, w) b = Mul(c, each) e = Selu(b) {shapes} y = Conv(s, w)",
        {"w": floats(8, 8, 3), "each": np.linspace(0.5, 2, 8, dtype=np.float32).reshape(8, 1), "last": np.array([3])},
    )
    found = op_types(rewritten(model, fast_kernels(is_for_cpu=True)))
    assert [op_type for op_type in found if op_type not in VIEWS] == ["Conv", "MaxPool", "Selu", "Conv"]


def test_a_layer_of_which_one_token_is_read_is_of_that_token() -> None:
    constants = {"w": floats(8, 32), "v": floats(32, 8), "b": floats(8), "first": np.array(0)}
    layer = "n = LayerNormalization(h, b, b) u = MatMul(n, w) g = Relu(u) d = MatMul(g, v) a = Add(d, b) r = Add(h, a)"
    model = model_of(
        "(float[1,24,8] x) => (float[] y)",
        f"h = MatMul(x, m) {layer} y = Gather<axis=1>(r, first)",
        constants | {"m": floats(8, 8)},
    )
    graph = Graph(onnx.shape_inference.infer_shapes(rewritten(model, fast_kernels(is_for_cpu=True))))
    assert {graph.sizes(node.outputs[0]) for node in graph.nodes if node.op_type in LINEAR} == {(1, 8), (1, 32)}
