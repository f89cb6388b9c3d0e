from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.scheme import TensorFormat
from autoquant.study.latency import LatencyModel
from autoquant.study.latency_design import LatencyDesign
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations, Surrogate
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC, a_landscape, a_layout

LAYOUT = a_layout(4, share_of_edges=0.0)


def a_prior() -> LatencyPrior:
    return LatencyPrior(
        base=0.9,
        change=np.array([[-0.2, -0.1], [0.05, 0.0], [-0.1, -0.15], [0.0, -0.05]]),
        spread=np.full((4, 2), 0.01),
        border=np.array([0.01, 0.02, 0.03]),
        border_spread=np.full(3, 0.005),
    )


def a_model(prior: LatencyPrior | None = None, layout: Layout = LAYOUT) -> LatencyModel:
    return LatencyModel(LatencyDesign(layout, prior))


def fit(model: LatencyModel, codes: Codes, ratios: Floats, errors: Floats, *, n_new: int) -> None:
    model.fit(model.design.know(codes), ratios, errors, n_new=n_new)


def predicted_by(model: LatencyModel, codes: Codes) -> Floats:
    return model.predict(model.design.further(codes))[0]


def test_a_prior_is_what_is_predicted_before_anything_is_measured() -> None:
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 2], [1, 0, 2, 2], [1, 1, 0, 0]])
    expected = [0.9, 0.6, 0.9 - 0.2 - 0.15 - 0.05 + 0.03, 0.9 - 0.2 + 0.05 + 0.02]
    assert predicted_by(a_model(a_prior()), codes) == pytest.approx(expected)
    landscape = Surrogate(LAYOUT, prior=a_prior()).landscape()
    assert landscape.ratios_of(codes)[:, 0] == pytest.approx(expected)


def test_a_prior_is_of_every_target() -> None:
    landscape = Surrogate(LAYOUT, n_targets=2, prior=a_prior()).landscape()
    assert landscape.constant.tolist() == [0.9, 0.9]


def test_measurements_overrule_a_prior_that_is_unsure() -> None:
    truth = a_landscape(LAYOUT, seed=3)
    rng = np.random.default_rng(3)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in LAYOUT.allowed] for _ in range(200)])
    ratios = truth.ratios_of(codes)[:, 0]
    unsure = replace(a_prior(), spread=np.full((4, 2), 0.5), border_spread=np.full(3, 0.5))

    def error(prior: LatencyPrior, n: int) -> float:
        model = a_model(prior)
        fit(model, codes[:n], ratios[:n], np.zeros(n), n_new=n)
        found: Floats = np.abs(predicted_by(model, codes[60:]) - ratios[60:])
        return float(found.mean())

    assert error(unsure, 60) < 0.01
    assert error(unsure, 20) < error(a_prior(), 20)


def test_draws_scatter_as_much_as_the_prior_says() -> None:
    surrogate, rng = Surrogate(LAYOUT, prior=a_prior()), np.random.default_rng(5)
    drawn = surrogate.landscapes(rng, 3000)
    assert np.array([x.own[0, :, 1:] for x in drawn]).std(axis=0) == pytest.approx(np.full((4, 2), 0.01), rel=0.1)
    assert np.array([x.border[0] for x in drawn]).std(axis=0) == pytest.approx(np.full(3, 0.005), rel=0.1)


def test_a_ratio_far_from_what_was_believed_counts_less() -> None:
    truth, rng = a_landscape(LAYOUT, seed=3), np.random.default_rng(3)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in LAYOUT.allowed] for _ in range(80)])
    ratios, errors = truth.ratios_of(codes)[:, 0], np.full(80, 0.01)
    disturbed = ratios + 0.5 * (np.arange(80) % 20 == 0)
    model, found = a_model(), list[float]()
    for n_new in (80, 0, 0):
        fit(model, codes, disturbed, errors, n_new=n_new)
        found.append(float(np.abs(predicted_by(model, codes) - ratios).mean()))
    assert found[-1] < 0.5 * found[0]


def test_what_was_learned_counts_fully_also_where_the_scale_of_the_prior_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth, rng = a_landscape(LAYOUT, seed=3), np.random.default_rng(3)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in LAYOUT.allowed] for _ in range(60)])
    ratios, errors = truth.ratios_of(codes)[:, 0], np.full(60, 0.01)
    model = a_model()
    fit(model, codes[:50], ratios[:50], errors[:50], n_new=50)

    def tune(self: LatencyModel, *_: Floats) -> None:
        self._scale += 1 if self._scale == 0 else -1

    monkeypatch.setattr(LatencyModel, "_tune", tune)
    fit(model, codes, ratios, errors, n_new=10)
    assert model._posterior.variances == pytest.approx(np.full(60, model.error**2 + 0.01**2), rel=0.5)


def test_a_new_ratio_counts_fully_also_where_an_old_one_was_left_out() -> None:
    truth, rng = a_landscape(LAYOUT, seed=3), np.random.default_rng(3)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in LAYOUT.allowed] for _ in range(41)])
    ratios, errors = truth.ratios_of(codes)[:, 0], np.full(41, 0.01)
    ratios[-1] += 0.5

    def believed(model: LatencyModel) -> float:
        return float(predicted_by(model, codes[-1:])[0])

    every, latest = a_model(), a_model()
    for model in (every, latest):
        fit(model, codes[:40], ratios[:40], errors[:40], n_new=40)
    before = believed(every)
    fit(every, codes, ratios, errors, n_new=1)
    fit(latest, codes[1:], ratios[1:], errors[1:], n_new=1)
    moved = believed(latest) - before
    assert moved > 0.9 * (believed(every) - before)
    fit(latest, codes[1:], ratios[1:], errors[1:], n_new=0)
    assert abs(believed(latest) - before) < 0.5 * abs(moved), "now it was known, and is still far off"


def test_what_a_type_costs_is_learned_from_uniform_recipes() -> None:
    wide = replace(SCHEMES["a"], name="wide", activation=TensorFormat.parse("u16:tensor:asym"))
    regions = LAYOUT.regions
    work = dict(zip(regions, LAYOUT.work.tolist(), strict=True))
    layout = Layout.of(dict.fromkeys(regions, ("float", "a", "wide")), {"a": SCHEMES["a"], "wide": wide}, [], work)
    assert layout.formats.tolist() == [0, 0, 1]
    uniform = np.repeat([[0], [1], [2]], len(regions), axis=1)
    half = np.where(np.arange(len(regions)) % 2 == 0, uniform, 0)
    codes, ratios = np.concatenate([uniform, half[1:2]]), np.array([1.0, 0.5, 1.5, 0.75])
    surrogate = Surrogate(layout)
    surrogate.fit(
        Observations(codes, np.full((4, 1), 30.0), ratios[:, None], np.full((4, 1), 0.001), np.zeros(4, bool))
    )
    predicted = surrogate.predict(half[2:]).ratios[0, 0]
    assert predicted > 1.1
    mean = surrogate.landscape()
    assert mean.ratios_of(half[2:])[0, 0] == pytest.approx(predicted)


def test_what_dynamic_schemes_cost_is_learned_apart_from_the_others() -> None:
    layout = a_layout(4, share_of_edges=0.0, schemes=WITH_DYNAMIC)
    first = a_prior()
    dynamic, spread = np.array([[-0.3], [0.1], [0.0], [-0.2]]), np.full((4, 1), 0.1)
    prior = replace(first, change=np.hstack([first.change, dynamic]), spread=np.hstack([first.spread, spread]))
    codes = np.array([[3, 0, 0, 0], [3, 3, 0, 3], [1, 3, 0, 2]])
    model = a_model(prior, layout)
    assert predicted_by(model, codes) == pytest.approx([0.6, 0.5, 0.9 - 0.2 + 0.1 - 0.05 + 0.01 + 0.03])
    static = np.array([[0, 0, 0, 0], [1, 1, 1, 2], [2, 2, 2, 2]])
    before = predicted_by(model, static)
    fit(model, codes[:1], np.array([0.9]), np.array([1e-4]), n_new=1)
    assert predicted_by(model, codes)[0] == pytest.approx(0.9, abs=0.02)
    moved = predicted_by(model, static) - before
    assert moved == pytest.approx(np.full(3, moved[0])), "that may be the constant, but says nothing of static schemes"
