import numpy as np
import pytest

from autoquant.measurement.bench import Bench, Progress
from tests.unit.measurement.benches import N_FEEDS, NAME, always, in_seven, noisy, teach


def test_a_candidate_of_no_interest_is_stopped_early(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[Progress] = []

    def never(progress: Progress) -> bool:
        asked.append(progress)
        return False

    quality, latency, is_complete = bench.measure(noisy(bench, lambda _: 9.0), 9, never)
    assert not is_complete
    assert [(progress.n_rounds, progress.ratios) for progress in asked] == [(0, {})]
    assert quality == asked[0].quality
    assert (latency, quality.n_samples) == ({}, 4)


def test_a_candidate_may_be_stopped_after_a_third_of_the_rounds_too(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[Progress] = []

    def untimed(progress: Progress) -> bool:
        asked.append(progress)
        return not progress.ratios

    quality, latency, is_complete = bench.measure(noisy(bench, lambda _: 9.0), 9, untimed)
    assert not is_complete
    assert [progress.n_rounds for progress in asked] == [0, 3]
    assert asked[1].ratios[NAME] == latency[NAME].ratio
    assert asked[1].snr_error_db < 1e-6
    assert quality == asked[1].quality
    assert (latency[NAME].n_rounds, quality.n_samples) == (3, 7)


def test_slow_models_run_one_sample_untimed_and_its_error_is_told(bench: Bench) -> None:
    for seed in range(4):
        powers = 10 ** np.random.default_rng(seed).uniform(-3, 1, N_FEEDS)
        bench.measure(noisy(bench, lambda i, powers=powers: float(powers[i])), 6, always)  # type: ignore[misc]
    bench.float_s[NAME] = 0.1
    asked: list[Progress] = []

    def ask(progress: Progress) -> bool:
        asked.append(progress)
        return True

    bench.measure(noisy(bench, in_seven), 6, ask)
    assert [progress.quality.n_samples for progress in asked] == [1, 3, 7]
    assert asked[0].snr_error_db > 2 * asked[2].snr_error_db > 0


def test_interest_is_asked_again_behind_the_rounds(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[int] = []

    def ask(progress: Progress) -> bool:
        asked.append(progress.n_rounds)
        return True

    bench.measure(noisy(bench, in_seven), 6, ask)
    assert asked == [0, 2, 6]


def test_what_is_of_no_interest_behind_the_rounds_is_complete_and_has_no_more_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.bench._scatters", lambda _: True)
    teach(bench, in_seven)
    found = []
    for goes_on in (always, lambda progress: progress.n_rounds < 6):
        quality, latency, is_complete = bench.measure(noisy(bench, in_seven), 6, goes_on)
        assert is_complete
        found.append((latency[NAME].n_rounds, quality.n_samples))
    assert found == [(12, 12), (6, 4 + 6)]
