import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError
from onnx.external_data_helper import uses_external_data

from autoquant.errors import ModelError
from autoquant.model.copies import (
    copy_of,
    from_bytes,
    in_parts,
    model_digest,
    opset_of,
    to_bytes,
    without_weights,
)
from autoquant.model.rewrite import with_outputs
from tests.models import Array, a_convnet, floats, model_of


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


def test_a_model_in_parts_names_its_large_weights_and_keeps_the_others() -> None:
    halves = floats(2048).astype(np.float16)
    weights: dict[str, Array | float] = {"w": floats(64, 64), "h": halves, "b": floats(64), "i": np.arange(2000)}
    body = "p = MatMul(x, w) y = Add(p, b) t = Gather(h, i) u = Identity(r)"
    model = model_of("(float[1,64] x) => (float[1,64] y)", body, weights)
    rounded = onnx.TensorProto(name="r", dims=[2048], data_type=onnx.TensorProto.BFLOAT16, raw_data=bytes(4096))
    model.graph.initializer.append(rounded)
    before = copy_of(model)
    skeleton, arrays = in_parts(model)
    assert model == before
    assert list(arrays) == ["w", "h", "i"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, weights[name], strict=True)
    found = {tensor.name: tensor for tensor in from_bytes(skeleton).graph.initializer}
    assert {name for name, tensor in found.items() if uses_external_data(tensor)} == {"w", "h", "i"}
    assert (found["b"], found["r"]) == (before.graph.initializer[2], rounded)


@pytest.mark.parametrize("shape", [(8, 8), (64, 64)])
def test_the_digest_is_that_of_the_content(shape: tuple[int, int]) -> None:
    def model(name: str = "y", seed: int = 0) -> onnx.ModelProto:
        weights = {"w": floats(*shape, seed=seed)}
        return model_of(f"(float[1,{shape[0]}] x) => (float[1,{shape[1]}] {name})", f"{name} = MatMul(x, w)", weights)

    digests = [model_digest(model(*asked)) for asked in ((), (), ("z",), ("y", 1))]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_a_large_weight_that_nothing_reads_stays_where_it_is() -> None:
    model = model_of("(float[64,64] x) => (float[64,64] y)", "y = Relu(x)", {"w": floats(64, 64)})
    skeleton, arrays = in_parts(model)
    assert (from_bytes(skeleton), arrays) == (model, {})


def test_what_is_opened_in_parts_may_be_rewritten() -> None:
    model = model_of("(float[1,64] x) => (float[1,64] y)", "h = MatMul(x, w)\ny = Relu(h)", {"w": floats(64, 64)})
    skeleton, arrays = in_parts(model, lambda given: with_outputs(given, {"h": None}))
    assert [value.name for value in from_bytes(skeleton).graph.output] == ["y", "h"]
    assert (list(arrays), len(model.graph.output)) == (["w"], 1)
