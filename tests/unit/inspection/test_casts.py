"""Float16 models on a processor for which onnxruntime has no float16 kernels."""

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.inspection import Inspection
from autoquant.inspection.types import X86
from tests.inspected import inspected, inspected_as_on, node_of
from tests.models import floats, model_of

pytestmark = pytest.mark.skipif(platform.machine() not in X86, reason="elsewhere there are float16 kernels")

HALF = {"w": floats(8, 8).astype(np.float16)}


def computed_in_float32(found: Inspection) -> dict[str, str]:
    texts = {str(remark.name): remark.text for remark in found.remarks}
    return {name: text for name, text in texts.items() if text.startswith("float16 is computed in float32")}


def a_half(body: str) -> onnx.ModelProto:
    return model_of("(float16[4,8] x) => (float16[4,8] y)", body, HALF)


def test_all_that_is_computed_between_casts_is_one_finding(tmp_path: Path) -> None:
    found = inspected(a_half("a = MatMul(x, w) t = Relu(a) y = Exp(t)"), tmp_path)
    assert found.kernels["float"]["Cast"] == 2  # type: ignore[index]
    texts = computed_in_float32(found)
    assert list(texts) == ["a", "t", "y"]
    assert set(texts.values()) == {
        "float16 is computed in float32 here, between Casts that onnxruntime adds (2 in all): use a float32 model"
    }


def test_convolutions_of_a_blocked_layout_are_found_among_the_casts(tmp_path: Path) -> None:
    signature, body = "(float16[1,16,8,8] x) => (float16[1,16,8,8] y)", "a = Conv(x, w) r = Relu(a) y = Conv(r, v)"
    weight = floats(16, 16, 1, 1).astype(np.float16)
    found = inspected(model_of(signature, body, {"w": weight, "v": weight}), tmp_path)
    assert {str(node.name): node.kernel for node in found.nodes} == dict.fromkeys(
        ("a", "r", "y"), "com.microsoft.nchwc:Conv"
    )
    assert [node.fused_into for node in found.nodes] == [None, "a", None]
    assert list(computed_in_float32(found)) == ["a", "r", "y"]


def test_a_cast_of_integers_is_computed_by_the_cast_to_float32_that_is_left_of_it(tmp_path: Path) -> None:
    model = model_of("(int64[4] x) => (float16[4] y)", "c = Cast<to=10>(x) y = Exp(c)")
    found = node_of(inspected(model, tmp_path), "c")
    assert (found.kernel, found.fused_into) == ("Cast", None)


def test_casts_in_bodies_are_counted_with_all_others(tmp_path: Path) -> None:
    body = """a = Exp(x) b = If(c) <then_branch = t () => (float16[4,8] u) { u = MatMul(a, w) },
              else_branch = e () => (float16[4,8] o) { o = Identity(a) }> y = Identity(b)"""
    model = model_of("(float16[4,8] x, bool c) => (float16[4,8] y)", body, HALF)
    model.graph.node[1].attribute[0].g.node[0].name = "inner"
    texts = computed_in_float32(inspected(model, tmp_path))
    assert list(texts) == ["a", "b/then_branch/inner"]
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[4,8] x) => (float[4,8] y)", "y = Exp(x)"),
        ("(float[4,8] x) => (float[4,8] y)", "h = Cast<to=10>(x) y = Cast<to=1>(h)"),
        ("(float16[4,8] x) => (float16[8,4] y)", "y = Transpose(x)"),
        ("(float16[4,8] x) => (float y)", "f = Cast<to=1>(x) y = Exp(f)"),
    ],
    ids=["no float16", "Casts of the file", "only moved", "computed in float32 by the file"],
)
def test_nothing_is_said_where_no_cast_was_added(signature: str, body: str, tmp_path: Path) -> None:
    assert computed_in_float32(inspected(model_of(signature, body), tmp_path)) == {}


def test_what_keeps_float16_is_left_out(tmp_path: Path) -> None:
    body = "m = Transpose(x) e = Exp(m) y = Transpose(e) z = Slice(x, first, two)"
    values = {"first": np.array([0]), "two": np.array([2])}
    model = model_of("(float16[4,8] x) => (float16[4,8] y, float16[2,8] z)", body, values)
    assert "z" not in computed_in_float32(inspected(model, tmp_path))
    assert "e" in computed_in_float32(inspected(model, tmp_path))


def test_nothing_is_known_of_other_providers(tmp_path: Path) -> None:
    assert computed_in_float32(inspected_as_on("x86_64", a_half("y = Exp(x)"), tmp_path, ep="other")) == {}
    assert computed_in_float32(inspected_as_on("x86_64", a_half("y = Exp(x)"), tmp_path)) != {}
