"""Problems of repeated blocks whose answers are known, with as many regions as are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autoquant.api.deadline import Deadline
from autoquant.domain.measurement import Latency, Measurement, Quality, State
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment, NodeName, Region, RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.domain.space import SearchSpace
from autoquant.domain.target import Target
from autoquant.measurement.costs import FileCosts
from autoquant.space.schema import read_space
from autoquant.study.frontier import Frontier
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout
from experiments.remeasure import mean_saving
from experiments.search.table import Problem
from experiments.search.yardsticks import Point

__all__ = ["FAMILIES", "Answers", "Blocks", "Budget", "Spread", "make_blocks"]

_N_IN_BLOCK = 8
_N_REPEATED = 6
_SCHEME, _REST = 0.6, 1.0
"""Standard deviations of the log of a noise power, between schemes everywhere and between those of a region."""
_NOISE_MISFIT, _RATIO_MISFIT, _RATIO_ERROR = 0.4, 0.005, 0.008
"""What does not add up, and what measuring adds, as in recorded searches."""
_PRIOR_ERROR = 0.4
_UNTIMED, _STOPPED = 0.5, 0.4
"""Of the time of an evaluation, what one takes that is not timed, and one that is stopped before that: a third goes
into building and opening, as on opennsfw in reports/speed."""
_BEHIND_DB = 1.5
"""In SNR a candidate is behind another by so much, or not at all."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of the log of a region's noise power.

    Attributes:
        between: Of all regions.
        within: Of those with one pattern.
    """

    between: float
    within: float


FAMILIES: Mapping[str, Spread] = {
    "transformer": Spread(between=4.9, within=0.8),
    "alike": Spread(between=2.0, within=0.8),
    "unlike": Spread(between=1.5, within=1.4),
}
"""As one-region probes of recorded searches spread: minilm_l6; efficientnet_lite0 and ppocr2_cls; opennsfw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """A problem and its answers.

    Attributes:
        problem: What is searched.
        truth: Noise powers and latencies; they add up but for a misfit of each assignment.
        prior: What profiles say of the latencies.
        seed: Of misfits and measurement errors.
    """

    problem: Problem
    truth: Landscape
    prior: LatencyPrior
    seed: int

    def point(self, codes: Codes) -> Point:
        """True SNR and ratio."""
        misfit = np.random.default_rng([self.seed, *codes.tolist()]).standard_normal(2)
        noise = float(self.truth.noise_of(codes[None])[0, 0]) * np.exp(_NOISE_MISFIT * misfit[0])
        ratio = float(self.truth.ratios_of(codes[None])[0, 0]) + (_RATIO_MISFIT * misfit[1] if codes.any() else 0.0)
        return -10 * float(np.log10(noise)), ratio

    def front(self) -> list[Point]:
        """True SNR and ratio of the lower hull of what adds up."""
        return [self.point(codes) for codes in Frontier(self.truth.layout).solve([self.truth], np.ones(1))]

    def attainable(self) -> float:
        """Mean saving of the lower hull of the true front."""
        return mean_saving(self.front())


def make_blocks(n_regions: int, spread: Spread, *, seed: int, is_told: bool = True) -> Blocks:
    """Stages of six blocks with eight regions each, chained; the last region of a block also reads its first.

    Args:
        n_regions: The last stage and block may be shorter.
        spread: Of noise powers.
        seed: Of all that is drawn.
        is_told: Whether regions know their pattern; otherwise each has its own.
    """
    rng = np.random.default_rng(seed)
    position = np.arange(n_regions)
    stage = position // (_N_IN_BLOCK * _N_REPEATED)
    patterns = stage * _N_IN_BLOCK + position % _N_IN_BLOCK
    work = rng.gamma(1.0, size=patterns.max() + 1)[patterns]
    work /= work.sum()
    ids = [RegionId(f"r{i:03d}") for i in range(n_regions)]
    regions = tuple(
        _region(region, f"p{pattern}" if is_told else region, share)
        for region, pattern, share in zip(ids, patterns, work, strict=True)
    )
    schemes = {scheme.name: scheme for scheme in read_space("default", ep="cpu").schemes if not scheme.is_dynamic}
    ends = [(ids[i], ids[i + _N_IN_BLOCK - 1]) for i in range(0, n_regions - _N_IN_BLOCK + 1, _N_IN_BLOCK)]
    problem = Problem(
        regions=regions,
        space=SearchSpace(choices=dict.fromkeys(ids, (FLOAT, *schemes)), schemes=schemes),
        borders=(*pairwise(ids), *ends),
        outputs=("y",),
    )
    truth = _truth(problem.layout, patterns, spread, rng)
    return Blocks(problem=problem, truth=truth, prior=_prior(truth, patterns, rng), seed=seed)


def _region(region: RegionId, pattern: str, work: float) -> Region:
    node = NodeName(region)
    return Region(id=region, nodes=(node,), inputs=(), outputs=(), pattern=pattern, op_types=("Conv",), work=work)


def _truth(layout: Layout, patterns: Codes, spread: Spread, rng: np.random.Generator) -> Landscape:
    n_regions, n_schemes = layout.allowed.shape
    share = 1 - (spread.within / spread.between) ** 2
    log = spread.between * _shared(patterns, share, rng, 1)
    log = log + _SCHEME * rng.standard_normal(n_schemes) + _REST * _shared(patterns, share, rng, n_schemes)
    noise = np.exp(log) * (layout.kinds > 0)
    noise *= 10 ** (-rng.uniform(3, 30) / 10) / noise[:, 1:].sum(axis=0).min()
    saved = layout.work[:, None] * np.clip(0.5 + 0.3 * _shared(patterns, 0.95, rng, 1), -0.1, 0.9)
    saved = saved * np.array([0.0, 1.0, 0.8]) * (1 + 0.05 * rng.standard_normal((n_regions, 3)))
    saved *= rng.uniform(0.25, 0.65) / saved[:, 1].sum()
    pairs = patterns[layout.edges] @ [n_regions, 1]
    border = np.exp(0.5 * _shared(pairs, 0.9, rng, 1)[:, 0])
    border *= rng.uniform(0.3, 1.0) / border.sum()
    return Landscape(layout, noise[None], np.ones(1), -saved[None][..., layout.kinds], border[None])


def _shared(patterns: Codes, share: float, rng: np.random.Generator, n: int) -> Floats:
    """Standard normal numbers, shape (R, n), whose covariance within a pattern is the share."""
    common = rng.standard_normal((patterns.max() + 1, n))[patterns]
    return np.asarray(np.sqrt(share) * common + np.sqrt(1 - share) * rng.standard_normal(common.shape))


def _prior(truth: Landscape, patterns: Codes, rng: np.random.Generator) -> LatencyPrior:
    """Every term is wrong by some share of it, most of it by pattern; what borders cost is known together only."""
    own = truth.own[0][:, [truth.layout.kinds.tolist().index(kind) for kind in (1, 2)]]
    change = own * (1 + _PRIOR_ERROR * _shared(patterns, 0.8, rng, 2))
    border = np.full(truth.border.shape[1], truth.border.mean())
    return LatencyPrior(base=1.0, change=change, spread=np.abs(change) + 1e-3, border=border, border_spread=border)


@dataclass(slots=True)
class Budget(Deadline):
    """A time in which so many evaluations are made, each of which takes a second if it is timed to the end."""

    n_made: float = 0.0

    @property
    def elapsed(self) -> float:
        """Evaluations so far."""
        return self.n_made

    def finish_seconds(
        self,
        n_finalists: int,  # noqa: ARG002 - of the deadline
        latency_s: float,  # noqa: ARG002
        costs: FileCosts,  # noqa: ARG002
        size_bytes: int,  # noqa: ARG002
        *,
        n_evaluations: int = 0,  # noqa: ARG002
        is_refined: bool = False,  # noqa: ARG002
        is_rough: bool = False,  # noqa: ARG002
    ) -> float:
        """Nothing: what was evaluated is not measured again."""
        return 0.0


@dataclass(slots=True)
class Answers:
    """Evaluates the trials of a search, in stages as ``autoquant.api.evaluator`` does: quality first, then latency.

    Attributes:
        blocks: With the answers.
        budget: Counts them.
        points: True SNR and ratio of each trial that was timed.
        opening_s: Of the port.
    """

    blocks: Blocks
    budget: Budget
    points: list[Point] = field(default_factory=list)
    opening_s: float = 0.0
    _timed: list[tuple[float, float]] = field(default_factory=list)

    def evaluate(
        self,
        assignment: Assignment,
        n_rounds: int,
        least_ratios: Mapping[str, float],
        *,
        left_s: float,  # noqa: ARG002 - of the port
    ) -> Measurement:
        """The truth, and a measurement error."""
        codes = self.blocks.problem.encode(assignment).astype(np.int64)
        snr_db, ratio = self.blocks.point(codes)
        state = self._state(snr_db, n_rounds, least_ratios)
        self.budget.n_made += {State.UNTIMED: _UNTIMED, State.REJECTED_EARLY: _STOPPED}.get(state, 1.0)
        return Measurement(
            quality=Quality(per_output={self.blocks.problem.outputs[0]: snr_db}, agreement={}, n_samples=1),
            latency={Target().name: self._timing(snr_db, ratio)} if state is State.COMPLETE else {},
            digest=codes.tobytes().hex(),
            effective=dict(assignment),
            state=state,
            size_bytes=0,
        )

    def _state(self, snr_db: float, n_rounds: int, least_ratios: Mapping[str, float]) -> State:
        """How far an evaluation goes: no further than its SNR where a timed one is better and shown to be faster."""
        if not n_rounds:
            return State.UNTIMED
        least = min(least_ratios.values(), default=-np.inf)
        is_behind = any(known >= snr_db + _BEHIND_DB and high <= least for known, high in self._timed)
        return State.REJECTED_EARLY if is_behind else State.COMPLETE

    def _timing(self, snr_db: float, ratio: float) -> Latency:
        self.points.append((snr_db, ratio))
        found = ratio + _RATIO_ERROR * float(np.random.default_rng([self.blocks.seed, len(self.points)]).normal())
        low, high = found - 1.96 * _RATIO_ERROR, found + 1.96 * _RATIO_ERROR
        self._timed.append((snr_db, high))
        return Latency(
            median_ms=found, low_ms=low, high_ms=high, ratio=found, ratio_low=low, ratio_high=high, n_rounds=1
        )
