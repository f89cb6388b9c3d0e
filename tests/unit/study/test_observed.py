import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoquant.domain.measurement import Evaluation, Measurement, Quality, State
from autoquant.domain.share import Z_95
from autoquant.domain.space import SearchSpace
from autoquant.errors import UsageError
from autoquant.study.observed import Reader, effective, is_measured, observe
from autoquant.study.study import Study
from tests.records import a_latency, a_measured
from tests.unit.study.layouts import CHOICES, SCHEMES, a_layout

LAYOUT = a_layout(3, share_of_edges=0.0)

DIRECTIONS = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]


def a_trial(schemes: tuple[str, str, str], **attributes: object) -> FrozenTrial:
    return create_trial(
        params=dict(zip(LAYOUT.regions, schemes, strict=True)),
        distributions={region: CategoricalDistribution(CHOICES) for region in LAYOUT.regions},
        values=[40.0, 0.8],
        user_attrs=attributes,
    )


def begun(*, has_size: bool = False) -> Reader:
    """One that found no trial in its study."""
    reader = Reader(LAYOUT, has_size=has_size)
    reader.read([], DIRECTIONS)
    return reader


def test_trials_say_what_ran_and_what_was_measured() -> None:
    ran = {LAYOUT.regions[1]: "float", LAYOUT.regions[2]: "requantized"}
    attributes = {"effective": ran, "snr_by_output": [50.0, 30.0], "ratios": [0.7, 0.9], "ratio_error": [0.01, 0.02]}
    found = observe(LAYOUT, [a_trial(("a", "b", "b"), state="complete", **attributes)])
    assert found.codes.tolist() == [[1, 0, 2]]
    assert found.snr_db.tolist() == [[50, 30]]
    assert found.ratios.tolist() == [[0.7, 0.9]]
    assert found.errors.tolist() == [[0.01, 0.02]]
    assert found.is_quick.tolist() == [False]


def test_trials_that_say_less_are_taken_by_their_values() -> None:
    found = observe(LAYOUT, [a_trial(("a", "b", "b")), a_trial(("a", "a", "b"), snr_by_output=[50.0, 30.0])])
    assert found.snr_db.tolist() == [[40], [40]]
    assert found.ratios.tolist() == [[0.8], [0.8]]


def test_an_snr_that_is_no_number_is_the_lowest() -> None:
    trials = [
        a_trial(("a", "b", "b"), snr_by_output=[50.0, math.nan]),
        a_trial(("a", "a", "b"), snr_by_output=[50.0, 30.0]),
    ]
    assert observe(LAYOUT, trials).snr_db.tolist() == [[50, -20], [50, 30]]
    assert observe(LAYOUT, [a_trial(("a", "b", "b"), snr_db=math.nan, ratio_error=math.nan)]).snr_db.tolist() == [[-20]]
    assert np.isfinite(observe(LAYOUT, [a_trial(("a", "b", "b"), ratio_error=math.nan)]).errors).all()


def test_few_rounds_leave_an_error_however_alike_they_are() -> None:
    trials = [a_trial(("a", "b", "b"), state="rejected-early", ratio_error=error) for error in (0.001, 0.2)]
    assert observe(LAYOUT, trials).errors.tolist() == [[0.03], [0.2]]


def test_an_error_is_that_of_each_ratio_or_of_all_of_them() -> None:
    two = {"snr_db": 40.0, "ratios": [0.7, 0.9]}
    trials = [
        a_trial(("a", "b", "b"), **two, ratio_error=0.01),
        a_trial(("a", "b", "b"), **two, ratio_error=[0.001, 0.2], state="rejected-early"),
        a_trial(("a", "b", "b"), **two, ratio_error=[0.01, None]),
        a_trial(("a", "b", "b"), **two),
        a_trial(("a", "b", "b"), snr_db=40.0, ratios=[], ratio_error=[], state="untimed"),
    ]
    assert observe(LAYOUT, trials).errors[:4].tolist() == [[0.01, 0.01], [0.03, 0.2], [0.01, 0], [0, 0]]
    with pytest.raises(UsageError, match=r"^trial -1 has 3 numbers in 'ratio_error' and a ratio on 2 targets; set the"):
        observe(LAYOUT, [a_trial(("a", "b", "b"), **two, ratio_error=[0.01, 0.01, 0.01])])


def test_schemes_that_never_ran_are_left_out() -> None:
    asked = np.array([[1, 2, 2], [1, 2, 2], [0, 1, 2]])
    ran = np.array([[1, 0, 2], [1, 0, 2], [0, 0, 2]])
    assert effective(LAYOUT, asked, ran).tolist() == [[True, True, True], [True, True, False], [True, False, True]]


def numbered(number: int, trial: FrozenTrial) -> FrozenTrial:
    trial.number = number
    return trial


def test_a_reader_reads_each_trial_once() -> None:
    first = numbered(0, a_trial(("a", "b", "b")))
    second = numbered(1, a_trial(("float", "a", "b"), effective={LAYOUT.regions[1]: "float"}))
    reader = Reader(LAYOUT)
    assert reader.read([first], DIRECTIONS).found.codes.tolist() == [[1, 2, 2]]
    first.params = dict.fromkeys(LAYOUT.regions, "float")
    told = reader.read([first, second], DIRECTIONS)
    assert told.found.codes.tolist() == [[1, 2, 2], [0, 0, 2]]
    assert told.asked.tolist() == [[1, 2, 2], [0, 1, 2]]
    assert told.seen == {np.array(codes).tobytes() for codes in ([1, 2, 2], [0, 1, 2], [0, 0, 2])}
    assert reader.read([], DIRECTIONS).asked.shape == (0, 3)


def test_a_reader_knows_the_trials_that_it_read_from_those_of_a_study_that_was_made_again() -> None:
    first, second = (numbered(number, a_trial(("a", "b", "b"))) for number in (0, 1))
    reader = Reader(LAYOUT)
    assert reader.knows([])
    reader.read([first], DIRECTIONS)
    assert reader.knows([first, second])
    assert not reader.knows([numbered(0, second)])
    assert not reader.knows([])


def test_a_reader_knows_what_is_asked_for_and_learns_from_it_once_it_is_finished() -> None:
    complete, running = numbered(0, a_trial(("a", "b", "b"))), numbered(0, a_trial(("a", "b", "b")))
    running.state = TrialState.RUNNING
    reader = Reader(LAYOUT)
    told = reader.read([running], DIRECTIONS)
    assert (len(told.found), len(told.seen)) == (0, 1)
    assert len(reader.read([complete], DIRECTIONS).found) == 1


def test_a_reader_passes_over_other_parameters_and_knows_what_failed() -> None:
    other, failed = numbered(0, a_trial(("a", "b", "b"))), numbered(1, a_trial(("a", "a", "b")))
    other.params = {"x": "a"}
    failed.state = TrialState.FAIL
    with pytest.warns(UserWarning, match=f"trial 0 has no scheme for region '{LAYOUT.regions[0]}'"):
        told = Reader(LAYOUT).read([other, failed], DIRECTIONS)
    assert len(told.found) == 0
    assert told.seen == {np.array([1, 1, 2]).tobytes()}


def a_pruned_trial(**attributes: object) -> FrozenTrial:
    complete = a_trial(("a", "b", "b"))
    return create_trial(
        state=TrialState.PRUNED,
        params=complete.params,
        distributions=complete.distributions,
        user_attrs=dict(attributes),
    )


def test_a_trial_that_was_not_timed_has_an_snr_and_no_ratios_and_may_be_asked_again() -> None:
    probe = numbered(0, a_pruned_trial(state="untimed", snr_db=33.0, ratios=[], ratio_error=None))
    timed = numbered(1, a_trial(("a", "a", "b"), ratios=[0.7, 0.9]))
    told = Reader(LAYOUT).read([probe, timed], DIRECTIONS)
    assert told.found.snr_db.tolist() == [[33], [40]]
    assert told.found.is_timed.tolist() == [False, True]
    assert told.found.is_quick.tolist() == [True, False]
    assert told.found.ratios[1].tolist() == [0.7, 0.9]
    assert told.seen == {np.array([1, 1, 2]).tobytes()}


def test_a_pruned_trial_of_a_user_says_roughly_what_it_says_and_is_not_asked_again() -> None:
    told = Reader(LAYOUT).read([a_pruned_trial(snr_db=33.0)], DIRECTIONS)
    assert told.found.snr_db.tolist() == [[33]]
    assert (told.found.is_timed.tolist(), told.found.is_quick.tolist()) == ([False], [True])
    assert told.seen == {np.array([1, 2, 2]).tobytes()}


def test_a_pruned_trial_that_says_nothing_is_not_measured() -> None:
    assert not is_measured(a_pruned_trial())


def test_noise_far_above_the_signal_counts_like_a_hundred_times_the_signal() -> None:
    found = observe(LAYOUT, [a_trial(("a", "b", "b"), snr_db=-200.0), a_trial(("a", "b", "b"), snr_db=-np.inf)])
    assert found.snr_db.tolist() == [[-20], [-20]]


def test_a_trial_that_was_not_timed_ran_few_samples_whatever_its_state_in_the_study() -> None:
    found = observe(LAYOUT, [a_trial(("a", "b", "b"), state="untimed", ratios=[])])
    assert found.is_quick.tolist() == [True]
    assert not found.is_timed.any()


def test_failed_trials_say_what_they_were_asked_for() -> None:
    failed = numbered(1, a_trial(("a", "b", "b")))
    failed.state, failed.values = TrialState.FAIL, None
    told = Reader(LAYOUT).read([numbered(0, a_trial(("a", "a", "b"))), failed], DIRECTIONS)
    assert told.failed.tolist() == [[1, 2, 2]]
    assert told.asked.tolist() == [[1, 1, 2]]


def test_what_is_no_ratio_is_not_taken_for_one() -> None:
    bytes_too = create_trial(
        params=dict.fromkeys(LAYOUT.regions, "a"),
        distributions={region: CategoricalDistribution(CHOICES) for region in LAYOUT.regions},
        values=[40.0, 0.8, 2_000_000.0],
    )
    directions = [*DIRECTIONS, StudyDirection.MINIMIZE]
    with pytest.raises(UsageError, match=r"^trial -1 has 2e\+06 as a latency ratio, candidate / float"):
        begun().read([bytes_too], directions)
    bytes_too.user_attrs.update(snr_db=40.0, ratios=[0.8])
    assert Reader(LAYOUT).read([bytes_too], directions).found.ratios.tolist() == [[0.8]]


@pytest.mark.parametrize("ratio", [-np.inf, 0.0, -0.5, np.nan])
def test_ratios_that_cannot_be_are_refused(ratio: float) -> None:
    for trial in (a_trial(("a", "b", "b"), ratios=[ratio]), a_pruned_trial(snr_db=40.0, ratios=[ratio])):
        with pytest.raises(UsageError, match=r"^trial -?\d+ has .* as a latency ratio"):
            begun().read([trial], DIRECTIONS)


@pytest.mark.parametrize(
    "said", [{"snr_db": None}, {"snr_db": "high"}, {"size_bytes": "4MB"}, {"ratio_error": "a"}, {"snr_error_db": "low"}]
)
def test_attributes_that_cannot_be_read_are_refused_with_the_trial(said: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"^trial -?\d+ has values or user attributes that cannot be read \(.*help"):
        begun().read([a_trial(("a", "b", "b"), **said)], DIRECTIONS)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"ratios": 0.5}, r"has 0\.5 in 'ratios'; set it to a list of numbers$"),
        ({"ratios": None}, r"has None in 'ratios'; set it to a list of numbers$"),
        ({"ratios": ["a"]}, r"has \['a'\] in 'ratios'; set it to a list of numbers$"),
        ({"ratios": {"cpu": 0.5}}, r"has {'cpu': 0\.5} in 'ratios'; set it to a list of numbers$"),
        ({"snr_by_output": 30.0}, r"has 30\.0 in 'snr_by_output'; set it to a list of numbers$"),
        ({"effective": ["a"]}, r"has \['a'\] in 'effective'; set it to the scheme .* by the region's name"),
        ({"effective": {"x": "a"}}, r"has {'x': 'a'} in 'effective'; set it to the scheme .* by the region's name"),
        ({"state": "rejected_early"}, r"has 'rejected_early' in 'state'; set it to one of: complete, rejected-early, "),
        ({"state": ["untimed"]}, r"has '\['untimed'\]' in 'state'; set it to one of: "),
    ],
)
def test_what_is_wrong_with_an_attribute_is_said_by_its_name(said: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^trial -?\d+ {message}"):
        begun().read([a_trial(("a", "b", "b"), **said)], DIRECTIONS)


def test_where_sizes_count_too_trials_say_which_values_are_ratios() -> None:
    """The size would be taken for the ratio on a second target."""
    trial = create_trial(
        params=dict.fromkeys(LAYOUT.regions, "a"),
        distributions={region: CategoricalDistribution(CHOICES) for region in LAYOUT.regions},
        values=[40.0, 0.8, 0.3],
    )
    directions = [*DIRECTIONS, StudyDirection.MINIMIZE]
    assert Reader(LAYOUT).read([trial], directions).found.ratios.tolist() == [[0.8, 0.3]]
    with pytest.raises(UsageError, match=r"does not say which of its values are latency ratios .* 'size_bytes'$"):
        begun(has_size=True).read([trial], directions)
    trial.user_attrs = {"snr_db": 40.0, "ratios": [0.8], "size_bytes": 300_000}
    assert Reader(LAYOUT, has_size=True).read([trial], directions).found.ratios.tolist() == [[0.8]]


@pytest.mark.parametrize("error", [np.inf, -1.0])
def test_errors_that_are_none_are_refused(error: float) -> None:
    with pytest.raises(UsageError, match=r"^trial -?\d+ has .* in 'ratio_error'; set it to finite"):
        begun().read([a_trial(("a", "b", "b"), ratio_error=error)], DIRECTIONS)


def test_ratios_may_be_an_array() -> None:
    found = observe(LAYOUT, [a_trial(("a", "b", "b"), ratios=np.array([0.5, 0.6]))])
    assert found.ratios.tolist() == [[0.5, 0.6]]


def test_of_trials_with_ratios_on_unlike_targets_the_first_ones_count() -> None:
    """Two of a stored study made every further trial fail."""
    trials = [numbered(i, a_trial(("a", "b", "b"), ratios=ratios)) for i, ratios in enumerate([[0.5], [0.5, 0.6]])]
    with pytest.warns(UserWarning, match="nothing is learned of trial 1: it has latency ratios on 2 targets, and oth"):
        assert begun().read(trials, DIRECTIONS).found.ratios.tolist() == [[0.5]]
    with pytest.raises(UsageError, match="ratios on 2 targets and on 1"):
        observe(LAYOUT, trials)


def test_trials_with_schemes_of_another_space_are_passed_over() -> None:
    other = create_trial(
        params=dict.fromkeys(LAYOUT.regions, "other"),
        distributions={region: CategoricalDistribution(("float", "other")) for region in LAYOUT.regions},
        values=[40.0, 0.8],
    )
    assert len(Reader(LAYOUT).read([other], DIRECTIONS).found) == 0


def test_a_study_says_what_ran_and_what_was_measured_while_it_runs_and_when_it_is_resumed(tmp_path: Path) -> None:
    asked = dict(zip(LAYOUT.regions, ("a", "b", "b"), strict=True))
    half_width = 0.02
    outcome = a_measured(ratio=None).outcome
    assert isinstance(outcome, Measurement)
    outcome = replace(
        outcome,
        quality=Quality(per_output={"y": 50.0, "z": 30.0}, agreement={}, n_samples=64),
        latency={"cpu-1t": a_latency(0.7, spread=half_width), "cpu-4t": a_latency(0.9, spread=2 * half_width)},
        effective={**asked, LAYOUT.regions[0]: "float"},
        state=State.COMPLETE,
    )
    journal, space = tmp_path / "study.journal", SearchSpace(choices=LAYOUT.choices, schemes=SCHEMES)
    running = Study(journal, space, RandomSampler(seed=0), n_targets=2)
    running.tell(Evaluation(trial=running.ask_for(asked), outcome=outcome))
    for study in (running, Study(journal, space, RandomSampler(seed=0), n_targets=2)):
        found = observe(LAYOUT, study.told)
        assert found.codes.tolist() == [[0, 2, 2]]
        assert found.snr_db.tolist() == [[50, 30]]
        assert found.ratios.tolist() == [[0.7, 0.9]]
        assert found.errors == pytest.approx(np.array([[half_width, 2 * half_width]]) / Z_95)


def test_what_an_untimed_trial_has_for_a_ratio_is_none() -> None:
    untimed = a_trial(("a", "b", "b"), state="untimed")
    assert np.isnan(observe(LAYOUT, [untimed]).ratios).all()
    assert observe(LAYOUT, [a_trial(("a", "b", "b"), state="untimed", ratios=[0.5])]).ratios.tolist() == [[0.5]]


def test_a_ratio_that_is_infinite_on_one_target_is_none() -> None:
    found = observe(
        LAYOUT, [a_trial(("a", "b", "b"), ratios=[0.5, math.inf]), a_trial(("a", "b", "b"), ratios=[0.5, 0.6])]
    )
    assert np.isnan(found.ratios[0]).all()
    assert found.ratios[1].tolist() == [0.5, 0.6]


def told(trials: list[FrozenTrial], recwarn: pytest.WarningsRecorder) -> list[str]:
    reader = Reader(LAYOUT)
    for n in range(len(trials) + 1):
        reader.read([numbered(i, trial) for i, trial in enumerate(trials[:n])], DIRECTIONS)
    return [str(each.message) for each in recwarn]


def a_timed(schemes: tuple[str, str, str], ratio: float, **said: object) -> FrozenTrial:
    trial = a_trial(schemes, **said)
    trial.values = [40.0, ratio]
    return trial


FLOAT, MIXED = ("float", "float", "float"), ("a", "b", "b")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("ratio", [2.3, 0.02])
def test_values_of_float_that_can_be_no_ratio_are_warned_of_once(
    ratio: float, recwarn: pytest.WarningsRecorder
) -> None:
    (said,) = told([a_timed(MIXED, 0.5), a_timed(FLOAT, ratio), a_timed(FLOAT, ratio)], recwarn)
    assert said == (
        f"trial 1 quantizes nothing and has {ratio} as a latency ratio: it should be candidate / float, 1 for float"
        " itself, and no seconds or milliseconds"
    )


@pytest.mark.filterwarnings("default")
def test_values_of_which_none_is_near_float_are_warned_of_after_a_few(recwarn: pytest.WarningsRecorder) -> None:
    trials = [a_timed(MIXED, 2.0 + i) for i in range(8)]
    assert told(trials[:7], recwarn) == []
    assert told(trials, recwarn)[0].startswith("none of 8 trials has a latency ratio below 1.5: ")


@pytest.mark.parametrize(
    "trials",
    [
        [a_timed(FLOAT, 1.2), a_timed(FLOAT, 0.05)],
        [a_timed(FLOAT, 0.5, ratios=[2.3])],
        [a_timed(FLOAT, 2.3, effective={LAYOUT.regions[1]: "b"})],
        [*(a_timed(MIXED, 3.0) for _ in range(9)), a_timed(MIXED, 1.1)][::-1],
    ],
)
def test_values_that_may_be_ratios_are_taken_as_they_are(
    trials: list[FrozenTrial], recwarn: pytest.WarningsRecorder
) -> None:
    assert told(trials, recwarn) == []
