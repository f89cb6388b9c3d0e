import onnx
import pytest
from google.protobuf.message import EncodeError

from autoquant.errors import ModelError
from autoquant.model.copies import copy_of, from_bytes, opset_of, to_bytes, without_weights
from tests.models import a_convnet, floats, model_of


def test_a_copy_is_apart_from_the_model() -> None:
    model = a_convnet()
    copy = copy_of(model)
    assert copy == model
    copy.graph.node[0].name = "other"
    assert model == a_convnet()


def test_bytes_are_the_model() -> None:
    assert from_bytes(to_bytes(a_convnet())) == a_convnet()


@pytest.mark.parametrize("error", [ValueError, EncodeError])
def test_a_model_that_protobuf_cannot_hold_is_refused(
    error: type[Exception],
) -> None:
    """protobuf 7.34 began to raise an error of its own."""

    class Large:
        def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
            raise error("too large")

    with pytest.raises(ModelError, match="larger than the 2 GiB that protobuf can hold"):
        to_bytes(Large())  # type: ignore[arg-type]


def test_the_opset_is_that_of_onnx_itself() -> None:
    model = a_convnet(opset=13)
    assert opset_of(model) == 13
    model.opset_import[0].domain = "ai.onnx"
    assert opset_of(model) == 13
    del model.opset_import[0]
    assert opset_of(model) == 1


def test_large_weights_are_left_out_of_a_rewrite_and_put_back_behind_it() -> None:
    weights = {"w": floats(64, 64), "b": floats(64)}
    model = model_of("(float[1,64] x) => (float[1,64] y)", "h = MatMul(x, w)\ny = Add(h, b)", weights)
    model.graph.initializer[0].doc_string = "trained"
    model.graph.initializer[0].metadata_props.add(key="by", value="us")
    before, seen = copy_of(model), []

    def renamed(skeleton: onnx.ModelProto) -> onnx.ModelProto:
        seen.append({tensor.name: len(tensor.raw_data) for tensor in skeleton.graph.initializer})
        skeleton.graph.name = "other"
        return skeleton

    found = without_weights(model, renamed)
    assert seen == [{"w": 0, "b": 256}]
    assert (found.graph.name, model) == ("other", before)
    assert list(found.graph.initializer) == list(before.graph.initializer)
