from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Operators, Scheme
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.imported import FormatThere, format_there, of_graph
from autoquant.qdq.params import dequantize, quantize
from tests.graphs import U8S8_CHANNEL, U16S8, Quantized, case_of, exact, opened, optimized, run, scheme
from tests.models import Array, floats, model_of, op_types

IMAGE = "float[1,4,6,6]"
SWISH = "c = Conv(x, w) h = HardSigmoid<alpha=0.16666667, beta=0.5>(c) m = Mul(c, h) y = Conv(m, w)"
GATE = "c = Conv(x, w) h = HardSigmoid<alpha=0.16666667, beta=0.5>(c) m = Mul(x, h) y = Conv(m, w)"
S8 = scheme("s8:tensor:asym", "s8:channel:sym")


def a_model(body: str, outputs: str = f"{IMAGE} y", *, size: float = 2.0, opset: int = 21) -> onnx.ModelProto:
    constants: dict[str, Array | float] = {"w": size * floats(4, 4, 1, 1), "one": 1.0, "zero": 0.0}
    return model_of(f"({IMAGE} x) => ({outputs})", body, constants, opset=opset)


def forms(model: onnx.ModelProto) -> list[str]:
    """As what HardSigmoids are written."""
    return [op for op in op_types(model) if op in ("Add", "Clip", "HardSigmoid")]


def numbers(ours: Quantized, tensor: str) -> tuple[float, int]:
    """Scale and zero point with which u8 are read."""
    name = TensorName(tensor)
    key = ours.plan.produced[name] if name in ours.plan.produced else ours.plan.entries[name, DType.U8]
    params = ours.builder.planner.params(key)
    return float(params.scale), int(params.zero_point)


def test_a_hard_swish_between_convolutions_runs_on_integers_throughout(tmp_path: Path) -> None:
    ours = case_of(a_model(SWISH)).quantized(exact(U8S8_CHANNEL)).model
    onnx.checker.check_model(ours, full_check=True)
    assert optimized(ours, tmp_path).integer_nodes >= {"c", "h", "m", "y"}


@pytest.mark.parametrize("taken", [U8S8_CHANNEL, S8], ids=["u8", "s8"])
@settings(max_examples=30, deadline=None)
@given(alpha=st.floats(0.0625, 4, width=32), beta=st.floats(0.0625, 2, width=32), spread=st.floats(0.1, 20))
def test_the_integers_are_those_of_the_function(taken: Scheme, alpha: float, beta: float, spread: float) -> None:
    model = a_model(f"y = HardSigmoid<alpha={alpha}, beta={beta}>(x)")
    feed = {"x": (spread * floats(1, 4, 6, 6)).astype(np.float32)}
    ours = case_of(model, feed).quantized(taken)
    (expected,), (fused,), (plain,) = (
        run(model, feed),
        run(ours.model, feed),
        opened(ours.model, is_optimized=False).run(None, feed),
    )
    planner = ours.builder.planner
    (read,), (written,) = ours.plan.entries.values(), ours.plan.produced.values()
    step_read, step = float(planner.params(read).scale), float(planner.params(written).scale)
    np.testing.assert_allclose(plain, expected, atol=0.51 * (alpha * step_read + step) + 1e-6)
    np.testing.assert_allclose(fused, plain, atol=1.01 * step)


@settings(max_examples=50, deadline=None)
@given(
    alpha=st.floats(0.0625, 4, width=32),
    beta=st.sampled_from([0.25, 0.5, 1.0]),
    spread=st.floats(0.5, 8),
    is_swish=st.booleans(),
)
def test_clipped_integers_stand_for_what_the_function_makes_of_those_that_it_reads(
    alpha: float, beta: float, spread: float, is_swish: bool
) -> None:
    body = f"h = HardSigmoid<alpha={alpha}, beta={beta}>(x)" + (" y = Mul(x, h)" if is_swish else "")
    values = (spread * beta / alpha * floats(1, 4, 6, 6)).astype(np.float32)
    case = case_of(a_model(body, f"{IMAGE} h, {IMAGE} y" if is_swish else f"{IMAGE} h"), {"x": values})
    ours = case.quantized(U8S8_CHANNEL)
    assert forms(ours.model) == ["Clip"]
    scale, zero_point = numbers(ours, "x")
    np.testing.assert_allclose(scale * zero_point, beta / alpha, rtol=1e-5)
    assert scale <= 1.26 * (min(max(-float(values.min()), 0), beta / alpha) + max(float(values.max()), 0)) / 255
    params = ours.builder.planner.params(ours.plan.entries[TensorName("x"), DType.U8])
    read = dequantize(quantize(values, params, None), params, None)
    expected = np.clip(alpha * read + beta, 0, 1)
    fused, plain = run(ours.model, case.feed)[0], opened(ours.model, is_optimized=False).run(None, case.feed)[0]
    np.testing.assert_array_equal(fused, plain)
    np.testing.assert_allclose(fused, expected, atol=1e-5)
    np.testing.assert_allclose(fused, np.clip(alpha * values + beta, 0, 1), atol=0.51 * alpha * scale)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (SWISH, "Clip"),
        (GATE, "Clip"),
        ("c = Conv(x, w) h = HardSigmoid(c) y = Conv(h, w)", "Clip"),
        ("c = Conv(x, w) g = HardSigmoid(c) h = HardSigmoid<alpha=1.0, beta=0.1>(g) y = Mul(x, h)", "Clip"),
        ("c = Conv(x, w) h = HardSigmoid(c) m = Mul(c, h) n = Mul(h, c) y = Sub(m, n)", "Clip"),
        ("c = Conv(x, w) h = HardSigmoid<beta=0.3>(c) y = Conv(h, w)", "Add"),
        ("c = Conv(x, w) h = HardSigmoid(c) m = Mul(c, h) y = Mul(c, m)", "Add"),
        ("c = Conv(x, w) h = HardSigmoid(c) m = Mul(c, h) r = Tanh(c) y = Mul(m, r)", "Add"),
        ("c = Conv(x, w) r = Relu(c) h = HardSigmoid(r) y = Conv(h, w)", "Add"),
        ("c = Conv(x, w) t = Transpose<perm=[0,1,3,2]>(c) h = HardSigmoid(t) y = Conv(h, w)", "Add"),
        ("c = Conv(x, w) s = Softmax(c) h = HardSigmoid(s) y = Conv(h, w)", "Add"),
        ("c = Conv(x, w) h = HardSigmoid(c) t = Transpose<perm=[0,1,3,2]>(h) y = Conv(t, w)", "Add"),
        ("c = Conv(x, w) g = GlobalAveragePool(c) h = HardSigmoid(g) y = Mul(x, h)", "Add"),
        ("c = Conv(x, w) h = HardSigmoid(c) g = GlobalAveragePool(h) y = Mul(x, g)", "Add"),
    ],
)
def test_integers_are_clipped_where_nothing_else_needs_the_range_of_what_is_read(body: str, form: str) -> None:
    assert set(forms(case_of(a_model(body)).quantized(U8S8_CHANNEL).model)) == {form}


@pytest.mark.parametrize(("outputs", "form"), [("c", "Add"), ("h", "Clip"), ("m", "Clip")])
def test_what_the_graph_gives_out_is_not_clipped(outputs: str, form: str) -> None:
    case = case_of(a_model(SWISH, f"{IMAGE} y, {IMAGE} {outputs}"))
    assert forms(case.quantized(U8S8_CHANNEL).model) == [form]


@pytest.mark.parametrize(("opset", "form"), [(11, "Add"), (12, "Clip")])
def test_clip_takes_integers_from_opset_12_on(opset: int, form: str) -> None:
    case = case_of(a_model(SWISH, opset=opset))
    ours = case.quantized(scheme("u8:tensor:asym", "s8:tensor:sym")).model
    assert forms(ours) == [form]
    assert run(ours, case.feed)[0].shape == (1, 4, 6, 6)


@pytest.mark.parametrize("size", [0.001, 0.3, 1.0, 100.0])
def test_a_range_that_would_get_much_wider_stays(size: float) -> None:
    case = case_of(a_model(SWISH, size=size))
    ours = case.quantized(U8S8_CHANNEL)
    low, high = map(float, case.extremes[TensorName("c")])
    scale, zero_point = numbers(ours, "c")
    is_clipped = forms(ours.model) == ["Clip"]
    assert is_clipped is (size > 0.3)
    np.testing.assert_allclose(zero_point * scale, 3 if is_clipped else -low, atol=0.01 * (high - low))
    assert (255 - zero_point) * scale >= 0.99 * high


def test_a_gate_covers_no_more_than_makes_a_difference() -> None:
    ours = case_of(a_model(GATE, size=100.0)).quantized(U8S8_CHANNEL)
    for tensor, scale, zero_point in (("c", 3 / 127, 127), ("h", 1 / 254, 0)):
        np.testing.assert_allclose(numbers(ours, tensor), (scale, zero_point), rtol=1e-6)


@pytest.mark.parametrize(
    ("mix", "form"),
    [
        ({"c": None}, "Clip"),
        ({"m": None}, "Clip"),
        ({"c": U16S8, "m": U16S8, "y": U16S8}, "Clip"),
        ({"c": S8}, "Clip"),
        ({"c": scheme("u8:tensor:asym", "s8:channel:sym", ranges="percentile-99")}, "Clip"),
        ({"c": scheme("u8:tensor:sym", "s8:channel:sym")}, "Add"),
        ({"c": scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2")}, "Add"),
        ({"h": S8, "c": S8}, "Add"),
        ({"h": S8}, "Add"),
        ({"h": None}, "HardSigmoid"),
    ],
    ids=str,
)
@pytest.mark.parametrize("body", [SWISH, GATE], ids=["hard swish", "gate"])
def test_the_format_that_it_reads_decides(mix: dict[str, Scheme | None], form: str, body: str) -> None:
    case = case_of(a_model(body))
    ours = case.quantized(exact(U8S8_CHANNEL), {name: exact(taken) for name, taken in mix.items()}).model
    onnx.checker.check_model(ours, full_check=True)
    assert forms(ours) == [form]
    graph = Graph(ours)
    assert all(graph.consumers.get(name) or name in graph.outputs for node in graph.nodes for name in node.outputs)
    expected, plain = run(case.graph.model, case.feed)[0], opened(ours, is_optimized=False).run(None, case.feed)[0]
    for found in (run(ours, case.feed)[0], plain):
        assert 10 * np.log10((expected**2).sum() / ((found - expected) ** 2).sum()) > 25


def test_channels_stay_last_from_one_convolution_to_the_next(tmp_path: Path) -> None:
    """onnxruntime moves its Transposes past a Clip."""
    body = """a = Conv(x, w) ha = HardSigmoid(a) b = Mul(a, ha)
              d = Conv<group=16, kernel_shape=[3,3], pads=[1,1,1,1]>(b, v) hd = HardSigmoid(d) e = Mul(d, hd)
              p = GlobalAveragePool(e) q = Conv(p, w) r = Relu(q) s = Conv(r, w) g = HardSigmoid(s) f = Mul(e, g)
              y = Conv(f, w)"""
    signature = "(float[1,16,8,8] x) => (float[1,16,8,8] y)"
    weights: dict[str, Array | float] = {"w": floats(16, 16, 1, 1), "v": 2 * floats(16, 1, 3, 3)}
    case = case_of(model_of(signature, body, weights))
    ours = case.quantized(exact(U8S8_CHANNEL)).model
    found = optimized(ours, tmp_path)
    assert (found.kernels.count("Clip"), found.kernels.count("Transpose")) == (3, 2)
    assert found.integer_nodes >= {node.name for node in case.graph.nodes if node.op_type != "Relu"}
    plain = opened(ours, is_optimized=False).run(None, case.feed)[0]
    np.testing.assert_allclose(run(ours, case.feed)[0], plain, atol=0.03 * np.abs(plain).max())


@pytest.mark.parametrize("body", [SWISH, GATE], ids=["hard swish", "gate"])
@pytest.mark.parametrize("taken", [U8S8_CHANNEL, S8], ids=["clipped", "sum"])
def test_what_is_written_is_read_as_the_scheme_that_it_is_of(body: str, taken: Scheme) -> None:
    case = case_of(a_model(body))
    ours = case.quantized(taken).candidate
    found = of_graph(Graph(inline_external(ours.skeleton, ours.constants, {})))
    there = format_there([node for node in case.graph.nodes if node.name in "chm"], case.graph, found)
    assert there == FormatThere(taken.activation.dtype, frozenset({Operators.ALL}))


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) h = HardSigmoid(c) y = Conv(h, w)",
        "c = Conv(x, w) h = HardSigmoid(c) r = Relu(h) y = Conv(r, w)",
        "c = Conv(x, w) h = HardSigmoid(c) r = Clip(h, zero, one) y = Conv(r, w)",
        "h = HardSigmoid(x) t = Transpose<perm=[0,1,3,2]>(h) y = Conv(t, w)",
        "h = HardSigmoid(x) t = Tanh(h) y = Conv(h, w)",
        SWISH,
    ],
)
@pytest.mark.parametrize("outputs", [f"{IMAGE} y", f"{IMAGE} y, {IMAGE} h"])
def test_what_is_around_it_reads_what_it_would_write(body: str, outputs: str) -> None:
    case = case_of(a_model(body, outputs))
    ours = case.quantized(exact(U8S8_CHANNEL)).model
    onnx.checker.check_model(ours, full_check=True)
    assert "HardSigmoid" not in op_types(ours)
    for found, expected in zip(run(ours, case.feed), run(case.graph.model, case.feed), strict=True):
        assert 10 * np.log10((expected**2).sum() / ((found - expected) ** 2).sum()) > 25


@pytest.mark.parametrize(
    ("taken", "call"),
    [
        (scheme("u8:tensor:sym", "s8:channel:sym"), "HardSigmoid(c)"),
        (scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2"), "HardSigmoid(c)"),
        (U16S8, "HardSigmoid(c)"),
        (U8S8_CHANNEL, "HardSigmoid<beta=0.0>(c)"),
        (U8S8_CHANNEL, "HardSigmoid<alpha=-0.2>(c)"),
    ],
    ids=["symmetric", "power of two", "16 bits", "no summand", "falling"],
)
def test_formats_and_forms_whose_integers_would_not_clip_it_leave_it_float(taken: Scheme, call: str) -> None:
    ours = case_of(a_model(f"c = Conv(x, w) h = {call} y = Conv(h, w)")).quantized(taken).model
    assert op_types(ours).count("HardSigmoid") == 1
    assert "Add" not in op_types(ours)
