import numpy as np
import pytest

from autoquant.study.layout import Codes, Floats
from autoquant.study.size import SizeModel
from tests.unit.study.layouts import a_layout

N = 8
LAYOUT = a_layout(N)
SHARES = np.random.default_rng(3).dirichlet(np.full(N, 0.3))


def bytes_of(codes: Codes) -> Floats:
    """A quarter of a region's bytes on integers, a bit more with the second scheme, and nodes at borders."""
    unlike = (codes > 0)[:, LAYOUT.edges[:, 0]] != (codes > 0)[:, LAYOUT.edges[:, 1]]
    weights = 1e6 * (1 - (codes > 0) @ (0.75 * SHARES))
    return np.asarray(weights + 2e3 * (codes == 2).sum(axis=1) + 500 * unlike.sum(axis=1))


def drawn(n: int, seed: int) -> Codes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, N)) * (rng.random((n, N)) < 0.6)


def test_float_and_a_probe_of_each_region_say_the_sizes_of_all_assignments() -> None:
    codes = np.concatenate([np.zeros((1, N), dtype=np.int64), 2 * np.eye(N, dtype=np.int64), drawn(4, 0)])
    model = SizeModel(LAYOUT)
    model.fit(codes, bytes_of(codes))
    others = drawn(100, 1)
    assert np.abs(model.predict(others) * model.largest_bytes - bytes_of(others)).max() < 0.02 * 1e6


def test_the_error_is_that_of_earlier_predictions() -> None:
    model, codes = SizeModel(LAYOUT), drawn(60, 2)
    errors = []
    for n in range(1, 61):
        model.fit(codes[:n], bytes_of(codes[:n]))
        errors.append(model.error)
    assert errors[0] == pytest.approx(0.1)
    assert errors[5] > 5 * errors[-1]
    assert np.abs(model.predict(drawn(50, 3)) * model.largest_bytes / 1e6 - bytes_of(drawn(50, 3)) / 1e6).max() < 0.01


def test_of_many_files_those_that_were_predicted_change_nothing_more() -> None:
    model, codes = SizeModel(LAYOUT), drawn(300, 4)
    model.fit(codes[:150], bytes_of(codes[:150]))
    before = model.predict(codes)
    model.fit(codes, bytes_of(codes))
    assert np.array_equal(before, model.predict(codes))


def test_of_many_files_those_that_were_not_predicted_are_learned_from() -> None:
    model, codes = SizeModel(LAYOUT), drawn(300, 4)
    codes[:150, -1] = 0  # of that region nothing is known
    model.fit(codes[:150], bytes_of(codes[:150]))
    errors = []
    for n in range(151, 301):
        errors.append(abs(model.predict(codes[n - 1 : n])[0] * model.largest_bytes - bytes_of(codes[n - 1 : n])[0]))
        model.fit(codes[:n], bytes_of(codes[:n]))
    share = np.array(errors) / model.largest_bytes
    assert share[:10].max() > 0.01
    assert share[-50:].max() < 0.002
    assert model.error == 0.002
