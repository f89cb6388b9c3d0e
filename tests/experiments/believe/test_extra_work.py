from pathlib import Path

import numpy as np
import onnx
import pytest

from experiments.believe.extra_work import Work, calibrate_work, with_more_work
from tests.models import a_convnet, feed_of, floats, outputs_of, saved


def test_more_work_leaves_the_outputs_and_adds_one() -> None:
    model = a_convnet()
    more = with_more_work(model, 3)
    onnx.checker.check_model(more)
    before, after = outputs_of(model, feed_of(model)), outputs_of(more, feed_of(model))
    assert [output.name for output in model.graph.output] == [output.name for output in more.graph.output][:-1]
    for expected, found in zip(before, after[:-1], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert after[-1].shape == (3, 64)
    assert np.isfinite(after[-1]).all()


def test_onnxruntime_cannot_compute_it_before_a_run() -> None:
    more = with_more_work(a_convnet(), 3)
    feeds = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in (1, 2)]
    first, second = (outputs_of(more, feed)[-1] for feed in feeds)
    assert not np.array_equal(first, second)


def test_the_amount_is_linear_and_at_least_one_row() -> None:
    work = Work(fixed=0.02, per_row=0.001)
    assert work.rows_for(0.05) == 31
    assert work.rows_for(0.01) == 1


def test_it_is_calibrated_on_the_model(tmp_path: Path) -> None:
    model = saved(a_convnet(), tmp_path / "model.onnx")
    np.savez(tmp_path / "eval.npz", x=floats(4, 3, 8, 8))
    work = calibrate_work(model, tmp_path / "eval.npz", tmp_path, n_rounds=8)
    assert work.per_row > 0


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_more_is_asked_for_with_a_larger_share(share: float) -> None:
    work = Work(fixed=0.0, per_row=0.001)
    assert work.rows_for(2 * share) > work.rows_for(share)
