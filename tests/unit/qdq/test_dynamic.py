from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from autoquant.domain.region import NodeName, RegionId, TensorName
from autoquant.domain.scheme import DType, Scheme
from autoquant.model.graph import Graph
from autoquant.model.ops import Kind, kind_of
from autoquant.model.optimized import read_optimized
from autoquant.qdq.dynamic import DynamicWriter
from autoquant.qdq.parts import Parts, Pieces
from autoquant.qdq.weights import Weights
from tests.graphs import (
    U8S8_CHANNEL,
    U8S8_TENSOR,
    Case,
    Quantized,
    case_of,
    exact,
    models,
    nodes_as_text,
    opened,
    run,
    scheme,
)
from tests.models import Array, Floats, floats, model_of, op_types

SQUARE = "float[4,4]"
CHANNEL = scheme("u8:tensor:asym", "s8:channel:sym:unsaturated", ranges="dynamic")
TENSOR = scheme("u8:tensor:asym", "s8:tensor:sym:unsaturated", ranges="dynamic")
UNSIGNED = scheme("u8:tensor:asym", "u8:tensor:asym", ranges="dynamic")
BLOCKS = scheme("s8:block-16:sym", "s8:block-16:sym", ranges="dynamic")
COARSE_BLOCKS = scheme("s8:block-16:sym", "s4:block-16:sym", ranges="dynamic")
LSTM_WEIGHTS: Mapping[str, Array | float] = {
    "w": floats(2, 16, 6, scale=0.5),
    "r": floats(2, 16, 4, seed=1, scale=0.5),
    "b": floats(2, 32, seed=2, scale=0.1),
    "h0": floats(2, 3, 4, seed=3),
    "c0": floats(2, 3, 4, seed=4),
}


def a_case(signature: str, body: str, constants: Mapping[str, Array | float]) -> Case:
    return case_of(model_of(signature, body, constants))


def an_lstm(attributes: str = "", outputs: str = "y", dims: str = "5,2,3,4") -> Case:
    call = f'LSTM<hidden_size=4, direction="bidirectional"{attributes}>(x, w, r, b, , h0, c0)'
    return a_case(f"(float[5,3,6] x) => (float[{dims}] y)", f"{outputs} = {call}", LSTM_WEIGHTS)


def snr_db(reference: list[Floats], found: list[Floats]) -> float:
    error = sum(float(((a - b) ** 2).sum()) for a, b in zip(reference, found, strict=True))
    return float(10 * np.log10(sum(float((a**2).sum()) for a in reference) / error)) if error else np.inf


def loss_db(case: Case, ours: Quantized) -> float:
    return snr_db(run(case.graph.model, case.feed), run(ours.model, case.feed))


def kernels(model: onnx.ModelProto, folder: Path) -> tuple[frozenset[str], list[str]]:
    """Nodes that became integer kernels, and all kernels without domain."""
    path = folder / "optimized.onnx"
    opened(model, str(path))
    found = read_optimized(path)
    return found.integer_nodes, [kernel.rpartition(":")[2] for kernel in found.kernels]


def test_the_nodes_before_and_after_are_those_of_the_golden_file(assert_golden: Callable[[str, str], None]) -> None:
    case = a_case(
        f"({SQUARE} x) => ({SQUARE} y, float[1,4,3] z)",
        """a = MatMul(x, w) g = Gemm<alpha=2.0, beta=0.5, transB=1>(x, v, b) c = Mul(a, g) y = Softmax(c)
           sh = Constant<value = int64[3] {4, 1, 4}>() s = Reshape(g, sh)
           , , z = LSTM<hidden_size=3>(s, lw, lr)""",
        {"w": floats(4, 4), "v": floats(4, 4, seed=1), "b": floats(4), "lw": floats(1, 12, 4), "lr": floats(1, 12, 3)},
    )
    mixed = case.quantized(CHANNEL, {"c": U8S8_CHANNEL, "y": U8S8_CHANNEL})
    blocks = case.quantized(BLOCKS, {"c": U8S8_CHANNEL, "y": U8S8_CHANNEL})
    built = "\n".join(nodes_as_text(model) for model in (case.graph.model, mixed.model, blocks.model))
    assert_golden("build_dynamic.txt", built)


@pytest.mark.parametrize(
    ("taken", "kernel"),
    [
        (CHANNEL, "DynamicQuantizeMatMul"),
        (TENSOR, "DynamicQuantizeMatMul"),
        (UNSIGNED, "DynamicQuantizeMatMul"),
        (BLOCKS, "MatMulNBits"),
        (COARSE_BLOCKS, "MatMulNBits"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(x, w)",
        "p = MatMul(x, w) y = Add(p, b)",
        "y = Gemm(x, w, b)",
        "y = Gemm<alpha=-2.0, beta=0.5, transB=1>(x, w, b)",
        "y = Gemm(x, w, one)",
        "p = Sigmoid(x) q = Gemm(p, w, b) y = Relu(q)",
    ],
)
def test_one_kernel_computes_it(body: str, kernel: str, taken: Scheme, tmp_path: Path) -> None:
    constants = {"w": floats(4, 4), "b": floats(4), "one": floats(1)}
    case = a_case(f"({SQUARE} x) => ({SQUARE} y)", body, constants)
    ours = case.quantized(taken)
    integer, found = kernels(ours.model, tmp_path)
    assert kernel in found
    assert not {"Cast", "MatMulInteger", "Add", "DynamicQuantizeLinear"} & set(found)
    assert (
        integer == ours.candidate.integer_nodes == {n.name for n in case.graph.nodes if n.op_type in ("Gemm", "MatMul")}
    )
    assert loss_db(case, ours) > (30 if taken is not COARSE_BLOCKS else 10)


@pytest.mark.parametrize("dtype", [DType.S8, DType.S4])
@pytest.mark.parametrize(("n_inputs", "block"), [(8, 16), (48, 32), (70, 16), (300, 128), (256, 256)])
def test_blocks_of_any_number_of_inputs_are_filled(n_inputs: int, block: int, dtype: DType) -> None:
    weight = floats(n_inputs, 6)
    weight[: n_inputs // 2, 1] = 0.0
    weight[:, 2] = 0.0
    case = a_case(f"(float[3,{n_inputs}] x) => (float[3,6] y)", "y = MatMul(x, w)", {"w": weight})
    taken = scheme(f"s8:block-{block}:sym", f"{dtype}:block-{block}:sym", ranges="dynamic")
    ours = case.quantized(taken)
    onnx.checker.check_model(ours.model)
    stored, scales = (
        numpy_helper.to_array(next(t for t in ours.model.graph.initializer if t.name == name))
        for name in ("w_quantized", "w_scale")
    )
    n_blocks = -(-n_inputs // block)
    assert (stored.shape, scales.shape) == ((6, n_blocks, block * dtype.bits // 8), (6, n_blocks))
    integers = stored if dtype is DType.S8 else np.stack([stored % 16, stored // 16], axis=-1).reshape(6, n_blocks, -1)
    rows = ((integers.astype(np.float32) + dtype.lowest) * scales[..., None]).reshape(6, -1)
    assert not rows[:, n_inputs:].any()
    assert not rows[2].any()
    steps = np.repeat(np.abs(scales), block, axis=1)[:, :n_inputs].T
    assert not scales[2].any()
    errors = np.abs(weight - rows[:, :n_inputs].T)
    assert (errors <= 1.01 * steps).all(), "half a step, one where the other end of the integers clips it"
    assert loss_db(case, ours) > (35 if dtype is DType.S8 else 14)


@pytest.mark.parametrize(("taken", "least_db"), [(BLOCKS, 35), (COARSE_BLOCKS, 12)], ids=str)
def test_blocks_of_zeros_add_no_noise(taken: Scheme, least_db: float) -> None:
    """The kernel takes the middle of their integers off in float, which a scale of 1 would make much of."""
    weight = floats(64, 16, scale=0.01)
    weight[:32] = 0.0
    case = a_case("(float[8,64] x) => (float[8,16] y)", "y = MatMul(x, w)", {"w": weight})
    case.feed["x"][:, :32] = floats(8, 32, seed=5) + 1000
    assert loss_db(case, case.quantized(taken)) > least_db
    nothing = a_case("(float[8,64] x) => (float[8,16] y)", "y = MatMul(x, w)", {"w": np.zeros((64, 16), np.float32)})
    assert not run(nothing.quantized(taken).model, case.feed)[0].any()


def test_blocks_keep_what_an_outlier_costs_all_other_inputs() -> None:
    weight = floats(256, 16)
    weight[0] = 0.0
    case = a_case("(float[8,256] x) => (float[8,16] y)", "y = MatMul(x, w)", {"w": weight})
    case.feed["x"][:, 0] = 100.0
    assert loss_db(case, case.quantized(CHANNEL)) < 20
    assert loss_db(case, case.quantized(BLOCKS)) > 23


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_an_empty_weight_has_no_blocks_or_no_outputs(shape: tuple[int, int]) -> None:
    signature = f"(float[3,{shape[0]}] x) => (float[3,{shape[1]}] y)"
    graph = Graph(model_of(signature, "y = MatMul(x, w)", {"w": np.zeros(shape, np.float32)}))
    parts = Parts(Pieces(graph))
    DynamicWriter(graph, Weights(graph)).write(parts, graph.nodes[0], ["x"], TensorName("y"), BLOCKS)
    found = {t.name: tuple(t.dims) for t in onnx.load_from_string(parts.skeleton).graph.initializer}
    n_blocks = shape[0] // 4
    assert found == {"w_quantized": (shape[1], n_blocks, 16), "w_scale": (shape[1], n_blocks)}


def test_an_lstm_has_no_kernel_for_blocks() -> None:
    ours = an_lstm().quantized(BLOCKS)
    assert not ours.plan.dynamic
    assert ours.candidate.float_nodes == {"y"}


@pytest.mark.parametrize("taken", [CHANNEL, TENSOR, UNSIGNED], ids=str)
def test_an_lstm_runs_in_its_dynamic_kernel(taken: Scheme, tmp_path: Path) -> None:
    case = an_lstm()
    ours = case.quantized(taken)
    onnx.checker.check_model(ours.model)
    assert kernels(ours.model, tmp_path)[0] == ours.candidate.integer_nodes == {"y"}
    assert loss_db(case, ours) > 25


@pytest.mark.parametrize("weight", ["u8:channel:sym", "s8:channel:sym:unsaturated", "u8:tensor:sym"])
def test_an_lstm_with_rows_of_zeros_has_one_zero_point(weight: str) -> None:
    """As its kernel demands."""
    rows = floats(2, 16, 6, scale=0.5)
    rows[0, 3] = 0.0
    call = 'LSTM<hidden_size=4, direction="bidirectional">(x, w, r, b, , h0, c0)'
    case = a_case("(float[5,3,6] x) => (float[5,2,3,4] y)", f"y = {call}", {**LSTM_WEIGHTS, "w": rows})
    assert loss_db(case, case.quantized(scheme("u8:tensor:asym", weight, ranges="dynamic"))) > 25


def test_an_lstm_of_which_only_the_last_state_is_read_is_dynamic_too() -> None:
    case = an_lstm(outputs=", , y", dims="2,3,4")
    assert case.quantized(CHANNEL).plan.dynamic == {0}


def test_the_domain_of_the_dynamic_lstm_is_imported_once() -> None:
    case = an_lstm()
    del case.graph.model.opset_import[1]
    model = case.quantized(CHANNEL).model
    assert [(known.domain, known.version) for known in model.opset_import] == [("", 21), ("com.microsoft", 1)]
    run(model, case.feed)


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("y = Gemm<transA=1>(x, w)", {"w": floats(4, 4)}),
        ("y = Gemm(x, w, t)", {"w": floats(4, 4), "t": floats(4, 4)}),
        ("y = Gemm(x, w, x)", {"w": floats(4, 4)}),
        ("y = MatMul(x, x)", {}),
        ("y = MatMul(w, x)", {"w": floats(4, 4)}),
        ("p = MatMul(x, w) y = Squeeze(p)", {"w": floats(1, 4, 4)}),
        ("y = Gemm(x, w)", {"w": np.full((4, 4), np.inf, np.float32)}),
        ("y = Mul(x, w)", {"w": floats(4, 4)}),
        ("p = MatMul(x, w) y = Add(b, p)", {"w": floats(4, 1), "b": floats(4)}),
    ],
)
def test_what_has_no_such_kernel_stays_float(body: str, constants: Mapping[str, Array | float]) -> None:
    case = a_case(f"({SQUARE} x) => ({SQUARE} y)", body, constants)
    ours = case.quantized(CHANNEL)
    assert not ours.plan.dynamic
    assert not ours.candidate.integer_nodes
    assert op_types(ours.model) == op_types(case.graph.model)


@pytest.mark.parametrize("added", [floats(4, 4), floats(1)], ids=["matrix", "number"])
def test_a_product_of_one_column_is_dynamic_where_no_vector_widens_it(added: Floats) -> None:
    body = "p = MatMul(x, w) a = Add(p, b) y = Mul(a, x)"
    case = a_case(f"({SQUARE} x) => ({SQUARE} y)", body, {"w": floats(4, 1), "b": added})
    ours = case.quantized(CHANNEL)
    assert ours.plan.dynamic == {0}
    assert run(ours.model, case.feed)[0].shape == (4, 4)


def test_a_convolution_stays_float() -> None:
    case = a_case("(float[1,4,5,5] x) => (float[1,4,5,5] y)", "y = Conv(x, w)", {"w": floats(4, 4, 1, 1)})
    ours = case.quantized(CHANNEL)
    assert not ours.candidate.integer_nodes
    assert ours.candidate.float_nodes == {"y"}
    assert loss_db(case, ours) == np.inf


def test_an_lstm_takes_no_static_scheme() -> None:
    ours = an_lstm().quantized(U8S8_CHANNEL)
    assert not ours.candidate.integer_nodes
    assert ours.candidate.float_nodes == {"y"}


def test_one_quantization_serves_all_readers_of_a_tensor() -> None:
    case = a_case(
        f"({SQUARE} x) => ({SQUARE} y)",
        "a = Gemm(x, w) b = MatMul(x, v) y = Add(a, b)",
        {"w": floats(4, 4), "v": floats(4, 4, seed=1)},
    )
    assert op_types(case.quantized(CHANNEL).model).count("DynamicQuantizeLinear") == 1


def test_a_weight_that_is_read_in_three_ways_is_kept_in_each() -> None:
    body = "a = Gemm(x, w) b = Gemm<transB=1>(a, w) c = Gemm(b, w) d = Gemm(c, w) y = Add(d, w)"
    case = a_case(f"({SQUARE} x) => ({SQUARE} y)", body, {"w": floats(4, 4, scale=0.5)})
    ours = case.quantized(CHANNEL, {"c": exact(U8S8_CHANNEL), "d": None, "y": None})
    squares = [t for t in ours.model.graph.initializer if list(t.dims) == [4, 4]]
    assert len(squares) == 3, "as it is, and its integers in both orientations"
    assert loss_db(case, ours) > 20


def test_new_tensors_take_no_name_that_the_model_uses() -> None:
    body = "y_sums = Tanh(x) x_dynamic = Tanh(y_sums) p = Add(x_dynamic, x) y = Gemm(x, w, b) z = Mul(p, y)"
    case = a_case(f"({SQUARE} x) => ({SQUARE} z)", body, {"w": floats(4, 4), "b": floats(4)})
    assert loss_db(case, case.quantized(CHANNEL)) > 30


def test_neighbours_on_integers_hand_over_floats(tmp_path: Path) -> None:
    case = a_case(
        f"({SQUARE} x) => ({SQUARE} y)",
        "a = Sigmoid(x) g = Gemm(a, w, b) s = Softmax(g) h = Gemm(s, w) y = LeakyRelu(h)",
        {"w": floats(4, 4), "b": floats(4)},
    )
    ours = case.quantized(U8S8_CHANNEL, {"g": CHANNEL})
    assert ours.candidate.integer_nodes == kernels(ours.model, tmp_path)[0] == set("agshy")
    assert loss_db(case, ours) > 20


mixes = st.lists(
    st.sampled_from([None, exact(U8S8_CHANNEL), exact(U8S8_TENSOR), CHANNEL, TENSOR, BLOCKS]), min_size=30, max_size=30
)


@settings(max_examples=60)
@given(models(), mixes)
def test_every_mix_runs_as_asked(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, mix: list[Scheme | None]
) -> None:
    case = case_of(model)
    ours = case.quantized(None, {n.name: mix[n.index % len(mix)] for n in case.graph.nodes})
    onnx.checker.check_model(ours.model, full_check=True)
    integer, _ = kernels(ours.model, tmp_path_factory.mktemp("mix"))
    names = {case.graph.nodes[i].name for i in ours.plan.dynamic}
    assert names <= integer
    assert not ours.candidate.float_nodes & integer
    unfused = opened(ours.model, is_optimized=False).run(None, dict(case.feed))
    assert snr_db(unfused, run(ours.model, case.feed)) > 20 or not case.is_well_conditioned


@settings(max_examples=30)
@given(models())
def test_dynamic_schemes_alone_leave_all_else_as_it_is(model: onnx.ModelProto) -> None:
    case = case_of(model)
    ours = case.quantized(CHANNEL)
    dynamic = {case.graph.nodes[i].name for i in ours.plan.dynamic}
    linear = {n.name for n in case.graph.nodes if kind_of(n) is Kind.LINEAR}
    assert ours.candidate.float_nodes == linear - dynamic
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(op_types(ours.model))
    if not dynamic:
        np.testing.assert_array_equal(run(ours.model, case.feed)[0], run(model, case.feed)[0])


@settings(max_examples=20)
@given(models(), mixes)
def test_building_again_gives_identical_bytes(model: onnx.ModelProto, mix: list[Scheme | None]) -> None:
    case = case_of(model)
    chosen = {n.name: mix[n.index % len(mix)] for n in case.graph.nodes}
    schemes = {taken.name: taken for taken in [CHANNEL, *mix] if taken}
    assignment = {RegionId(name): taken.name for name, taken in chosen.items() if taken}
    used, fresh = case.builder(schemes), case.builder(schemes)
    used.build({RegionId(NodeName(n.name)): CHANNEL.name for n in case.graph.nodes})
    assert used.build(assignment).digest == fresh.build(assignment).digest
