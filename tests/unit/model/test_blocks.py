"""What is computed in blocks of channels."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.model.blocks import Role, constant_of, images_of, role_of, takes_blocks
from autoquant.model.graph import Graph
from tests.graphs import optimized
from tests.models import Array, floats, model_of, used_in

CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(16, 16, 1, 1),
    "narrow": floats(12, 16, 1, 1),
    "few": floats(16, 6, 1, 1),
    "odd": floats(16, 9, 1, 1),
    "depth": floats(16, 1, 1, 1),
    "half": floats(16, 8, 1, 1),
    "quarter": floats(16, 4, 1, 1),
    "two": 2.0,
    "none": 0.0,
    "tiny": 1e-42,
    "endless": np.inf,
    "wide": floats(1, 1, 1, 1, 1),
    "each": floats(16, 1, 1),
    "one_sample": floats(1, 16, 1, 1),
    "both": floats(2, 16, 1, 1),
    "low": 0.0,
    "twice": np.array([1, 1, 2, 2], np.float32),
    "larger": np.array([1, 16, 12, 12]),
    "broader": np.array([1, 16, 9, 9]),
    "deeper": np.array([1, 32, 6, 6]),
}


def a_model(given: str, body: str) -> onnx.ModelProto:
    return model_of(f"({given}) => (float[] y)", body, used_in(body, CONSTANTS))


def a_graph(call: str, given: str = "float[1,16,6,6] x, float[1,16,6,6] z, float[1,16,1,1] s, float h") -> Graph:
    return Graph(a_model(given, f"y = {call}"))


def role(call: str, given: str = "") -> Role | None:
    graph = a_graph(call, given) if given else a_graph(call)
    return role_of(graph.nodes[0], graph)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Conv(x, w)", Role.SOURCE),
        ("Conv(x, narrow)", None),
        ("Conv(x, s)", None),
        ("Conv<group=16>(x, depth)", Role.SOURCE),
        ("Conv<group=2>(x, half)", Role.SOURCE),
        ("Conv<group=4>(x, quarter)", None),
        ("MaxPool<kernel_shape=[2,2]>(x)", Role.SOURCE),
        ("Relu(x)", Role.PASSING),
        ("Elu(x)", None),
        ("Add(x, z)", Role.JOINING),
        ("Add(x, s)", None),
        ("Sub(x, z)", None),
        ("Concat<axis=1>(x, z)", Role.JOINING),
        ("Concat<axis=2>(x, z)", None),
        ("Clip(x, low)", Role.FUSED),
        ("Clip(x, h)", None),
        ("LeakyRelu(x)", Role.FUSED),
        ("Add(two, x)", Role.CONSTANT),
        ("Mul(x, each)", Role.CONSTANT),
        ("Mul(s, each)", Role.CONSTANT),
        ("Sub(x, two)", Role.CONSTANT),
        ("Sub(two, x)", None),
        ("Div(x, two)", Role.CONSTANT),
        ("Div(x, none)", None),
        ("Div(x, tiny)", None),
        ("Mul(x, endless)", None),
        ("Mul(x, wide)", None),
        ("Resize(x, , twice)", None),
    ],
)
def test_an_operator_has_a_role(call: str, expected: Role | None) -> None:
    assert role(call) is expected


@pytest.mark.parametrize(
    ("constant", "expected"), [("each", Role.CONSTANT), ("one_sample", Role.CONSTANT), ("both", None)]
)
def test_a_constant_is_the_same_for_all_samples(constant: str, expected: Role | None) -> None:
    assert role(f"Mul(x, {constant})", "float[2,16,6,6] x") is expected


@pytest.mark.parametrize(("n_channels", "weight"), [(6, "few"), (9, "odd")])
def test_a_convolution_reads_few_channels_or_whole_quarters(n_channels: int, weight: str) -> None:
    expected = Role.SOURCE if n_channels < 8 else None
    assert role(f"Conv(x, {weight})", f"float[1,{n_channels},6,6] x") is expected


@pytest.mark.parametrize("given", ["float[1,12,6,6] x", "float[1,16,6] x", "float[1,16,N,6] x", "double[1,16,6,6] x"])
def test_what_is_no_image_of_whole_blocks_has_none(given: str) -> None:
    assert role("Sigmoid(x)", given) is None


FLOOR = 'nearest_mode="floor", coordinate_transformation_mode="asymmetric"'


@pytest.mark.parametrize(
    ("call", "is_in_blocks"),
    [
        (f"Resize<{FLOOR}>(@, , twice)", True),
        ('Resize<mode="linear">(@, , twice)', True),
        ('Resize<mode="linear">(@, , , larger)', True),
        ('Resize<mode="linear">(@, , , broader)', False),
        ('Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(@, , twice)', False),
        ('Resize<coordinate_transformation_mode="asymmetric">(@, , twice)', False),
        ("Sigmoid(@)", True),
        ("HardSigmoid(@)", True),
        ("Gelu(@)", True),
        ("Elu(@)", False),
        ("MaxPool<kernel_shape=[2,2], pads=[1,1,1,1]>(@)", True),
        ("Concat<axis=1>(@, @)", True),
        ("Mul(@, two)", False),
    ],
)
def test_roles_are_what_onnxruntime_does(call: str, is_in_blocks: bool, tmp_path: Path) -> None:
    operator = call.replace("@", "m")
    body = f"a = Conv(x, w) b = Conv(a, w) m = Mul(a, b) t = {operator} y = MaxPool<kernel_shape=[2,2]>(t)"
    model = a_model("float[1,16,6,6] x", body)
    graph = Graph(model)
    assert (role_of(graph.producer[graph.nodes[3].outputs[0]], graph) not in (None, Role.CONSTANT)) is is_in_blocks
    kernels = [name.rpartition(":")[2] for name in optimized(model, tmp_path).kernels]
    assert kernels.count("ReorderOutput") == (1 if is_in_blocks else 2)


@pytest.mark.parametrize(
    ("call", "expected"),
    [("Conv(x, w)", True), ("Conv(x, s)", False), ("GlobalMaxPool(x)", True), ("Relu(x)", False)],
)
def test_convolutions_and_pools_take_blocks(call: str, expected: bool) -> None:
    graph = a_graph(call)
    assert takes_blocks(graph.nodes[0], graph) is expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [("Add(x, z)", ["x", "z"]), ("Mul(two, x)", ["x"]), ("Conv(x, w)", ["x"]), ("Clip(x, low)", ["x"])],
)
def test_images_are_what_is_in_blocks(call: str, expected: list[str]) -> None:
    graph = a_graph(call)
    assert images_of(graph.nodes[0], graph) == expected


def test_the_constant_is_found_on_either_side() -> None:
    for call in ("Add(two, x)", "Add(x, two)"):
        graph = a_graph(call)
        assert constant_of(graph.nodes[0], graph) == "two"
