from pathlib import Path

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from autoquant.domain.measurement import Evaluation, Failure, Latency, Measurement, Quality, State, Trial
from autoquant.domain.region import RegionId
from autoquant.domain.share import Z_95
from autoquant.domain.space import SearchSpace
from autoquant.study.demand import _LEAST_SNR_ERROR_DB, Predicted, fastest_predicted
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Layout
from autoquant.study.observed import observe
from autoquant.study.study import Study
from autoquant.study.trust import believe
from tests.unit.study.layouts import CHOICES, SCHEMES, a_landscape, a_layout, every_assignment

N_REGIONS = 6


def a_latency(ratio: float, half_width: float) -> Latency:
    low, high = ratio - half_width, ratio + half_width
    return Latency(
        median_ms=ratio, low_ms=low, high_ms=high, ratio=ratio, ratio_low=low, ratio_high=high, n_rounds=9, n_sessions=1
    )


def a_study(
    path: Path,
    layout: Layout,
    landscape: Landscape,
    n_trials: int = 60,
    failing: RegionId | None = None,
    luck: float = 0.005,
) -> Study:
    """Random trials of an additive problem, with 0.2 dB and ratios of some luck; a region may fail with a scheme."""
    choices = {RegionId(r): CHOICES for r in layout.regions} | {RegionId(layout.regions[-1]): ("float", "b")}
    study = Study(path / "study.journal", SearchSpace(choices=choices, schemes=SCHEMES), RandomSampler(seed=0))
    rng = np.random.default_rng(0)
    for _ in range(n_trials):
        trial = study.ask()
        if failing is not None and trial.assignment[failing] == "a":
            study.tell(Evaluation(trial=trial, outcome=Failure(stage="run", reason="")))
            continue
        codes = layout.encode({str(k): v for k, v in trial.assignment.items()})[None]
        snr_db = -10 * np.log10(landscape.noise_of(codes)[0, 0]) + 0.2 * rng.standard_normal()
        ratio = float(landscape.ratios_of(codes)[0, 0] + luck * rng.standard_normal())
        tell(study, trial, float(snr_db), ratio)
    return study


def tell(
    study: Study,
    trial: Trial,
    snr_db: float,
    ratio: float,
    state: State = State.COMPLETE,
    error_db: float = 0.0,
    half_width: float = 0.002,
) -> None:
    measurement = Measurement(
        quality=Quality(per_output={"y": snr_db}, agreement={}, n_samples=4, error_db=error_db),
        latency={"cpu-1t": a_latency(ratio, half_width)},
        digest=str(trial.number),
        effective=trial.assignment,
        state=state,
        size_bytes=1,
    )
    study.tell(Evaluation(trial=trial, outcome=measurement))


def solved(path: Path, min_snr_db: float, seed: int = 0) -> tuple[Predicted, Layout, Landscape]:
    layout = a_layout(N_REGIONS, seed=seed)
    landscape = a_landscape(layout, seed=seed)
    study = a_study(path, layout, landscape)
    return fastest_predicted(study, layout, min_snr_db=min_snr_db, prior=None, seconds=600), layout, landscape


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("min_snr_db", [25.0, 35.0])
def test_it_keeps_the_demand_with_a_margin_and_is_no_slower_than_what_keeps_6_db_more(
    tmp_path: Path, seed: int, min_snr_db: float
) -> None:
    found, layout, landscape = solved(tmp_path, min_snr_db, seed)
    every = every_assignment(layout)
    codes = layout.encode(dict.fromkeys(layout.regions, "float") | {str(k): v for k, v in found.assignment.items()})
    assert found.is_proven
    of_models_db = np.sqrt(found.snr_error_db**2 - _LEAST_SNR_ERROR_DB**2)  # the rest is what samples leave open
    assert found.snr_db >= min_snr_db + of_models_db - 1e-3
    assert -10 * np.log10(landscape.noise_of(codes[None])[0, 0]) >= min_snr_db - 1
    keeps = -10 * np.log10(landscape.noise_of(every)[:, 0]) >= min_snr_db + 6
    fastest = landscape.ratios_of(every[keeps])[:, 0].min()
    assert landscape.ratios_of(codes[None])[0, 0] <= fastest + 0.02
    assert found.ratios[0] == pytest.approx(landscape.ratios_of(codes[None])[0, 0], abs=0.03)


@pytest.mark.parametrize("min_snr_db", [110.0, 300.0, 4000.0])
def test_a_demand_that_nothing_keeps_leaves_everything_float(tmp_path: Path, min_snr_db: float) -> None:
    found, _, _ = solved(tmp_path, min_snr_db)
    assert found.assignment == {}
    assert found.is_proven


def test_a_demand_below_what_doubles_hold_is_none(tmp_path: Path) -> None:
    found, layout, landscape = solved(tmp_path, -4000.0)
    assert found.ratios[0] == pytest.approx(landscape.ratios_of(every_assignment(layout)).min(), abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_luck_that_trials_do_not_state_is_in_what_is_predicted(tmp_path: Path, seed: int) -> None:
    layout = a_layout(4, seed=seed)
    landscape = a_landscape(layout, seed=seed)
    study = a_study(tmp_path, layout, landscape, n_trials=80, luck=0.06)
    found = fastest_predicted(study, layout, min_snr_db=25.0, prior=None, seconds=600)
    codes = layout.encode(dict.fromkeys(layout.regions, "float") | {str(k): v for k, v in found.assignment.items()})
    (error,) = found.ratio_errors
    assert 0.04 < error < 0.12
    assert found.ratios[0] == pytest.approx(landscape.ratios_of(codes[None])[0, 0], abs=Z_95 * error)


def test_what_processes_differ_by_is_in_what_is_predicted(tmp_path: Path) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    one, other = (
        fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600, process_errors=errors)
        for errors in ((), (0.05,))
    )
    assert other.ratios == pytest.approx(one.ratios, abs=0.05)
    assert one.ratio_errors[0] < 0.05 * other.ratios[0] < other.ratio_errors[0]


def test_the_same_study_gives_the_same_solution(tmp_path: Path) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    first, second = (fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600) for _ in range(2))
    assert first == second
    assert first.n_trials == 60


def test_what_missed_the_demand_or_failed_is_not_predicted_again(tmp_path: Path) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    proposed: list[dict[RegionId, str]] = []
    for i in range(6):
        found = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600)
        assert found.assignment not in proposed
        proposed.append(found.assignment)
        trial = study.ask_for(found.assignment)
        if i % 2:
            study.tell(Evaluation(trial=trial, outcome=Failure(stage="run", reason="")))
        else:
            tell(study, trial, 29.9, found.ratios[0])


def test_what_alone_makes_trials_fail_is_in_no_prediction(tmp_path: Path) -> None:
    """A scheme that nothing but the prior speaks of, as every trial with it in a region failed."""
    layout = a_layout(N_REGIONS)
    region = RegionId(layout.regions[0])
    study = a_study(tmp_path, layout, a_landscape(layout), failing=region)
    for i in range(2):
        alone = study.ask_for({region: "a", RegionId(layout.regions[1]): CHOICES[i]})
        study.tell(Evaluation(trial=alone, outcome=Failure(stage="run", reason="")))
    for min_snr_db in (20.0, 25.0, 30.0, 35.0, 40.0):
        found = fastest_predicted(study, layout, min_snr_db=min_snr_db, prior=None, seconds=600)
        assert found.assignment.get(region) != "a"


def test_what_missed_the_demand_is_not_taken_either_where_the_time_is_over(tmp_path: Path) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    found = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600)
    tell(study, study.ask_for(found.assignment), 29.9, found.ratios[0])
    hurried = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=0.0)
    assert hurried.assignment != found.assignment


def test_a_rough_value_below_the_demand_is_no_miss(tmp_path: Path) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    found = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600)
    tell(study, study.ask_for(found.assignment), 29.5, found.ratios[0], State.REJECTED_EARLY)
    after = fastest_predicted(study, layout, min_snr_db=20, prior=None, seconds=600)
    again = fastest_predicted(study, layout, min_snr_db=29.6, prior=None, seconds=600)
    assert after.snr_db > 20
    assert again.assignment == found.assignment


def test_a_measurement_refutes_what_is_predicted(tmp_path: Path) -> None:
    """One assignment is much faster than its parts let expect."""
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    usual = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600)
    other = dict.fromkeys(map(RegionId, layout.regions), "b")
    assert usual.assignment != other
    tell(study, study.ask_for(other), 40.0, usual.ratios[0] - 0.2)
    found = fastest_predicted(study, layout, min_snr_db=30, prior=None, seconds=600)
    assert found.assignment == other
    assert found.ratios[0] < usual.ratios[0]
    assert found.snr_db - found.snr_error_db > 30


@pytest.mark.parametrize(("error_db", "is_taken"), [(0.0, True), (20.0, False)])
def test_an_uncertain_snr_above_the_demand_is_not_taken_at_its_word(
    tmp_path: Path, error_db: float, is_taken: bool
) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout), n_trials=4)
    lucky = study.ask_for({RegionId(region): "b" for region in layout.regions})
    tell(study, lucky, 45.0, 0.1, error_db=error_db)
    found = fastest_predicted(study, layout, min_snr_db=40, prior=None, seconds=600)
    assert (found.assignment == lucky.assignment) is is_taken


def test_a_measurement_counts_once(tmp_path: Path) -> None:
    layout, half_width = a_layout(N_REGIONS), 0.1
    study = a_study(tmp_path, layout, a_landscape(layout), n_trials=4)
    lucky = study.ask_for({RegionId(region): "b" for region in layout.regions})
    tell(study, lucky, 45.0, 0.1, half_width=half_width)
    found = fastest_predicted(study, layout, min_snr_db=40, prior=None, seconds=10)
    assert found.assignment == lucky.assignment
    codes = layout.encode(dict.fromkeys(map(str, layout.regions), "b"))
    surrogate, _ = believe(layout, observe(layout, study.told), None)
    with_it = surrogate.predict(codes[None]).ratio_errors[0, 0]
    twice = 1 / np.sqrt(with_it**-2 + (half_width / Z_95) ** -2)
    assert found.ratio_errors[0] > 1.05 * twice


@pytest.mark.parametrize(("ratio", "is_answer"), [(0.4, True), (0.6, False)])
def test_the_preprocessed_model_is_the_answer_where_it_is_faster_than_what_is_predicted(
    tmp_path: Path, ratio: float, *, is_answer: bool
) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    for _ in range(3):
        tell(study, study.ask_for(dict.fromkeys(map(RegionId, layout.regions), "float")), 120.0, ratio)
    found = fastest_predicted(study, layout, min_snr_db=20.0, prior=None, seconds=600)
    assert (found.assignment == {}) is is_answer


@pytest.mark.parametrize(("told", "expected"), [([95.0], 95.0), ([np.inf], 200.0), ([150.0, 140.0], 140.0)])
def test_the_preprocessed_model_keeps_what_was_last_measured_of_it(
    tmp_path: Path, told: list[float], expected: float
) -> None:
    layout = a_layout(N_REGIONS)
    study = a_study(tmp_path, layout, a_landscape(layout))
    for snr_db in told:
        tell(study, study.ask_for(dict.fromkeys(map(RegionId, layout.regions), "float")), snr_db, 0.9)
    found = fastest_predicted(study, layout, min_snr_db=110.0, prior=None, seconds=600)
    assert found.assignment == {}
    assert found.snr_db == expected
