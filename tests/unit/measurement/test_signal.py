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


def test_an_output_whose_power_is_mostly_in_one_sample_is_named() -> None:
    even, loud = [np.ones(3), np.arange(3)], [np.full(3, 4.0), np.full(3, 40)]
    assert Signal(["a", "n"], [*[even] * 7, loud]).dominated == {"a": 16 / 23}
    assert Signal(["a", "n"], [*[even] * 15, loud]).dominated == {"a": 16 / 31}
    assert Signal(["a", "n"], [*[even] * 16, loud]).dominated == {}


def test_few_samples_and_silent_outputs_are_dominated_by_none() -> None:
    assert Signal(["a"], [*[[np.ones(3)]] * 6, [np.full(3, 9.0)]]).dominated == {}
    silent = Signal(["z", "a"], [[np.zeros(2), np.ones(2)]] * 8)
    silent.hear([1.0, 1.0])
    assert silent.dominated == {}


def test_integers_that_are_numbers_judge() -> None:
    signal = Signal(["y", "n"], [[np.array([200, 100], np.uint8), np.arange(3)]], frozenset({"y"}))
    assert (signal.is_judged.tolist(), signal.mean) == ([True, False], (50_000, 3))


def test_places_without_numbers_are_counted_and_have_no_power() -> None:
    masked = np.array([3.0, np.nan, 4.0, -np.inf], np.float32)
    signal = Signal(["a", "b", "n"], [[masked, np.ones(2), np.arange(3)], [np.ones(4), np.ones(2), np.arange(3)]])
    assert (signal.numberless, signal.mean) == ({"a": 0.25}, (14.5, 2, 3))
