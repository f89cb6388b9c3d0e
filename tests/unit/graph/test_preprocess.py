from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.errors import DataError, ModelError
from autoquant.graph.preprocess import OPSET, keeps_outputs, prepare
from autoquant.model.copies import opset_of
from autoquant.model.ops import is_quantizable
from autoquant.model.optimized import original_name
from autoquant.model.prepared import PreparedModel
from tests.models import Array, a_convnet, a_mlp, feed_of, floats, model_of, op_types, outputs_of, saved

X = TensorName("x")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def feeds_of(*shape: int, n: int = 3) -> list[Feed]:
    return [{"x": floats(*shape, seed=seed)} for seed in range(n)]


def assert_equals_original(prepared: PreparedModel, feeds: Sequence[Feed]) -> None:
    assert prepared.difference_db >= 60
    for feed in feeds:
        for expected, found in zip(
            outputs_of(prepared.source, feed), outputs_of(prepared.graph.model, feed), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_prepared_model_equals_the_original_and_says_where_it_comes_from(path: Path) -> None:
    model = a_convnet()
    feeds = [feed_of(model, seed) for seed in range(3)]
    prepared = prepare(saved(model, path), feeds)
    assert_equals_original(prepared, feeds)
    assert prepared.source == path
    assert prepared.notes == ()
    assert [opset.domain for opset in prepared.graph.model.opset_import] == [""]
    assert onnx.load(path) == model
    assert prepared.digest == prepare(path, feeds).digest


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_an_older_model_is_converted(path: Path, opset: int) -> None:
    model = a_convnet(opset=opset)
    prepared = prepare(saved(model, path), [feed_of(model)])
    assert opset_of(prepared.graph.model) == OPSET
    assert_equals_original(prepared, [feed_of(model)])


@pytest.mark.parametrize("opset", [7, 11])
def test_a_model_of_an_ir_that_lists_its_constants_as_inputs_is_converted(path: Path, opset: int) -> None:
    model = model_of("(float[1,4] x, float[4,4] w) => (float[1,4] y)", "h = MatMul(x, w) y = Relu(h)", opset=opset)
    model.graph.initializer.append(numpy_helper.from_array(floats(4, 4), "w"))
    model.ir_version = 3
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert opset_of(prepared.graph.model) == OPSET
    assert [value.name for value in prepared.graph.model.graph.input] == ["x"]
    assert_equals_original(prepared, feeds_of(1, 4))


def test_functions_of_a_model_are_inlined(path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
              tiny (float[1,4] x) => (float[1,4] y) { s = my.Swish(x) y = Relu(s) }
              <domain: "my", opset_import: ["" : 18]> Swish (a) => (b) { g = Sigmoid(a) b = Mul(a, g) }"""
    prepared = prepare(saved(parser.parse_model(text), path), feeds_of(1, 4))
    assert (prepared.notes, opset_of(prepared.graph.model)) == ((), OPSET)
    assert not prepared.graph.model.functions
    assert_equals_original(prepared, feeds_of(1, 4))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_upsample_is_converted(path: Path, mode: str) -> None:
    constants = {"s": np.array([1, 1, 2, 2], np.float32), "w": floats(3, 2, 1, 1)}
    body = f'h = Conv(x, w) y = Upsample<mode="{mode}">(h, s)'
    model = model_of("(float[1,2,5,4] x) => (float[1,3,10,8] y)", body, constants, opset=9)
    prepared = prepare(saved(model, path), feeds_of(1, 2, 5, 4))
    assert (prepared.notes, opset_of(prepared.graph.model)) == ((), OPSET)
    resize = prepared.graph.nodes[-1]
    assert resize.attributes["coordinate_transformation_mode"] == b"asymmetric"
    assert_equals_original(prepared, feeds_of(1, 2, 5, 4))


def test_an_opset_that_cannot_be_converted_stays_with_a_note(path: Path) -> None:
    model = model_of("(float[1,4] x) => (float[1,4] y)", "t = Relu(x) y = com.microsoft.Gelu(t)", opset=13)
    model.opset_import[1].version = 1
    node = model.graph.node[0]
    node.op_type, node.domain = "BiasGelu", "com.microsoft"
    node.input.append("b")
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats(4), "b"))
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert_equals_original(prepared, feeds_of(1, 4))
    assert opset_of(prepared.graph.model) in (13, OPSET)
    assert (opset_of(prepared.graph.model) == 13) == any("stays at opset 13" in note for note in prepared.notes)


def test_dynamic_dimensions_are_frozen_to_what_all_samples_share(path: Path) -> None:
    prepared = prepare(saved(a_mlp(), path), feeds_of(2, 3, 4))
    assert prepared.graph.shape(X) == (2, 3, 4)
    assert "Gemm" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds_of(2, 3, 4))


def test_dimensions_that_samples_do_not_share_stay_dynamic(path: Path) -> None:
    feeds = [*feeds_of(2, 3, 4, n=1), *feeds_of(2, 5, 4, n=1)]
    prepared = prepare(saved(a_mlp(), path), feeds)
    assert prepared.graph.shape(X) is None
    assert_equals_original(prepared, feeds)


def test_dimensions_that_are_empty_in_all_samples_stay_dynamic(path: Path) -> None:
    model = model_of("(float[N,4] x, float[M,4] past) => (float[K,4] y)", "a = Relu(x) y = Concat<axis=0>(past, a)")
    feeds: list[Feed] = [{"x": floats(2, 4, seed=k), "past": floats(0, 4)} for k in range(3)]
    prepared = prepare(saved(model, path), feeds)
    (longer,) = outputs_of(prepared.graph.model, {"x": floats(2, 4), "past": floats(3, 4)})
    assert longer.shape == (5, 4)


def test_a_summand_that_is_no_bias_leaves_a_product_that_can_be_quantized(path: Path) -> None:
    model = model_of(
        "(float[2,4] x, float[2,4] u) => (float[2,4] y)", "h = MatMul(x, w) y = Add(h, u)", {"w": floats(4, 4)}
    )
    feeds: list[Feed] = [{"x": floats(2, 4, seed=k), "u": floats(2, 4, seed=9)} for k in range(3)]
    prepared = prepare(saved(model, path), feeds)
    quantizable = [node.op_type for node in prepared.graph.nodes if is_quantizable(node, prepared.graph)]
    assert "Add" in quantizable
    assert {"Gemm", "MatMul"} & set(quantizable)
    assert prepared.difference_db >= 60


def test_attention_that_is_written_with_einsum_becomes_products_that_can_be_quantized(path: Path) -> None:
    body = """q = Einsum<equation="btc,chd->bhtd">(x, wq) k = Einsum<equation="btc,chd->bhtd">(x, wk)
              s = Einsum<equation="bhid,bhjd->bhij">(q, k) p = Softmax<axis=-1>(s)
              v = Einsum<equation="bhij,bhjd->bihd">(p, k) y = Einsum<equation="bthd,hdc->btc">(v, wo)"""
    weights = {"wq": floats(8, 2, 4), "wk": floats(8, 2, 4, seed=1), "wo": floats(2, 4, 8)}
    model = model_of("(float[batch,5,8] x) => (float[batch,5,8] y)", body, weights, opset=17)
    prepared = prepare(saved(model, path), feeds_of(1, 5, 8))
    products = [node for node in prepared.graph.nodes if node.op_type in ("Gemm", "MatMul")]
    assert {node.name for node in products} == {"q", "k", "s", "v", "y"}
    assert all(is_quantizable(node, prepared.graph) for node in products)
    assert prepared.difference_db > 100
    assert_equals_original(prepared, feeds_of(1, 5, 8))


def test_a_model_that_draws_random_numbers_is_refused_by_that_name(path: Path) -> None:
    model = model_of("(float[2,4] x) => (float[2,4] y)", "noise = RandomNormalLike(x) y = Add(x, noise)")
    with pytest.raises(ModelError, match="draws other numbers at every inference"):
        prepare(saved(model, path), feeds_of(2, 4))


def test_inputs_of_undeclared_rank_take_that_of_the_samples(path: Path) -> None:
    model = a_mlp()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    prepared = prepare(saved(model, path), feeds_of(2, 3, 4))
    assert prepared.graph.shape(X) == (2, 3, 4)
    assert_equals_original(prepared, feeds_of(2, 3, 4))


def test_dimensions_of_size_minus_one_are_dynamic(path: Path) -> None:
    model = a_mlp()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    feeds = [*feeds_of(1, 3, 4, n=1), *feeds_of(2, 3, 4, n=1)]
    prepared = prepare(saved(model, path), feeds)
    assert prepared.notes == ()
    assert_equals_original(prepared, feeds)
    assert prepare(path, feeds[:1]).graph.shape(X) == (1, 3, 4)


def test_dimensions_are_frozen_by_name_without_any_sample(path: Path) -> None:
    prepared = prepare(saved(a_mlp(), path), (), dims={"batch": 2, "time": 7})
    assert prepared.graph.shape(X) == (2, 7, 4)
    assert prepared.graph.shape(TensorName("y")) == (2, 7, 2)


def test_a_dimension_that_the_model_does_not_have_is_an_error_that_names_those_it_has(path: Path) -> None:
    with pytest.raises(ModelError, match="--dim bacth: there is no such dynamic dimension, the model has: batch, time"):
        prepare(saved(a_mlp(), path), (), dims={"bacth": 1})
    with pytest.raises(ModelError, match="the model has: none"):
        prepare(saved(a_convnet(), path), (), dims={"batch": 1})


def test_a_dimension_that_contradicts_the_samples_is_an_error(path: Path) -> None:
    with pytest.raises(ModelError, match="cannot run it on these data"):
        prepare(saved(a_mlp(), path), feeds_of(2, 3, 4), dims={"batch": 5})


def test_a_model_that_cannot_run_the_samples_is_an_error(path: Path) -> None:
    model = model_of("(float[n,4] x) => (float[2,6] y)", "y = Reshape(x, s)", {"s": np.array([2, 6])})
    with pytest.raises(DataError, match="sample 0: onnxruntime cannot run the float model on it"):
        prepare(saved(model, path), feeds_of(2, 4))


def test_initializers_listed_as_inputs_are_constants(path: Path) -> None:
    model = a_convnet()
    feed = feed_of(model)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    prepared = prepare(saved(model, path), [feed])
    assert prepared.graph.inputs == ("x",)
    assert_equals_original(prepared, [feed])


def test_every_node_gets_a_unique_name(path: Path) -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = ""
    prepared = prepare(saved(model, path), [feed_of(model)])
    names = [node.name for node in prepared.graph.nodes]
    assert all(names)
    assert len(set(names)) == len(names)
    assert names == [node.name for node in prepare(path, [feed_of(model)]).graph.nodes]


@pytest.mark.parametrize("name", ["", "conv_nhwc", "conv_token_3"])
def test_no_name_ends_as_onnxruntime_appends_to_names(path: Path, name: str) -> None:
    body = "a = MatMul(x, w) b = Add(a, c) r = Relu(b) d = MatMul(r, w) e = Add(d, c) f = MatMul(e, w) y = Add(f, c)"
    model = model_of("(float[4,4] x) => (float[4,4] y)", body, {"w": floats(4, 4), "c": floats(4)})
    for number, node in enumerate(model.graph.node):
        node.name = f"{number}_{name}" if name else ""
    feeds = feeds_of(4, 4)
    prepared = prepare(saved(model, path), feeds)
    names = [node.name for node in prepared.graph.nodes]
    assert len({original_name(name) for name in names}) == len(names) == 4
    assert not any(name.endswith(("_nhwc", "_token_3")) for name in names)
    assert_equals_original(prepared, feeds)


def test_behind_an_operator_of_unknown_shape_weights_are_found(path: Path) -> None:
    model = model_of("(float[4,4] x) => (float[4,3] y)", "s = Neg(x) y = Gemm(s, w)", {"w": floats(4, 3)})
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    model.graph.node[0].CopyFrom(scaler)
    del model.graph.value_info[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    feeds = feeds_of(4, 4)
    prepared = prepare(saved(model, path), feeds)
    assert not any("constants are not folded" in note for note in prepared.notes)
    assert {"s", "y"} <= prepared.graph.float_tensors
    assert_equals_original(prepared, feeds)


def test_constant_nodes_and_what_only_depends_on_them_become_initializers(path: Path) -> None:
    model = model_of(
        "(float[1,4] x) => (float[1,2] y)",
        "c = Constant<value = float[2,4] {1., 2., 3., 4., 5., 6., 7., 8.}>()"
        " t = Transpose(c) h = MatMul(x, t) y = Relu(h)",
    )
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert not {"Constant", "Transpose"} & set(op_types(prepared.graph.model))
    assert_equals_original(prepared, feeds_of(1, 4))


def test_constant_nodes_become_initializers_also_where_nothing_can_be_folded(path: Path) -> None:
    model = model_of(
        "(float[1,4] x) => (float[1,2] y)",
        "c = Constant<value = float[4,2] {1., 2., 3., 4., 5., 6., 7., 8.}>()"
        " h = Gemm(x, c) s = Add(h, huge) y = Add(s, negative)",
        {"huge": 1e8, "negative": -1e8},
    )
    prepared = prepare(saved(model, path), [{"x": 100 * floats(1, 4)}])
    assert op_types(prepared.graph.model) == ["Gemm", "Add", "Add"]
    assert any("constants are not folded" in note for note in prepared.notes)
    assert_equals_original(prepared, [{"x": 100 * floats(1, 4)}])


def refusing(reason: str) -> Callable[..., None]:
    def refused(*arguments: object) -> None:
        raise ModelError(reason)

    return refused


def test_a_model_that_cannot_be_folded_is_converted_and_frozen_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.graph.preprocess.optimize_basic", refusing("no room for it"))
    model = model_of("(float[N,4] x) => (float[N,2] y)", "h = MatMul(x, w) y = Relu(h)", {"w": floats(4, 2)}, opset=17)
    prepared = prepare(saved(model, path), feeds_of(3, 4))
    assert prepared.notes == ("constants are not folded: no room for it",)
    assert (prepared.graph.shape(X), opset_of(prepared.graph.model)) == ((3, 4), OPSET)
    assert_equals_original(prepared, feeds_of(3, 4))


def test_notes_say_of_each_thing_why_it_was_not_done(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.graph.preprocess.convert_opset", refusing("no such converter"))
    monkeypatch.setattr("autoquant.graph.preprocess.optimize_basic", refusing("no room for it"))
    model = model_of("(float[N,4] x) => (float[N,2] y)", "y = MatMul(x, w)", {"w": floats(4, 2)}, opset=17)
    prepared = prepare(saved(model, path), feeds_of(3, 4))
    assert prepared.notes == (
        "the model stays at opset 17: no such converter",
        "constants are not folded: no room for it",
    )
    assert prepared.graph.shape(X) == (3, 4)


def test_sparse_weights_are_weights(path: Path) -> None:
    model = model_of("(float[1,4] x) => (float[1,4] y)", "h = MatMul(x, w) y = MatMul(h, s)", {"w": floats(4, 4)})
    values, indices = numpy_helper.from_array(floats(2), "s"), numpy_helper.from_array(np.array([3, 8]))
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[4, 4]))
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert prepared.graph.shape(TensorName("s")) == (4, 4)
    assert_equals_original(prepared, feeds_of(1, 4))


def test_batch_normalization_and_hard_swish_are_folded_into_what_a_kernel_takes(path: Path) -> None:
    model = model_of(
        "(float[n,3,6,6] x) => (float[n,4,6,6] y)",
        """k = Mul(x, tenth) c = Conv<pads=[1,1,1,1]>(k, w) b = BatchNormalization(c, g, h, m, v)
           a = Add(b, three) r = Clip(a, zero, six) p = Mul(b, r) y = Div(p, six)""",
        {
            "w": floats(4, 3, 3, 3),
            "g": floats(4),
            "h": floats(4),
            "m": floats(4),
            "v": np.ones(4, np.float32),
            "tenth": 0.1,
            "three": 3.0,
            "zero": 0.0,
            "six": 6.0,
        },
    )
    prepared = prepare(saved(model, path), feeds_of(1, 3, 6, 6))
    assert op_types(prepared.graph.model) == ["Conv", "HardSigmoid", "Mul"]
    assert_equals_original(prepared, feeds_of(1, 3, 6, 6))


def test_weights_that_onnxruntime_casts_from_float16_are_constants(path: Path) -> None:
    half = {"w": floats(4, 3, 3, 3).astype(np.float16), "b": floats(4).astype(np.float16)}
    body = "h = Cast<to=10>(x) c = Conv(h, w, b) r = Relu(c) y = Cast<to=1>(r)"
    model = model_of("(float[1,3,5,5] x) => (float[1,4,3,3] y)", body, half)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert prepared.difference_db >= 60
    conv = next(node for node in prepared.graph.nodes if node.op_type == "Conv")
    assert [prepared.graph.dtype(name) for name in conv.inputs[1:]] == ["float32", "float32"]
    assert all(prepared.graph.is_constant(name) for name in conv.inputs[1:])


def test_weights_in_fusions_of_onnxruntime_are_named(path: Path) -> None:
    body = 't = com.microsoft.FusedConv<activation="Relu">(x, w) y = Conv(t, v)'
    model = model_of(
        "(float[1,3,5,5] x) => (float[1,4,1,1] y)", body, {"w": floats(4, 3, 3, 3), "v": floats(4, 4, 3, 3)}
    )
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert [note for note in prepared.notes if "fusions" in note] == [
        "1 nodes with weights are fusions of onnxruntime's own, such as com.microsoft:FusedConv, and stay float: give"
        " the model as it was before it was optimised by onnxruntime"
    ]


def test_types_and_shapes_behind_operators_that_onnx_does_not_know_are_onnxruntimes(path: Path) -> None:
    body = "a = MatMul(x, w) g = com.microsoft.BiasGelu(a, b) m = MatMul(g, w) y = Relu(m)"
    model = model_of("(float[1,4] x) => (float[1,4] y)", body, {"w": floats(4, 4), "b": floats(4)})
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    gelu = next(node for node in prepared.graph.nodes if "Gelu" in node.op_type)
    assert gelu.outputs[0] in prepared.graph.float_tensors
    assert prepared.graph.shape(gelu.outputs[0]) == (1, 4)
    assert_equals_original(prepared, feeds_of(1, 4))


def test_what_chooses_among_results_is_said_to_make_snr_doubtful(path: Path) -> None:
    model = model_of("(float[1,8] x) => (float[1,3] y, int64[1,3] i)", "y, i = TopK(x, k)", {"k": np.array([3])})
    prepared = prepare(saved(model, path), feeds_of(1, 8))
    assert [note for note in prepared.notes if "element by element" in note and "behind TopK" in note] != []


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_an_output_that_is_not_finite_is_named(path: Path, value: float) -> None:
    body = "a = Relu(x) y = Add(a, mask)"
    mask = np.array([0, 0, 0, value], np.float32)
    model = model_of("(float[1,4] x) => (float[1,4] a, float[1,4] y)", body, {"mask": mask})
    with pytest.raises(DataError, match="sample 0: the float model's output 'y' holds NaN or infinity"):
        prepare(saved(model, path), feeds_of(1, 4))
    with pytest.raises(DataError, match=r"a\.npz, sample 7: the float model's output 'y' holds NaN or infinity, so"):
        prepare(path, feeds_of(1, 4), sample_names=[f"a.npz, sample {number}" for number in (7, 2, 5)])


def test_subgraphs_keep_the_outer_tensors_that_they_read(path: Path) -> None:
    model = model_of(
        "(float[1,4] x, bool p) => (float[1,5] y, float[1,4] z)",
        """s = Mul(x, k) h = MatMul(s, w) t = Add(h, b) y = Relu(t)
           z = If(p) <then_branch = g1 () => (float[1,4] u) { u = Identity(s) },
                      else_branch = g2 () => (float[1,4] v) { v = MatMul(h, w2) }>""",
        {"k": 0.5, "w": floats(4, 5), "b": floats(5), "w2": floats(5, 4)},
    )
    feeds = [{"x": floats(1, 4), "p": np.array(flag)} for flag in (True, False)]
    prepared = prepare(saved(model, path), feeds)
    assert "If" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds)


def test_a_model_whose_outputs_are_integers_is_prepared(path: Path) -> None:
    model = model_of(
        "(float[2,3] x) => (int64[2] y)", "h = MatMul(x, w) y = ArgMax<axis=1, keepdims=0>(h)", {"w": floats(3, 5)}
    )
    assert_equals_original(prepare(saved(model, path), feeds_of(2, 3)), feeds_of(2, 3))


@pytest.mark.parametrize(("n_flipped", "expected"), [(1, ["Gemm", "ArgMax"]), (10, ["Gemm", "Add", "Add", "ArgMax"])])
def test_a_few_labels_that_flip_are_no_reason_against_folding(path: Path, n_flipped: int, expected: list[str]) -> None:
    """A score that huge numbers round off is the higher one where they are folded."""
    body = "h = Gemm(x, w) s = Add(h, huge) t = Add(s, negative) y = ArgMax<axis=1, keepdims=0>(t)"
    constants: dict[str, Array | float] = {"w": np.eye(2, dtype=np.float32), "huge": 1e8, "negative": -1e8}
    model = model_of("(float[65536,2] x) => (int64[65536] y)", body, constants)
    scores = np.tile(np.array([0, 1000], np.float32), (65536, 1))
    scores[:n_flipped, 1] = 0.25
    prepared = prepare(saved(model, path), [{"x": scores}])
    assert op_types(prepared.graph.model) == expected


def test_a_model_that_is_already_quantized_is_refused(path: Path) -> None:
    model = model_of("(float[4] x) => (float[4] y)", "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)", {"s": 0.1})
    with pytest.raises(ModelError, match="already quantized"):
        prepare(saved(model, path), feeds_of(4))


def test_what_is_no_model_is_refused(path: Path) -> None:
    path.write_text("PNG, perhaps")
    with pytest.raises(ModelError, match="not an ONNX model"):
        prepare(path, ())


def test_a_model_that_onnxruntime_refuses_is_an_error_that_names_the_file(path: Path) -> None:
    model = a_convnet()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match=r"model\.onnx: onnxruntime cannot open it: .*NoSuchOperator"):
        prepare(saved(model, path), ())


def test_external_data_are_read_and_their_absence_is_an_error(path: Path) -> None:
    model = a_convnet()
    feed = feed_of(model)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert_equals_original(prepare(path, [feed]), [feed])
    path.with_name("weights.bin").unlink()
    with pytest.raises(ModelError, match="external data cannot be read"):
        prepare(path, [feed])


def test_what_a_model_says_of_itself_outlives_preprocessing(path: Path) -> None:
    model = a_convnet(opset=13)
    model.domain, model.model_version, model.doc_string = "org.example", 7, "A detector."
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    found = prepare(saved(model, path), [feed_of(model)]).graph.model
    assert (found.domain, found.model_version, found.doc_string) == ("org.example", 7, "A detector.")
    assert {entry.key: entry.value for entry in found.metadata_props} == {"names": "{0: 'cat'}", "stride": "32"}


def test_shapes_inside_that_are_of_another_batch_are_inferred_anew(path: Path) -> None:
    model = model_of("(float[N,3,8] x) => (float[N,3,4] y)", "r = Relu(x) y = MatMul(r, w)", {"w": floats(8, 4)})
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [8, 3, 8]))
    feeds = feeds_of(1, 3, 8)
    prepared = prepare(saved(model, path), feeds)
    assert prepared.notes == ()
    assert "Gemm" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds)


def test_shapes_inside_that_cannot_be_inferred_stay(path: Path) -> None:
    model = model_of("(float[2,8] x) => (float[2,8] y)", "g = com.microsoft.Gelu(x) y = Relu(g)")
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, [2, 8]))
    found = prepare(saved(model, path), feeds_of(2, 8)).graph
    assert found.shape(TensorName("g")) == (2, 8)


@pytest.mark.parametrize(("ir_version", "n_notes"), [(3, 0), (10, 1)])
def test_inputs_that_become_constants_are_named(ir_version: int, n_notes: int, tmp_path: Path) -> None:
    model = model_of("(float[4] x, float[4] w) => (float[4] y)", "y = Add(x, w)", {"w": floats(4)})
    model.ir_version = ir_version
    prepared = prepare(saved(model, tmp_path / "model.onnx"), [{"x": floats(4)}])
    assert prepared.notes == ("inputs that the model has values for are constants of delivered models: 'w'",) * n_notes


@pytest.mark.parametrize(
    ("difference_db", "expected"), [(39.0, (False, False)), (44.0, (True, False)), (60.0, (True, True))]
)
def test_outputs_of_a_float16_model_may_differ_by_its_own_rounding(
    difference_db: float, expected: tuple[bool, bool]
) -> None:
    model = model_of("(float[1,3] x) => (float[1,3] y)", "y = Relu(x)")
    found = tuple(keeps_outputs(model, difference_db, from_halves=from_halves) for from_halves in (True, False))
    assert found == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_float16_transformer_is_prepared_as_in_float32(path: Path, dtype: type[np.generic]) -> None:
    tensors = {"g": floats(8), "h": floats(8), "w": floats(8, 8)}
    numbers = {"two": 2.0, "eps": 1e-5, "one": 1.0, "half": 0.5, "sqrt2": 2**0.5}
    body = """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps)
              s = Sqrt(e) n = Div(d, s) ng = Mul(n, g) l = Add(ng, h) t = Transpose<perm=[0,2,1]>(l)
              a = MatMul(l, t) p = Softmax(a) o = MatMul(p, l) f = MatMul(o, w)
              z = Div(f, sqrt2) r = Erf(z) u = Add(r, one) k = Mul(f, u) y = Mul(k, half)"""
    kind = "float16" if dtype is np.float16 else "float"
    constants = {name: np.asarray(value, dtype) for name, value in {**tensors, **numbers}.items()}
    model = model_of(f"({kind}[1,4,8] x) => ({kind}[1,4,8] y)", body, constants, opset=17)
    prepared = prepare(saved(model, path), [{"x": floats(1, 4, 8).astype(dtype)}])
    middle = ["LayerNormalization", "Transpose", "MatMul", "Softmax", "MatMul", "Reshape", "Gemm", "Reshape", "Gelu"]
    ends = ["Cast"] * (dtype is np.float16)
    assert op_types(prepared.graph.model) == [*ends, *middle, *ends]
    assert prepared.from_halves == (dtype is np.float16)


def test_a_float16_model_whose_outputs_hang_on_its_rounding_is_left_to_onnxruntime(path: Path) -> None:
    constants = {
        "w": floats(4, 3, 3, 3, scale=1e-3),
        "g": np.full(4, 1e-3),
        "zero": np.zeros(4),
        "one": np.ones(4),
        "k": np.array(1e4),
    }
    halves = {name: value.astype(np.float16) for name, value in constants.items()}
    body = """h = Cast<to=10>(x) c = Conv(h, w) b = BatchNormalization(c, g, zero, zero, one)
              m = Mul(b, k) y = Cast<to=1>(m)"""
    model = model_of("(float[1,3,5,5] x) => (float[1,4,3,3] y)", body, halves)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert [note.split(" (")[0] for note in prepared.notes] == ["float16 is left to onnxruntime: outputs differ"]
    assert prepared.from_halves


def test_float16_inputs_and_outputs_keep_their_type(path: Path) -> None:
    halves = {"w": floats(4, 4).astype(np.float16)}
    model = model_of("(float16[2,4] x) => (float16[2,4] y, float[2,4] z)", "y = MatMul(x, w) z = Cast<to=1>(y)", halves)
    feeds = [{"x": floats(2, 4, seed=seed).astype(np.float16)} for seed in range(3)]
    prepared = prepare(saved(model, path), feeds)
    assert [array.dtype for array in outputs_of(prepared.graph.model, feeds[0])] == [np.float16, np.float32]
    assert_equals_original(prepared, feeds)
    assert not prepared.graph.has_halves


def test_what_leads_to_no_output_is_left_out(path: Path) -> None:
    body = "a = MatMul(x, w) dead = MatMul(a, w) y = Relu(a)"
    model = model_of("(float[2,4] x) => (float[2,4] y)", body, {"w": floats(4, 4)})
    prepared = prepare(saved(model, path), feeds_of(2, 4))
    assert prepared.graph.outputs == ("y",)
    assert not {"dead"} & prepared.graph.producer.keys()
