import numpy as np

from autoquant.measurement.signal import Signal


def test_outputs_that_are_zero_judge_where_others_are_counted_only_once_they_are_heard_elsewhere() -> None:
    signal = Signal(["z", "n"], [[np.zeros(4), np.arange(3)]] * 2)
    assert (signal.silent, signal.is_judged.tolist(), signal.mean) == (("z",), [False, True], (0, 3))
    signal.hear([5.0, 7.0])
    assert (signal.silent, signal.is_judged.tolist(), signal.mean) == ((), [True, False], (5, 3))


def test_where_all_is_zero_all_float_outputs_judge() -> None:
    signal = Signal(["a", "b"], [[np.zeros(4), np.zeros(2)]])
    assert (signal.silent, signal.is_judged.tolist()) == ((), [True, True])
