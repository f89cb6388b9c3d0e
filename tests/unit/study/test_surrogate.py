from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import Operators, RangeKind, RangeMethod, Scheme, TensorFormat
from autoquant.study.surrogate import Landscape, LatencyModel, Layout, NoiseModel

REGIONS = tuple(RegionId(f"r{i}") for i in range(4))


def a_scheme(name: str, operators: Operators = Operators.ALL) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse("u8:tensor:asym"),
        weight=TensorFormat.parse("s8:channel:sym"),
        ranges=RangeMethod(RangeKind.MIN_MAX),
        operators=operators,
    )


SCHEMES = {"a": a_scheme("a"), "b": a_scheme("b", Operators.LINEAR)}


@pytest.fixture
def layout() -> Layout:
    choices = dict.fromkeys(REGIONS, ("float", "a", "b")) | {REGIONS[3]: ("float", "b")}
    edges = [(REGIONS[i], REGIONS[i + 1]) for i in range(3)] + [(REGIONS[0], RegionId("not chosen"))]
    return Layout.of(choices, SCHEMES, edges, dict.fromkeys(REGIONS, 0.25))


def some_codes(rng: np.random.Generator, n: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return rng.integers(0, 3, (n, 4))


def test_a_layout_is_the_names_as_arrays(layout: Layout) -> None:
    assert layout.schemes == ("float", "a", "b")
    assert layout.kinds.tolist() == [0, 1, 2]
    assert layout.allowed.tolist() == [[True] * 3] * 3 + [[True, False, True]]
    assert layout.edges.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_decoding_is_the_inverse_of_encoding(layout: Layout) -> None:
    params = dict(zip(map(str, REGIONS), ["a", "float", "b", "b"], strict=True))
    assert layout.encode(params).tolist() == [1, 0, 2, 2]
    assert layout.decode(layout.encode(params)) == params
    with pytest.raises(ValueError, match="not in tuple"):
        layout.encode({**params, "r0": "unknown"})


def test_a_layout_without_borders_works(layout: Layout) -> None:
    lonely = Layout.of({REGIONS[0]: ("float", "a")}, SCHEMES, [], {REGIONS[0]: 1.0})
    assert lonely.edges.shape == (0, 2)
    assert LatencyModel(lonely).features(np.array([[1]])).tolist() == [[1, 1, 0]]


def test_borders_count_where_one_side_is_float(layout: Layout) -> None:
    features = LatencyModel(layout).features(np.array([[0, 0, 0, 0], [1, 2, 0, 2]]))
    assert features.shape == (2, 1 + 8 + 3)
    assert features[0].tolist() == [1] + [0] * 11
    assert features[1, 1:9].tolist() == [1, 0, 0, 1, 0, 0, 0, 1]
    assert features[1, 9:].tolist() == [0, 1, 1]


def test_additive_noise_is_learned(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    table = 10 ** rng.uniform(-5, -2, (4, 3))
    table[:, 0] = 0
    codes = some_codes(rng, 60)
    noise = table[np.arange(4), codes].sum(axis=1) + 1e-12
    model = NoiseModel(layout)
    model.fit(codes, noise, np.ones(60))
    unseen = some_codes(rng, 40)
    landscape = Landscape(layout, model.draw(rng, 0.0)[None], LatencyModel(layout).draw(rng, 0.0))
    error = 10 * np.log10(landscape.noise_of(unseen) / (table[np.arange(4), unseen].sum(axis=1) + 1e-12))
    assert np.quantile(np.abs(error), 0.9) < 3


def test_additive_latency_is_learned(layout: Layout) -> None:
    rng = np.random.default_rng(1)
    model = LatencyModel(layout)
    truth = np.concatenate([[1.0], rng.uniform(-0.2, 0, 8), [0.05, 0.02, 0.0]])
    codes = some_codes(rng, 80)
    model.fit(codes, model.features(codes) @ truth, np.zeros(80))
    unseen = some_codes(rng, 40)
    landscape = Landscape(layout, NoiseModel(layout).draw(rng, 0.0)[None], model.draw(rng, 0.0))
    np.testing.assert_allclose(landscape.ratio_of(unseen), model.features(unseen) @ truth, atol=0.01)


def test_a_landscape_computes_what_the_features_say(layout: Layout) -> None:
    rng = np.random.default_rng(2)
    model = LatencyModel(layout)
    coefficients = model.draw(rng, 1.0)
    codes = some_codes(rng, 30)
    landscape = Landscape(layout, NoiseModel(layout).draw(rng, 1.0)[None], coefficients)
    np.testing.assert_allclose(landscape.ratio_of(codes), model.features(codes) @ coefficients)


def test_a_measurement_of_large_error_is_believed_less(layout: Layout) -> None:
    codes = np.array([[1, 1, 1, 1]])
    rng = np.random.default_rng(0)
    found = []
    for error in (0.0, 1.0):
        model = LatencyModel(layout)
        prior = float((model.features(codes) @ model.draw(rng, 0.0))[0])
        model.fit(codes, np.array([prior + 0.5]), np.array([error]))
        found.append(float((model.features(codes) @ model.draw(rng, 0.0))[0]) - prior)
    assert found[0] > 0.4
    assert abs(found[1]) < 0.2


def test_observations_make_draws_agree(layout: Layout) -> None:
    rng = np.random.default_rng(4)
    codes = np.tile([[1, 0, 0, 0]], (20, 1))
    model = NoiseModel(layout)
    before = np.std([np.log(model.draw(rng, 1.0)[0, 1]) for _ in range(50)])
    model.fit(codes, np.full(20, 1e-3), np.ones(20))
    draws = [np.log(model.draw(rng, 1.0)[0, 1]) for _ in range(50)]
    assert np.std(draws) < 0.2 * before
    assert np.mean(draws) == pytest.approx(np.log(1e-3), abs=0.2)


def test_float_is_without_noise_in_every_draw(layout: Layout) -> None:
    assert (NoiseModel(layout).draw(np.random.default_rng(0), 2.0)[:, 0] == 0).all()


def a_prior() -> LatencyPrior:
    return LatencyPrior(
        base=0.9,
        change=np.array([[-0.2, -0.1], [0.05, 0.0], [-0.1, -0.15], [0.0, -0.05]]),
        spread=np.full((4, 2), 0.01),
        border=np.array([0.01, 0.02, 0.03]),
        border_spread=np.full(3, 0.005),
    )


def test_a_prior_is_what_is_predicted_before_anything_is_measured(layout: Layout) -> None:
    model = LatencyModel(layout, a_prior())
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 2], [1, 0, 2, 2], [1, 1, 0, 0]])
    predicted = model.features(codes) @ model.draw(np.random.default_rng(0), 0)
    assert predicted == pytest.approx([0.9, 0.6, 0.9 - 0.2 - 0.15 - 0.05 + 0.03, 0.9 - 0.2 + 0.05 + 0.02])


def test_measurements_overrule_a_prior_that_is_unsure(layout: Layout) -> None:
    unsure = replace(a_prior(), spread=np.full((4, 2), 0.5), border_spread=np.full(3, 0.5))
    rng = np.random.default_rng(3)
    codes, truth = some_codes(rng, 200), np.concatenate([[1.0], rng.uniform(-0.3, 0.1, 8), rng.uniform(0, 0.1, 3)])
    errors = {}
    for name, prior in {"sure": a_prior(), "unsure": unsure}.items():
        model = LatencyModel(layout, prior)
        design = model.features(codes)
        model.fit(codes[:30], design[:30] @ truth, np.zeros(30))
        errors[name] = np.abs(design[30:] @ (model.draw(rng, 0) - truth)).mean()
    assert errors["unsure"] < 0.01
    assert errors["unsure"] < errors["sure"]


def test_draws_scatter_as_much_as_the_prior_says(layout: Layout) -> None:
    model, rng = LatencyModel(layout, a_prior()), np.random.default_rng(5)
    drawn = np.array([model.draw(rng, 1.0) for _ in range(3000)])
    assert drawn[:, 1:9].std(axis=0) == pytest.approx(np.full(8, 0.01), rel=0.1)
    assert drawn[:, 9:].std(axis=0) == pytest.approx(np.full(3, 0.005), rel=0.1)
