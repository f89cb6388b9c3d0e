"""Sentences in which a run says how it met another demand: what was predicted, what was measured, what was missed."""

import math
import statistics
from collections.abc import Mapping

from autoquant.api.attempts import Attempt, Demand
from autoquant.domain.counted import counted
from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.share import Z_95

__all__ = ["known_sentences", "missed_sentence", "resolved_sentences", "with_interval"]


def missed_sentence(attempt: Attempt, demand: Demand) -> str:
    """Of a prediction that is not delivered."""
    snr = with_interval(attempt.predicted.snr_db, attempt.predicted.snr_error_db, 1)
    name = f"t{attempt.evaluation.trial.number:04d}"
    return f"{name} missed the demand of {demand}: {snr} dB were predicted, {attempt.gave}"


def resolved_sentences(front: Front, attempt: Attempt, demand: Demand, *, learned_from: str) -> list[str]:
    """What was predicted, what was measured, and whether that misses the demand.

    Args:
        front: With the model that was built, unless it is not shown to be faster than float.
        attempt: Which it was built for.
        demand: What it shall keep.
        learned_from: Whose trials the prediction is from.
    """
    predicted = attempt.predicted
    snr = with_interval(predicted.snr_db, predicted.snr_error_db, 1)
    ratios = ", ".join(
        f"{with_interval(ratio, error, 3)} on {target.name}"
        for target, ratio, error in zip(front.targets, predicted.ratios, predicted.ratio_errors, strict=True)
    )
    notes = [f"predicted from {counted(predicted.n_trials, 'trial')} of {learned_from}: {snr} dB, ratio {ratios}"]
    if not predicted.is_proven:
        notes.append("there was no time to show that nothing faster is predicted to keep the demand")
    member = next((member for member in front.members if member.id != FLOAT_ID), None)
    if member is None:
        why = "the one that was built is not shown to be faster than float"
        return [*notes, f"there is no model for {demand}: {why}; {attempt.gave}"]
    return [*notes, f"measured: {_measured(member)}", *_missed(member, demand)]


def known_sentences(known: Mapping[str, Front], front: Front | None, demand: Demand) -> list[str]:
    """The fastest of a run's own members that keeps the demand, where what was built for it is no faster or misses it.

    Args:
        known: Fronts of the run, by the folder that each is in, the newest first: of a file that is in several its
            numbers count.
        front: With the model that was built, unless it is not shown to be faster than float; None where none was.
        demand: What is to be kept.
    """
    newest: dict[str, tuple[Member, str]] = {}
    for folder, before in known.items():
        for member in before.members:
            newest.setdefault(member.sha256, (member, f"{folder}/{member.path}"))
    kept = [(member, path) for member, path in newest.values() if member.id != FLOAT_ID and not _missed(member, demand)]
    made = [] if front is None else [member for member in front.members if member.id != FLOAT_ID]
    built = [_mean_ratio(member) for member in made if not _missed(member, demand)]
    fastest, path = min(kept, key=lambda pair: _mean_ratio(pair[0]), default=(None, ""))
    if fastest is None or min(built, default=1.0 if front is None else math.inf) < _mean_ratio(fastest):
        return []
    how = "keeps it" if front is None or len(built) < len(made) else "keeps the demand too and was no slower"
    return [f"{path} {how}: {_measured(fastest)}"]


def _mean_ratio(member: Member) -> float:
    """Of all targets."""
    return statistics.fmean(latency.ratio for latency in member.latency.values())


def with_interval(value: float, error: float, n_digits: int) -> str:
    """The value with its 95 % interval."""
    low, high = value - Z_95 * error, value + Z_95 * error
    return f"{value:.{n_digits}f} ({low:.{n_digits}f} to {high:.{n_digits}f})"


def _measured(member: Member) -> str:
    search = member.snr_search
    known = (
        ""
        if search is None or search.low_db is None or search.high_db is None
        else (f" ({search.worst_db:.1f}, {search.low_db:.1f} to {search.high_db:.1f}, on the samples of the search)")
    )
    ratios = ", ".join(
        f"{found.ratio:.3f} ({found.ratio_low:.3f} to {found.ratio_high:.3f}) on {name}"
        for name, found in member.latency.items()
    )
    return f"{member.worst_db:.1f} dB{known}, ratio {ratios}"


def _missed(member: Member, demand: Demand) -> list[str]:
    ratio = max(latency.ratio for latency in member.latency.values())
    missed = [f"{member.worst_db:.2f} dB, not {demand.min_snr_db:g}"] if member.worst_db < demand.min_snr_db else []
    if demand.max_latency_ratio is not None and ratio > demand.max_latency_ratio:
        missed.append(f"a ratio of {ratio:.3f}, not {demand.max_latency_ratio:g}")
    return [f"the demand is missed: {' and '.join(missed)}; demand a bit more to have more room"] if missed else []
