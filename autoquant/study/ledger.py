"""The ledger of a search: what its sampler believes of each region and each border."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from optuna.samplers import BaseSampler

from autoquant.domain.ledger import BorderCost, Estimate, Foresight, Ledger, RegionCost, Way
from autoquant.study.landscape import Landscape
from autoquant.study.layout import ALL, DYNAMIC, LINEAR, Codes, Floats, Layout
from autoquant.study.noise import FLOAT_NOISE
from autoquant.study.sampler import structure_of
from autoquant.study.surrogate import Surrogate
from autoquant.study.trust import Trust

__all__ = ["ledger_of"]

_N_DRAWS = 200
_SEED = 0
_QUANTILES = (0.05, 0.5, 0.95)
_KINDS = {ALL: Way.ALL, LINEAR: Way.LINEAR, DYNAMIC: Way.DYNAMIC}


def ledger_of(sampler: BaseSampler | None, float_us: Mapping[str, float]) -> Ledger | None:
    """What the sampler believed when it made its last proposal.

    Args:
        sampler: That of the search.
        float_us: Latency of the float model by target name, in the order of the targets.

    Returns:
        None of a generic sampler, which believes nothing, of one that knew no evaluation, or none that was timed where
        there are several targets, and where no region ever runs on integers.
    """
    ours = structure_of(sampler)
    surrogate = None if ours is None else ours.surrogate
    if ours is None or surrogate is None or not surrogate.n_observed or surrogate.n_targets < len(float_us):
        return None
    layout, trust = ours.layout, ours.trust
    if not (layout.allowed & (layout.kinds > 0)).any():
        return None
    snr_stretch, latency_stretch = trust.stretch
    draws = _Draws.of(surrogate, snr_stretch, latency_stretch)
    return Ledger(
        regions=tuple(_region_costs(layout, draws, float_us)),
        borders=tuple(_border_costs(layout, draws, float_us)),
        snr_stretch=snr_stretch,
        latency_stretch=latency_stretch,
        foresight=_foresight(trust),
    )


@dataclass(frozen=True, slots=True)
class _Draws:
    """Landscapes as arrays: the mean comes first, then draws with their distance from it stretched.

    Attributes:
        noise: Noise power, shape (D, O, R, S).
        own: Change of the ratio, shape (D, T, R, S).
        border: The same of borders, shape (D, T, E).
    """

    noise: Floats
    own: Floats
    border: Floats

    @classmethod
    def of(cls, surrogate: Surrogate, snr_stretch: float, latency_stretch: float) -> "_Draws":
        rng = np.random.default_rng(_SEED)
        found = [surrogate.landscape(), *surrogate.landscapes(rng, _N_DRAWS)]
        return cls(
            _stretched_power(found, snr_stretch),
            _stretched(np.stack([draw.own for draw in found]), latency_stretch),
            _stretched(np.stack([draw.border for draw in found]), latency_stretch),
        )


def _stretched(values: Floats, stretch: float) -> Floats:
    return np.asarray(values[0] + stretch * (values - values[0]))


def _stretched_power(found: Sequence[Landscape], stretch: float) -> Floats:
    """In the logarithm, which is what the noise model draws; float stays without noise."""
    power = np.stack([draw.noise for draw in found])
    power[..., 1:] = np.exp(_stretched(np.log(power[..., 1:]), stretch))
    return power


def _region_costs(layout: Layout, draws: _Draws, float_us: Mapping[str, float]) -> Iterator[RegionCost]:
    quietest = _quietest(layout, draws.noise[0].max(axis=0))
    shares = {kind: _shares(draws.noise, _uniform(quietest, kind)) for kind in _KINDS}
    for i, region in enumerate(layout.regions):
        for kind, way in _KINDS.items():
            scheme = quietest[kind][i]
            if scheme > 0:
                alone = draws.noise[:, :, i, scheme].max(axis=1)
                yield RegionCost(
                    region=region,
                    operators=way,
                    change_us=_microseconds(draws.own[:, :, i, scheme], float_us),
                    scheme=layout.schemes[scheme],
                    snr_db=_estimate(-10 * np.log10(alone + FLOAT_NOISE)),
                    noise_share=_estimate(shares[kind][:, i]),
                )


def _border_costs(layout: Layout, draws: _Draws, float_us: Mapping[str, float]) -> Iterator[BorderCost]:
    for i, (a, b) in enumerate(layout.edges):
        change_us = _microseconds(draws.border[:, :, i], float_us)
        yield BorderCost(regions=(layout.regions[a], layout.regions[b]), change_us=change_us)


def _quietest(layout: Layout, noise: Floats) -> dict[int, Codes]:
    """By kind, the allowed scheme with the least noise power of each region, 0 where there is none; shapes (R,)."""
    found = {}
    for kind in _KINDS:
        fits = layout.allowed & (layout.kinds == kind)
        found[kind] = np.where(fits.any(axis=1), np.where(fits, noise, np.inf).argmin(axis=1), 0)
    return found


def _uniform(quietest: Mapping[int, Codes], kind: int) -> Codes:
    """Every region under that kind, or under the first other one that it may take, or float."""
    found = quietest[kind]
    for other in _KINDS:
        found = np.where(found > 0, found, quietest[other])
    return found


def _shares(noise: Floats, codes: Codes) -> Floats:
    """Of each region in the noise power of an assignment, at the output that is the worst in the mean; shape (D, R)."""
    power = noise[:, :, np.arange(len(codes)), codes]
    of_worst = power[:, int(power[0].sum(axis=1).argmax())]
    return np.asarray(of_worst / np.maximum(of_worst.sum(axis=1, keepdims=True), FLOAT_NOISE))


def _microseconds(ratios: Floats, float_us: Mapping[str, float]) -> dict[str, Estimate]:
    """By target, for changes of the ratio of shape (D, T)."""
    return {name: _estimate(us * change) for (name, us), change in zip(float_us.items(), ratios.T, strict=True)}


def _estimate(values: Floats) -> Estimate:
    """Of the draws; the first value, the mean's, may lie apart where many unsure noise powers add up."""
    low, middle, high = np.quantile(values[1:], _QUANTILES)
    return Estimate(float(middle), float(low), float(high))


def _foresight(trust: Trust) -> Foresight | None:
    if not trust.n_recent:
        return None
    snr_share, ratio_share = trust.coverage()
    return Foresight(
        n_recent=trust.n_recent, snr_share=snr_share, ratio_share=ratio_share, generic_share=trust.generic_share
    )
