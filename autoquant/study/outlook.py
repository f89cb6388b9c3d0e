"""How much better the front could still get."""

from dataclasses import dataclass, field

from autoquant.study.layout import Floats

__all__ = ["Outlook", "Pace", "Promise"]

_N_RECENT = 60
_PRIOR = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the models say of the front, as mean savings over the SNR demands of interest.

    Savings are of the latency on all targets and, where it is an objective, of the size.

    Attributes:
        saving: Of the evaluations so far.
        attainable: Of these and of the whole front that the models predict.
        next_gain: Expected of the next evaluation, in the measure in which such expectations came true lately.
        noise: Standard error of ``saving``: smaller gains cannot be shown.
        demands_db: The lowest and the highest of the demands.
    """

    saving: float
    attainable: float
    next_gain: float
    noise: float
    demands_db: tuple[float, float]

    @property
    def share(self) -> float:
        """Of what is attainable, so much is reached."""
        return 1.0 if self.attainable <= 0 else self.saving / self.attainable


@dataclass(frozen=True, slots=True)
class Promise:
    """What was expected of a proposal.

    Attributes:
        gain: Of the mean saving.
        weights: Of targets and size, which the saving was the mean of; shape (T,) or (T + 1,).
    """

    gain: float
    weights: Floats


@dataclass(slots=True)
class Pace:
    """Compares the gains that were expected of proposals with what their evaluations brought.

    Of many candidates the one with the highest expectation is proposed, which therefore is too high in the mean.
    """

    _expected: list[float] = field(default_factory=list)
    _brought: list[float] = field(default_factory=list)

    def count(self, expected: float, brought: float) -> None:
        """Count a proposal."""
        self._expected.append(expected)
        self._brought.append(brought)

    @property
    def factor(self) -> float:
        """What expectations are to be multiplied with, at most 1."""
        expected, brought = sum(self._expected[-_N_RECENT:]), sum(self._brought[-_N_RECENT:])
        return min(1.0, (_PRIOR + brought) / (_PRIOR + expected))
