"""What becomes of a run's front when a later one takes its place, and what that knows of its models."""

import re
from collections.abc import Mapping

from autoquant.api.folder import EarlierFront
from autoquant.domain.front import Front
from autoquant.domain.measurement import Believed
from autoquant.domain.objective import clamped_db
from autoquant.errors import OutputError
from autoquant.front.matching import unmatched
from autoquant.report.front_json import front_from_json

__all__ = ["keep_unmatched", "measured_before"]


def measured_before(earlier: EarlierFront) -> Mapping[int, Believed]:
    """By number of the trial, what the last measurement of the run before said of its models: more than trials say.

    SNRs are those of the samples that the search saw, as they are compared with those of other trials. Refined models
    have other weights than their trials, and are left out.
    """
    if not earlier.text:
        return {}
    try:
        before = front_from_json(earlier.text)
    except OutputError:  # of which keep_unmatched tells
        return {}
    numbers = {int(found[1]): member for member in before.members if (found := re.fullmatch(r"t(\d+)", member.id))}
    return {
        number: Believed(
            snr_db=clamped_db(member.worst_db if member.snr_search is None else member.snr_search.worst_db),
            ratios=tuple(member.latency[target.name].ratio for target in before.targets),
        )
        for number, member in numbers.items()
    }


def keep_unmatched(earlier: EarlierFront, now: Front) -> list[str]:
    """Mark the earlier front as kept where the new one does not give all that it gave; a sentence for the user then.

    Args:
        earlier: That is to give way.
        now: That takes its place.
    """
    if not earlier.text:
        return []
    try:
        before = front_from_json(earlier.text)
    except OutputError as error:
        earlier.is_kept = True
        return [f"the front before cannot be read ({error}); its models are kept in {earlier.place.as_posix()}"]
    lost = unmatched(before, now)
    if not lost:
        return []
    earlier.is_kept = True
    return [
        f"nothing on this front is as good as {len(lost)} of the {len(before.members) - 1} models of the front before,"
        f" which may have had more time or other demands; it is kept in {earlier.place.as_posix()}"
    ]
