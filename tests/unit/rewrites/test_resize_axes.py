import numpy as np
import onnx
import pytest

from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.resize_axes import spell_axes
from autoquant.rewrites.resizes import multiply_resizes
from tests.graphs import case_of, opened
from tests.graphs import rewritten as candidate
from tests.models import Array, feed_of, floats, model_of, op_types, outputs_of
from tests.rewriting import rewritten

IMAGE = "float[1,4,6,5]"
SAID: dict[str, tuple[str, str, dict[str, Array | float]]] = {
    "sizes": ("axes=[2,3]", ", , sizes", {"sizes": np.array([12, 15])}),
    "sizes from behind": ("axes=[-1,-2]", ", , sizes", {"sizes": np.array([15, 12])}),
    "one axis": ('axes=[3], mode="linear"', ", scales", {"scales": np.array([3.0], np.float32)}),
    "scales": ('axes=[2,3], mode="linear"', ", scales", {"scales": np.array([2.0, 3.0], np.float32)}),
    "a region": (
        'axes=[3,2], mode="linear", coordinate_transformation_mode="tf_crop_and_resize"',
        "roi, , sizes",
        {"roi": np.array([0.1, 0.2, 0.8, 0.9], np.float32), "sizes": np.array([7, 9])},
    ),
}


def resized(said: str, shape: str = IMAGE) -> onnx.ModelProto:
    """Between two convolutions."""
    attributes, read, constants = SAID[said]
    body = f"a = Conv(x, w) r = Resize<{attributes}>(a, {read}) y = Conv(r, v)"
    weights = {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    return infer_shapes(model_of(f"({shape} x) => (float[1,4,H,W] y)", body, {**constants, **weights}, opset=21))


@pytest.mark.parametrize("said", SAID)
def test_all_axes_are_spelled_and_the_outputs_stay(said: str) -> None:
    model = resized(said)
    found = rewritten(spell_axes, model)
    assert op_types(found) == op_types(model)
    (node,) = (node for node in Graph(found).nodes if node.op_type == "Resize")
    assert "axes" not in node.attributes
    assert "axes" in Graph(model).nodes[node.index].attributes


@pytest.mark.parametrize("said", ["sizes", "a region"])
def test_beside_integers_only_what_spells_all_axes_runs(said: str) -> None:
    quantized = ["a", "y"]
    case = case_of(resized(said))
    with pytest.raises(Exception, match=r"Resize|Gather|Transpose"):
        _ = opened(candidate(case, quantized, frozenset())).run(None, dict(case.feed))
    spelled = case_of(infer_shapes(spell_axes(case.graph.model)))
    (found,) = opened(candidate(spelled, quantized, frozenset())).run(None, dict(spelled.feed))
    (expected,) = opened(case.graph.model).run(None, dict(case.feed))
    assert np.square(found - expected).sum() < 1e-3 * np.square(expected).sum()


@pytest.mark.parametrize(
    ("attributes", "shape", "more"),
    [
        ('axes=[2,3], keep_aspect_ratio_policy="not_larger"', IMAGE, ""),
        ("axes=[2,3]", "float[1,C,6,5]", ""),
        ("axes=[2,3]", IMAGE, "sizes = Add(one, one)"),
        ("", IMAGE, ""),
    ],
    ids=["a frame", "unknown channels", "computed sizes", "all axes"],
)
def test_what_is_not_known_or_said_of_all_axes_stays(attributes: str, shape: str, more: str) -> None:
    sizes = [12, 15] if attributes else [1, 4, 12, 15]
    constants = {"one": np.array(sizes)} if more else {"sizes": np.array(sizes)}
    body = f"{more} y = Resize<{attributes or 'antialias=0'}>(x, , , sizes)"
    model = model_of(f"({shape} x) => (float[1,A,B,C] y)", body, dict(constants), opset=21)
    assert spell_axes(model) is model


def test_factors_need_no_sizes_of_other_axes() -> None:
    attributes, read, constants = SAID["scales"]
    body = f"y = Resize<{attributes}>(x, {read})"
    found = spell_axes(model_of("(float[1,C,6,5] x) => (float[1,C,A,B] y)", body, dict(constants), opset=21))
    graph = Graph(found)
    assert graph.constant(graph.nodes[0].inputs[2]).tolist() == [1, 1, 2, 3]


def test_cubic_ones_are_products_then() -> None:
    body = 'y = Resize<mode="cubic", axes=[2,3]>(x, , scales)'
    constants: dict[str, Array | float] = {"scales": np.array([2.0, 3.0], np.float32)}
    model = model_of("(float[1,4,6,5] x) => (float[1,4,12,15] y)", body, constants, opset=21)
    found = multiply_resizes(spell_axes(model))
    assert op_types(found) == ["MatMul", "MatMul"]
    (given,), (expected,) = (outputs_of(each, feed_of(model)) for each in (found, model))
    np.testing.assert_allclose(given, expected, atol=1e-5)
