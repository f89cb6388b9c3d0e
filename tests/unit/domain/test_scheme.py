from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.scheme import DType, Granularity, RangeKind, RangeMethod, Rounding, Scheme, TensorFormat

tensor_formats = st.builds(
    TensorFormat,
    dtype=st.sampled_from(DType),
    granularity=st.sampled_from(Granularity),
    symmetric=st.booleans(),
    power_of_two=st.booleans(),
    unsaturated=st.booleans(),
).flatmap(
    lambda found: st.sampled_from([16, 32, 64, 128, 256] if found.granularity is Granularity.BLOCK else [None]).map(
        lambda block: replace(found, block=block)
    )
)
percentiles = st.integers(50_0001, 99_9999).map(lambda n: RangeMethod(RangeKind.PERCENTILE, n / 10_000))
range_methods = percentiles | st.sampled_from(
    [RangeMethod(kind) for kind in RangeKind if kind is not RangeKind.PERCENTILE]
)


@given(tensor_formats)
def test_a_tensor_format_is_read_back_as_it_is_written(tensor_format: TensorFormat) -> None:
    assert TensorFormat.parse(str(tensor_format)) == tensor_format


@given(range_methods)
def test_a_range_method_is_read_back_as_it_is_written(method: RangeMethod) -> None:
    assert RangeMethod.parse(str(method)) == method


@pytest.mark.parametrize(
    "text",
    [
        "",
        "u8",
        "u8:tensor",
        "s8:block:sym",
        "s8:block-48:sym",
        "u4:tensor:sym",
        "u8:row:sym",
        "u8:tensor:sym:",
        "U8:tensor:sym",
        "u8:tensor:sym:pow3",
    ],
)
def test_what_is_no_tensor_format_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is no tensor format, write e.g. 'u8:tensor:asym'"):
        TensorFormat.parse(text)


@pytest.mark.parametrize(
    "text", ["", "minmax", "percentile", "percentile-50", "percentile-100", "percentile--99", "mse-3"]
)
def test_what_is_no_range_method_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is no range method, write 'min-max', 'percentile-99.99'"):
        RangeMethod.parse(text)


@given(st.sampled_from(DType))
def test_a_dtype_covers_two_to_the_number_of_its_bits_integers(dtype: DType) -> None:
    assert dtype.highest - dtype.lowest + 1 == 2**dtype.bits
    assert dtype.is_signed == (dtype.lowest < 0)
    assert np.iinfo(dtype.numpy).min <= dtype.lowest < dtype.highest <= np.iinfo(dtype.numpy).max


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s8:tensor:sym", (-127, 127)),
        ("s8:tensor:asym", (-128, 127)),
        ("u8:tensor:sym", (0, 255)),
        ("s16:tensor:sym", (-32767, 32767)),
    ],
)
def test_a_symmetric_signed_format_leaves_out_the_lowest_integer(text: str, expected: tuple[int, int]) -> None:
    assert TensorFormat.parse(text).integer_range() == expected


def test_scales_that_a_format_fixes_are_not_learned() -> None:
    activation, ranges = TensorFormat.parse("u8:tensor:asym"), RangeMethod.parse("min-max")
    for weight in ("s8:channel:sym:pow2", "s8:channel:sym:unsaturated"):
        with pytest.raises(ValueError, match=f"'adaquant' learns scales, '{weight}' says what they are"):
            Scheme(
                name="a",
                activation=activation,
                weight=TensorFormat.parse(weight),
                ranges=ranges,
                rounding=Rounding.ADAQUANT,
            )
