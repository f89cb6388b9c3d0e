"""The data of a search in its three parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from autoquant.api.configuration import Configuration
from autoquant.calibration.batches import batched, overlap, read_samples, select, split
from autoquant.calibration.parts import hold_out
from autoquant.calibration.sources import DataSource
from autoquant.domain.counted import counted
from autoquant.domain.division import Division
from autoquant.domain.feed import Feed, InputSignature, Samples, chain_feeds, joined_labels
from autoquant.domain.metric import Accuracy, Custom
from autoquant.errors import DataError, MetricError
from autoquant.metrics.custom import load
from autoquant.metrics.labels import attach_labels

__all__ = ["SearchData", "read_search_data"]

_LEAST_TO_DIVIDE = 16
"""Different evaluation samples, or batches; of fewer all are searched on, a handful is too few to hold some out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchData:
    """Samples of different content in every part.

    Attributes:
        calibration: From which ranges come.
        search: On which the search compares candidates.
        held_out: What only the last measurement sees; None where there is nothing.
        evaluation_digest: Of the evaluation samples before they were divided.
        is_pooled: Whether ``held_out`` is a part of the evaluation samples, not data of their own.
        unit: What evaluation samples are counted in.
        notes: Sentences that the user should read.
    """

    calibration: Samples
    search: Samples
    held_out: Samples | None
    evaluation_digest: str
    is_pooled: bool
    unit: str
    notes: tuple[str, ...]

    @property
    def everything(self) -> Samples:
        """All parts: a dimension is frozen only where they agree on it."""
        parts = [self.calibration, self.search, *self._held_out]
        names = [name for part in parts for name in part.names]
        return replace(self.calibration, feeds=chain_feeds([part.feeds for part in parts]), names=names)

    @property
    def united(self) -> "SearchData":
        """With none of the evaluation samples held out; held-out data of their own stay so."""
        if self.held_out is None or not self.is_pooled:
            return self
        search = replace(
            self.search,
            feeds=chain_feeds([self.search.feeds, self.held_out.feeds]),
            feed_digests=[*self.search.feed_digests, *self.held_out.feed_digests],
            names=[*self.search.names, *self.held_out.names],
            labels=self.labels(self.division(len(self.search))),
            digest=self.evaluation_digest,
        )
        return replace(self, search=search, held_out=None, notes=())

    def shortened(self, n_search: int) -> "SearchData":
        """With so many of the samples of the search."""
        return replace(self, search=select(self.search, range(min(n_search, len(self.search))), "search"))

    def division(self, n_search: int) -> Division:
        """Of the samples of the last measurement, where there was time for so many of the search."""
        n_held_out = sum(map(len, self._held_out))
        whole = Division(n_search=len(self.search), n_held_out=n_held_out, is_pooled=self.is_pooled)
        return whole.shortened(n_search)

    def divided(self, n_search: int) -> list[str]:
        """How evaluation samples were divided, where there was time for so many of the search; none if not at all."""
        if self.held_out is None or not self.is_pooled:
            return []
        division, n_all = self.division(n_search), len(self.search) + len(self.held_out)
        return [
            f"the search goes by {division.n_search} of the {n_all} {self.unit} and holds out"
            f" {counted(division.n_held_out, 'other')} for the last measurement"
        ]

    def feeds(self, division: Division) -> tuple[Feed, ...]:
        """Of the last measurement, those of the search first."""
        parts = [self.search.feeds[: division.n_search], *(p.feeds[: division.n_held_out] for p in self._held_out)]
        return tuple(feed for part in parts for feed in part)

    def names(self, division: Division) -> tuple[str, ...]:
        """What messages call the feeds."""
        held_out = [name for part in self._held_out for name in part.names[: division.n_held_out]]
        return *self.search.names[: division.n_search], *held_out

    def labels(self, division: Division) -> Mapping[str, npt.NDArray[np.generic]]:
        """In the order of the feeds; only those that both parts have."""
        found = {name: array[: division.n_search] for name, array in self.search.labels.items()}
        for part in self._held_out:
            held_out = {name: array[: division.n_held_out] for name, array in part.labels.items()}
            found = joined_labels(found, held_out)
        return found

    @property
    def _held_out(self) -> Sequence[Samples]:
        return () if self.held_out is None else (self.held_out,)


def read_search_data(asked: Configuration, inputs: Sequence[InputSignature]) -> SearchData:
    """Read what the user names, and divide it.

    Raises:
        DataError: It doesn't fit the model, or parts share samples.
        MetricError: The labels don't fit the samples, or a function of the user's own cannot be imported.
    """
    for metric in asked.metrics:
        if isinstance(metric.source, Custom):
            load(metric, metric.source)
    calibration, calibrates = _read(asked.calibration, inputs, "calibration", asked.batch)
    notes = _left_over("calibration", calibrates, asked.batch)
    if asked.evaluation is None:
        whole = _labelled(calibration, asked)
        (calibration, evaluation), evaluates = split(whole), calibrates
        unit = _in_batches("samples", asked.batch)
        notes.append(
            f"no evaluation data: {len(calibration)} of the {len(whole)} {unit} calibrate,"
            f" the other {len(evaluation)} evaluate"
        )
    else:
        evaluation, evaluates = _read(asked.evaluation, inputs, "evaluation", asked.batch)
        evaluation = _labelled(evaluation, asked)
        notes += _left_over("evaluation", evaluates, asked.batch)
        evaluation, left_out = _without_shared(evaluation, evaluates, calibrates)
        notes += left_out
    unit = _in_batches("evaluation samples", asked.batch)
    if asked.held_out is not None:
        held_out, others = _read(asked.held_out, inputs, "held-out", asked.batch)
        notes += _left_over("held-out", others, asked.batch)
        _refuse_shared(("held-out", others), ("calibration", calibrates))
        _refuse_shared(("held-out", others), ("evaluation", evaluates))
        if any(isinstance(metric.source, Accuracy | Custom) for metric in asked.metrics):
            _check_labels(evaluation, held_out)
        return _data(calibration, evaluation, evaluation, held_out, unit, notes)
    if len(set(evaluation.feed_digests)) < _LEAST_TO_DIVIDE:
        notes.append(f"nothing is held out: that takes {_LEAST_TO_DIVIDE} different {unit}")
        return _data(calibration, evaluation, evaluation, None, unit, notes)
    return _data(calibration, evaluation, *hold_out(evaluation), unit, notes)


def _read(source: DataSource, inputs: Sequence[InputSignature], role: str, batch: int) -> tuple[Samples, Samples]:
    """In batches, and one by one: parts may share samples although they share no batch."""
    found = read_samples(source, inputs, role=role)
    return batched(found, inputs, batch), found


def _in_batches(samples: str, batch: int) -> str:
    """What is counted and divided: samples, or where they are joined, whole batches."""
    return samples if batch == 1 else f"batches of {batch} {samples}"


def _left_over(role: str, samples: Samples, batch: int) -> list[str]:
    n_left = len(samples) % batch
    return [f"{n_left} of the {len(samples)} {role} samples fill no batch of {batch} and are not used"] * bool(n_left)


def _data(
    calibration: Samples,
    evaluation: Samples,
    search: Samples,
    held_out: Samples | None,
    unit: str,
    notes: Sequence[str],
) -> SearchData:
    return SearchData(
        calibration=calibration,
        search=search,
        held_out=held_out,
        evaluation_digest=evaluation.digest,
        is_pooled=search is not evaluation or held_out is None,
        unit=unit,
        notes=tuple(notes),
    )


def _labelled(samples: Samples, asked: Configuration) -> Samples:
    if asked.labels is None:
        return samples
    labelled = attach_labels(samples, asked.labels)
    if not any(isinstance(metric.source, Accuracy | Custom) for metric in asked.metrics):
        raise MetricError(f"labels {asked.labels}: no metric reads them; add the metric accuracy, or leave them out")
    return labelled


def _without_shared(evaluation: Samples, evaluates: Samples, calibrates: Samples) -> tuple[Samples, list[str]]:
    """Evaluation samples without those that calibrate too, as a few may of small inputs; where most do, an error.

    Args:
        evaluation: In batches.
        evaluates: The same one by one.
        calibrates: Calibration samples one by one.
    """
    known = set(calibrates.feed_digests)
    kept = [index for index, digest in enumerate(evaluates.feed_digests) if digest not in known]
    n_shared = len(evaluates) - len(kept)
    if n_shared > len(kept) or (n_shared and len(evaluation) < len(evaluates)):
        _refuse_shared(("evaluation", evaluates), ("calibration", calibrates))
    if not n_shared:
        return evaluation, []
    others = replace(select(evaluation, kept, "evaluation"), source=evaluation.source)
    return others, [f"{n_shared} of the {counted(len(evaluates), 'evaluation sample')} calibrate too and are left out"]


def _refuse_shared(first: tuple[str, Samples], second: tuple[str, Samples]) -> None:
    shared = overlap(second[1], first[1])
    if shared:
        raise DataError(
            f"{shared} of the {len(first[1])} {first[0]} samples are {second[0]} samples too;"
            " remove them from one of the two"
        )


def _check_labels(evaluation: Samples, held_out: Samples) -> None:
    where = f"held-out data {held_out.source}"
    for name, array in evaluation.labels.items():
        if name not in held_out.labels:
            raise MetricError(f"{where}: there are no labels '{name}', add them as the evaluation data have them")
        if (other := held_out.labels[name]).shape[1:] != array.shape[1:]:
            raise MetricError(
                f"{where}: labels '{name}' are of shape {other.shape}, but those of the evaluation data of"
                f" {array.shape}, make them equal beyond the first dimension"
            )
