import warnings

import optuna
import pytest
from optuna.samplers import NSGAIISampler, PartialFixedSampler, RandomSampler, TPESampler

from autoquant.domain.sampler import SamplerName
from autoquant.errors import UsageError
from autoquant.study.sampler import StructureSampler
from autoquant.study.samplers import (
    beliefs_of,
    is_structured,
    least_ratios_of,
    make_sampler,
    outlook_of,
    parse_sampler,
)
from autoquant.study.standing import Interest
from tests.unit.study import layouts
from tests.unit.study.additive import REGIONS, a_layout, a_study


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("structure", StructureSampler),
        ("tpe", TPESampler),
        ("tpe-univariate", TPESampler),
        ("nsga2", NSGAIISampler),
        ("random", RandomSampler),
    ],
)
def test_each_name_is_a_sampler_that_proposes_for_several_objectives(name: str, kind: type) -> None:
    sampler = make_sampler(parse_sampler(name), a_layout(), seed=1)
    assert type(sampler) is kind
    assert len(a_study(sampler, 14).trials) == 14


def test_the_two_tpe_samplers_propose_differently() -> None:
    found = [a_study(make_sampler(SamplerName(name), a_layout()), 25) for name in ("tpe", "tpe-univariate")]
    assert found[0].trials[-1].params != found[1].trials[-1].params


@pytest.mark.parametrize("name", list(SamplerName))
def test_the_same_seed_gives_the_same_proposals(name: SamplerName) -> None:
    first, again = (a_study(make_sampler(name, a_layout(), seed=4), 15) for _ in range(2))
    assert [t.params for t in first.trials] == [t.params for t in again.trials]


def test_a_sampler_of_the_users_own_is_taken_as_it_is() -> None:
    own = RandomSampler()
    assert make_sampler(parse_sampler(own), a_layout(), seed=1) is own


def test_a_structure_sampler_for_other_regions_is_refused() -> None:
    own = StructureSampler(a_layout())
    assert make_sampler(own, a_layout()) is own
    with pytest.raises(UsageError, match="for other regions or schemes"):
        make_sampler(own, layouts.a_layout())


def test_a_structure_sampler_begins_a_search_without_what_it_learned_before() -> None:
    own = StructureSampler(a_layout())
    a_study(own, 12)
    assert beliefs_of(own)
    assert least_ratios_of(own)(dict.fromkeys(REGIONS, "a"))
    make_sampler(own, a_layout())
    assert beliefs_of(own) == {}
    assert least_ratios_of(own)(dict.fromkeys(REGIONS, "a")) == []
    assert own.outlook() is None


def test_a_structure_sampler_proposes_for_the_demands_of_the_search_that_it_is_given_to() -> None:
    interest, found = Interest(min_snr_db=45.0), list[list[tuple[str, ...]]]()
    for own in (StructureSampler(a_layout(), interest), StructureSampler(a_layout(), Interest(max_ratio=0.5))):
        study = a_study(make_sampler(own, a_layout(), interest), 25)
        found.append([tuple(trial.params.values()) for trial in study.trials])
    assert found[0] == found[1]
    assert found[0] != [tuple(trial.params.values()) for trial in a_study(StructureSampler(a_layout()), 25).trials]


def test_a_structure_sampler_beside_fixed_regions_is_one() -> None:
    interest, fixed = Interest(min_snr_db=45.0), {str(REGIONS[0]): "float"}
    inner = [StructureSampler(a_layout()), StructureSampler(a_layout(), interest)]
    samplers = [PartialFixedSampler(fixed, each) for each in inner]
    found = [a_study(make_sampler(samplers[0], a_layout(), interest), 20), a_study(samplers[1], 20)]
    assert [trial.params for trial in found[0].trials] == [trial.params for trial in found[1].trials]
    assert is_structured(samplers[0])
    assert beliefs_of(samplers[0]) == inner[0].beliefs()
    assert len(beliefs_of(samplers[0])) > 0
    assert outlook_of(inner[0])() is not None
    assert outlook_of(samplers[0])() is None  # it knows nothing of what is fixed
    assert len(least_ratios_of(samplers[0])(dict.fromkeys(REGIONS, "a"))) == 1
    with pytest.raises(UsageError, match="for other regions or schemes"):
        make_sampler(samplers[0], layouts.a_layout())


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="the sampler is 'tpee', choose from: structure, tpe, "):
        parse_sampler("tpee")


def test_what_is_no_sampler_is_refused() -> None:
    with pytest.raises(UsageError, match="in Python one of Optuna may be given"):
        parse_sampler(optuna.create_study())  # type: ignore[arg-type]


def test_only_the_structure_sampler_is_structured() -> None:
    assert [name for name in SamplerName if is_structured(name)] == ["structure"]
    assert is_structured(StructureSampler(a_layout()))
    assert not is_structured(RandomSampler())


def test_the_user_is_not_told_that_multivariate_tpe_is_experimental() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_sampler(SamplerName.TPE, a_layout())


def test_generic_samplers_know_no_least_ratios() -> None:
    structured = make_sampler(SamplerName.STRUCTURE, a_layout(), seed=0)
    assert isinstance(structured, StructureSampler)
    assert least_ratios_of(structured) == structured.least_ratios
    assert list(least_ratios_of(RandomSampler())({})) == []
    assert list(least_ratios_of(None)({})) == []


def test_generic_samplers_believe_what_was_measured() -> None:
    assert beliefs_of(RandomSampler()) == beliefs_of(None) == {}


def test_what_is_believed_is_said_by_number_of_the_trial() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    assert beliefs_of(sampler) == {}
    study = a_study(sampler, 20)
    believed = beliefs_of(sampler)
    assert list(believed) == list(range(19))  # the last one is learned with the next proposal
    measured = [study.trials[number].values for number in believed]
    assert [each.snr_db for each in believed.values()] == pytest.approx([snr for snr, _ in measured])
    assert [each.ratios[0] for each in believed.values()] == pytest.approx([r for _, r in measured], abs=0.05)
