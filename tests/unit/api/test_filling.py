"""Which filling of channels a search goes on with, by made-up latencies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.filling import fastest, filled, fillings_of
from autoquant.api.ingredients import Ingredients
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import RangeKind, RangeMethod, Rounding
from autoquant.errors import ModelError, ProfileError
from autoquant.measurement.latency import Timings
from autoquant.qdq.candidate import Candidate
from autoquant.rewrites.filled import Filling
from tests.models import floats, model_of, saved

SURE, UNSURE = [1.0] * 6, [0.9, 0.95, 1.0, 1.05, 1.1, 1.15]


@pytest.fixture
def plain(tmp_path: Path) -> Ingredients:
    model = model_of(
        "(float[1,3,8,8] x) => (float[1,2,8,8] y)",
        "c = Conv(x, w) r = Relu(c) e = Conv(x, v) j = Concat<axis=1>(r, e) y = Conv(j, z)",
        {"w": floats(20, 3, 1, 1), "v": floats(20, 3, 1, 1, seed=1), "z": floats(2, 40, 1, 1)},
    )
    path = saved(model, tmp_path / "model.onnx")
    samples = steps.read_data(path, {"x": floats(4, 3, 8, 8)})
    prepared, space = steps.prepare(path, samples), steps.definition_of("quick", "cpu")
    regions = steps.find_regions(prepared, space=space)
    statistics = steps.calibrate(prepared, samples, space=space, cache_folder=tmp_path)
    return Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=space)


def timings(ratio: float, spread: Sequence[float] = SURE) -> Timings:
    found = Timings()
    for each in spread:
        found.add([ratio * each], [1.0])
    return found


class Comparing:
    """Answers in turn."""

    def __init__(self, answers: Sequence[Mapping[str, Timings] | Exception]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Candidate, Candidate]] = []

    def __call__(self, first: Candidate, second: Candidate) -> Mapping[str, Timings]:
        self.asked.append((first, second))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_ranges_stay_and_channels_that_are_filled_in_have_none(plain: Ingredients) -> None:
    other = filled(plain, Filling(16), 40)
    assert other is not None
    assert other.filling == Filling(16)
    assert other.statistics.tensors == plain.statistics.tensors
    before, now = (found.statistics.channels[TensorName("j")] for found in (plain, other))
    assert now.mean.shape == now.minimum.shape == now.maximum.shape == (64,)
    np.testing.assert_array_equal(now.maximum[32:52], before.maximum[20:])
    assert not now.minimum[20:32].any()
    assert [region.id for region in other.regions] == [region.id for region in plain.regions]
    assert other.prepared.digest != plain.prepared.digest


def test_fillings_that_make_one_model_are_one(plain: Ingredients) -> None:
    assert [str(filling) for filling in fillings_of(plain, 40)] == [str(Filling(16)), str(Filling(8))]
    assert filled(plain, Filling(4), 40) is None


@pytest.mark.parametrize(
    ("answers", "chosen"),
    [
        ([{"cpu": timings(0.9)}, {"cpu": timings(0.8)}], "0.900 0.800"),
        ([{"cpu": timings(1.0, UNSURE)}], None),
        ([{"cpu": timings(0.95, UNSURE)}, {"cpu": timings(0.8)}], "0.974 0.800"),
        ([{"cpu": timings(0.9)}, {"cpu": timings(1.05)}], None),
        ([{"cpu": timings(1.05)}], None),
        ([{"cpu": timings(1.005)}], None),
        ([{"cpu": timings(0.95, UNSURE)}, {"cpu": timings(0.95, UNSURE)}], None),
        ([{"a": timings(0.8), "b": timings(0.9)}, {"a": timings(0.7), "b": timings(0.6)}], "0.900 0.700"),
        ([{"a": timings(0.8), "b": timings(1.1)}], None),
    ],
)
def test_what_is_shown_to_be_faster_and_nowhere_slower_is_taken(
    plain: Ingredients, answers: Sequence[Mapping[str, Timings]], chosen: str | None
) -> None:
    other, comparing = filled(plain, Filling(16), 40), Comparing(answers)
    assert other is not None
    best, gain = fastest(plain, [other], comparing, [])
    assert best is (plain if chosen is None else other)
    assert comparing.answers == []
    assert (None if gain is None else f"{gain.float_ratio:.3f} {gain.quantized_ratio:.3f}") == chosen


def test_the_one_that_gains_most_is_taken(plain: Ingredients) -> None:
    others = list(fillings_of(plain, 40).values())
    comparing = Comparing([{"cpu": timings(ratio)} for ratio in (0.9, 0.9, 0.95, 0.7)])
    best, gain = fastest(plain, others, comparing, [])
    assert best is others[1]
    assert str(gain) == "float takes 0.950 of its latency, the first recipe 0.700"


@pytest.mark.parametrize("error", [ModelError("refused"), ProfileError("lost")])
def test_what_won_before_one_cannot_be_compared_stays(plain: Ingredients, error: Exception) -> None:
    others, notes = list(fillings_of(plain, 40).values()), list[str]()
    comparing = Comparing([{"cpu": timings(0.9)}, {"cpu": timings(0.9)}, error])
    best, _ = fastest(plain, others, comparing, notes)
    assert best is others[0]
    assert notes == [f"channels are not tried filled up any further: {error}"]


def test_float_and_a_recipe_of_nearest_integers_are_compared(plain: Ingredients) -> None:
    first, *others = plain.definition.schemes
    rounded = replace(first, name="rounded", rounding=Rounding.GPTQ)
    space = replace(plain.definition, schemes=(rounded, first, *others))
    asked, comparing = replace(plain, definition=space), Comparing([{"cpu": timings(0.9)}] * 2)
    other = filled(asked, Filling(16), 40)
    assert other is not None
    fastest(asked, [other], comparing, [])
    assert [bool(first.integer_nodes) for first, _ in comparing.asked] == [False, True]
    assert [first.digest == second.digest for first, second in comparing.asked] == [False, False]


def test_float_alone_is_compared_where_no_recipe_has_calibrated_ranges(plain: Ingredients) -> None:
    dynamic = [replace(scheme, ranges=RangeMethod(RangeKind.DYNAMIC)) for scheme in plain.definition.schemes[:1]]
    asked = replace(plain, definition=replace(plain.definition, schemes=tuple(dynamic)))
    other, comparing = filled(asked, Filling(16), 40), Comparing([{"cpu": timings(0.9)}])
    assert other is not None
    best, gain = fastest(asked, [other], comparing, [])
    assert best is other
    assert str(gain) == "float takes 0.900 of its latency"
