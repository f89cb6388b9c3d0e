import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoquant.api import steps
from autoquant.api.configuration import Budget
from autoquant.api.resumption import Earlier
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import BiasCorrection
from autoquant.equalisation.equalise import Equalised, equalise
from autoquant.errors import OutputError, ProfileError
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_constants
from autoquant.space.schema import read_space
from tests.unit.api.preparing.stubs import FACTS, Evaluating, Make, an_earlier


def test_nothing_is_done_where_the_space_wants_nothing_done(make: Make) -> None:
    preparing, evaluating = make(accuracy=Accuracy.NONE), Evaluating([])
    plain = preparing.ingredients()
    assert preparing.in_best_form(plain, evaluating.real, FACTS) is plain
    assert not plain.has_mean_biases
    assert evaluating.loaded == []


@pytest.mark.parametrize(
    ("decibels", "form", "has_mean_biases"),
    [
        ([[20.0], [25.0], [22.0], [24.0]], Form.EQUALISED, False),
        ([[20.0], [22.0], [25.0], [24.0]], Form.PLAIN, True),
        ([[20.0], [22.0], [24.0], [25.0]], Form.EQUALISED, True),
        ([[20.0], [20.5], [20.9], [20.5]], Form.PLAIN, False),
        ([[20.0], [25.0], ProfileError("it crashed")], Form.EQUALISED, False),
    ],
)
def test_the_form_that_gains_a_decibel_and_most_is_gone_on_with(
    make: Make, decibels: list[list[float] | Exception], form: Form, has_mean_biases: bool
) -> None:
    preparing, evaluating = make(), Evaluating(decibels)
    found = preparing.in_best_form(preparing.ingredients(), evaluating.real, FACTS)
    assert found.form is form
    assert (found.definition == preparing.definition) is has_mean_biases
    assert found.has_mean_biases is has_mean_biases
    assert evaluating.loaded[-1] is found
    assert evaluating.is_settled
    if len(decibels) < 4:
        assert "forms of the model are not compared any further: it crashed" in preparing.notes


def test_other_forms_have_a_limit_of_time_also_where_the_search_has_none(make: Make) -> None:
    preparing, evaluating = make(), Evaluating([[20.0, 20.0], [25.0], [22.0, 22.0], [24.0, 24.0]])
    assert preparing.configuration.budget.seconds is None
    assert preparing.in_best_form(preparing.ingredients(), evaluating.real, FACTS).form is Form.EQUALISED
    assert evaluating.seconds[0] == math.inf
    assert all(map(math.isfinite, evaluating.seconds[1:]))


@pytest.mark.parametrize("form", list(Form))
def test_the_form_of_an_earlier_run_is_taken_without_a_comparison(make: Make, form: Form) -> None:
    preparing, evaluating = make(earlier=an_earlier(form)), Evaluating([])
    assert preparing.in_best_form(preparing.ingredients(), evaluating.real, FACTS).form is form


def test_a_form_of_an_earlier_run_that_is_not_found_again_is_one_sentence(make: Make) -> None:
    preparing = make(earlier=an_earlier(Form.EQUALISED))
    balanced = replace(preparing.in_best_form(preparing.ingredients(), Evaluating([]).real, FACTS), form=Form.PLAIN)
    with pytest.raises(OutputError, match="went on with the equalised form of the model, which is not found again"):
        preparing.in_best_form(balanced, Evaluating([]).real, FACTS)


DYNAMIC_SPACE = """
schema = 1
[ep.cpu]
schemes = ["d"]
op_types = ["Gemm"]
[schemes.d]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "dynamic"
"""


@pytest.mark.parametrize("earlier", [None, an_earlier(Form.PLAIN)], ids=["first", "resumed"])
def test_no_biases_are_said_to_be_corrected_where_no_scheme_could(
    make: Make, earlier: Earlier | None, tmp_path: Path
) -> None:
    (tmp_path / "space.toml").write_text(DYNAMIC_SPACE)
    space, preparing = str(tmp_path / "space.toml"), make(earlier=earlier)
    preparing = replace(
        preparing,
        configuration=replace(preparing.configuration, space=space),
        definition=steps.fitted(read_space(space, ep="cpu"), preparing.configuration.targets),
    )
    found = preparing.in_best_form(preparing.ingredients(), Evaluating([[20.0], [25.0]]).real, FACTS)
    assert not found.has_mean_biases
    assert not any("corrected biases" in note for note in preparing.notes)


def test_a_space_is_what_its_file_said_at_the_beginning(make: Make) -> None:
    preparing = make()
    preparing = replace(preparing, configuration=replace(preparing.configuration, space="gone.toml"))
    found = preparing.in_best_form(preparing.ingredients(), Evaluating([[20.0], [30.0], [20.0], [20.0]]).real, FACTS)
    assert not found.has_mean_biases
    assert {scheme.bias for scheme in preparing.definition.schemes} == {BiasCorrection.MEAN}
    assert {scheme.bias for scheme in found.definition.schemes} == {BiasCorrection.NONE}


def test_the_difference_to_the_users_model_is_that_of_the_form_in_use(make: Make) -> None:
    preparing, evaluating = make(), Evaluating([[20.0], [25.0], [20.0], [20.0]])
    plain = preparing.ingredients()
    odd = replace(plain, prepared=replace(plain.prepared, difference_db=77.0))
    found = preparing.in_best_form(odd, evaluating.real, FACTS)
    assert found.form is Form.EQUALISED
    assert found.prepared.difference_db == math.inf


def test_a_form_whose_outputs_would_differ_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(prepared: Any, statistics: Any) -> Equalised:
        graph = Graph(with_constants(prepared.graph.model, {"wa": 1.1 * prepared.graph.constant("wa")}, {}))
        return Equalised(
            prepared=replace(prepared, graph=graph),
            tensors=(TensorName("h"),),
            largest_exponent=2,
            note="",
        )

    monkeypatch.setattr("autoquant.api.steps.equalise", broken)
    preparing, evaluating = make(), Evaluating([[20.0], [25.0]])
    assert preparing.in_best_form(preparing.ingredients(), evaluating.real, FACTS).form is Form.PLAIN
    assert any(note.startswith("equalisation: the outputs of the float model would differ") for note in preparing.notes)


def test_factors_of_two_are_not_worth_a_comparison(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def slight(prepared: Any, statistics: Any) -> Equalised:
        return replace(equalise(prepared, statistics.channels), largest_exponent=1, note="up to 2^1")

    monkeypatch.setattr("autoquant.api.steps.equalise", slight)
    preparing, evaluating = make(), Evaluating([[20.0], [25.0]])
    assert preparing.in_best_form(preparing.ingredients(), evaluating.real, FACTS).form is Form.PLAIN
    assert "equalisation: up to 2^1, which is too little to be tried" in preparing.notes


def test_another_form_is_not_made_where_there_is_no_time_for_it(make: Make) -> None:
    preparing, evaluating = make(Budget(seconds=60.0)), Evaluating([[20.0], [25.0]])
    plain = preparing.ingredients()
    preparing.deadline.phases["calibrate"] = 10.0
    assert preparing.in_best_form(plain, evaluating.real, FACTS).form is Form.PLAIN
    assert (
        "equalisation: there is no time for it: it should take 15.0 s, more than 10% of the budget" in preparing.notes
    )


def test_once_much_of_the_budget_is_gone_forms_are_neither_made_nor_compared(make: Make) -> None:
    preparing, evaluating = make(Budget(seconds=60.0)), Evaluating([])
    plain = preparing.ingredients()
    preparing.deadline.spent_s = 30.0
    found = preparing.in_best_form(plain, evaluating.real, FACTS)
    assert found == replace(plain, has_mean_biases=True)
    assert preparing.deadline.left_out == ["equalisation", "a comparison with corrected biases"]
    assert preparing.notes == ["biases are corrected untried: that has hardly ever lost"]


@pytest.mark.parametrize(("float_s", "is_compared"), [(0.1, True), (0.5, False)])
def test_forms_of_a_slow_model_are_not_compared_where_that_would_take_the_time_of_trials(
    make: Make, float_s: float, is_compared: bool
) -> None:
    preparing, evaluating = make(Budget(seconds=60.0)), Evaluating([[20.0], [15.0], [15.0], [15.0]])
    plain = preparing.ingredients()
    preparing.deadline.phases["calibrate"] = 10.0
    found = preparing.in_best_form(plain, evaluating.real, replace(FACTS, float_s={"cpu-1t": float_s}))
    assert found.has_mean_biases is not is_compared
    said = "there is no time for a comparison with corrected biases: it should take 8.0 s, more than 5% of the budget"
    assert (said in preparing.notes) is not is_compared
    assert evaluating.loaded[-1] is found
