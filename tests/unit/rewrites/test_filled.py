from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.rewrites.filled import Filled, Filling, fill_channels
from tests.graphs import op_types_of, run
from tests.models import Array, constants_of, floats, model_of

FEED = {"x": floats(1, 3, 8, 8, seed=3)}
SIGNATURE = "(float[1,3,8,8] x) => (float[n,c,h,w] y)"


def filled(model: onnx.ModelProto, multiple: int = 8, *, is_tight: bool = False) -> Filled:
    before = model.SerializeToString()
    found = fill_channels(Graph(model), Filling(multiple, is_tight))
    assert model.SerializeToString() == before
    assert found is not None
    onnx.checker.check_model(found.model, full_check=True)
    assert Graph(found.model).float_tensors == Graph(model).float_tensors
    for one, other in zip(run(found.model, FEED), run(model, FEED), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return found


def shapes(found: Filled) -> dict[str, Sequence[int]]:
    return {name: constants_of(found.model)[name].shape for name in constants_of(found.model)}


def test_weights_and_biases_have_zeros_for_channels_that_are_filled_in() -> None:
    model = model_of(
        SIGNATURE,
        "c = Conv(x, w, b) r = Relu(c) d = Conv<group=5, pads=[1,1,1,1]>(r, v, b) y = Conv(d, z)",
        {"w": floats(5, 3, 1, 1), "b": floats(5), "v": floats(5, 1, 3, 3), "z": floats(2, 5, 1, 1)},
    )
    found = filled(model)
    assert shapes(found) == {"w": (8, 3, 1, 1), "b_c": (8,), "v": (8, 1, 3, 3), "b_d": (8,), "z": (2, 8, 1, 1)}
    assert not constants_of(found.model)["w"][5:].any()
    graph = Graph(found.model)
    assert graph.producer[TensorName("d")].attributes["group"] == 8
    assert graph.shape(TensorName("d")) == (1, 8, 8, 8)
    assert set(found.layouts) == {"c", "r", "d"}


@pytest.mark.parametrize(
    "parting",
    [
        "a, b = Split<axis=1>(c, sizes)",
        "a, b = Split<axis=-3>(c, sizes)",
        "a = Slice(c, zero, two, one) b = Slice(c, two, six, one, one)",
        "a = Slice(c, zero, back, one) b = Slice(c, back, most, one)",
    ],
)
def test_parts_are_taken_from_where_they_are_now(parting: str) -> None:
    numbers = {"zero": [0], "one": [1], "two": [2], "six": [6], "back": [-4], "most": [2**63 - 1], "sizes": [2, 4]}
    model = model_of(
        SIGNATURE,
        f"c = Conv(x, w) {parting} j = Concat<axis=1>(b, a, b) y = Conv(j, z)",
        {"w": floats(6, 3, 1, 1), "z": floats(2, 10, 1, 1), **{n: np.array(v, np.int64) for n, v in numbers.items()}},
    )
    assert {n: (len(one.places), one.size) for n, one in filled(model).layouts.items()} == {
        "c": (6, 8),
        "b": (4, 6),
        "j": (10, 14),
    }


def test_slices_keep_the_type_of_their_numbers() -> None:
    numbers = {name: np.array([each], np.int32) for name, each in (("zero", 0), ("one", 1), ("four", 4))}
    model = model_of(
        SIGNATURE,
        "c = Conv(x, w) a = Slice(c, zero, four, one, one) y = Conv(a, z)",
        {"w": floats(6, 3, 1, 1), "z": floats(2, 4, 1, 1), **numbers},
    )
    assert constants_of(filled(model).model)["a_ends"].dtype == np.int32


def test_a_split_into_equal_parts_names_its_sizes_then() -> None:
    model = model_of(
        SIGNATURE,
        "c = Conv(x, w) a, b = Split<axis=1, num_outputs=2>(c) s = Concat<axis=1>(b, a) y = Conv(s, z)",
        {"w": floats(6, 3, 1, 1), "z": floats(2, 6, 1, 1)},
    )
    assert constants_of(filled(model).model)["a_sizes"].tolist() == [3, 5]


@pytest.mark.parametrize("sizes", [[1, 5, 16, 16], None])
def test_a_resize_keeps_the_places(sizes: list[int] | None) -> None:
    call = "Resize(c, none, scales)" if sizes is None else "Resize(c, none, none, sizes)"
    model = model_of(
        SIGNATURE,
        f"c = Conv(x, w) r = {call} y = Conv(r, z)",
        {
            "w": floats(5, 3, 1, 1),
            "z": floats(2, 5, 1, 1),
            "none": np.zeros(0, np.float32),
            "scales": np.array([1, 1, 2, 2], np.float32),
            "sizes": np.array(sizes or [], np.int64),
        },
    )
    assert Graph(filled(model).model).shape(TensorName("r")) == (1, 8, 16, 16)


def test_what_a_model_says_of_the_shape_of_a_constant_is_told_anew() -> None:
    model = model_of(
        SIGNATURE,
        "c = Conv(x, w) j = Concat<axis=1>(c, zeros) y = Conv(j, z)",
        {"w": floats(5, 3, 1, 1), "zeros": np.zeros((1, 3, 8, 8), np.float32), "z": floats(2, 8, 1, 1)},
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("zeros", onnx.TensorProto.FLOAT, (1, 3, 8, 8)))
    assert Graph(filled(model).model).shape(TensorName("j")) == (1, 16, 8, 8)


def test_nothing_is_made_where_nothing_is_to_be_filled_up() -> None:
    model = model_of(SIGNATURE, "y = Conv(x, w)", {"w": floats(5, 3, 1, 1)})
    assert fill_channels(Graph(model), Filling(8)) is None


class _Writer:
    """Writes a network of images, one operator after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[str] = []
        self.constants: dict[str, Array | float] = {}
        self.channels = {"x": 3}

    def constant(self, array: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def add(self, call: str, channels: int) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(f"{name} = {call}")
        self.channels[name] = channels
        return name

    def conv(self, source: str, n: int) -> str:
        return self.add(f"Conv({source}, {self.weights(n, self.channels[source], 1, 1)}, {self.weights(n)})", n)

    def step(self, kind: str) -> None:
        source = str(self.rng.choice(list(self.channels)))
        n = self.channels[source]
        alike = [name for name, channels in self.channels.items() if channels == n]
        match kind:
            case "conv":
                self.conv(source, int(self.rng.integers(1, 14)))
            case "depthwise" if n > 1:
                self.add(f"Conv<group={n}, pads=[1,1,1,1]>({source}, {self.weights(n, 1, 3, 3)})", n)
            case "function":
                self.add(f"{self.rng.choice(['Cos', 'Mish', 'Relu', 'Sigmoid', 'Tanh'])}({source})", n)
            case "binary":
                self.add(f"{self.rng.choice(['Add', 'Mul', 'Sub'])}({source}, {self.rng.choice(alike)})", n)
            case "constant":
                self.add(f"{self.rng.choice(['Add', 'Mul'])}({source}, {self.weights(n, 1, 1)})", n)
            case "concat":
                other = str(self.rng.choice(list(self.channels)))
                self.add(f"Concat<axis=1>({source}, {other})", n + self.channels[other])
            case "slice" if n > 2:
                low, high = sorted(self.rng.choice(n + 1, 2, replace=False).tolist())
                ends = [self.constant(np.array([each], np.int64)) for each in (low, high, 1)]
                self.add(f"Slice({source}, {', '.join(ends)})", high - low)
            case _:
                self.add(f"Softmax<axis=1>({source})", n)

    def model(self) -> onnx.ModelProto:
        last = self.conv(list(self.channels)[-1], 2)
        return model_of(SIGNATURE, f"{' '.join(self.nodes)} y = Relu({last})", self.constants)


KINDS = ("conv", "conv", "depthwise", "function", "binary", "constant", "concat", "slice", "softmax")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kinds=st.lists(st.sampled_from(KINDS), min_size=4, max_size=16),
    multiple=st.sampled_from([4, 8, 16]),
    is_tight=st.booleans(),
)
def test_the_model_computes_the_same(seed: int, kinds: list[str], multiple: int, is_tight: bool) -> None:
    writer = _Writer(seed)
    for kind in ("conv", *kinds):
        writer.step(kind)
    model = writer.model()
    found = fill_channels(Graph(model), Filling(multiple, is_tight))
    if found is None:
        return
    same = filled(model, multiple, is_tight=is_tight)
    assert op_types_of(same.model) == op_types_of(model)
    assert [node.name for node in same.model.graph.node] == [node.name for node in model.graph.node]
    for name, layout in same.layouts.items():
        assert Graph(same.model).shape(name) == (1, layout.size, 8, 8)
