import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.model.columns import columns_of, pair_sums

Ints = npt.NDArray[np.int64]
sizes = st.integers(1, 4)


def numbered(*shape: int) -> Ints:
    """Unlike numbers, none of them zero."""
    return 1 + np.arange(np.prod(shape), dtype=np.int64).reshape(shape)


def padded(row: list[int]) -> list[int]:
    return [*row, 0] if len(row) % 2 else row


@given(sizes, sizes, sizes, sizes)
def test_a_convolution_goes_through_the_channels_of_a_position_before_the_next_one(
    n_outputs: int, n_channels: int, height: int, width: int
) -> None:
    weight = numbered(n_outputs, n_channels, height, width)
    found = columns_of("Conv", weight, {"group": n_outputs + 1})
    expected = [
        padded([int(weight[o, c, i, j]) for i in range(height) for j in range(width) for c in range(n_channels)])
        for o in range(n_outputs)
    ]
    assert found is not None
    assert found.tolist() == expected


@given(sizes, sizes, sizes, st.booleans())
def test_a_gemm_multiplies_its_columns(n_rows: int, n_inputs: int, n_outputs: int, transposed: bool) -> None:
    a, b = numbered(n_rows, n_inputs), numbered(n_inputs, n_outputs)
    found = columns_of("Gemm", b.T if transposed else b, {"transB": int(transposed)})
    assert found is not None
    assert found.shape == (n_outputs, n_inputs + n_inputs % 2)
    np.testing.assert_array_equal(np.pad(a, [(0, 0), (0, n_inputs % 2)]) @ found.T, a @ b)


@given(st.lists(sizes, max_size=2), sizes, sizes)
def test_a_matmul_multiplies_the_columns_of_one_matrix_after_the_other(
    batch: list[int], n_inputs: int, n_outputs: int
) -> None:
    weight = numbered(*batch, n_inputs, n_outputs)
    found = columns_of("MatMul", weight, {})
    assert found is not None
    matrices = weight.reshape(-1, n_inputs, n_outputs)
    assert found.tolist() == [padded(matrix[:, o].tolist()) for matrix in matrices for o in range(n_outputs)]


@pytest.mark.parametrize(
    ("shape", "group", "columns"),
    [
        ((3, 1, 2, 2), 3, None),
        ((1, 1, 2, 2), None, None),
        ((4, 1, 2, 2), 2, (4, 4)),
        ((4, 2, 1, 1), 4, (4, 2)),
        ((4, 1, 3), 1, (4, 4)),
    ],
    ids=["one output a channel", "one channel", "two outputs a channel", "two channels a group", "along one axis"],
)
def test_only_a_depthwise_convolution_has_no_columns(
    shape: tuple[int, ...], group: int | None, columns: tuple[int, int] | None
) -> None:
    found = columns_of("Conv", numbered(*shape), {} if group is None else {"group": group})
    assert (None if found is None else found.shape) == columns


@pytest.mark.parametrize("op_type", ["Conv", "Gemm", "MatMul"])
def test_an_empty_weight_has_no_columns(op_type: str) -> None:
    assert columns_of(op_type, np.zeros((0, 3)), {}) is None


def test_a_vector_is_one_column() -> None:
    found = columns_of("MatMul", numbered(3), {})
    assert found is not None
    assert found.tolist() == [[*numbered(3).tolist(), 0]]


@pytest.mark.parametrize(("op_type", "shape"), [("ConvTranspose", (4, 2, 3, 3)), ("Mul", (4, 4)), ("Mul", (4,))])
def test_other_operators_have_no_columns(op_type: str, shape: tuple[int, ...]) -> None:
    assert columns_of(op_type, numbered(*shape), {}) is None


@given(hnp.arrays(np.int16, st.tuples(st.integers(0, 3), st.sampled_from([0, 2, 6])), elements=st.integers(-128, 255)))
def test_inputs_2i_and_2i_plus_1_are_added(columns: npt.NDArray[np.int16]) -> None:
    n_pairs = columns.shape[1] // 2
    expected = [[int(row[2 * i]) + int(row[2 * i + 1]) for i in range(n_pairs)] for row in columns]
    assert pair_sums(columns).tolist() == expected
