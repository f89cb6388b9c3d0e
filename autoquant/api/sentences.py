"""Sentences in which a run says how it ended."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import numpy as np

from autoquant.domain.counted import counted, enumerated
from autoquant.domain.front import FLOAT_ID, Front
from autoquant.domain.measurement import Evaluation, Failure, Measurement, Quality
from autoquant.domain.objective import SIZE, SNR
from autoquant.domain.region import Region, TensorName
from autoquant.domain.space import SpaceDefinition, SpaceRule
from autoquant.domain.statistics import Statistics
from autoquant.model.graph import Graph
from autoquant.model.ops import original_of
from autoquant.qdq.masks import Why
from autoquant.space.resolve import emptied, unmatched
from autoquant.study.gain import Gain
from autoquant.study.outlook import Outlook

__all__ = [
    "ENDED_BY_USER",
    "MEASUREMENT_ENDED_BY_USER",
    "calibration_sentences",
    "dominated_sentences",
    "ending_sentence",
    "failure_sentences",
    "joined_sentences",
    "left_out_sentences",
    "limiting_sentences",
    "noisy_sentences",
    "numberless_sentences",
    "outlook_sentences",
    "rule_sentences",
    "saturation_sentences",
    "silent_sentences",
    "slower_sentences",
    "unbounded_sentences",
]

ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER = "the user ended the search", "the user ended the last measurement"
_SATURATION = (
    "kernels here add two products of u8 and s8 in 16 bits, which large ones saturate, as on x86-64 without VNNI: s8"
    " weights take scales at which none do; on a processor that is exact, search again"
)
_ENDINGS = {
    "time": "the time budget ended the search",
    "trials": "the number of trials ended the search",
    "exhausted": "no assignment is left that runs as another graph",
    "stopped": "the sampler has nothing left to propose",
    "failing": "the search ended as one trial after another failed",
    "plateau": "the search ended as the next minute could gain no more than noise lets show",
    "interrupted": ENDED_BY_USER,
}
"""By what ``Trials.run`` returns."""
_FEW_SAMPLES = 8
_SLOWER = 1.1
"""Of the float model's latency. Trials run in one process, of which some took 1.04 to 1.09 for what is equal."""
_FEW_EVALUATIONS = 20
_MUCH_DB = 6.0
"""By which an output is worse than all others: a bit."""
_MUCH_SMALLER = 10.0
"""What is smaller by this factor has a hundredth of the power."""


def ending_sentence(ended: str, evaluations: Sequence[Evaluation], missing_s: float, error: str = "") -> str:
    """Why a search ended, and what to do where that was before it began, or where nothing can be compared.

    Args:
        ended: As ``Trials.run`` says it.
        evaluations: All of the search.
        missing_s: Seconds without which another one would not have ended in time.
        error: That ended it, if one did.
    """
    if error:
        return f"the search ended: {error}"
    quantized = [evaluation.outcome for evaluation in evaluations if evaluation.is_quantized]
    if ended == "time" and not quantized:
        more = f"at least {math.ceil(missing_s)} s more" if missing_s > 0 else "more"
        return f"{_ENDINGS[ended]} before any quantized candidate was evaluated; give {more} time"
    if incomparable := _incomparable_outputs(quantized):
        return (
            f"{_ENDINGS[ended]} after {counted(len(evaluations), 'evaluation')}; no quantized candidate has an SNR, as"
            f" in each of them {' or '.join(incomparable)} has another shape than in float, or NaN or infinity where"
            " float has numbers: cut the model before what makes it so, or judge by a metric of your own, as an"
            " objective or with --max-drop"
        )
    if ended == "time" and len(evaluations) < _FEW_EVALUATIONS:
        return f"{_ENDINGS[ended]} after only {counted(len(evaluations), 'evaluation')}; give more time"
    return _ENDINGS[ended]


def _incomparable_outputs(quantized: Sequence[Measurement | Failure]) -> list[str]:
    """Those because of which no candidate can be compared with float; none where one can, or none was measured."""
    measured = [outcome for outcome in quantized if isinstance(outcome, Measurement)]
    if any(found.is_comparable for found in measured):
        return []
    snrs = (item for found in measured for item in found.quality.per_output.items())
    return [f"'{name}'" for name in dict.fromkeys(name for name, snr_db in snrs if snr_db == -math.inf)]


def calibration_sentences(n_run: int, n_given: int, *, is_again: bool) -> list[str]:
    """Where samples were left out, or ranges rest on few."""
    found = []
    if n_run < n_given:
        why = "as before, on" if is_again else "there was time for"
        found.append(f"calibration: {why} {n_run} of the {n_given} samples")
    if n_run < _FEW_SAMPLES:
        found.append(
            f"calibration: ranges rest on {counted(n_run, 'sample')} alone, and other inputs may lie beyond them; give"
            " 16 or more"
        )
    return found


def joined_sentences(graph: Graph, statistics: Statistics) -> list[str]:
    """Outputs that join parts of which SNR sees the large ones alone, as boxes in pixels and scores."""
    found = []
    for output in graph.outputs:
        end = graph.producer.get(output)
        inner = end.inputs[0] if end is not None and end.op_type == "Cast" else output
        last = graph.producer.get(original_of(inner, graph))
        if last is None or last.op_type != "Concat":
            continue
        known = {name: statistics.tensors.get(original_of(name, graph)) for name in last.inputs}
        reach = {name: max(-each.minimum, each.maximum) for name, each in known.items() if each is not None}
        small, large = min(reach, key=reach.__getitem__, default=None), max(reach, key=reach.__getitem__, default=None)
        if small is not None and large is not None and 0 < _MUCH_SMALLER * reach[small] < reach[large]:
            found.append(
                f"output '{output}' joins parts of unlike size, '{large}' up to {reach[large]:.3g} and '{small}' up to"
                f" {reach[small]:.3g}: its SNR says next to nothing of the small ones; cut the model before node"
                f" '{last.name}', or judge by a metric of your own"
            )
    return found


def rule_sentences(definition: SpaceDefinition, regions: Sequence[Region]) -> list[str]:
    """Rules of the space that have no effect on this model, or one that nobody asked for."""
    notes = [
        f"the rule for {_spelled(rule)} matches no node of a region; see 'autoquant regions MODEL --json'"
        for rule in unmatched(definition, regions)
    ]
    empty = emptied(definition, regions)
    if empty:
        notes.append(
            f"rules leave {counted(len(empty), 'region')} float without saying so, such as {empty[0]}: the provider"
            " has none of the schemes that they name, or they name none for all nodes of a region; name others, or"
            " 'float'"
        )
    return notes


def _spelled(rule: SpaceRule) -> str:
    parts = [", ".join(sorted(rule.op_types)), f"nodes '{rule.nodes}'" if rule.nodes is not None else ""]
    return " with ".join(filter(None, parts))


def left_out_sentences(asked: SpaceDefinition, found: SpaceDefinition) -> list[str]:
    """Schemes that the model's opset has no operators for; none where it has for all."""
    gone = [scheme for scheme in asked.schemes if scheme not in found.schemes]
    if not gone:
        return []
    opset, names = max(scheme.opset for scheme in gone), enumerated([scheme.name for scheme in gone])
    return [f"the model's opset cannot express {names}: export it with opset {opset} or newer"]


def unbounded_sentences(found: Mapping[TensorName, Why]) -> list[str]:
    """What stays float as no range covers it, one for each reason; none where there is nothing."""
    names = {why: sorted(name for name, reason in found.items() if reason is why) for why in Why}
    return [f"what reads or writes {enumerated(each)} stays float: {why}" for why, each in names.items() if each]


def silent_sentences(outputs: Sequence[str]) -> list[str]:
    """What no SNR can be said of; none where there is nothing."""
    if not outputs:
        return []
    spelled = ", ".join(f"'{name}'" for name in outputs)
    return [
        f"of outputs that are 0 on all evaluation samples no SNR can be said, so that they are not judged: {spelled};"
        " give samples on which they are not"
    ]


def dominated_sentences(shares: Mapping[str, float], n_samples: int) -> list[str]:
    """Outputs whose SNR is that of one sample, by its share of their power; none where there are none."""
    if not shares:
        return []
    spelled = ", ".join(f"{share:.0%} of that of '{name}'" for name, share in shares.items())
    return [
        f"one of {n_samples} evaluation samples holds most of an output's power, {spelled}: SNR is pooled over samples,"
        " so that the others hardly count; leave it out, or judge by a metric of your own"
    ]


def numberless_sentences(shares: Mapping[str, float]) -> list[str]:
    """Outputs that are compared where they are numbers alone, by the share of the rest; none where there are none."""
    if not shares:
        return []
    spelled = ", ".join(f"{100 * share:.3g} % of the elements of '{name}'" for name, share in shares.items())
    return [
        f"the float model has NaN or infinity at {spelled}: SNR is of the others, and no model is delivered that has"
        " anything else there; where all of them would, cut the model before that output's mask or logarithm"
    ]


def saturation_sentences(asked: SpaceDefinition, found: SpaceDefinition) -> list[str]:
    """What became of a space where kernels saturate; none where nothing did."""
    if asked == found:
        return []
    pairs = zip(asked.schemes, found.schemes, strict=True)
    others = [before.name for before, after in pairs if before.rounding is not after.rounding]
    rounded = [f"{', '.join(others)}: weights are rounded by gptq, as adaquant would learn other scales"]
    return [_SATURATION, *(rounded if others else [])]


def failure_sentences(evaluations: Sequence[Evaluation]) -> list[str]:
    """How many trials failed, and why most of them did."""
    reasons = Counter(e.outcome.reason for e in evaluations if isinstance(e.outcome, Failure))
    if not reasons:
        return []
    (reason, n_alike), n_failed = reasons.most_common(1)[0], reasons.total()
    share = "" if n_alike == n_failed else f", {n_alike} of them"
    return [f"{n_failed} of {len(evaluations)} trials failed{share} for this reason: {reason}"]


def limiting_sentences(front: Front, evaluations: Sequence[Evaluation]) -> list[str]:
    """The one of several outputs that every SNR is of: of members or, without any, of evaluations; none without one."""
    if SNR not in front.objectives:
        return []
    members = [member.quality for member in front.members if member.quality is not None]
    measured = [e.outcome.quality for e in evaluations if e.is_quantized and isinstance(e.outcome, Measurement)]
    qualities = members or measured
    worst = {_worst_output(quality) for quality in qualities}
    if len(worst) != 1 or None in worst:
        return []
    beyond_db = median(_next_db(quality) - quality.worst_db for quality in qualities)
    by = f", by {beyond_db:.0f} dB in the median" if _MUCH_DB <= beyond_db < math.inf else ""
    return [
        f"output '{worst.pop()}' has the least SNR of all outputs in every {'member' if members else 'evaluation'}{by},"
        " and the SNR of a model is that of its worst output"
    ]


def slower_sentences(evaluations: Sequence[Evaluation]) -> list[str]:
    """Where the preprocessed float model is slower than the user's, which all candidates are built from."""
    outcomes = [e.outcome for e in evaluations if not e.is_quantized and isinstance(e.outcome, Measurement)]
    found = [
        f"{latency.ratio:.2f} ({latency.ratio_low:.2f} to {latency.ratio_high:.2f}) of your file's latency on {target}"
        for outcome in outcomes[:1]
        for target, latency in outcome.latency.items()
        if latency.ratio_low > _SLOWER
    ]
    return [f"the preprocessed float model takes {one}, and every candidate is made of it" for one in found]


def noisy_sentences(front: Front) -> list[str]:
    """Members whose noise is larger than what it is in; none where the SNR is no objective."""
    if SNR not in front.objectives:
        return []
    noisy = [m.id for m in front.members if m.quality is not None and m.quality.worst_db < 0]
    if not noisy:
        return []
    return [f"{', '.join(noisy)}: less than 0 dB, which outputs of nothing but zeros have; of no use by their SNR"]


def _worst_output(quality: Quality) -> str | None:
    """None where there is none beside others, as where all are equal to float's."""
    found = quality.per_output
    return min(found, key=found.__getitem__) if len(set(found.values())) > 1 else None


def _next_db(quality: Quality) -> float:
    """SNR of the worst of all outputs but one."""
    return sorted(quality.per_output.values())[1]


def outlook_sentences(found: Outlook | None, front: Front, max_ratio: float | None) -> list[str]:
    """What the front holds of what trials promised, and what it could still gain, where the sampler knows.

    Args:
        found: By the trials.
        front: Of files.
        max_ratio: That is demanded; savings are below it.
    """
    if found is None:
        return []
    has_size = SIZE in front.objectives
    saving = "mean saving in latency and size" if has_size else "mean latency saving"
    saving += "" if max_ratio is None else f" below the demanded ratio of {max_ratio:g}"
    lowest_db, highest_db = found.demands_db
    at = f"at {lowest_db:g} to {highest_db:g} dB"
    attainable = max(found.attainable, found.saving)
    if f"{attainable:.3f}" == "0.000":
        return [f"the fitted models hold no {saving} attainable {at}"]
    files = "" if has_size else f"; the files of the front hold {_saving_of(front, lowest_db, max_ratio):.3f}"
    return [
        f"by the estimates of trials a {saving} of {found.saving:.3f} {at} is reached, {min(found.share, 1.0):.0%} of"
        f" the {attainable:.3f} that the fitted models hold attainable{files}"
    ]


def _saving_of(front: Front, lowest_db: float, max_ratio: float | None) -> float:
    """In the measure of the sampler."""
    members = [member for member in front.members if member.id != FLOAT_ID]
    snr_db = np.array([member.worst_db for member in members])
    ratios = np.array([fmean(latency.ratio for latency in member.latency.values()) for member in members])
    return Gain.of(snr_db, ratios, min_snr_db=lowest_db, max_ratio=max_ratio).saving
