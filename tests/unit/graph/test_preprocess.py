from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.graph import rewriting
from autoquant.graph.preprocess import prepare
from autoquant.model.ops import can_be_dynamic, is_quantizable
from autoquant.model.optimized import original_name
from tests.models import Array, a_convnet, feed_of, floats, model_of, op_types, saved
from tests.unit.graph.preprocessed import assert_equals_original, feeds_of


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


def test_constant_nodes_and_what_only_depends_on_them_become_initializers(path: Path) -> None:
    model = model_of(
        "(float[1,4] x) => (float[1,2] y)",
        "c = Constant<value = float[2,4] {1., 2., 3., 4., 5., 6., 7., 8.}>()"
        " t = Transpose(c) h = MatMul(x, t) y = Relu(h)",
    )
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert not {"Constant", "Transpose"} & set(op_types(prepared.graph.model))
    assert_equals_original(prepared, feeds_of(1, 4))


def test_what_changes_outputs_is_left_out_and_told_and_all_else_is_done(path: Path) -> None:
    model = model_of(
        "(float[1,4] x, float[2,1,4] v) => (float[1,2] y, float[2,1,2] z)",
        "c = Constant<value = float[4,2] {1., 2., 3., 4., 5., 6., 7., 8.}>()"
        " h = Gemm(x, c) s = Add(h, huge) y = Add(s, negative) z = MatMul(v, c)",
        {"huge": 1e8, "negative": -1e8},
    )
    feeds = [{"x": 100 * floats(1, 4), "v": floats(2, 1, 4)}]
    prepared = prepare(saved(model, path), feeds)
    assert sorted(op_types(prepared.graph.model)) == ["Add", "Add", "Gemm", "Gemm", "Reshape", "Reshape"]
    left_out = [note for note in prepared.notes if "preprocessing" in note]
    assert len(left_out) == 1
    assert left_out[0].startswith("fold affine is left out of preprocessing: outputs differ (")
    assert_equals_original(prepared, feeds)


def test_a_rewrite_that_fails_is_told_and_all_others_are_done(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: onnx.ModelProto) -> onnx.ModelProto:
        raise ValueError("shapes differ")

    monkeypatch.setattr(rewriting, "crop", fails)
    model = model_of("(float[2,1,4] x) => (float[2,1,2] y)", "y = MatMul(x, w)", {"w": floats(4, 2)})
    prepared = prepare(saved(model, path), feeds_of(2, 1, 4))
    assert prepared.notes == ("fails is left out of preprocessing: it fails, ValueError: shapes differ",)
    assert "Gemm" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds_of(2, 1, 4))


@pytest.mark.parametrize(("eps", "is_kept"), [(["cpu"], False), (["cpu", "openvino"], True), (["qnn"], True)])
@pytest.mark.parametrize("call", ["PRelu(a, slopes)", "Elu(a)", "Softplus(a)"])
def test_operators_that_other_providers_have_kernels_for_stay_there(
    path: Path, call: str, eps: list[str], is_kept: bool
) -> None:
    body, constants = f"a = Conv(x, w) y = {call}", {"w": floats(16, 3, 1, 1), "slopes": floats(16, 1, 1) ** 2}
    model = model_of("(float[1,3,16,16] x) => (float[1,16,16,16] y)", body, constants)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 16, 16), eps=eps)
    assert (call.partition("(")[0] in op_types(prepared.graph.model)) == is_kept
    assert_equals_original(prepared, feeds_of(1, 3, 16, 16))


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


def test_a_mean_behind_a_conv_takes_zeros_and_a_normalisation_from_around_it(path: Path) -> None:
    model = model_of(
        "(float[n,3,7,7] x) => (float[] y)",
        """c = Conv(x, w) r = Relu(c) e = Pad(r, around, , places)
           p = AveragePool<kernel_shape=[3,3], strides=[2,2]>(e) m = Mul(p, g) y = Add(m, h)""",
        {
            "w": floats(4, 3, 1, 1),
            "around": np.array([1, 1, 1, 1]),
            "places": np.array([2, 3]),
            "g": floats(4, 1, 1),
            "h": floats(4, 1, 1, seed=1),
        },
    )
    prepared = prepare(saved(model, path), feeds_of(1, 3, 7, 7))
    assert op_types(prepared.graph.model) == ["Conv", "Relu", "Conv"]
    assert_equals_original(prepared, feeds_of(1, 3, 7, 7))


def test_a_conv_takes_constants_and_relu_from_behind_what_keras_and_tf2onnx_put_between(path: Path) -> None:
    model = model_of(
        "(float[N,4,1,9] x) => (float[N,6,1,3] y)",
        """c = Conv(x, w) s = Squeeze(c, axes) b = Add(s, bias) m = Mul(b, bias) u = Unsqueeze(m, axes)
           p = MaxPool<kernel_shape=[1,2], strides=[1,2]>(u) y = Relu(p)""",
        {"w": floats(6, 4, 1, 3), "bias": floats(1, 6, 1), "axes": np.array([2])},
    )
    prepared = prepare(saved(model, path), [{"x": floats(1, 4, 1, 9)}])
    assert op_types(prepared.graph.model) == ["Conv", "Relu", "MaxPool"]
    assert prepared.difference_db > 100


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


def test_what_a_model_says_of_itself_outlives_preprocessing(path: Path) -> None:
    model = a_convnet(opset=13)
    model.domain, model.model_version, model.doc_string = "org.example", 7, "A detector."
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    found = prepare(saved(model, path), [feed_of(model)]).graph.model
    assert (found.domain, found.model_version, found.doc_string) == ("org.example", 7, "A detector.")
    assert {entry.key: entry.value for entry in found.metadata_props} == {"names": "{0: 'cat'}", "stride": "32"}


def test_what_leads_to_no_output_is_left_out(path: Path) -> None:
    body = "a = MatMul(x, w) dead = MatMul(a, w) y = Relu(a)"
    model = model_of("(float[2,4] x) => (float[2,4] y)", body, {"w": floats(4, 4)})
    prepared = prepare(saved(model, path), feeds_of(2, 4))
    assert prepared.graph.outputs == ("y",)
    assert not {"dead"} & prepared.graph.producer.keys()


@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 5, 4)], ids=["of one length", "of many lengths"])
def test_layers_that_are_loops_over_cells_of_an_lstm_can_be_quantized(path: Path, lengths: tuple[int, ...]) -> None:
    cell = """(int64 i, bool c, float[n,4] h, float[n,4] k, int64 m) => (bool d, float[n,4] h1, float[n,4] k1,
              int64 m1, float[n,4] o) { m1 = Identity(m) d = Less(i, m) t = Gather(%s, i) p = MatMul(t, w)
              q = MatMul(h, r) pq = Add(p, q) g = Add(pq, b) gi, gf, gc, go = Split<axis=-1, num_outputs=4>(g)
              si = Sigmoid(gi) sf = Sigmoid(gf) tc = Tanh(gc) so = Sigmoid(go) kept = Mul(sf, k) new = Mul(si, tc)
              k1 = Add(kept, new) shown = Tanh(k1) h1 = Mul(so, shown) o = Identity(h1) }"""
    layers = "".join(
        f"""s{i} = Shape(x{i}) f{i} = Slice(s{i}, zero, one, zero) n{i} = Squeeze(f{i}, zero)
            hl{i}, kl{i}, ml{i}, x{i + 1} = Loop(n{i}, true, no, no, n{i}) <body = cell{i} {cell % f"x{i}"}> """
        for i in range(2)
    )
    body = f"x0 = Transpose<perm=[1,0,2]>(x) {layers} y = Transpose<perm=[1,0,2]>(x2)"
    constants: dict[str, Array] = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "true": np.array(True),
        "no": np.zeros((1, 4), np.float32),
        "w": floats(4, 16),
        "r": floats(4, 16, seed=1),
        "b": floats(16, seed=2),
    }
    feeds: list[Feed] = [{"x": floats(1, length, 4)} for length in lengths]
    prepared = prepare(saved(model_of("(float[1,t,4] x) => (float[1,t,4] y)", body, constants), path), feeds)
    layers_found = [node for node in prepared.graph.nodes if node.op_type == "LSTM"]
    assert [can_be_dynamic(node, prepared.graph) for node in layers_found] == [True, True]
    assert "Loop" not in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds)


def test_dimensions_that_have_no_name_get_none(path: Path) -> None:
    model = model_of("(float[n,4] x) => (int64[2,?] y, float[n,4] z)", "y = NonZero(x) z = Relu(x)")
    model.graph.output[0].type.tensor_type.shape.dim[1].Clear()
    prepared = prepare(saved(model, path), [{"x": floats(n, 4)} for n in (2, 3)])
    sizes = [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in prepared.graph.model.graph.output
    ]
    assert sizes == [[2, 0], ["n", 4]]
