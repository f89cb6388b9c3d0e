"""What came out, in words: for the terminal and for the head of the report."""

from collections import Counter
from collections.abc import Mapping, Sequence

from autoquant.domain.counted import counted
from autoquant.domain.front import FLOAT_ID, Front, Member, RunRecord
from autoquant.domain.ledger import Foresight
from autoquant.domain.measurement import Evaluation, Latency, Measurement, State
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Goal
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import FLOAT

__all__ = [
    "asked_db",
    "bytes_text",
    "evaluations_sentence",
    "foresight_sentence",
    "headline",
    "interval_text",
    "objectives_sentence",
    "ratio_text",
    "run_sentences",
    "schemes_text",
]

_HEADLINE_DEMAND_DB = 40.0
_DEMANDS = ("min_snr_db", "max_latency_ratio", "max_size_bytes")
_STATES = {
    State.COMPLETE: "complete",
    State.REJECTED_EARLY: "rejected early",
    State.UNTIMED: "not timed",
    State.FAILED: "failed",
}
_LEAST_SAVED_S = 0.05


def objectives_sentence(front: Front) -> str:
    """What the members were compared in, like ``Objectives: higher snr, lower latency``."""
    words = {Goal.MAXIMIZE: "higher", Goal.MINIMIZE: "lower"}
    return f"Objectives: {', '.join(f'{words[goal]} {name}' for name, goal in front.objectives.items())}."


def headline(record: RunRecord) -> str:
    """One sentence: the fastest member that keeps the demand.

    That is ``max_drop`` of the configuration, else ``min_snr_db``, else 40 dB; where SNR is no objective and nothing is
    demanded, it is the fastest member of all.
    """
    front = record.front
    if len(front.members) == 1:
        return _nothing_pays(record)
    target = front.targets[0].name
    fastest = min(front.members, key=lambda member: member.latency[target].ratio)
    if fastest.id == FLOAT_ID or fastest.quality is None:
        return f"No member is faster than float on {target}."
    drops = record.configuration.get("max_drop")
    if isinstance(drops, Mapping) and drops:
        return _fastest_within(record, fastest, drops)
    asked, metric = asked_db(record), front.quality_metric
    if metric is not None and asked is None:
        return _fastest(record, fastest, metric)
    demand = _HEADLINE_DEMAND_DB if asked is None else asked
    member = front.best_member_at(demand)
    start = f"Fastest model that keeps {demand:g} dB"
    if member.id == FLOAT_ID:
        member = fastest
        start = (
            f"Nothing faster than float keeps {demand:g} dB; the fastest model keeps {fastest.quality.worst_db:.1f} dB"
        )
    where = f" on {target}" if len(front.targets) > 1 else ""
    return f"{start}: {_ratio_phrase(member.latency[target])}{where}, {_regions_phrase(member, record)}."


def run_sentences(record: RunRecord) -> list[str]:
    """What a search found, for the terminal: the best ratio at each demand, or of all, then what became of evaluations.

    Where an SNR was demanded, that is the only demand. A largest drop that was demanded comes first, and objectives
    that are not SNR and latency; how well evaluations were predicted comes last, where a model did.
    """
    usual = record.front.objectives == DEFAULT_OBJECTIVES.goals
    objectives = [] if usual else [objectives_sentence(record.front)]
    if len(record.front.members) == 1:
        return [*objectives, _nothing_pays(record), *_evaluations_lines(record)]
    lines = [line for target in record.front.targets for line in _demand_lines(record, target.name)]
    asked = [headline(record)] if record.configuration.get("max_drop") else []
    return [*objectives, *asked, *lines, *_evaluations_lines(record)]


def asked_db(record: RunRecord) -> float | None:
    """The SNR that was demanded; None where none was."""
    found = record.configuration.get("min_snr_db")
    return float(found) if isinstance(found, int | float) else None


def bytes_text(size: int) -> str:
    """Like ``27.5 kB``, ``1.2 MB`` or ``3.05 GB``."""
    if size < 999_950:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:.1f} MB" if size < 999_950_000 else f"{size / 1e9:.2f} GB"


def evaluations_sentence(evaluations: Sequence[Evaluation], n_earlier: int = 0) -> str:
    """How many evaluations there are and what became of them.

    Args:
        evaluations: All.
        n_earlier: The first ones, which are of another run.
    """
    states = Counter(evaluation.outcome.state for evaluation in evaluations[n_earlier:])
    parts = [f"{states[state]} {words}" for state, words in _STATES.items() if states[state]]
    beside = f", beside {n_earlier} of the run before" if n_earlier else ""
    n = counted(len(evaluations) - n_earlier, "evaluation")
    return f"{n}{beside}: {', '.join(parts)}." if parts else f"No evaluations{beside}."


def foresight_sentence(found: Foresight) -> str:
    """How well recent evaluations were predicted, and who proposed in the end."""
    evaluations = "evaluation" if found.n_recent == 1 else f"{found.n_recent} evaluations"
    share = f"{100 * found.generic_share:.0f} %" if found.generic_share else "none"
    inside = f"{100 * found.snr_share:.0f} % had their SNR and {100 * found.ratio_share:.0f} % their latency ratio"
    return (
        f"Of the last {evaluations} {inside} within the 90 % interval that was predicted; {share} of the proposals were"
        " left to a generic sampler in the end."
    )


def ratio_text(latency: Latency, n_digits: int = 2) -> str:
    """The ratio, like ``0.52``."""
    return f"{latency.ratio:.{n_digits}f}"


def interval_text(latency: Latency, n_digits: int = 2) -> str:
    """The 95 % interval of the ratio, like ``0.51 to 0.53``."""
    return f"{latency.ratio_low:.{n_digits}f} to {latency.ratio_high:.{n_digits}f}"


def schemes_text(assignment: Assignment, n_regions: int) -> str:
    """Regions per scheme, the commonest first, like ``u8s8 in 31, u16s8 in 2 of 40 regions``."""
    counts = Counter(scheme for scheme in assignment.values() if scheme != FLOAT)
    if not counts:
        return "float in all regions"
    parts = [f"{scheme} in {n}" for scheme, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return f"{', '.join(parts)} of {n_regions} region{'' if n_regions == 1 else 's'}"


def _ratio_phrase(latency: Latency) -> str:
    return f"{ratio_text(latency)} of float's latency ({interval_text(latency)})"


def _fastest(record: RunRecord, member: Member, metric: str) -> str:
    target = record.front.targets[0].name
    drop = 100 * member.metrics[metric].drop.all.value
    return (
        f"Fastest model: {_ratio_phrase(member.latency[target])},"
        f" {metric} is {'better' if drop < 0 else 'worse'} by {abs(drop):.3g} %,"
        f" {_regions_phrase(member, record)}."
    )


def _fastest_within(record: RunRecord, member: Member, drops: Mapping[str, float]) -> str:
    """Of the members, which all keep the demand."""
    target = record.front.targets[0].name
    return (
        f"Fastest model with {_drops_phrase(drops)} at most: {_ratio_phrase(member.latency[target])},"
        f" {_regions_phrase(member, record)}."
    )


def _drops_phrase(drops: Mapping[str, float]) -> str:
    return ", ".join(f"{name} worse by {100 * drop:g} %" for name, drop in drops.items())


def _regions_phrase(member: Member, record: RunRecord) -> str:
    return schemes_text(member.assignment, len(record.regions))


def _demand_lines(record: RunRecord, target: str) -> list[str]:
    """One of all demands that the same member is the fastest at; where none is at any, with the fastest of all."""
    front, demands = record.front, dict[str, list[str]]()
    best = front.best_members(target, asked_db=asked_db(record))
    for demand, member in best.items():
        demands.setdefault(_demand_phrase(record, member, target), []).append(demand)
    at = f"{target}, at" if len(front.targets) > 1 else "At"
    lines = [f"{at} {_listed(each)}: {phrase}" for phrase, each in demands.items()]
    fastest = min(front.members, key=lambda member: member.latency[target].ratio)
    if fastest.quality is not None and all(member.quality is None for member in best.values()):
        lines[-1] += f"; the fastest model takes {_demand_phrase(record, fastest, target)}"
    return [f"{line}." for line in lines]


def _listed(demands: Sequence[str]) -> str:
    """Like ``30, 40 and 50 dB``."""
    unit = " dB" if all(demand.endswith(" dB") for demand in demands) else ""
    *first, last = (demand.removesuffix(unit) for demand in demands)
    return (f"{', '.join(first)} and {last}" if first else last) + unit


def _demand_phrase(record: RunRecord, member: Member, target: str) -> str:
    if member.quality is None:
        return "nothing is shown to be faster than float"
    snr = member.quality.worst_db
    return f"{_ratio_phrase(member.latency[target])}, {member.id} with {snr:.1f} dB, {_regions_phrase(member, record)}"


def _nothing_pays(record: RunRecord) -> str:
    measured = [e.outcome for e in record.evaluations if e.is_quantized and isinstance(e.outcome, Measurement)]
    if measured:
        largest, smallest = record.configuration.get("max_size_bytes"), min(found.size_bytes for found in measured)
        if isinstance(largest, int) and smallest > largest:
            return (
                f"No candidate is as small as demanded: the smallest file takes {bytes_text(smallest)}, not"
                f" {bytes_text(largest)}."
            )
        if not any(found.is_comparable for found in measured):
            return "No candidate can be compared with float, which alone is on the front."
        drops = record.configuration.get("max_drop")
        if isinstance(drops, Mapping) and drops:
            return f"Nothing faster than float was found with {_drops_phrase(drops)} at most."
        if any(record.configuration.get(demand) is not None for demand in _DEMANDS):
            return "Nothing better than float was found that keeps what is demanded."
        return "Nothing is shown to be better than float, which alone is on the front."
    if record.regions:
        return "No quantized candidate was measured: the float model alone is on the front."
    return "Nothing could be quantized: the float model alone is on the front."


def _evaluations_lines(record: RunRecord) -> list[str]:
    lines = [evaluations_sentence(record.evaluations, record.n_earlier)] if record.evaluations else []
    if record.seconds_saved and record.seconds_saved >= _LEAST_SAVED_S:
        lines.append(f"Stopping candidates early saved about {record.seconds_saved:.1f} s.")
    foresight = None if record.ledger is None else record.ledger.foresight
    return lines if foresight is None else [*lines, foresight_sentence(foresight)]
