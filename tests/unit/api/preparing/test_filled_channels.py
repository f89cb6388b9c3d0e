from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import read_search_data
from autoquant.api.preparing import Preparing
from autoquant.domain.accuracy import Form
from autoquant.domain.objective import Objectives
from autoquant.errors import ProfileError
from autoquant.measurement.latency import Timings
from autoquant.qdq.candidate import Candidate
from autoquant.rewrites.filled import Filling
from tests.models import floats, model_of, saved
from tests.unit.api.preparing.stubs import FACTS, Evaluating, Make, an_earlier

NOTE = "channels are filled up with zeros to multiples of 16: float takes 0.500 of its latency, the first recipe 0.500"
Prepare = Callable[..., Preparing]


class Comparing(Evaluating):
    """Gives one ratio, or fails, whatever is compared."""

    def __init__(self, ratio: float | Exception) -> None:
        super().__init__([])
        self.ratio, self.asked_s = ratio, list[float]()

    def compare(self, first: Candidate, second: Candidate, seconds: float, expected_s: float) -> Mapping[str, Timings]:
        assert expected_s == pytest.approx(0.012)
        assert first.digest != second.digest
        self.asked_s.append(seconds)
        if isinstance(self.ratio, Exception):
            raise self.ratio
        found = Timings()
        for _ in range(5):
            found.add([self.ratio], [1.0])
        return {"cpu-1t": found}


@pytest.fixture
def images(asked: Configuration, make: Make) -> Prepare:
    """Of a model with five channels between two convolutions."""
    model = model_of(
        "(float[1,3,8,8] x) => (float[1,2,8,8] y)",
        "c = Conv(x, w) r = Relu(c) y = Conv(r, z)",
        {"w": floats(5, 3, 1, 1), "z": floats(2, 5, 1, 1)},
    )
    path = saved(model, asked.out.parent / "images.onnx")
    data: Any = {"x": floats(8, 3, 8, 8)}
    changed = {"model": path, "calibration": data, "evaluation": {"x": np.flip(data["x"])}}

    def made(budget: Budget | None = None, earlier: Any = None, **changes: Any) -> Preparing:
        preparing = make(budget, earlier)
        configuration = replace(preparing.configuration, **changed, **changes)
        return replace(
            preparing,
            configuration=configuration,
            data=read_search_data(configuration, steps.signatures_of(configuration.model)),
        )

    return made


def test_channels_are_filled_up_where_that_is_faster_and_the_outputs_stay(images: Prepare) -> None:
    preparing, evaluating = images(), Comparing(0.5)
    plain = preparing.ingredients()
    found = preparing.filled(plain, evaluating.real, FACTS)
    assert found.filling == Filling(16)
    assert found.prepared.difference_db > 100
    assert preparing.notes == [NOTE]
    assert len(evaluating.asked_s) == 4  # float and a recipe, to multiples of 16 and of 8
    assert "fill" in preparing.deadline.phases


def test_they_stay_where_it_is_no_faster(images: Prepare) -> None:
    preparing = images()
    plain = preparing.ingredients()
    assert preparing.filled(plain, Comparing(1.0).real, FACTS) is plain
    assert preparing.notes == []


def test_they_stay_where_outputs_would_differ(images: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    preparing = images()
    plain = preparing.ingredients()
    monkeypatch.setattr(steps, "compared", lambda prepared, _: replace(prepared, difference_db=20.0))
    assert preparing.filled(plain, Comparing(0.5).real, FACTS) is plain
    assert preparing.notes == ["channels stay as they are: the outputs of the float model would differ (20.0 dB)"]


def test_they_stay_where_models_cannot_be_compared(images: Prepare) -> None:
    preparing = images()
    plain = preparing.ingredients()
    assert preparing.filled(plain, Comparing(ProfileError("it crashed")).real, FACTS) is plain
    assert preparing.notes == ["channels are not tried filled up any further: it crashed"]


@pytest.mark.parametrize(
    "changes", [{"objectives": Objectives(has_size=True)}, {"demands": Demands(max_size_bytes=10**6)}]
)
def test_they_stay_where_the_size_counts(images: Prepare, changes: dict[str, Any]) -> None:
    preparing, evaluating = images(**changes), Comparing(0.5)
    plain = preparing.ingredients()
    assert preparing.filled(plain, evaluating.real, FACTS) is plain
    assert evaluating.asked_s == []


def test_models_without_such_channels_are_not_compared(make: Make) -> None:
    preparing, evaluating = make(), Comparing(0.5)
    plain = preparing.ingredients()
    assert preparing.filled(plain, evaluating.real, FACTS) is plain
    assert evaluating.asked_s == []


@pytest.mark.parametrize(
    ("spent_s", "float_s", "left_out", "reasons"),
    [
        (30.0, 1e-3, ["channels filled up to whole blocks"], []),
        (1.0, 1.0, [], ["it should take 48.0 s, more than 10% of the budget"]),
    ],
)
def test_nothing_is_compared_where_there_is_no_time(
    images: Prepare, spent_s: float, float_s: float, left_out: list[str], reasons: list[str]
) -> None:
    preparing, evaluating = images(Budget(seconds=60.0)), Comparing(0.5)
    plain = preparing.ingredients()
    preparing.deadline.spent_s = spent_s
    facts = replace(FACTS, float_s={"cpu-1t": float_s})
    assert preparing.filled(plain, evaluating.real, facts) is plain
    assert evaluating.asked_s == []
    assert preparing.deadline.left_out == left_out
    assert preparing.notes == [f"channels are not tried filled up to whole blocks: {reason}" for reason in reasons]


def test_a_short_budget_compares_for_a_short_time(images: Prepare) -> None:
    preparing, evaluating = images(Budget(seconds=20.0)), Comparing(0.5)
    preparing.filled(preparing.ingredients(), evaluating.real, FACTS)
    assert evaluating.asked_s == pytest.approx([0.3] * 4)


@pytest.mark.parametrize("filling", [None, Filling(8)])
def test_an_earlier_run_says_how_far(images: Prepare, filling: Filling | None) -> None:
    preparing, evaluating = images(earlier=an_earlier(Form.PLAIN, filling=filling)), Comparing(0.5)
    found = preparing.filled(preparing.ingredients(), evaluating.real, FACTS)
    assert found.filling == filling
    assert evaluating.asked_s == []
    as_before = ["channels are filled up with zeros to multiples of 8, as before"]
    assert preparing.notes == ([] if filling is None else as_before)
