from autoquant.api.delivery import _likely_sentences
from autoquant.domain.measurement import Quality
from autoquant.domain.objective import NO_BOUNDS, Bounds, Standing
from tests.records import a_latency


def standing(ratio: float, *, spread: float = 0.5, snr_db: float = 40.0) -> Standing:
    quality = Quality(per_output={"y": snr_db}, agreement={}, n_samples=4)
    return Standing(quality=quality, latency={"cpu-1t": a_latency(ratio, spread=spread)}, size_bytes=1, drops={})


def test_models_that_are_likely_to_be_faster_are_counted() -> None:
    found = {"a": standing(0.8), "b": standing(0.7), "slow": standing(1.2)}
    (said,) = _likely_sentences(found, NO_BOUNDS)
    assert said.startswith("of the measured models 2 had a lower median than float, the lowest 0.70 of it, but none")
    assert list(_likely_sentences({"slow": standing(1.2)}, NO_BOUNDS)) == []
    assert list(_likely_sentences(found, Bounds(min_snr_db=50))) == []
