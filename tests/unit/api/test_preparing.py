import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import SearchData, read_search_data
from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts, Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.preparing import Preparing
from autoquant.api.resumption import Earlier
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.region import TensorName
from autoquant.domain.sampler import SamplerName
from autoquant.domain.scheme import BiasCorrection, Rounding
from autoquant.domain.target import Target
from autoquant.equalisation.equalise import Equalised, equalise
from autoquant.errors import ModelError, ProfileError
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_constants
from autoquant.qdq.own_errors import OwnErrors
from autoquant.space.schema import read_space
from tests.models import floats, model_of, saved


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    """A model whose channels can be balanced."""
    folder = tmp_path_factory.mktemp("place")
    gains = np.float32(2.0) ** np.arange(-4, 4, dtype=np.float32)
    model = model_of(
        "(float[1,8] x) => (float[1,4] y)",
        "a = Gemm(x, wa, ba) h = Relu(a) y = Gemm(h, wy, by)",
        {"wa": floats(8, 8) * gains, "ba": floats(8) * gains, "wy": floats(8, 4) / gains[:, None], "by": floats(4)},
    )
    return Configuration(
        model=saved(model, folder / "model.onnx"),
        calibration={"x": floats(8, 8, seed=1)},
        evaluation={"x": floats(6, 8, seed=2)},
        targets=(Target(),),
        budget=Budget(trials=5),
        demands=Demands(),
        out=folder / "run",
        space="quick",
        n_regions=40,
    )


@pytest.fixture(scope="module")
def data(asked: Configuration) -> SearchData:
    return read_search_data(asked, steps.signatures_of(asked.model))


FACTS = BenchFacts(float_s={"cpu-1t": 1e-3}, n_samples=6, opening_s=0.0)
Make = Callable[..., Preparing]


@pytest.fixture
def make(asked: Configuration, data: SearchData, tmp_path: Path) -> Make:
    def made(
        budget: Budget | None = None,
        earlier: Earlier | None = None,
        rounding: Rounding = Rounding.NEAREST,
        accuracy: Accuracy = Accuracy.FAST,
    ) -> Preparing:
        configuration = replace(asked, budget=budget or asked.budget, cache=tmp_path)
        space = steps.fitted(read_space("quick", ep="cpu", accuracy=accuracy), asked.targets)
        return Preparing(
            configuration=configuration,
            definition=replace(space, schemes=tuple(replace(each, rounding=rounding) for each in space.schemes)),
            data=data,
            deadline=Deadline(configuration.budget.seconds),
            earlier=earlier,
            notes=[],
            tell=lambda _: None,
        )

    return made


def an_earlier(form: Form, unrounded: Any = frozenset()) -> Earlier:
    return Earlier(
        n_calibration_samples=8,
        n_evaluation_samples=6,
        has_plain_sums=False,
        form=form,
        has_mean_biases=True,
        unrounded=unrounded,
        sampler="structure",
        prior=None,
    )


@dataclass
class Evaluating:
    """Gives the decibels of the uniform recipes in each form, the forms in the order in which they are loaded."""

    decibels: list[list[float] | Exception]
    loading_s: float = 0.0
    has_plain_sums: bool = False
    loaded: list[Ingredients] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    is_settled: bool = False
    errors: OwnErrors | Exception | None = None

    def load(self, ingredients: Ingredients, *, has_plain_sums: bool) -> None:
        assert has_plain_sums is self.has_plain_sums
        self.loaded.append(ingredients)

    def uniform_db(self, seconds: float, n_most: int) -> list[float]:
        assert seconds > 0
        self.seconds.append(seconds)
        assert n_most > 0
        found = self.decibels[len(self.loaded) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    def settle(self) -> None:
        self.is_settled = True

    def own_errors(self, seconds: float) -> OwnErrors | None:
        assert seconds > 0
        if isinstance(self.errors, Exception):
            raise self.errors
        return self.errors

    @property
    def real(self) -> IsolatedEvaluator:
        return cast("IsolatedEvaluator", self)


def test_the_model_is_partitioned_and_calibrated(make: Make) -> None:
    found = make().ingredients()
    assert found.regions
    assert found.statistics.n_samples == 8
    assert found.form is Form.PLAIN
    assert found.rounder is None


def test_a_short_budget_calibrates_on_fewer_samples_and_says_so(make: Make) -> None:
    preparing = make(Budget(seconds=1e-6))
    found = preparing.ingredients()
    assert found.statistics.n_samples == 1
    assert "calibration: there was time for 1 of the 8 samples" in preparing.notes


def test_weights_that_the_budget_has_no_time_to_round_are_named(make: Make) -> None:
    preparing = make(Budget(seconds=1e-6), rounding=Rounding.ADAROUND)
    found = preparing.ingredients()
    assert found.rounder is not None
    assert {weight for weight, _ in found.rounder.found} == {"wa"}
    assert preparing.notes[-1] == (
        "weights of the plain form are rounded to the nearest integers in some formats or all,"
        " as there was no time in 10% of the budget: wy"
    )


def test_without_a_limit_of_time_all_weights_are_rounded(make: Make) -> None:
    preparing = make(rounding=Rounding.GPTQ)
    found = preparing.ingredients()
    assert found.rounder is not None
    assert found.rounder.found
    assert not found.rounder.unfinished
    assert preparing.notes == []


def test_a_resumed_run_rounds_the_same_weights_whatever_its_time(make: Make) -> None:
    whole = make(rounding=Rounding.GPTQ).ingredients().rounder
    assert whole is not None
    late = frozenset(asked for asked in whole.found if asked[0] == "wy")
    preparing = make(Budget(seconds=1e-6), an_earlier(Form.PLAIN, late), Rounding.GPTQ)
    again = preparing.ingredients().rounder
    assert again is not None
    assert again.unfinished == late
    assert again.found.keys() == whole.found.keys() - late
    assert preparing.notes[-1].endswith("in some formats or all, as before: wy")


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


@pytest.mark.parametrize(("float_s", "is_compared"), [(0.2, True), (0.5, False)])
def test_forms_of_a_slow_model_are_not_compared_where_that_would_take_the_time_of_trials(
    make: Make, float_s: float, is_compared: bool
) -> None:
    preparing, evaluating = make(Budget(seconds=60.0)), Evaluating([[20.0], [25.0], [25.0], [25.0]])
    plain = preparing.ingredients()
    preparing.deadline.phases["calibrate"] = 10.0
    found = preparing.in_best_form(plain, evaluating.real, replace(FACTS, float_s={"cpu-1t": float_s}))
    assert found.has_mean_biases is is_compared
    said = "there is no time to try corrected biases: it should take 8.0 s, more than 10% of the budget"
    assert (said in preparing.notes) is not is_compared
    assert evaluating.loaded[-1] is found


OPSET_SPACE = """
schema = 1
[ep.cpu]
schemes = ["tensor", "channel", "wide", "dynamic"]
op_types = ["Conv", "MatMul", "Relu"]
[schemes.tensor]
activation = "u8:tensor:asym"
weight = "s8:tensor:sym"
ranges = "min-max"
[schemes.channel]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "min-max"
[schemes.wide]
activation = "u16:tensor:asym"
weight = "s8:tensor:sym"
ranges = "min-max"
[schemes.dynamic]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "dynamic"
"""


def at_opset(preparing: Preparing, folder: Path, body: str, opset: int) -> Preparing:
    """For a model that ends in an operator which ONNX or onnxruntime cannot convert from its opset."""
    model = model_of(
        "(float[1,4,6,6] x) => (float[1,4,6,6] y)",
        f"c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) h = MatMul(r, m) y = {body}",
        {"w": floats(4, 4, 3, 3), "m": floats(6, 6), "g": floats(2)},
        opset=opset,
    )
    (folder / "space.toml").write_text(OPSET_SPACE)
    asked = replace(
        preparing.configuration,
        model=saved(model, folder / "old.onnx"),
        calibration={"x": floats(8, 4, 6, 6)},
        evaluation={"x": floats(6, 4, 6, 6, seed=1)},
        space=str(folder / "space.toml"),
    )
    definition = steps.fitted(read_space(asked.space, ep="cpu"), asked.targets)
    data = read_search_data(asked, steps.signatures_of(asked.model))
    return replace(preparing, configuration=asked, definition=definition, data=data)


@pytest.mark.parametrize(
    ("body", "opset", "kept", "note"),
    [
        ("Hardmax<axis=1>(h)", 11, ["tensor", "dynamic"], "channel, wide: export it with opset 21 or newer"),
        ("GroupNormalization<num_groups=2>(h, g, g)", 18, ["tensor", "channel", "dynamic"], "wide: export it with"),
    ],
)
def test_schemes_that_the_opset_cannot_express_are_left_out_with_a_note(
    make: Make, tmp_path: Path, body: str, opset: int, kept: list[str], note: str
) -> None:
    preparing = at_opset(make(), tmp_path, body, opset)
    found = preparing.in_best_form(preparing.ingredients(), Evaluating([[20.0]] * 4).real, FACTS)
    assert [scheme.name for scheme in found.definition.schemes] == kept
    assert any(f"the model's opset cannot express {note}" in given for given in preparing.notes)
    bench, builder = steps.open_bench(preparing.configuration.model, preparing.data.calibration), found.builder()
    for scheme in kept:
        candidate = builder.build({region.id: scheme for region in found.regions})
        bench.opener.open(candidate.skeleton, candidate.constants)


def test_an_opset_that_can_express_no_scheme_is_an_error_that_says_which_one_could(make: Make, tmp_path: Path) -> None:
    preparing = at_opset(make(), tmp_path, "Affine<alpha=2.0, beta=1.0>(h)", 8)
    with pytest.raises(
        ModelError, match=r"no scheme of space space can be written at opset 8, .* with opset 10 or new"
    ):
        preparing.ingredients()


def test_the_search_goes_on_with_the_errors_of_what_regions_quantize(make: Make) -> None:
    preparing = make()
    plain = preparing.ingredients()
    errors = {plain.regions[0].id: {"any": 1e-3}}
    assert preparing.with_own_errors(plain, Evaluating([], errors=errors).real).own_errors == errors
    assert not preparing.notes


@pytest.mark.parametrize(("errors", "reason"), [(None, "there was no time"), (ProfileError("it hung"), "it hung")])
def test_a_search_goes_on_without_them(errors: Exception | None, reason: str, make: Make) -> None:
    preparing = make()
    plain, evaluating = preparing.ingredients(), Evaluating([], errors=errors)
    assert preparing.with_own_errors(plain, evaluating.real).own_errors is None
    assert evaluating.loaded == ([plain] if errors else [])  # another process has nothing
    assert preparing.notes == [f"noise is expected from each region's share of the arithmetic alone: {reason}"]


def test_samplers_that_do_not_use_them_do_not_wait_for_them(make: Make) -> None:
    preparing = make()
    other = replace(preparing, configuration=replace(preparing.configuration, sampler=SamplerName.RANDOM))
    plain = other.ingredients()
    assert other.with_own_errors(plain, Evaluating([], errors=ProfileError("asked")).real) is plain
    assert not other.notes
