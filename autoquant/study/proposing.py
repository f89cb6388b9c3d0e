"""Proposals from what is known: candidates, and which of them is worth its time."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from autoquant.study.gain import Gain
from autoquant.study.knowledge import Knowledge
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, distinct
from autoquant.study.moves import unseen
from autoquant.study.outlook import Promise
from autoquant.study.proposal import Fixed
from autoquant.study.surrogate import Prediction

__all__ = ["Proposer"]

_N_DRAWS = 3
"""From the surrogate: one for neighbours, the others and the mean for fronts."""
_N_NEIGHBOURS = 60
_FIXED_COST = 2.0
"""Opening a candidate and running float cost as much as so many runs of it, roughly."""


@dataclass(frozen=True, slots=True)
class Proposer:
    """Proposes the assignment with the highest expected gain of hypervolume for the time that its evaluation takes.

    Attributes:
        known: Learned from every trial so far, of which there may be none.
        rng: Of draws and moves.
        rank: Place of the candidate that is taken, the best one has 0: others ask at the same time for better ones.
    """

    known: Knowledge
    rng: np.random.Generator
    rank: int = 0

    def propose(self, seen: frozenset[bytes], fixed: Fixed) -> tuple[Codes, Promise | None]:
        """One proposal.

        Args:
            seen: Scheme numbers, as bytes, that are proposed only where nothing else is left.
            fixed: Schemes that it has in any case.

        Returns:
            Scheme numbers, shape (R,), and what is expected of it: nothing where no candidate was new.
        """
        known, standing = self.known, self.known.standing
        assert known.surrogate is not None
        weights = self._weights(standing.n_weights)
        gain = standing.gain(weights)
        first, *drawn = known.surrogate.landscapes(self.rng, _N_DRAWS)
        frontier = known.frontier.within(fixed.narrow(known.frontier.layout.allowed))
        start = fixed.hold(self._start(standing.found.codes[standing.members(gain, weights)]))
        neighbours = self._neighbours(start, frontier.layout.allowed, first, gain, weights)
        solved = known.solve(frontier, [known.surrogate.landscape(), *drawn], weights)
        proposals = distinct(np.concatenate([solved, neighbours]))
        candidates = np.array([codes for codes in proposals if codes.tobytes() not in seen])
        if not len(candidates):
            return self._unseen(start, seen, fixed), None
        return self._best(candidates, gain, weights)

    def _weights(self, n: int) -> Floats:
        """Drawn anew for every proposal, so that the whole front is looked for."""
        return np.ones(1) if n == 1 else self.rng.dirichlet(np.ones(n))

    def _start(self, best: Codes) -> Codes:
        """An evaluated member of the front, or all float."""
        return best[self.rng.integers(len(best))] if len(best) else np.zeros(best.shape[1], dtype=np.int64)

    def _neighbours(
        self, start: Codes, allowed: npt.NDArray[np.bool_], landscape: Landscape, gain: Gain, weights: Floats
    ) -> Codes:
        """The most promising assignments that differ in one region."""
        region, scheme = np.nonzero(allowed)
        moved = np.tile(start, (len(region), 1))
        moved[np.arange(len(region)), region] = scheme
        snr_db = -10 * np.log10(landscape.noise_of(moved).max(axis=1))
        costs = self.known.steering.costs(landscape.ratios_of(moved), moved) @ weights
        gains = gain.of_points(snr_db, costs) * self.known.steering.chances(moved, snr_db)
        order = np.lexsort((gain.missed(snr_db, costs), -gains))
        return moved[order[:_N_NEIGHBOURS]]

    def _best(self, candidates: Codes, gain: Gain, weights: Floats) -> tuple[Codes, Promise]:
        """That of the highest expected gain for its time; of those without any what misses the demands by the least."""
        predicted = self.known.predict(candidates)
        expected = gain.expected(predicted, weights, self.known.trust.stretch)
        expected = expected * self._chances(candidates, predicted)
        times = _FIXED_COST + predicted.ratios[:, : self.known.standing.n_targets].mean(axis=1)
        missed = gain.missed(predicted.snr_db, predicted.ratios @ weights)
        chosen = int(np.lexsort((missed, -expected / times))[min(self.rank, len(candidates) - 1)])
        return candidates[chosen], Promise(float(expected[chosen]), weights)

    def _chances(self, codes: Codes, found: Prediction) -> Floats:
        """Probability that assignments run and keep every demand but that on SNR; shape (n,)."""
        known, standing, max_ratio = self.known, self.known.standing, self.known.interest.max_ratio
        chances = known.steering.chances(codes, found.snr_db) * known.suspects.chances(known.layout, codes)
        if max_ratio is None or standing.n_weights == 1:
            return chances
        errors = np.maximum(known.trust.stretch[1] * found.ratio_errors, 1e-9)
        within = ndtr((max_ratio - found.ratios) / errors)[:, : standing.n_targets]
        return np.asarray(chances * within.prod(axis=1))

    def _unseen(self, start: Codes, seen: frozenset[bytes], fixed: Fixed) -> Codes:
        """Something new, if need be with schemes that never ran; the start where nothing is left."""
        wide = self.known.layout.allowed & ~self.known.suspects.certain
        choices = (fixed.narrow(allowed) for allowed in (self.known.frontier.layout.allowed, wide))
        found = (unseen(self.rng, start, allowed, seen) for allowed in choices)
        return next((codes for codes in found if codes is not None), start)
