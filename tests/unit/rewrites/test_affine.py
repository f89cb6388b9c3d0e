from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.affine import fold_affine
from tests.models import constants_of, feed_of, floats, model_of, op_types, outputs_of
from tests.unit.rewrites.folds import assert_folds_to

N_CHANNELS = 4
SIGNATURE = "(float[1,4,6,6] x) => (float[1,4,N,N] y)"
SCALAR_SHAPES: Sequence[tuple[int, ...]] = ((), (1,), (1, 1, 1, 1))
PER_CHANNEL_SHAPES: Sequence[tuple[int, ...]] = ((4, 1, 1), (1, 4, 1, 1))


@dataclass(frozen=True)
class Step:
    """One node of a generated chain."""

    op_type: str
    constant: npt.NDArray[np.float32] | None = None
    is_first: bool = False
    attributes: str = ""


@st.composite
def element_wise(draw: st.DrawFn) -> Step:
    shape = draw(st.sampled_from([*SCALAR_SHAPES, *PER_CHANNEL_SHAPES, (6,), (4, 6, 6)]))
    values = draw(st.lists(st.integers(-8, 8), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    constant = np.array(values, np.float32).reshape(shape) / np.float32(4)
    op_type = draw(st.sampled_from(["Mul", "Add", "Sub", "Div"]))
    return Step(op_type, constant + 3 if op_type == "Div" else constant, op_type != "Div" and draw(st.booleans()))


@st.composite
def convolution(draw: st.DrawFn) -> Step:
    group, kernel = draw(st.sampled_from([(1, 1), (1, 3), (4, 3), (2, 3)]))
    weight = floats(N_CHANNELS, N_CHANNELS // group, kernel, kernel, seed=draw(st.integers(0, 99)), scale=0.4)
    pads = "" if kernel == 1 else draw(st.sampled_from(["pads=[1,1,1,1], ", 'auto_pad="SAME_UPPER", ']))
    return Step(draw(st.sampled_from(["Conv", "ConvTranspose"])), weight, attributes=f"{pads}group={group}")


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """A chain of convolutions, arithmetic and Relu; some tensors are read twice or outputs, weights shared."""
    steps = draw(
        st.lists(
            st.one_of(element_wise(), element_wise(), convolution(), st.just(Step("Relu"))), min_size=2, max_size=9
        )
    )
    body: list[str] = []
    constants: dict[str, npt.NDArray[np.generic] | float] = {}
    outputs: list[str] = []
    for i, step in enumerate(steps):
        before = "x" if i == 0 else f"t{i - 1}"
        inputs = [before]
        if step.constant is not None:
            shared = [
                name
                for name, value in constants.items()
                if isinstance(value, np.ndarray) and value.shape == step.constant.shape and step.op_type != "Div"
            ]
            name = draw(st.sampled_from([f"c{i}", *shared]))
            constants.setdefault(name, step.constant)
            inputs = [name, before] if step.is_first else [before, name]
        if step.op_type in ("Conv", "ConvTranspose") and draw(st.booleans()):
            inputs.append(f"b{i}")
            constants[f"b{i}"] = floats(N_CHANNELS, seed=i)
        attributes = f"<{step.attributes}>" if step.attributes else ""
        body.append(f"t{i} = {step.op_type}{attributes}({', '.join(inputs)})")
        if draw(st.integers(0, 5)) == 0:
            body.append(f"side{i} = Sigmoid(t{i})")
            outputs.append(f"side{i}")
        if i == len(steps) - 1 or draw(st.integers(0, 7)) == 0:
            outputs.append(f"t{i}")
    listed = ", ".join(f"float[1,4,6,6] {name}" for name in outputs)
    return model_of(f"(float[1,4,6,6] x) => ({listed})", "\n".join(body), constants)


@settings(max_examples=80, deadline=None)
@given(model=models())
def test_folding_leaves_every_output_as_it_is(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    folded = fold_affine(model)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(folded)
    assert len(folded.graph.node) <= len(model.graph.node)
    feed = feed_of(model)
    for expected, found in zip(outputs_of(model, feed), outputs_of(folded, feed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


def conv_model(
    body: str, constants: Mapping[str, npt.NDArray[np.generic] | float], *, size: int = 6, further: str = ""
) -> onnx.ModelProto:
    return model_of(
        f"(float[1,4,6,6] x) => (float[1,4,{size},{size}] y{further})",
        body,
        {"w": floats(4, 4, 3, 3), "b": floats(4), "v": floats(4, 4, 1, 1), **constants},
    )


@pytest.mark.parametrize("shape", [*SCALAR_SHAPES, *PER_CHANNEL_SHAPES])
@pytest.mark.parametrize("operands", ["{t}, c", "c, {t}"])
def test_constants_behind_a_conv_go_into_weight_and_bias(shape: tuple[int, ...], operands: str) -> None:
    body = f"t = Conv<pads=[1,1,1,1]>(x, w) u = Mul({operands.format(t='t')}) y = Add({operands.format(t='u')})"
    folded = assert_folds_to(conv_model(body, {"c": floats(*shape)}), ["Conv"])
    assert folded.graph.node[0].output[0] == "y"
    weight, bias = (constants_of(folded)[name] for name in folded.graph.node[0].input[1:])
    c = np.broadcast_to(floats(*shape).reshape(-1), 4)
    np.testing.assert_allclose(weight, floats(4, 4, 3, 3) * c.reshape(4, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(bias, c, rtol=1e-6)


NORMALISATION = {name: floats(4, seed=i) for i, name in enumerate(("scale", "shift", "mean"))} | {
    "variance": floats(4) ** 2
}
HALF = {"half": floats(4, 2, 1, 1)}


@pytest.mark.parametrize(
    ("op_type", "call", "size"),
    [
        ("Conv", "(x, w)", 4),
        ("Conv", "<group=2>(x, half)", 6),
        ("ConvTranspose", "<strides=[2,2]>(x, w, b)", 13),
    ],
)
def test_a_normalisation_behind_a_convolution_goes_into_weight_and_bias(op_type: str, call: str, size: int) -> None:
    body = f"t = {op_type}{call} u = Add(t, c) y = BatchNormalization<epsilon=0.1>(u, scale, shift, mean, variance)"
    model = conv_model(body, {"c": floats(4, 1, 1), **HALF, **NORMALISATION}, size=size)
    assert_folds_to(model, [op_type])


@pytest.mark.parametrize(
    "body",
    [
        "t = ConvTranspose<group=2>(x, half) y = Mul(t, c)",
        "m = Abs(c) t = Conv(x, v) y = BatchNormalization(t, c, c, m, c)",
        "t = Conv(x, v) y = Div(two, t)",
        "t = Conv(x, v) y = Div(t, zero)",
        "s = Add(x, two) t = ConvTranspose(s, v) y = Relu(t)",
    ],
)
def test_what_no_weight_and_bias_say_stays(body: str) -> None:
    c = floats(4, 1, 1) if "Mul" in body else floats(4)
    model = conv_model(body, {"c": c, "two": floats(1), "zero": np.zeros((4, 1, 1), np.float32), **HALF})
    assert fold_affine(model) is model


@pytest.mark.parametrize(
    ("op_type", "factor", "summand"), [("Sub", 1, -2), ("Div", 0.5, 0), ("Mul", 2, 0), ("Add", 1, 2)]
)
def test_each_way_to_write_a_factor_or_a_summand_is_folded(op_type: str, factor: float, summand: float) -> None:
    folded = assert_folds_to(conv_model(f"t = Conv(x, v, b) y = {op_type}(t, c)", {"c": 2.0}), ["Conv"])
    weight, bias = (constants_of(folded)[name] for name in folded.graph.node[0].input[1:])
    np.testing.assert_array_equal(weight, floats(4, 4, 1, 1) * factor)
    np.testing.assert_array_equal(bias, floats(4) * factor + summand)


@pytest.mark.parametrize("shape", SCALAR_SHAPES)
def test_a_scalar_factor_before_a_padded_conv_goes_into_its_weight(shape: tuple[int, ...]) -> None:
    model = conv_model("t = Mul(c, x) y = Conv<pads=[1,1,1,1]>(t, w, b)", {"c": floats(*shape)})
    assert_folds_to(model, ["Conv"])


@pytest.mark.parametrize("conv", ["Conv(t, v, b)", "Conv(t, v)", 'Conv<auto_pad="VALID">(t, v)'])
def test_a_scalar_summand_before_a_conv_without_padding_goes_into_its_bias(conv: str) -> None:
    assert_folds_to(conv_model(f"t = Add(x, c) y = {conv}", {"c": 0.7}), ["Conv"])


@pytest.mark.parametrize("pads", ["pads=[1,1,1,1]", 'auto_pad="SAME_LOWER"', "pads=[0,0,2,2]"])
def test_a_scalar_summand_before_a_padded_conv_stays(pads: str) -> None:
    model = conv_model(f"t = Add(x, c) y = Conv<{pads}>(t, w, b)", {"c": 0.7})
    assert op_types(fold_affine(model)) == ["Add", "Conv"]


def test_a_factor_before_the_summand_of_a_padded_conv_moves_past_it() -> None:
    model = conv_model("s = Mul(x, k) t = Add(s, c) y = Conv<pads=[1,1,1,1]>(t, w, b)", {"k": 0.25, "c": 0.7})
    folded = assert_folds_to(model, ["Add", "Conv"])
    (summand,) = (name for name in folded.graph.node[0].input if name != "x")
    assert constants_of(folded)[summand] == pytest.approx(2.8)


def test_a_factor_of_zero_before_the_summand_of_a_padded_conv_stays() -> None:
    model = conv_model("s = Mul(x, k) t = Add(s, c) y = Conv<pads=[1,1,1,1]>(t, w, b)", {"k": 0.0, "c": 0.7})
    assert_folds_to(model, ["Mul", "Add", "Conv"])


@pytest.mark.parametrize("shape", [(6,), (6, 6), (1, 4, 6, 6), (1, 1, 6, 1)])
def test_constants_that_vary_along_another_axis_stay(shape: tuple[int, ...]) -> None:
    model = conv_model("t = Conv<pads=[1,1,1,1]>(x, w) y = Mul(t, c)", {"c": floats(*shape)})
    assert op_types(fold_affine(model)) == ["Conv", "Mul"]


BEFORE = {"c": floats(4, 1, 1), "d": floats(1, 4, 1, 1, seed=2), "half": floats(4, 2, 1, 1), **NORMALISATION}


@pytest.mark.parametrize("conv", ["Conv(t, v, b)", "Conv<group=2>(t, half)", 'Conv<auto_pad="VALID">(t, v)'])
@pytest.mark.parametrize(
    "before",
    [
        "t = Mul(x, c)",
        "s = Mul(x, c) t = Add(d, s)",
        "s = Sub(x, c) t = Div(s, d)",
        "t = BatchNormalization(x, scale, shift, mean, variance)",
    ],
)
def test_constants_per_channel_before_a_conv_without_padding_go_into_it(before: str, conv: str) -> None:
    assert_folds_to(conv_model(f"{before} y = {conv}", BEFORE), ["Conv"])


@pytest.mark.parametrize("gemm", ["Gemm(t, m, e)", "Gemm<transB=1>(t, m)"])
def test_constants_per_column_before_a_gemm_go_into_it(gemm: str) -> None:
    constants = {"m": floats(4, 4), "e": floats(4), "f": floats(4, seed=3), **NORMALISATION}
    body = f"r = Relu(x) s = BatchNormalization(r, scale, shift, mean, variance) t = Mul(s, f) y = {gemm}"
    assert_folds_to(model_of("(float[3,4] x) => (float[3,4] y)", body, constants), ["Relu", "Gemm"])


def test_a_factor_per_channel_goes_into_a_padded_conv_and_a_summand_stays() -> None:
    padded = "y = Conv<pads=[1,1,1,1]>(t, w)"
    assert_folds_to(conv_model(f"t = Mul(x, c) {padded}", BEFORE), ["Conv"])
    model = conv_model(f"t = Add(x, c) {padded}", BEFORE)
    assert fold_affine(model) is model
    transposed = conv_model("t = Mul(x, c) y = ConvTranspose(t, w)", BEFORE, size=8)
    assert_folds_to(transposed, ["ConvTranspose"])


@pytest.mark.parametrize("before", ["t = Mul(x, row)", "t = Sub(c, x)", "t = Mul(x, x)"])
def test_what_is_no_affine_map_of_channels_before_a_conv_stays(before: str) -> None:
    model = conv_model(f"{before} y = Conv<pads=[1,1,1,1]>(t, w)", {**BEFORE, "row": floats(6)})
    assert fold_affine(model) is model


def test_a_constant_that_widens_the_output_stays() -> None:
    model = model_of(
        "(float[1,1,6,6] x) => (float[1,4,6,6] y)",
        "t = Conv(x, w) y = Mul(t, c)",
        {"w": floats(1, 1, 1, 1), "c": floats(1, 4, 1, 1)},
    )
    assert op_types(fold_affine(model)) == ["Conv", "Mul"]


def test_a_scalar_of_more_dimensions_than_the_output_stays() -> None:
    model = model_of(
        "(float[1,4,6,6] x) => (float[1,1,4,6,6] y)",
        "t = Conv(x, w) y = Mul(t, c)",
        {"w": floats(4, 4, 1, 1), "c": floats(1, 1, 1, 1, 1)},
    )
    assert op_types(fold_affine(model)) == ["Conv", "Mul"]


@pytest.mark.parametrize("size", ["6,6", "H,W"])
def test_a_scalar_before_a_conv_is_folded_unless_it_adds_a_dimension(size: str) -> None:
    constants = {"c": floats(1, 1, 1, 1), "w": floats(4, 1, 1, 1)}
    plain, widened = (
        model_of(f"(float[{shape},{size}] x) => (float[1,4,{size}] y)", "t = Mul(x, c) y = Conv(t, w)", constants)
        for shape in ("1,1", "1")
    )
    assert op_types(fold_affine(plain)) == ["Conv"]
    assert op_types(fold_affine(widened)) == ["Mul", "Conv"]


def test_a_conv_whose_output_is_read_twice_keeps_its_weight() -> None:
    model = conv_model("t = Conv<pads=[1,1,1,1]>(x, w) u = Mul(t, c) y = Add(u, t)", {"c": 0.5})
    assert op_types(fold_affine(model)) == ["Conv", "Mul", "Add"]


def test_a_product_that_two_convs_read_stays() -> None:
    body = "t = Mul(x, c) p = Conv<pads=[1,1,1,1]>(t, w) q = Conv(t, v) y = Add(p, q)"
    assert op_types(fold_affine(conv_model(body, {"c": 0.5}))) == ["Mul", "Conv", "Conv", "Add"]


def test_a_conv_output_that_is_a_graph_output_keeps_its_value() -> None:
    model = conv_model("t = Conv<pads=[1,1,1,1]>(x, w) y = Mul(t, c)", {"c": 0.5}, further=", float[1,4,6,6] t")
    assert_folds_to(model, ["Conv", "Mul"])


def test_a_square_of_a_conv_output_is_no_constant_factor() -> None:
    assert_folds_to(conv_model("t = Conv<pads=[1,1,1,1]>(x, w) y = Mul(t, t)", {}), ["Conv", "Mul"])


def test_a_tensor_that_a_subgraph_reads_keeps_its_value() -> None:
    model = model_of(
        "(float[1,4,6,6] x, bool p) => (float[1,4,6,6] y, float[1,4,6,6] z)",
        """t = Conv(x, v) y = Mul(t, c)
           z = If(p) <then_branch = g1 () => (float[1,4,6,6] a) { a = Identity(t) },
                      else_branch = g2 () => (float[1,4,6,6] b2) { b2 = Relu(t) }>""",
        {"v": floats(4, 4, 1, 1), "c": 0.5},
    )
    assert op_types(fold_affine(model)) == ["Conv", "Mul", "If"]


def test_convs_that_share_a_weight_are_folded_apart() -> None:
    body = "p = Conv<pads=[1,1,1,1]>(x, w, b) q = Mul(p, c) r = Conv<pads=[1,1,1,1]>(q, w, b) y = Mul(r, d)"
    folded = assert_folds_to(conv_model(body, {"c": 0.5, "d": -2.0}), ["Conv", "Conv"])
    assert folded.graph.node[0].input[1] != folded.graph.node[1].input[1]


def test_a_weight_that_is_an_activation_is_left_alone() -> None:
    model = model_of(
        "(float[1,4,6,6] x, float[4,4,1,1] k) => (float[1,4,6,6] y)", "t = Conv(x, k) y = Mul(t, c)", {"c": 2.0}
    )
    assert op_types(fold_affine(model)) == ["Conv", "Mul"]


def test_names_of_folded_constants_never_collide_with_tensors_of_the_model() -> None:
    model = conv_model(
        "t_weight = Relu(x) t_bias = Sigmoid(x) t = Conv<pads=[1,1,1,1]>(t_weight, w) u = Mul(t, c) y = Add(u, t_bias)",
        {"c": 0.5},
    )
    assert_folds_to(model, ["Relu", "Sigmoid", "Conv", "Add"])


@pytest.mark.parametrize("attributes", ["", "<transB=1>"])
@pytest.mark.parametrize("bias", ["", ", b"])
def test_constants_around_a_gemm_are_folded(attributes: str, bias: str) -> None:
    shape = (5, 3) if attributes else (3, 5)
    model = model_of(
        "(float[2,3] x) => (float[2,5] y)",
        f"s = Mul(x, k) t = Add(s, c) u = Gemm{attributes}(t, w{bias}) v = Mul(u, d) y = Add(e, v)",
        {"k": 3.0, "c": -0.5, "w": floats(*shape), "b": floats(5), "d": floats(5), "e": floats(1, 5)},
    )
    assert_folds_to(model, ["Gemm"])


@pytest.mark.parametrize("attributes", ["alpha=0.5", "beta=2.0", "alpha=-1.5, beta=0.0, transB=1"])
def test_factors_of_a_gemm_go_into_its_constants_as_what_is_around_it_does(attributes: str) -> None:
    model = model_of(
        "(float[2,5] x) => (float[2,5] y)",
        f"t = Gemm<{attributes}>(x, w, b) y = Mul(t, c)",
        {"w": floats(5, 5), "b": floats(5), "c": 2.0},
    )
    folded = assert_folds_to(model, ["Gemm"])
    assert {known.f for known in folded.graph.node[0].attribute if known.name in ("alpha", "beta")} == {1.0}


def test_nothing_is_left_of_a_bias_whose_factor_is_zero() -> None:
    bias = np.array([np.inf, np.nan, 1, 2, 3], np.float32)
    model = model_of("(float[2,5] x) => (float[2,5] y)", "y = Gemm<beta=0.0>(x, w, b)", {"w": floats(5, 5), "b": bias})
    assert_folds_to(model, ["Gemm"])


@pytest.mark.parametrize("call", ["Gemm<alpha=0.5>(x, x, b)", "Gemm<beta=0.5>(x, w, x)"])
def test_factors_of_what_is_no_constant_stay(call: str) -> None:
    model = model_of("(float[5,5] x) => (float[5,5] y)", f"y = {call}", {"w": floats(5, 5), "b": floats(5)})
    assert fold_affine(model) is model


def test_gemms_that_share_a_weight_keep_their_own_factors() -> None:
    model = model_of(
        "(float[2,5] x) => (float[2,5] y)", "t = Gemm<alpha=0.5>(x, w) y = Gemm(t, w)", {"w": floats(5, 5)}
    )
    assert_folds_to(model, ["Gemm", "Gemm"])


@pytest.mark.parametrize("bias", [(2, 5), (5, 1), (1, 1)])
def test_a_gemm_whose_bias_is_not_one_value_per_channel_keeps_it(bias: tuple[int, ...]) -> None:
    n_rows = max(bias[0], 2)
    model = model_of(
        f"(float[{n_rows},3] x) => (float[{n_rows},5] y)",
        "t = Gemm(x, w, b) y = Mul(t, c)",
        {"w": floats(3, 5), "b": floats(*bias), "c": floats(5)},
    )
    assert_folds_to(model, ["Gemm", "Mul"])


def test_long_chains_of_scalars_are_folded_completely() -> None:
    names = ["x", *(f"t{i}" for i in range(10))]
    chain = " ".join(f"{b} = {'Mul' if i % 2 else 'Add'}({a}, c)" for i, (a, b) in enumerate(pairwise(names)))
    assert_folds_to(conv_model(f"{chain} y = Conv({names[-1]}, v)", {"c": 0.9}), ["Conv"])


def test_a_model_with_nothing_to_fold_is_returned_itself() -> None:
    model = conv_model("y = Conv<pads=[1,1,1,1]>(x, w, b)", {})
    assert fold_affine(model) is model
