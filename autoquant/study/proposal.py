"""What trials that are not finished run: schemes that are fixed, and what a sampler proposed for the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import PartialFixedSampler
from optuna.trial import FrozenTrial

from autoquant.study.layout import Codes, Layout

__all__ = ["Fixed", "asked_for", "every_trial", "fixed_by", "publish", "takers"]

_ATTRIBUTE = "autoquant:proposal"
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Fixed:
    """Schemes that regions of a trial take whatever is proposed.

    Attributes:
        codes: Scheme numbers, -1 of regions that are free; shape (R,).
    """

    codes: Codes

    @classmethod
    def of(
        cls, layout: Layout, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> "Fixed":
        """Those that a trial was enqueued with, and those of a ``PartialFixedSampler`` around the sampler."""
        params = _said(trial)
        if isinstance(study.sampler, PartialFixedSampler):
            for region, names in layout.choices.items():
                if region not in search_space and region not in params:
                    distribution = CategoricalDistribution(names)
                    params[region] = study.sampler.sample_independent(study, trial, region, distribution)
        return cls(_codes(layout, params))

    @property
    def is_free(self) -> npt.NDArray[np.bool_]:
        """Which regions are not fixed; shape (R,)."""
        return np.asarray(self.codes == _UNKNOWN)

    def hold(self, codes: Codes) -> Codes:
        """Assignments, shape (..., R), with these schemes in them."""
        return np.where(self.is_free, codes, self.codes)

    def narrow(self, allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Of schemes that regions may take, shape (R, S), what a proposal for this trial may have."""
        return np.where(self.is_free[:, None], allowed, np.arange(allowed.shape[1]) == self.codes[:, None])


def fixed_by(sampler: object) -> dict[str, Any]:
    """What Optuna's ``PartialFixedSampler`` gives parameters, by name; empty of other samplers."""
    if not isinstance(sampler, PartialFixedSampler):
        return {}
    return {**fixed_by(sampler._base_sampler), **sampler._fixed_params}


def publish(study: optuna.Study, trial: FrozenTrial, codes: Codes) -> None:
    """Tell other processes what a trial is about to run, before all its parameters are stored one by one.

    This is one short text, as some databases limit an attribute to 2045 characters.
    """
    text = " ".join(map(str, codes.tolist()))
    study._storage.set_trial_system_attr(trial._trial_id, _ATTRIBUTE, text)


def every_trial(study: optuna.Study) -> list[FrozenTrial]:
    """Those of other brackets too, where ``HyperbandPruner`` shows a sampler those of one."""
    return study._storage.get_all_trials(study._study_id, deepcopy=False)


def asked_for(layout: Layout, trial: FrozenTrial) -> Codes | None:
    """Scheme numbers that a waiting or running trial has or will have, shape (R,); None where some are not known."""
    said = _codes(layout, _said(trial))
    codes = np.where(said == _UNKNOWN, _published(layout, trial), said)
    return None if (codes == _UNKNOWN).any() else codes


def takers(
    layout: Layout, study: optuna.Study, trial: FrozenTrial, codes: Codes, before: Sequence[FrozenTrial]
) -> list[int]:
    """Numbers of the trials of other processes that were not finished before and have these schemes too."""
    finished = {other.number for other in before if other.state.is_finished()} | {trial.number}
    others = [other for other in every_trial(study) if other.number not in finished]
    asked = [(other.number, asked_for(layout, other)) for other in others]
    return [number for number, each in asked if each is not None and np.array_equal(each, codes)]


def _said(trial: FrozenTrial) -> dict[str, Any]:
    """Parameters that the trial was enqueued with or has already."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _codes(layout: Layout, params: Mapping[str, Any]) -> Codes:
    """Scheme numbers, of equal schemes the first; -1 of regions without a scheme that they may take; shape (R,)."""
    codes = np.full(len(layout.regions), _UNKNOWN, dtype=np.int64)
    for i, region in enumerate(layout.regions):
        if params.get(region) in layout.schemes:
            codes[i] = layout.same[i, layout.schemes.index(params[region])]
    return codes


def _published(layout: Layout, trial: FrozenTrial) -> Codes:
    """What the sampler of some process proposed; all -1 where none did, or one with other regions or schemes."""
    text = str(trial.system_attrs.get(_ATTRIBUTE, ""))
    codes = np.array([int(code) for code in text.split()], dtype=np.int64)
    fits = codes.shape == (len(layout.regions),) and (codes < len(layout.schemes)).all()
    return codes if fits else np.full(len(layout.regions), _UNKNOWN, dtype=np.int64)
