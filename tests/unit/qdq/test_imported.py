import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

from autoquant.domain.scheme import DType, Operators, Scheme, TensorFormat
from autoquant.graph.preprocess import prepare
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.imported import FormatThere, Quantized, format_there, of_graph, of_overrides
from autoquant.qdq.overrides import tensor_quant_overrides
from autoquant.runtime.overrides import load_overrides
from tests.graphs import U8S8_CHANNEL, U16S8, case_of, scheme
from tests.models import a_convnet, a_quantized_chain, feed_of, floats, model_of, saved
from tests.quantized import quantized_by_recipe

LINEAR = scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)
SQUARE = "float[4,4]"
BODY = "a = Gemm(x, wa) s = Sigmoid(a) b = Gemm(s, wb) r = Relu(b) y = Gemm(r, wy)"
MODEL = model_of(f"({SQUARE} x) => ({SQUARE} y)", BODY, {f"w{k}": floats(4, 4, seed=i) for i, k in enumerate("aby")})


def there(names: str, found: Quantized, model: onnx.ModelProto = MODEL) -> FormatThere | None:
    graph = Graph(model)
    return format_there([node for node in graph.nodes if node.name in names.split()], graph, found)


@pytest.fixture(params=["model", "overrides"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(kind: str, folder: Path, **mix: Scheme | None) -> Quantized:
    """What our own builder writes, read again."""
    ours = case_of(MODEL).quantized(U8S8_CHANNEL, mix)
    if kind == "model":
        return of_graph(Graph(inline_external(ours.candidate.skeleton, ours.candidate.constants, {})))
    path = folder / "x.overrides.json"
    path.write_text(json.dumps(tensor_quant_overrides(ours.plan, ours.builder.planner)))
    return of_overrides(load_overrides(path))


def test_every_region_of_a_uniform_model_is_quantized(kind: str, tmp_path: Path) -> None:
    found = written(kind, tmp_path)
    assert there("a s", found) == FormatThere(DType.U8, frozenset({Operators.ALL}))
    assert there("b r", found) == FormatThere(DType.U8, frozenset(Operators))


def test_a_float_region_between_integers_is_float(kind: str, tmp_path: Path) -> None:
    found = written(kind, tmp_path, b=None, r=None)
    assert there("b r", found) is None
    assert there("a s", found) is not None
    assert there("y", found) is not None


def test_the_type_of_activations_is_told(kind: str, tmp_path: Path) -> None:
    found = written(kind, tmp_path, b=U16S8, r=U16S8)
    assert there("b r", found) == FormatThere(DType.U16, frozenset(Operators))
    assert there("y", found) == FormatThere(DType.U8, frozenset(Operators))


def test_a_region_with_linear_operators_alone_is_told_from_a_whole_one(tmp_path: Path) -> None:
    found = written("model", tmp_path, a=LINEAR, s=LINEAR, b=None, r=None)
    assert there("a s", found) == FormatThere(DType.U8, frozenset({Operators.LINEAR}))


def test_a_convolution_with_a_float_weight_is_float() -> None:
    graph = Graph(a_quantized_chain(middle_is_float=True))
    found = of_graph(graph)
    body = "a = Conv(x, w1) b = Conv(a, w2) c = Conv(b, w3) y = Identity(c)"
    plain = model_of("(float[1,4,5,5] x) => (float[1,4,5,5] y)", body, {f"w{i}": floats(4, 4, 1, 1) for i in (1, 2, 3)})
    assert there("a", found, plain) is not None
    assert there("b", found, plain) is None


MATRICES = {"w": floats(4, 4), "v": floats(4, 4, seed=1)}
REWRITTEN = {
    "a MatMul as a Gemm between Reshapes": model_of(
        "(float[1,4,4] x) => (float[1,4,4] y)", "a = MatMul(x, w) s = Sigmoid(a) y = MatMul(s, v)", MATRICES
    ),
    "a MatMul with its Add": model_of(
        f"({SQUARE} x) => ({SQUARE} y)",
        "a = MatMul(x, w) t = Add(a, b) s = Sigmoid(t) y = MatMul(s, v)",
        {**MATRICES, "b": floats(4)},
    ),
    "a Conv with its BatchNormalization": model_of(
        "(float[1,4,4,4] x) => (float[1,4,4,4] y)",
        "a = Conv(x, w) n = BatchNormalization(a, scale, b, mean, var) s = Sigmoid(n) y = Conv(s, v)",
        {
            **{name: matrix.reshape(4, 4, 1, 1) for name, matrix in MATRICES.items()},
            **{name: floats(4, seed=i) for i, name in enumerate(("scale", "b", "mean"))},
            "var": abs(floats(4)),
        },
    ),
}
"""Models of which preprocessing changes the tensors that the first linear operator reads or writes."""


@pytest.mark.parametrize("model", REWRITTEN.values(), ids=REWRITTEN)
def test_operators_that_preprocessing_rewrites_are_found_by_their_names(tmp_path: Path, model: onnx.ModelProto) -> None:
    graph = prepare(saved(model, tmp_path / "float.onnx"), [feed_of(model)]).graph
    first, last = (node.name for node in graph.nodes if node.op_type in ("Conv", "Gemm"))
    recipe = quantized_by_recipe(model, tmp_path, QuantFormat.QDQ, QuantType.QUInt8, nodes_to_exclude=["y"])
    found = of_graph(Graph(recipe))
    assert there(first, found, graph.model) == FormatThere(DType.U8, frozenset(Operators))
    assert there(last, found, graph.model) is None


@pytest.mark.parametrize(("activation", "dtype"), [(QuantType.QUInt8, DType.U8), (QuantType.QInt16, DType.S16)])
def test_nodes_of_the_domain_of_onnxruntime_quantize_too(tmp_path: Path, activation: QuantType, dtype: DType) -> None:
    options = {"UseQDQContribOps": True}
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, activation, extra_options=options)
    assert {node.domain for node in recipe.graph.node if node.op_type == "QuantizeLinear"} == {"com.microsoft"}
    assert there("a a_relu", of_graph(Graph(recipe)), a_convnet()) == FormatThere(dtype, frozenset(Operators))


@pytest.mark.parametrize(
    ("attribute", "dtype"), [("", DType.U8), ("<output_dtype = 3>", DType.S8), ("<output_dtype = 5>", DType.S16)]
)
def test_a_zero_point_that_is_left_out_is_that_of_the_type_that_is_written(attribute: str, dtype: DType) -> None:
    body = f"q = QuantizeLinear{attribute}(x, s) d = DequantizeLinear(q, s) y = Sigmoid(d)"
    quantized = model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"s": 0.1})
    plain = model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Sigmoid(x)")
    assert there("y", of_graph(Graph(quantized)), plain) == FormatThere(dtype, frozenset({Operators.ALL}))


def test_a_float_model_has_nothing_quantized() -> None:
    assert there("a s", of_graph(Graph(MODEL))) is None


def test_a_scheme_fits_by_operators_and_type() -> None:
    found = FormatThere(DType.U8, frozenset({Operators.LINEAR}))
    assert [found.is_that_of(one) for one in (U8S8_CHANNEL, LINEAR, U16S8)] == [False, True, False]


def test_no_dynamic_scheme_fits_what_has_fixed_ranges() -> None:
    assert not FormatThere(DType.U8, frozenset(Operators)).is_that_of(DYNAMIC)


DYNAMIC = scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic")
RECURRENT = model_of(
    f"({SQUARE} x) => ({SQUARE} y, float[1,1,4,3] z)",
    """a = Gemm(x, wa, b) s = Sigmoid(a) m = MatMul(s, wm) y = Gemm(m, wy)
       sh = Constant<value = int64[3] {1, 4, 4}>() f = Reshape(y, sh) z = LSTM<hidden_size=3>(f, w, r)""",
    {
        **{f"w{k}": floats(4, 4, seed=i) for i, k in enumerate("amy")},
        "b": floats(4),
        "w": floats(1, 12, 4),
        "r": floats(1, 12, 3),
    },
)


def dynamic_by_recipe(folder: Path, model: onnx.ModelProto = RECURRENT, **options: Any) -> Quantized:
    onnx.save(model, folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx", **options)
    return of_graph(Graph(onnx.load(folder / "dynamic.onnx")))


def test_what_finds_its_ranges_at_run_time_in_our_own_models_is_known() -> None:
    ours = case_of(RECURRENT).quantized(U8S8_CHANNEL, {"a": DYNAMIC, "s": DYNAMIC, "z": DYNAMIC})
    found = of_graph(Graph(inline_external(ours.candidate.skeleton, ours.candidate.constants, {})))
    assert found.dynamic == dict.fromkeys("az", TensorFormat.parse("u8:tensor:asym"))
    assert there("a s", found, RECURRENT) == FormatThere(DType.U8, frozenset(Operators), is_dynamic=True)
    assert there("m", found, RECURRENT) == FormatThere(DType.U8, frozenset(Operators))
    assert there("f z", found, RECURRENT) == there("z", found, RECURRENT) == there("a", found, RECURRENT)
    assert there("a m", found, RECURRENT) is None, "in part"


@pytest.mark.parametrize("weight", [DType.S8, DType.S4])
def test_products_in_blocks_are_told_from_others(weight: DType) -> None:
    others = scheme("s8:block-32:sym", f"{({DType.S8, DType.S4} - {weight}).pop()}:block-32:sym", ranges="dynamic")
    blocks = scheme("s8:block-32:sym", f"{weight}:block-32:sym", ranges="dynamic")
    ours = case_of(RECURRENT).quantized(U8S8_CHANNEL, {"a": blocks, "m": blocks, "y": DYNAMIC})
    found = of_graph(Graph(inline_external(ours.candidate.skeleton, ours.candidate.constants, {})))
    expected = FormatThere(DType.S8, frozenset(Operators), is_dynamic=True, in_blocks=blocks.weight)
    assert there("a s m", found, RECURRENT) == expected
    assert there("m y", found, RECURRENT) is None, "in two ways"
    assert [one for one in (U8S8_CHANNEL, DYNAMIC, others, blocks) if expected.is_that_of(one)] == [blocks]
    assert there("a s z", found, RECURRENT) == expected, "an LSTM has no kernel for blocks"


def test_a_product_that_rounds_its_weight_alone_is_not_dynamic() -> None:
    blocks = scheme("s8:block-32:sym", "s8:block-32:sym", ranges="dynamic")
    ours = case_of(RECURRENT).quantized(blocks).candidate
    model = inline_external(ours.skeleton, ours.constants, {})
    assert of_graph(Graph(model)).dynamic == dict.fromkeys("amy", blocks.weight)
    for node in model.graph.node:
        for attribute in [found for found in node.attribute if found.name == "accuracy_level"]:
            node.attribute.remove(attribute)
    assert not of_graph(Graph(model)).dynamic


def test_weights_in_blocks_have_4_bits_where_nothing_else_is_said() -> None:
    blocks = scheme("s8:block-32:sym", "s4:block-32:sym", ranges="dynamic")
    ours = case_of(RECURRENT).quantized(blocks).candidate
    model = inline_external(ours.skeleton, ours.constants, {})
    for node in model.graph.node:
        for attribute in [found for found in node.attribute if found.name == "bits"]:
            node.attribute.remove(attribute)
    assert of_graph(Graph(model)).dynamic == dict.fromkeys("amy", blocks.weight)


@pytest.mark.parametrize("per_channel", [False, True])
def test_what_quantize_dynamic_writes_is_known_by_the_names_of_the_float_model(
    tmp_path: Path, per_channel: bool
) -> None:
    found = dynamic_by_recipe(tmp_path, per_channel=per_channel)
    assert len(found.dynamic) == 4
    assert there("a s m y z", found, RECURRENT) == FormatThere(DType.U8, frozenset(Operators), is_dynamic=True)


def test_names_that_end_as_those_of_quantize_dynamic_are_not_cut(tmp_path: Path) -> None:
    model = model_of(
        f"({SQUARE} x) => ({SQUARE} y)",
        "a_MatMul = MatMul(x, w) b_quant = MatMul(a_MatMul, w) y = MatMul(b_quant, w)",
        {"w": floats(4, 4)},
    )
    by_recipe = dynamic_by_recipe(tmp_path, model, nodes_to_quantize=["a_MatMul", "b_quant"])
    ours = case_of(model).quantized(DYNAMIC, {"y": None})
    for found in (by_recipe, of_graph(Graph(inline_external(ours.candidate.skeleton, ours.candidate.constants, {})))):
        assert there("a_MatMul b_quant", found, model) == FormatThere(DType.U8, frozenset(Operators), is_dynamic=True)
        assert there("y", found, model) is None


def test_convolutions_that_no_scheme_makes_dynamic_are_none(tmp_path: Path) -> None:
    found = dynamic_by_recipe(tmp_path, a_convnet(), op_types_to_quantize=["Conv"])
    assert not found.dynamic


def test_dynamic_schemes_alone_fit_what_has_ranges_found_at_run_time() -> None:
    found = FormatThere(DType.U8, frozenset(Operators), is_dynamic=True)
    assert [found.is_that_of(one) for one in (U8S8_CHANNEL, LINEAR, DYNAMIC)] == [False, False, True]
