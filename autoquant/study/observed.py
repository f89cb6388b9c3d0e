"""Told trials as the models take them: complete ones, and pruned ones that say their SNR but no ratio."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoquant.domain.measurement import State
from autoquant.domain.reason import one_line
from autoquant.domain.warning import warn_caller
from autoquant.errors import UsageError
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.noise import NO_SIGNAL
from autoquant.study.proposal import asked_for
from autoquant.study.surrogate import Observations

__all__ = ["Reader", "Told", "effective", "is_measured", "observe", "says_failed", "snr_errors_of"]

_LOWEST_DB, _HIGHEST_DB = -10.0 * math.log10(NO_SIGNAL), 200.0
"""Noise of a hundred times the signal, or outputs that are not finite, tell no more than this."""
_N_INEFFECTIVE = 2
_LARGEST_RATIO = 1e4
"""What is larger is no ratio of latencies, but bytes, say."""
_USUAL_FLOAT = 0.03, 1.5
"""Of the float assignment; rewrites alone may make a model many times as fast. Beyond them are seconds, say."""
_N_TELLING = 8
_QUICK_ERROR = 0.03
"""Least standard error of a ratio from the few rounds of a trial that was stopped early."""


def is_measured(trial: FrozenTrial) -> bool:
    """Whether there is something to learn from: it is complete, or was pruned and says its SNR."""
    return trial.state is TrialState.COMPLETE or (trial.state is TrialState.PRUNED and "snr_db" in trial.user_attrs)


def says_failed(trial: FrozenTrial) -> bool:
    """Whether a failed trial says that its assignment failed, and not what measures it."""
    return trial.user_attrs.get("state") == State.FAILED


@dataclass(frozen=True, slots=True)
class Told:
    """What trials say together.

    Attributes:
        measured: Those that were, timed or not.
        found: What they say.
        asked: Scheme numbers that these were asked for; shape (n, R).
        failed: Scheme numbers that those were asked for that failed; shape (n, R).
        is_told: Of these, whether they say that it was the assignment.
        seen: Scheme numbers, as bytes, that need not be asked for again: what was asked for, and what is known to run.
            A trial that was not to be timed leaves its latency to be asked for, if the study times any.
    """

    measured: Sequence[FrozenTrial]
    found: Observations
    asked: Codes
    failed: Codes
    is_told: Sequence[bool]
    seen: frozenset[bytes]


class Reader:
    """Reads told trials of one study, each once; those that are not about all regions are passed over.

    Args:
        layout: Regions and schemes.
        has_size: Whether smaller files count: what is minimised last may be the size then.
    """

    def __init__(self, layout: Layout, *, has_size: bool = False) -> None:
        self._layout, self._has_size = layout, has_size
        self._regions = frozenset(layout.regions)
        self._rows: dict[int, _Row | None] = {}
        self._started: dict[int, datetime | None] = {}
        self._has_warned = self._has_warned_of_units = self._has_read = False
        self._odd: set[int] = set()

    def knows(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether what was read is among these trials; those of another study of the same name began at other times."""
        return self._started.items() <= {trial.number: trial.datetime_start for trial in trials}.items()

    def read(self, trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> Told:
        """What trials say, in the order in which they were first seen to be finished.

        Of trials that are not finished, or ended before all regions had a scheme, only what they were to run counts, as
        far as it is known.

        Raises:
            UsageError: The values of the study are others than an SNR and ratios, and a trial does not say its own in
                user attributes; or what it says is no ratio or cannot be read. A warning instead where other trials
                could be read, and of trials that were there before anything was read.
        """
        by_number = {trial.number: trial for trial in trials}
        new = [trial for n, trial in by_number.items() if n not in self._rows and trial.state.is_finished()]
        self._see(new, directions)
        self._has_read = True
        self._warn_of_units(by_number)
        known = [(by_number[number], row) for number, row in self._rows.items() if row and number in by_number]
        pairs = self._alike(known)
        others = [asked_for(self._layout, trial) for n, trial in by_number.items() if self._rows.get(n) is None]
        rows = [row for _, row in pairs]
        is_timing = any(row.evaluated is not None and row.evaluated.ratios for row in rows)
        measured = [(row.asked, row.evaluated) for row in rows if row.evaluated is not None]
        failed = [(row.asked, says_failed(trial)) for trial, row in pairs if trial.state is TrialState.FAIL]
        return Told(
            measured=[trial for trial, row in pairs if row.evaluated is not None],
            found=_together(self._layout, [evaluated for _, evaluated in measured]),
            asked=np.array([asked for asked, _ in measured], dtype=np.int64).reshape(-1, len(self._regions)),
            failed=np.array([asked for asked, _ in failed], dtype=np.int64).reshape(-1, len(self._regions)),
            is_told=[is_told for _, is_told in failed],
            seen=frozenset().union(
                *(row.named for row in rows if not (row.is_untimed and is_timing)),
                (x.tobytes() for x in others if x is not None),
            ),
        )

    def _see(self, trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> None:
        """A study of which others can be read is not lost for one that cannot, nor for one that nobody can mend."""
        wrong: list[tuple[FrozenTrial, UsageError]] = []
        for trial in trials:
            try:
                row = self._read_row(trial, directions)
            except UsageError as error:
                wrong.append((trial, error))
                continue
            self._rows[trial.number], self._started[trial.number] = row, trial.datetime_start
            self._warn_of_missing(trial)
        is_lost = self._has_read and all(row is None or row.evaluated is None for row in self._rows.values())
        for trial, _ in wrong:
            self._rows[trial.number], self._started[trial.number] = None, trial.datetime_start
        if not wrong:
            return
        first, why = wrong[0]
        if is_lost:
            raise why
        which = f"trial {first.number}" if len(wrong) == 1 else f"{len(wrong)} trials, the first of them {first.number}"
        warn_caller(f"nothing is learned of {which}: {why}")

    def _alike(self, pairs: list[tuple[FrozenTrial, "_Row"]]) -> list[tuple[FrozenTrial, "_Row"]]:
        """Without the trials that have ratios on another number of targets than most, or than the first ones."""
        counts = {trial.number: len(row.evaluated.ratios) for trial, row in pairs if row.evaluated is not None}
        timed = [count for count in counts.values() if count]
        usual = max(timed, key=timed.count, default=0)
        odd = {number for number, count in counts.items() if count not in (0, usual)}
        new, self._odd = odd - self._odd, self._odd | odd
        for number in sorted(new):
            warn_caller(
                f"nothing is learned of trial {number}: it has latency ratios on {counts[number]} targets, and others"
                f" on {usual}"
            )
        return [(trial, row) for trial, row in pairs if trial.number not in odd]

    def _read_row(self, trial: FrozenTrial, directions: Sequence[StudyDirection]) -> "_Row | None":
        try:
            if trial.state is TrialState.COMPLETE:
                _check_values(directions, trial, has_size=self._has_size)
            return _row(self._layout, trial) if self._is_whole(trial) else None
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"trial {trial.number} has values or user attributes that cannot be read ({one_line(error)}); see"
                " help(StructureSampler) for what they are"
            ) from error

    def _warn_of_missing(self, trial: FrozenTrial) -> None:
        """Where an objective leaves out regions."""
        missing = [region for region in self._layout.regions if region not in trial.params]
        if trial.state is TrialState.COMPLETE and missing and not self._has_warned:
            self._has_warned = True
            warn_caller(
                f"trial {trial.number} has no scheme for region '{missing[0]}': nothing is learned of trials that lack"
                " some; suggest every region of sampler.choices by its name, and fix schemes with"
                " optuna.samplers.PartialFixedSampler"
            )

    def _warn_of_units(self, trials: Mapping[int, FrozenTrial]) -> None:
        """Where values can hardly be ratios, as milliseconds; user attributes are what ``measure`` says."""
        if self._has_warned_of_units:
            return
        low, high = _USUAL_FLOAT
        told = {n: row.evaluated for n, row in self._rows.items() if row and row.evaluated and n in trials}
        timed = {n: found for n, found in told.items() if found.ratios and "ratios" not in trials[n].user_attrs}
        odd = (n for n, found in timed.items() if not (found.codes.any() or low <= min(found.ratios) <= high))
        what = next(
            (f"trial {n} quantizes nothing and has {min(timed[n].ratios):g} as a latency ratio" for n in odd), ""
        )
        if not what and len(timed) >= _N_TELLING and min(min(found.ratios) for found in timed.values()) > high:
            what = f"none of {len(timed)} trials has a latency ratio below {high}"
        if what:
            self._has_warned_of_units = True
            warn_caller(f"{what}: it should be candidate / float, 1 for float itself, and no seconds or milliseconds")

    def _is_whole(self, trial: FrozenTrial) -> bool:
        return all(trial.params.get(region) in self._layout.schemes for region in self._layout.regions)


def _check_values(directions: Sequence[StudyDirection], trial: FrozenTrial, *, has_size: bool) -> None:
    """Whether the SNR and the ratios of a complete trial can be told."""
    if has_size and len(directions) > 2 and "ratios" not in trial.user_attrs:
        raise UsageError(
            f"trial {trial.number} does not say which of its values are latency ratios and which is a size; set its"
            " user attributes 'snr_db', 'ratios' (a list) and 'size_bytes'"
        )
    is_usual = len(directions) > 1 and directions == [
        StudyDirection.MAXIMIZE,
        *[StudyDirection.MINIMIZE] * (len(directions) - 1),
    ]
    if not is_usual and not {"snr_db", "ratios"} <= trial.user_attrs.keys():
        spelled = ", ".join(direction.name.lower() for direction in directions)
        raise UsageError(
            f"the study has the directions {spelled}: the structure sampler wants the SNR to maximize and then a ratio"
            " for each target to minimize, or the user attributes 'snr_db' and 'ratios' of every trial"
        )


def observe(layout: Layout, trials: Sequence[FrozenTrial]) -> Observations:
    """What measured trials say; see ``StructureSampler`` for where they say it."""
    return _together(layout, [_read(layout, trial) for trial in trials])


def snr_errors_of(trials: Sequence[FrozenTrial]) -> Floats:
    """What the samples of measured trials leave open of their SNRs, standard deviations in dB; 0 where none says it."""
    said = np.array([trial.user_attrs.get("snr_error_db", 0.0) for trial in trials], dtype=np.float64)
    return np.nan_to_num(said, nan=0.0, posinf=_HIGHEST_DB, neginf=0.0)


def effective(layout: Layout, asked: Codes, ran: Codes) -> Any:
    """Schemes that a region may take, without those that it was asked for and never ran; shape (R, S).

    Args:
        layout: Regions and schemes.
        asked: Scheme numbers of measured trials; shape (n, R).
        ran: What they really ran; shape (n, R).
    """
    places = asked + layout.allowed.shape[1] * np.arange(asked.shape[1])
    n_asked, n_ran = (
        np.bincount(each, minlength=layout.allowed.size).reshape(layout.allowed.shape)
        for each in (places.ravel(), places[asked == ran])
    )
    is_float = np.arange(layout.allowed.shape[1]) == 0
    return layout.allowed & (is_float | (n_ran > 0) | (n_asked < _N_INEFFECTIVE))


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """One trial.

    Attributes:
        codes: What ran.
        snr_db: Of the worst output.
        snr_by_output: Empty where it says no more than the worst.
        ratios: Empty where it was not timed.
        errors: Of the ratios; one where there are none.
        is_quick: Whether it ran few samples.
    """

    codes: Codes
    snr_db: float
    snr_by_output: Sequence[float]
    ratios: Sequence[float]
    errors: tuple[float, ...]
    is_quick: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """One trial for a reader; ``named`` is what was asked for and what ran, as bytes."""

    asked: Codes
    evaluated: _Evaluated | None
    named: frozenset[bytes]
    is_untimed: bool


def _row(layout: Layout, trial: FrozenTrial) -> _Row:
    asked = layout.encode(trial.params)
    evaluated = _read(layout, trial) if is_measured(trial) else None
    ran = asked if evaluated is None else evaluated.codes
    is_untimed = trial.user_attrs.get("state") == State.UNTIMED
    return _Row(asked, evaluated, frozenset((asked.tobytes(), ran.tobytes())), is_untimed)


def _read(layout: Layout, trial: FrozenTrial) -> _Evaluated:
    """What really ran; a region that onnxruntime quantized unasked counts as asked."""
    said = trial.user_attrs
    values, state = trial.values or [], _state(trial)
    is_untimed = state is State.UNTIMED
    ratios = _numbers(trial, "ratios", () if is_untimed else values[1:])
    if np.inf in ratios:  # it did not come to an end
        ratios = ()
    _check_numbers(trial, ratios)
    is_quick = is_untimed or state is State.REJECTED_EARLY or trial.state is TrialState.PRUNED
    return _Evaluated(
        codes=layout.encode({**trial.params, **_ran(layout, trial)}),
        snr_db=float(said["snr_db"] if "snr_db" in said else values[0]),
        snr_by_output=() if said.get("snr_by_output") is None else _numbers(trial, "snr_by_output", ()),
        ratios=ratios,
        errors=_ratio_errors(trial, len(ratios), _QUICK_ERROR if is_quick else 0.0),
        is_quick=is_quick,
    )


def _state(trial: FrozenTrial) -> State:
    said = trial.user_attrs.get("state") or State.COMPLETE
    if said not in tuple(State):
        raise UsageError(
            f"trial {trial.number} has '{said}' in 'state'; set it to one of: {', '.join(State)}, or leave it out"
        )
    return State(said)


def _ran(layout: Layout, trial: FrozenTrial) -> Mapping[str, str]:
    """Schemes of the study that regions really ran, as far as that is said; there may be other regions, too."""
    said = trial.user_attrs.get("effective") or {}
    if not isinstance(said, Mapping) or (said and said.keys().isdisjoint(layout.regions)):
        raise UsageError(
            f"trial {trial.number} has {one_line(repr(said))} in 'effective'; set it to the scheme that each region"
            " really ran, by the region's name, or leave it out"
        )
    return {region: scheme for region, scheme in said.items() if scheme in layout.schemes}


def _numbers(trial: FrozenTrial, name: str, others: Sequence[float]) -> tuple[float, ...]:
    """Of a user attribute; others where there is none."""
    said = trial.user_attrs.get(name, others)
    try:
        return tuple(map(float, said))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"trial {trial.number} has {one_line(repr(said))} in '{name}'; set it to a list of numbers"
        ) from error


def _check_numbers(trial: FrozenTrial, ratios: Sequence[float]) -> None:
    """Whether ratios are some, and what others read are numbers."""
    size_bytes, error_db = (float(trial.user_attrs.get(name, 0)) for name in ("size_bytes", "snr_error_db"))
    if not 0 <= size_bytes < np.inf or error_db < 0:
        raise UsageError(
            f"trial {trial.number} has {size_bytes:g} in 'size_bytes' and {error_db:g} in 'snr_error_db'; set them to"
            " bytes, 0 where they are unknown, and to a standard deviation, or leave them out"
        )
    wrong = next((ratio for ratio in ratios if not 0 < ratio <= _LARGEST_RATIO), None)
    if wrong is not None:
        raise UsageError(
            f"trial {trial.number} has {wrong:g} as a latency ratio, candidate / float; minimize ratios alone after"
            " the SNR, or set the user attributes 'snr_db' and 'ratios' of every trial"
        )


def _ratio_errors(trial: FrozenTrial, n_ratios: int, least: float) -> tuple[float, ...]:
    """One for each ratio; one where there are none."""
    if not n_ratios:
        return (least,)
    said = np.atleast_1d(np.asarray(trial.user_attrs.get("ratio_error"), dtype=np.float64))
    if len(said) not in (1, n_ratios):
        raise UsageError(
            f"trial {trial.number} has {len(said)} numbers in 'ratio_error' and a ratio on {n_ratios} targets; set the"
            " user attribute to one standard error for each, or to one for all"
        )
    if not (np.isnan(said) | ((said >= 0) & np.isfinite(said))).all():
        raise UsageError(f"trial {trial.number} has {said.tolist()} in 'ratio_error'; set it to finite standard errors")
    return tuple(np.broadcast_to(np.fmax(said, least), n_ratios).tolist())


def _together(layout: Layout, found: Sequence[_Evaluated]) -> Observations:
    n_targets = max((len(each.ratios) for each in found), default=0) or 1
    odd = {len(each.ratios) for each in found} - {0, n_targets}
    if odd:
        raise UsageError(
            f"trials of this study have latency ratios on {n_targets} targets and on {min(odd)}; give every trial one"
            " for each target"
        )
    unknown = [np.nan] * n_targets
    return Observations(
        codes=np.array([each.codes for each in found], dtype=np.int64).reshape(-1, len(layout.regions)),
        snr_db=_snr_by_output(found),
        ratios=np.array([each.ratios or unknown for each in found], dtype=float).reshape(-1, n_targets),
        errors=np.array([each.errors if each.ratios else each.errors * n_targets for each in found]).reshape(
            -1, n_targets
        ),
        is_quick=np.array([each.is_quick for each in found], dtype=bool),
    )


def _snr_by_output(found: Sequence[_Evaluated]) -> Floats:
    """SNR in dB, shape (n, O); of the worst output alone where a trial does not say more."""
    rows = [each.snr_by_output or (each.snr_db,) for each in found]
    if len({len(row) for row in rows}) > 1:
        rows = [(each.snr_db,) for each in found]
    values = np.array(rows, dtype=float).reshape(len(found), max(map(len, rows), default=1))
    return np.asarray(np.clip(np.where(np.isnan(values), _LOWEST_DB, values), _LOWEST_DB, _HIGHEST_DB))
