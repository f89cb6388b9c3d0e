"""What a search knows: noise power adds up over regions, latency over regions and borders.

All models are Bayesian with Gaussian priors and refitted after every evaluation. How wide their intervals are is
corrected by what later evaluations said of earlier predictions.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.prior import LatencyPrior
from autoquant.study.landscape import Landscape
from autoquant.study.latency import LatencyModel
from autoquant.study.latency_design import LatencyDesign
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.noise import FLOAT_NOISE, QUICK_VARIANCE, NoiseModel

__all__ = ["Observations", "Prediction", "Surrogate"]

_MAX_OUTPUTS = 3


@dataclass(frozen=True, slots=True)
class Observations:
    """Evaluations as arrays.

    Attributes:
        codes: Scheme numbers that ran; shape (n, R).
        snr_db: By output; shape (n, O).
        ratios: By target; NaN where it was not timed; shape (n, T).
        errors: Standard errors of the ratios; shape (n, T).
        is_quick: Whether the evaluation was stopped early or not timed: it ran few samples; shape (n,).
    """

    codes: Codes
    snr_db: Floats
    ratios: Floats
    errors: Floats
    is_quick: npt.NDArray[np.bool_]

    @property
    def is_timed(self) -> npt.NDArray[np.bool_]:
        """Whether there are ratios; shape (n,)."""
        return np.asarray(np.isfinite(self.ratios).all(axis=1))

    @property
    def snr_scatter(self) -> Floats:
        """How many times wider than a whole evaluation's SNR each scatters around its prediction; shape (n,)."""
        return np.where(self.is_quick, np.sqrt(QUICK_VARIANCE), 1.0)

    def __len__(self) -> int:
        return len(self.codes)

    def of(self, chosen: npt.NDArray[np.int64] | slice) -> "Observations":
        """Some of them."""
        return Observations(
            self.codes[chosen], self.snr_db[chosen], self.ratios[chosen], self.errors[chosen], self.is_quick[chosen]
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of assignments that are not evaluated yet.

    Attributes:
        snr_db: Mean of the worst output's SNR; shape (n,).
        snr_error_db: Its standard deviation.
        ratios: Mean by target; shape (n, T).
        ratio_errors: Their standard deviations.
    """

    snr_db: Floats
    snr_error_db: Floats
    ratios: Floats
    ratio_errors: Floats


@dataclass(slots=True)
class Surrogate:
    """The models of one search.

    Attributes:
        layout: Regions, schemes and borders.
        n_targets: Number of latency ratios.
        prior: Of the latency, on every target.
        n_observed: Evaluations that it was fitted to, with those that were left out since.
    """

    layout: Layout
    n_targets: int = 1
    prior: LatencyPrior | None = None
    n_observed: int = field(init=False, default=0)
    _noise: dict[int, NoiseModel] = field(init=False)
    _latency: list[LatencyModel] = field(init=False)

    def __post_init__(self) -> None:
        self._noise = {0: NoiseModel(self.layout)}
        design = LatencyDesign(self.layout, self.prior)
        self._latency = [LatencyModel(design) for _ in range(self.n_targets)]

    def fit(self, found: Observations, *, n_all: int | None = None) -> None:
        """Condition on evaluations, at least one.

        Args:
            found: The latest ones at the end.
            n_all: How many there are with those that are left out, by default none; the last ones are new that are more
                than before.
        """
        n_all = len(found) if n_all is None else n_all
        n_new = min(max(0, n_all - self.n_observed), len(found))
        self.n_observed = n_all
        worst = _worst_outputs(found.snr_db)
        self._noise = {i: self._noise.get(i) or NoiseModel(self.layout) for i in worst}
        for i, noise in self._noise.items():
            noise.fit(found.codes, 10 ** (-found.snr_db[:, i] / 10), found.is_quick, n_new=n_new)
        rows = np.flatnonzero(found.is_timed)
        if len(rows):
            self._fit_latency(found.of(rows), n_new=int(np.sum(rows >= len(found) - n_new)))

    def _fit_latency(self, timed: Observations, *, n_new: int) -> None:
        known = {design: design.know(timed.codes) for design in self._designs}
        for ratios, errors, latency in zip(timed.ratios.T, timed.errors.T, self._latency, strict=True):
            latency.fit(known[latency.design], ratios, errors, n_new=n_new)

    def predict(self, codes: Codes) -> Prediction:
        """What evaluations of these would say; shape (n, R)."""
        noise, noise_variance = self._worst_noise(codes)
        rows = {design: design.further(codes) for design in self._designs}
        latency = [model.predict(rows[model.design]) for model in self._latency]
        return Prediction(
            snr_db=-10 / np.log(10) * noise,
            snr_error_db=10 / np.log(10) * np.sqrt(noise_variance),
            ratios=np.stack([mean for mean, _ in latency], axis=1),
            ratio_errors=np.sqrt(np.stack([variance for _, variance in latency], axis=1)),
        )

    def _worst_noise(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and variance of the log noise power of the output that has the most; shapes (n,)."""
        models = list(self._noise.values())
        means, variances = np.array([model.mean(codes) for model in models]), np.empty(len(codes))
        worst = means.argmax(axis=0)
        for i, model in enumerate(models):
            variances[worst == i] = model.variance(codes[worst == i])
        return means.max(axis=0), variances

    @property
    def _designs(self) -> set[LatencyDesign]:
        return {model.design for model in self._latency}

    @property
    def scatter_db(self) -> float:
        """Standard deviation of the worst output's SNR around the model."""
        return float(10 / np.log(10) * max(model.error for model in self._noise.values()))

    def left_out(self, found: Observations) -> tuple[Floats, Floats]:
        """Ratios of the evaluations that it was fitted to, each predicted from the others, and standard deviations.

        Returns:
            NaN where there was no latency; shapes (n, T).
        """
        timed, ratios, errors = found.is_timed, np.full(found.ratios.shape, np.nan), np.full(found.ratios.shape, np.nan)
        for i, latency in enumerate(self._latency if timed.any() else []):
            ratios[timed, i], variances = latency.left_out(found.ratios[timed, i])
            errors[timed, i] = np.sqrt(variances)
        return ratios, errors

    def landscape(self) -> Landscape:
        """The mean of the posterior."""
        noise = np.stack([model.table() for model in self._noise.values()])
        return self._landscape(noise, np.concatenate([model.coefficients() for model in self._latency]))

    def landscapes(self, rng: np.random.Generator, n: int) -> list[Landscape]:
        """Independent draws from the posterior."""
        noise = np.stack([model.tables(rng, n) for model in self._noise.values()], axis=1)
        found = np.stack([model.many_coefficients(rng, n) for model in self._latency], axis=1)
        return [self._landscape(*drawn) for drawn in zip(noise, found, strict=True)]

    def _landscape(self, noise: Floats, found: Floats) -> Landscape:
        shape = self.n_targets, len(self.layout.regions), len(self.layout.schemes)
        constant, own, border = np.split(found, [1, 1 + shape[1] * shape[2]], axis=1)
        return Landscape(self.layout, noise, constant[:, 0], own.reshape(shape), border)


def _worst_outputs(snr_db: Floats) -> list[int]:
    """Those that are the worst one of an evaluation, the most often first; equal outputs tell of none."""
    noisy = snr_db[10 ** (-snr_db.min(axis=1) / 10) > FLOAT_NOISE]
    counts = np.bincount(np.argmin(noisy, axis=1), minlength=snr_db.shape[1])
    return [int(i) for i in np.argsort(-counts, kind="stable")[:_MAX_OUTPUTS] if counts[i] > 0] or [0]
