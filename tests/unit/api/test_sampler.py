"""The structure sampler in a study that a user makes, on the example."""

import math
from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState

import autoquant
from autoquant.api.steps import definition_of
from autoquant.domain.measurement import Measurement
from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.statistics import Statistics
from autoquant.errors import UsageError
from autoquant.examples import example
from autoquant.model.prepared import PreparedModel
from autoquant.space.resolve import resolve

MODEL = "example:digits"


@pytest.fixture(scope="module")
def found() -> tuple[PreparedModel, tuple[Region, ...]]:
    prepared = autoquant.prepare(MODEL, autoquant.read_data(MODEL, example("digits").calibration))
    return prepared, autoquant.find_regions(prepared, space="quick", n_regions=4)


@pytest.fixture(scope="module")
def statistics(found: tuple[PreparedModel, tuple[Region, ...]], tmp_path_factory: pytest.TempPathFactory) -> Statistics:
    samples = autoquant.read_data(MODEL, example("digits").calibration)
    return autoquant.calibrate(found[0], samples, space="quick", cache_folder=tmp_path_factory.mktemp("cache"))


def a_study(sampler: autoquant.StructureSampler, *directions: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = [StudyDirection[name.upper()] for name in directions or ("maximize", "minimize")]
    return optuna.create_study(directions=asked, sampler=sampler)


def suggested(sampler: autoquant.StructureSampler, trial: optuna.Trial) -> dict[RegionId, str]:
    return {region: trial.suggest_categorical(region, names) for region, names in sampler.choices.items()}


def test_a_study_of_the_users_measures_the_example(
    found: tuple[PreparedModel, tuple[Region, ...]], statistics: Statistics
) -> None:
    prepared, regions = found
    bench = autoquant.open_bench(MODEL, autoquant.read_data(MODEL, example("digits").evaluation, role="evaluation"))
    sampler = autoquant.StructureSampler(prepared, regions, statistics=statistics, space="quick", seed=1, min_snr_db=10)
    assert sampler.layout.own_errors is not None
    assert sampler.layout.own_errors[sampler.layout.allowed].max() > 0

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        assignment = suggested(sampler, trial)
        candidate = autoquant.build(prepared, regions, statistics, assignment, space="quick")
        measured = autoquant.measure(bench, candidate, assignment, regions)
        assert isinstance(measured, Measurement)
        return measured.quality.worst_db, next(iter(measured.latency.values())).ratio

    study = a_study(sampler)
    study.optimize(objective, n_trials=5)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 5
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 5
    assert sampler.outlook() is not None


def test_the_choices_are_those_of_the_space(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    prepared, regions = found
    sampler = autoquant.StructureSampler(prepared, regions, space="quick")
    assert sampler.choices == resolve(definition_of("quick", "cpu"), regions).choices
    assert len(sampler.layout.edges) > 0


def test_pruned_and_running_trials_are_not_proposed_again(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    sampler = autoquant.StructureSampler(*found, space="quick")
    study, proposed = a_study(sampler), []
    for _ in range(12):
        trial = study.ask()
        proposed.append(tuple(suggested(sampler, trial).values()))
        if len(proposed) % 2:
            study.tell(trial, state=TrialState.PRUNED)
    assert len(set(proposed)) == 12


def test_a_study_in_which_nothing_new_is_left_is_warned(
    found: tuple[PreparedModel, tuple[Region, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    regions = autoquant.find_regions(found[0], space="quick", n_regions=1)
    sampler = autoquant.StructureSampler(found[0], regions, space="quick")
    study = a_study(sampler)
    n_assignments = math.prod(len(names) for names in sampler.choices.values())
    for _ in range(n_assignments):
        suggested(sampler, trial := study.ask())
        study.tell(trial, state=TrialState.PRUNED)
    assert not caplog.records
    with pytest.warns(UserWarning, match="StructureSampler repeats itself, as every other assignment was proposed"):
        suggested(sampler, study.ask())
    suggested(sampler, study.ask())


@pytest.mark.parametrize("directions", [("minimize", "maximize"), ("minimize",), ("maximize", "minimize", "maximize")])
def test_values_that_are_no_snr_and_ratio_are_refused(
    found: tuple[PreparedModel, tuple[Region, ...]], directions: tuple[str, ...]
) -> None:
    sampler = autoquant.StructureSampler(*found, space="quick")
    study = a_study(sampler, *directions)
    trial = study.ask()
    suggested(sampler, trial)
    study.tell(trial, [1.0] * len(directions))
    with pytest.raises(
        UsageError, match=rf"the directions {', '.join(directions)}: the structure sampler wants the SNR"
    ):
        suggested(sampler, study.ask())


def test_user_attributes_say_what_the_values_do_not(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    sampler = autoquant.StructureSampler(*found, space="quick")
    study = a_study(sampler, "minimize")
    for _ in range(3):
        trial = study.ask()
        suggested(sampler, trial)
        trial.set_user_attr("snr_db", 30.0)
        trial.set_user_attr("ratios", [0.5])
        study.tell(trial, 7.0)
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed == 2


def test_reseeded_samplers_draw_otherwise(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    proposals = set()
    for _ in range(8):
        sampler = autoquant.StructureSampler(*found, space="quick")
        sampler.reseed_rng()
        study = a_study(sampler)
        proposals.add(tuple(tuple(suggested(sampler, study.ask()).values()) for _ in range(6)))
    assert len(proposals) > 1


def test_a_model_without_regions_has_nothing_to_sample(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    with pytest.raises(UsageError, match="there is no region"):
        autoquant.StructureSampler(found[0], ())


def test_regions_of_another_model_are_refused(found: tuple[PreparedModel, tuple[Region, ...]]) -> None:
    prepared, (region, *others) = found
    with pytest.raises(UsageError, match=r"region '.*' is of another model, as here is no node 'z'"):
        autoquant.StructureSampler(prepared, (*others, replace(region, nodes=(*region.nodes, NodeName("z")))))


def test_statistics_of_another_space_are_a_usage_error(
    found: tuple[PreparedModel, tuple[Region, ...]], statistics: Statistics
) -> None:
    prepared, regions = found
    fewer = replace(statistics, tensors=dict(list(statistics.tensors.items())[:1]))
    with pytest.raises(UsageError, match=r"the statistics do not hold activation '.*', which space quick quantizes"):
        autoquant.StructureSampler(prepared, regions, statistics=fewer, space="quick")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"min_snr_db": float("nan")}, "the lowest SNR is nan"),
        ({"max_latency_ratio": 0.0}, "the highest latency ratio is 0.0"),
        ({"max_size_bytes": -1}, "the largest size is -1"),
        ({"seed": -1}, "the seed is -1"),
    ],
)
def test_demands_out_of_range_are_refused_as_those_of_a_search(
    found: tuple[PreparedModel, tuple[Region, ...]], said: dict[str, float], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        autoquant.StructureSampler(*found, space="quick", **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prepared", "regions", "options", "message"),
    [
        ("model.onnx", None, {}, "the model is of type 'str', give what prepare"),
        (None, {"a": "b"}, {}, "one of the regions is of type 'str', give a list of what find_regions"),
        (None, 3, {}, "regions are of type 'int'"),
        (None, None, {"statistics": {}}, "what was calibrated is of type 'dict', give what calibrate"),
    ],
)
def test_arguments_of_other_types_are_named(
    found: tuple[PreparedModel, tuple[Region, ...]], prepared: Any, regions: Any, options: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        autoquant.StructureSampler(prepared or found[0], regions or found[1], space="quick", **options)
