from collections.abc import Callable
from typing import Any

import numpy as np

from autoquant.study.surrogate import Observations, Prediction
from experiments.search.calibrated import MODELS, STEPS, Forecasts, forecast, holds, measure, render_calibrated, scores
from experiments.search.recorded import Recorded
from tests.unit.study.layouts import a_landscape, a_layout, every_assignment

LAYOUT = a_layout(6)


def a_run(n: int = 60, seed: int = 0) -> Recorded:
    """Of a problem that is as the models have it, with errors of measurement."""
    rng = np.random.default_rng(seed)
    landscape = a_landscape(LAYOUT, seed=seed)
    codes = rng.permutation(every_assignment(LAYOUT))[:n]
    found = Observations(
        codes=codes,
        snr_db=-10 * np.log10(landscape.noise_of(codes)) + rng.normal(0, 1, (n, 1)),
        ratios=landscape.ratios_of(codes) + rng.normal(0, 0.005, (n, 1)),
        errors=np.full((n, 1), 0.005),
        is_quick=np.zeros(n, dtype=bool),
    )
    is_new = np.arange(n) % 10 != 5
    about = {"seed": seed}
    return Recorded(
        name="chain",
        about=about,
        layout=LAYOUT,
        prior=None,
        found=found,
        numbers=tuple(range(n)),
        snr_errors_db=np.zeros(n),
        is_new=is_new,
        is_newly_timed=is_new.copy(),
    )


class Spy:
    """Predicts what a table says, and notes what it was given."""

    def __init__(self, says: Callable[[int], tuple[float, float]]) -> None:
        self.says, self.n_known, self.asked = says, 0, list[int]()

    def fit(self, found: Observations) -> None:
        self.n_known = len(found)

    def predict(self, codes: np.ndarray) -> Prediction:  # noqa: ARG002 - of the port
        self.asked.append(self.n_known)
        snr_db, ratio = self.says(self.n_known)
        return Prediction(np.array([snr_db]), np.ones(1), np.array([[ratio]]), np.full((1, 1), 0.005))


def test_each_evaluation_is_predicted_from_those_before_it_and_graphs_known_do_not_count() -> None:
    run = a_run()
    spy = Spy(lambda n: (run.found.snr_db[n, 0] - 1.0, run.found.ratios[n, 0] + 0.01))
    found = forecast(run, spy)
    assert spy.asked == list(range(10, 60))
    np.testing.assert_array_equal(found["snr"].numbers, [n for n in range(10, 60) if n % 10 != 5])
    np.testing.assert_allclose(found["snr"].errors, 1.0)
    np.testing.assert_allclose(found["ratio"].errors, -0.01)
    assert found["snr"].deviations[0] == 1.0
    np.testing.assert_allclose(found["ratio"].deviations[0], np.hypot(0.005, 0.005))
    assert found["ratio"].deviations[-1] > found["ratio"].deviations[0]


def test_what_was_measured_untimed_has_a_new_ratio_and_no_new_snr() -> None:
    run = a_run()
    run.is_newly_timed[15] = True
    found = forecast(run, Spy(lambda n: (run.found.snr_db[n, 0], run.found.ratios[n, 0])))
    assert 15 not in found["snr"].numbers
    assert 15 in found["ratio"].numbers


def test_the_snr_of_few_samples_has_a_wider_interval() -> None:
    run = a_run()
    run.found.is_quick[20] = True
    found = forecast(run, Spy(lambda n: (run.found.snr_db[n, 0], run.found.ratios[n, 0])))["snr"]
    deviations = dict(zip(found.numbers.tolist(), found.deviations.tolist(), strict=True))
    assert deviations[20] > 1.5 * deviations[19]
    assert deviations[21] < deviations[19]


def test_what_was_not_timed_says_nothing_of_ratios() -> None:
    run = a_run()
    run.found.ratios[20] = np.nan
    found = forecast(run, Spy(lambda n: (run.found.snr_db[n, 0], 0.5)))
    assert 20 in found["snr"].numbers
    assert 20 not in found["ratio"].numbers
    assert np.isfinite(found["ratio"].deviations).all()
    assert all(np.isfinite(each["ratio"]["log_density"]) for each in measure(run)["scores"].values())


def test_scores_count_what_lies_inside_and_sum_errors_by_number() -> None:
    found = scores(Forecasts(np.array([10.0, 19, 20, 500]), np.array([0.0, 1, 2, -4]), np.array([1.0, 1, 1, 4])))
    assert (found["n"], found["n_inside"]) == (4, 3)
    assert found["n_by_step"] == [2, 1, 0, 0, 1]
    assert found["error_by_step"] == [1, 2, 0, 0, 4]
    expected = -0.5 * (0 + 1 + 4 + 1) - np.log(4) - 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(found["log_density"], expected)


def test_the_models_say_best_what_comes_where_they_are_right() -> None:
    found = measure(a_run(80))["scores"]
    for quantity in ("snr", "ratio"):
        density = {name: each[quantity]["log_density"] for name, each in found.items()}
        assert density[MODELS] > max(density["least squares"], density["prior only"])
        errors = {name: sum(each[quantity]["error_by_step"]) for name, each in found.items()}
        assert errors[MODELS] < errors["prior only"]


def with_shares(snr: int, ratio: int) -> dict[str, Any]:
    def of(n_inside: int) -> dict[str, Any]:
        steps = [0.0] * len(STEPS)
        return {"n": 100, "n_inside": n_inside, "log_density": -5.0, "n_by_step": steps, "error_by_step": steps}

    names = (MODELS, "without profiles", "without errors", "prior only", "least squares")
    return {"model": "chain", "scores": {name: {"snr": of(snr), "ratio": of(ratio)} for name in names}}


def test_intervals_hold_where_about_nine_in_ten_lie_inside() -> None:
    assert holds([with_shares(90, 86), with_shares(80, 94)])
    assert not holds([with_shares(90, 84)])
    assert not holds([with_shares(97, 90)])


def test_the_tables_have_a_line_for_each_model_and_one_for_all() -> None:
    text = render_calibrated({"parts": {"calibrated": {"runs": [with_shares(90, 86), with_shares(80, 94)]}}})
    assert "| chain | 2 | 200 | 85% | 79% to 89% | 200 | 90% | 85% to 93% |" in text
    assert "| all | 2 | 200 | 85% |" in text
    assert "| chain | least squares |" in text
