from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoquant.domain.target import Target
from autoquant.model.optimized import (
    OptimizedGraph,
    is_integer_op,
    original_name,
    read_optimized,
    read_optimized_nodes,
)
from autoquant.runtime.session import open_session
from tests.models import Array, a_quantized_chain, floats, model_of


def optimized(model: onnx.ModelProto, folder: Path) -> OptimizedGraph:
    path = folder / "optimized.onnx"
    open_session(model.SerializeToString(), Target(), optimized_path=path)
    return read_optimized(path)


def test_a_chain_of_quantized_convolutions_runs_on_integers_under_the_names_of_its_nodes(tmp_path: Path) -> None:
    found = optimized(a_quantized_chain(), tmp_path)
    assert found.integer_nodes == {"a", "b", "c"}
    assert sum("QLinearConv" in kernel for kernel in found.kernels) == 3


def test_a_float_model_has_no_integer_nodes(tmp_path: Path) -> None:
    model = model_of("(float[1,4,5,5] x) => (float[1,4,5,5] y)", "y = Conv(x, w)", {"w": floats(4, 4, 1, 1)})
    assert optimized(model, tmp_path).integer_nodes == frozenset()


def test_a_float_convolution_between_quantized_ones_is_found_on_integers(tmp_path: Path) -> None:
    assert optimized(a_quantized_chain(middle_is_float=True), tmp_path).integer_nodes == {"a", "b", "c"}


def test_a_sum_of_one_keeps_it_in_float(tmp_path: Path) -> None:
    assert optimized(a_quantized_chain(middle_is_float=True, breaker="Sum"), tmp_path).integer_nodes == {"a", "c"}


@pytest.mark.parametrize(("body", "found"), [("c = Clip(q, , z) y", {"c"}), ("d = DequantizeLinear(q, s, z) y", set())])
def test_a_clip_of_integers_is_one_of_its_nodes_and_one_of_floats_is_none(
    body: str, found: set[str], tmp_path: Path
) -> None:
    last = "DequantizeLinear(c, s, z)" if found else "Clip(d, , six)"
    constants: dict[str, Array | float] = {"s": 0.1, "z": np.array(7, np.uint8), "six": 6.0}
    model = model_of("(float[4] x) => (float[4] y)", f"q = QuantizeLinear(x, s, z) {body} = {last}", constants)
    assert optimized(model, tmp_path).integer_nodes == found


def test_opening_the_same_model_again_gives_the_same_digest(tmp_path: Path) -> None:
    assert optimized(a_quantized_chain(), tmp_path) == optimized(a_quantized_chain(), tmp_path)


def test_names_of_nodes_do_not_change_the_digest(tmp_path: Path) -> None:
    models = [model_of("(float[4] x) => (float[4] y)", "a = Erf(x) y = Sin(a)") for _ in range(2)]
    models[1].graph.node[0].name = "other"
    first, second = (optimized(model, tmp_path).digest for model in models)
    assert first == second


def test_other_kernels_give_another_digest(tmp_path: Path) -> None:
    found = {
        optimized(a_quantized_chain(middle_is_float=m, breaker=b), tmp_path).digest
        for m in (True, False)
        for b in ("", "Sum")
    }
    assert len(found) == 4


@pytest.mark.parametrize("is_raw", [True, False])
def test_another_scale_gives_another_digest_however_it_is_stored(tmp_path: Path, is_raw: bool) -> None:
    models = [a_quantized_chain(scale=scale) for scale in (0.05, 0.06)]
    for model in models if not is_raw else ():
        for tensor in model.graph.initializer:
            if tensor.name == "s":
                value = float(numpy_helper.to_array(tensor))
                tensor.ClearField("raw_data")
                tensor.float_data.append(value)
    first, second = (optimized(model, tmp_path).digest for model in models)
    assert first != second


def test_large_constants_do_not_count(tmp_path: Path) -> None:
    digests = set()
    for seed in (0, 1):
        weight = floats(16, 4, 5, 5, seed=seed)
        model = model_of("(float[1,4,5,5] x) => (float[1,16,1,1] y)", "y = Conv(x, w)", {"w": weight})
        digests.add(optimized(model, tmp_path).digest)
    assert len(digests) == 1


def test_a_file_that_is_missing_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_optimized(tmp_path / "nothing.onnx")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv_token_12", "conv"),
        ("conv_nchwc", "conv"),
        ("conv_nhwc_token_1", "conv"),
        ("fc/MatMul/MatMulAddFusion", "fc/MatMul"),
        ("fc/MatMul/MatMulScaleFusion/", "fc/MatMul"),
        ("InsertedPrecisionFreeCast_relu:0_nchwc", "relu:0"),
        ("InsertedPrecisionFreeCast_relu_token_3", "relu"),
        ("a_token", "a_token"),
    ],
)
def test_a_name_is_told_without_what_onnxruntime_adds(name: str, expected: str) -> None:
    assert original_name(name) == expected


def test_integer_operators_are_told_from_others() -> None:
    assert all(map(is_integer_op, ("QLinearConv", "QGemm", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulNBits")))
    assert not any(map(is_integer_op, ("Conv", "QuantizeLinear", "DynamicQuantizeLinear", "Gemm")))


def test_the_optimised_graph_can_be_walked_although_its_large_constants_are_gone(tmp_path: Path) -> None:
    model = model_of("(float[1,4,5,5] x) => (float[1,16,1,1] y)", "y = Conv(x, w)", {"w": floats(16, 4, 5, 5)})
    open_session(model.SerializeToString(), Target(), optimized_path=tmp_path / "optimized.onnx")
    graph = read_optimized_nodes(tmp_path / "optimized.onnx")
    (conv,) = (node for node in graph.nodes if node.op_type.endswith("Conv"))
    assert graph.dtype(conv.inputs[1]) == "float32"
    assert graph.shape(conv.inputs[1]) is not None


def test_types_are_known_in_a_function_of_dynamic_sizes_too(tmp_path: Path) -> None:
    body, constants = "y = GroupNormalization<num_groups=2>(x, s, b)", {"s": floats(4), "b": floats(4)}
    model = model_of("(float[n,4,6,6] x) => (float[n,4,6,6] y)", body, constants)
    open_session(model.SerializeToString(), Target(), optimized_path=tmp_path / "optimized.onnx")
    graph = read_optimized_nodes(tmp_path / "optimized.onnx")
    dtypes = {node.op_type: graph.dtype(node.outputs[0]) for node in graph.nodes}
    assert (dtypes["Shape"], dtypes["Sqrt"]) == ("int64", "float32")


def test_its_large_constants_are_read_where_the_session_kept_them(tmp_path: Path) -> None:
    model = model_of("(float[4,30] x) => (float[4,30] y)", "y = MatMul(x, w)", {"w": floats(30, 30)})
    path = tmp_path / "optimized.onnx"
    open_session(model.SerializeToString(), Target(), optimized_path=path, keeps_constants=True)
    graph = read_optimized_nodes(path, has_constants=True)
    np.testing.assert_array_equal(graph.constant(graph.nodes[0].inputs[1]), floats(30, 30))


def test_the_order_in_which_reorders_were_put_in_does_not_count(tmp_path: Path) -> None:
    model = a_quantized_chain()
    open_session(model.SerializeToString(), Target(), optimized_path=tmp_path / "optimized.onnx")
    written = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
    nodes = list(written.graph.node)
    del written.graph.node[:]
    written.graph.node.extend(reversed(nodes))
    (tmp_path / "other.onnx").write_bytes(written.SerializeToString())
    assert read_optimized(tmp_path / "other.onnx").digest == read_optimized(tmp_path / "optimized.onnx").digest
