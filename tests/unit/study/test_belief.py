from dataclasses import replace

import numpy as np
import pytest

from autoquant.study.belief import believed
from autoquant.study.layout import Floats
from autoquant.study.surrogate import Observations, Surrogate
from autoquant.study.trust import Trust
from tests.unit.study.layouts import a_landscape, a_layout

N = 90
LAYOUT = a_layout(8)
TRUTH = a_landscape(LAYOUT, n_targets=2)


def measured(*, luck: float, said: float, seed: int = 0) -> Observations:
    """Assignments whose ratios err by luck, of which the trials say so much; every third one runs once more."""
    rng = np.random.default_rng(seed)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in LAYOUT.allowed] for _ in range(N)])
    codes[1::3] = codes[::3]
    ratios = TRUTH.ratios_of(codes) + luck * rng.standard_normal((N, 2))
    snr_db = -10 * np.log10(TRUTH.noise_of(codes))
    return Observations(codes, snr_db, ratios, np.full((N, 2), said), np.zeros(N, dtype=bool))


def believed_of(found: Observations, snr_errors_db: Floats | float = 0.0) -> Observations:
    surrogate = Surrogate(LAYOUT, 2)
    for n in range(10, N + 1, 10):
        surrogate.fit(found.of(slice(n)))
    return believed(found, np.broadcast_to(snr_errors_db, N), surrogate, Trust())


def errors(found: Observations) -> float:
    return float(np.abs(found.ratios - TRUTH.ratios_of(found.codes)).mean())


@pytest.mark.parametrize("said", [0.02, 0.005])
def test_luck_of_ratios_is_taken_back_also_where_trials_say_too_little_of_it(said: float) -> None:
    found = measured(luck=0.02, said=said)
    assert errors(believed_of(found)) < 0.7 * errors(found)


def test_what_is_measured_precisely_is_believed() -> None:
    found = measured(luck=0.0, said=1e-4)
    found.ratios[::3] += 0.05  # of which the models know nothing
    found.ratios[1::3] += 0.05
    assert np.allclose(believed_of(found).ratios, found.ratios, atol=1e-3)


def test_what_luck_cannot_explain_is_believed() -> None:
    found = measured(luck=0.01, said=0.01)
    found.ratios[5] += 0.8
    assert believed_of(found).ratios[5] == pytest.approx(found.ratios[5], abs=0.05)


def test_an_snr_counts_as_far_as_its_samples_tell_it() -> None:
    found = measured(luck=0.01, said=0.01)
    found.snr_db[7] += 10.0
    sure, unsure = (believed_of(found, np.where(np.arange(N) == 7, error, 0.0)).snr_db[:, 0] for error in (0.0, 6.0))
    assert np.allclose(sure, found.snr_db.min(axis=1))
    assert unsure[7] < found.snr_db[7, 0] - 2.0
    assert np.allclose(np.delete(unsure, 7), np.delete(found.snr_db[:, 0], 7))


def test_trials_that_were_not_timed_stay_without_a_ratio() -> None:
    found = measured(luck=0.01, said=0.01)
    found.ratios[3] = np.nan
    kept = believed_of(found)
    assert np.isnan(kept.ratios[3]).all()
    assert np.isfinite(np.delete(kept.ratios, 3, axis=0)).all()
    assert np.array_equal(kept.is_quick, found.is_quick)


def test_one_evaluation_is_enough() -> None:
    found, surrogate = measured(luck=0.0, said=0.01).of(slice(1)), Surrogate(LAYOUT, 2)
    surrogate.fit(found)
    for one in (found, replace(found, ratios=np.full((1, 2), np.nan))):
        assert believed(one, np.zeros(1), surrogate, Trust()).snr_db == pytest.approx(found.snr_db.min())
