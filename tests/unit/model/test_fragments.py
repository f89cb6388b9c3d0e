import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

from autoquant.model import fragments
from tests.models import a_convnet, constants_of, feed_of, floats, outputs_of


def test_a_model_is_the_concatenation_of_its_fragments() -> None:
    model = a_convnet()
    pieces = [fragments.head(model)]
    pieces += [fragments.initializer(name, array) for name, array in constants_of(model).items()]
    pieces += [fragments.rewired(node, node.input, node.output) for node in model.graph.node]
    joined = onnx.load_from_string(b"".join(pieces))
    onnx.checker.check_model(joined, full_check=True)
    assert joined.graph.node == model.graph.node
    assert joined.opset_import == model.opset_import
    feed = feed_of(model)
    np.testing.assert_array_equal(outputs_of(joined, feed)[0], outputs_of(model, feed)[0])


def test_the_head_has_a_name_and_an_ir_version_for_16_bit_types_even_if_the_model_has_not() -> None:
    model = a_convnet()
    model.ir_version = 6
    model.graph.name = ""
    head = onnx.load_from_string(fragments.head(model))
    assert head.ir_version == 10
    assert head.graph.name
    assert not head.graph.node
    assert not head.graph.initializer


def test_what_a_model_says_of_itself_is_kept_beside_what_is_added() -> None:
    model = a_convnet()
    model.domain, model.model_version, model.doc_string = "org.example", 7, "A detector."
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    pieces = [fragments.initializer(name, array) for name, array in constants_of(model).items()]
    made = fragments.inline_external(b"".join([fragments.head(model), *pieces]), {}, {"stride": "16", "who": "we"})
    assert (made.domain, made.model_version, made.doc_string) == ("org.example", 7, "A detector.")
    assert {p.key: p.value for p in made.metadata_props} == {"names": "{0: 'cat'}", "stride": "16", "who": "we"}
    assert made.producer_name == "autoquant"


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_new_node_has_an_axis_where_one_is_given(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    (node,) = onnx.load_from_string(fragments.node("QuantizeLinear", ["x", "s"], ["q"], "n", **attributes)).graph.node
    assert (node.op_type, node.name, list(node.input), list(node.output)) == ("QuantizeLinear", "n", ["x", "s"], ["q"])
    assert {a.name: a.i for a in node.attribute} == ({} if axis is None else {"axis": axis})


def test_rewiring_replaces_ends_and_given_attributes_and_leaves_the_node_untouched() -> None:
    proto = helper.make_node("Gemm", ["a", "b", "c"], ["y"], name="g", beta=2.0, transB=1)
    (node,) = onnx.load_from_string(fragments.rewired(proto, ["p", "q"], ["r"], beta=1.0)).graph.node
    assert (list(node.input), list(node.output), node.name) == (["p", "q"], ["r"], "g")
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {"beta": 1.0, "transB": 1}
    assert proto == helper.make_node("Gemm", ["a", "b", "c"], ["y"], name="g", beta=2.0, transB=1)


def test_external_constants_are_put_back_inline_with_metadata() -> None:
    model = a_convnet()
    arrays = constants_of(model)
    skeleton = fragments.head(model) + b"".join(fragments.external(name, array) for name, array in arrays.items())
    external = onnx.load_from_string(skeleton)
    assert all(t.data_location == onnx.TensorProto.EXTERNAL and not t.raw_data for t in external.graph.initializer)
    inlined = fragments.inline_external(skeleton, arrays, {"who": "autoquant"})
    assert {p.key: p.value for p in inlined.metadata_props} == {"who": "autoquant"}
    for name, array in constants_of(inlined).items():
        np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize(
    "array",
    [
        floats(300, 200),
        np.float32(2.0),
        np.zeros((0, 4)),
        floats(8, 9).T,
        np.ones(9, bool),
    ],
    ids=["large", "scalar", "empty", "not contiguous", "bool"],
)
def test_a_whole_model_is_one_message_with_the_values_of_its_constants(array: npt.NDArray[np.generic]) -> None:
    model = a_convnet()
    inner = fragments.initializer("inner", floats(2))
    skeleton = fragments.head(model) + fragments.external("w", np.asarray(array)) + inner
    pieces = list(fragments.whole(skeleton, {"w": np.asarray(array)}, {}))
    found = onnx.load_from_string(b"".join(pieces))
    assert {name: value.tolist() for name, value in constants_of(found).items()} == {
        "inner": floats(2).tolist(),
        "w": array.tolist(),
    }
    before_graph = onnx.load_from_string(bytes(pieces[0]))
    assert not before_graph.HasField("graph"), "some readers take the last graph alone"
    assert len(b"".join(pieces[1:])) == onnx.ModelProto(graph=found.graph).ByteSize()


def test_an_external_constant_that_is_not_given_is_a_key_error() -> None:
    skeleton = fragments.head(a_convnet()) + fragments.external("w", floats(2))
    with pytest.raises(KeyError, match="w"):
        fragments.inline_external(skeleton, {}, {})
