"""Ways of writing candidates, of which it is measured which are faster here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.feed import Feed
from autoquant.domain.region import Assignment
from autoquant.domain.rewrite import IN_WORDS, Rewrite
from autoquant.errors import ModelError
from autoquant.measurement.bench import Bench
from autoquant.measurement.latency import Timings
from autoquant.measurement.opening import Opened, Opener
from autoquant.model.excerpts import Excerpt
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate

__all__ = ["LEAST_RACED", "Probed", "probe_rewrites", "probing_seconds", "race", "takes_candidates"]

LEAST_RACED, _MOST_RACED = 5, 100
"""Rounds in which two candidates are compared: a median of few does not show a gain of 5 % beside other work."""
_N_RACED_ALONE = 30
_PROBE_SECONDS = 2.0
_N_COMPARED = 4
"""Samples on which outputs are compared."""
_ENOUGH_DB = 90.0
_OF_QUANTIZED = (Rewrite.JOINED_GROUPS, Rewrite.TANH_GELUS, Rewrite.FUSED_SILUS, Rewrite.FUSED_HARD_SWISHES)
"""They change nothing in float."""
_OF_FLOAT = (Rewrite.TILED_CONVS, Rewrite.KEPT_BLOCKS)
"""They change how float convolutions are computed."""
_COMPARED = (Rewrite.FUSED_ATTENTIONS,)
"""They take another opset, where an operator elsewhere may have no kernel, and read what was masked otherwise."""
_SENTENCES: Mapping[Rewrite, tuple[str, str, str, str]] = {
    Rewrite.PLAIN_SUMS: (
        "Add before LayerNormalization is written as Sum",
        *("the two alone take", "float takes", "the fused form takes"),
    ),
    Rewrite.JOINED_GROUPS: ("groups of Convs on integers are joined with zeros", "", "8 bits take", "they took"),
    Rewrite.TILED_CONVS: ("float Convs of 3 x 3 are computed tile by tile", "", "float takes", "it took"),
    Rewrite.KEPT_BLOCKS: ("channels of float images are kept in blocks", "", "float takes", "it took"),
    Rewrite.TANH_GELUS: (
        "GELU beside what is quantized is approximated by tanh",
        *("one alone takes", "8 bits take", "the exact one does"),
    ),
    Rewrite.FUSED_SILUS: ("SiLU behind what is quantized is one operator", "one alone takes", "", "two do"),
    Rewrite.FUSED_HARD_SWISHES: (
        "hard swish behind what is quantized is one operator",
        *("one alone takes", "", "two do"),
    ),
    Rewrite.FUSED_ATTENTIONS: (
        "attention is one operator",
        *("one alone takes", "float takes", "its products and moves do"),
    ),
}
"""What is done, what takes less alone or in a whole candidate, and less than what."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What probing found.

    Attributes:
        sentences: For the user, on each rewrite that is used, or cannot be.
        float_ratio: Of the latency of the whole float model with those of them that it was compared with, to that
            without.
    """

    sentences: Sequence[str]
    float_ratio: float = 1.0


def probe_rewrites(
    builder: Builder, quantized: Assignment | None, bench: Bench, rewrites: Collection[Rewrite] = tuple(Rewrite)
) -> Probed:
    """Measure which rewrites pay here, and build accordingly from then on.

    Each is compared with the candidate that has none, so that they are independent of each other: float Adds do not
    matter to convolutions on integers. Where a few nodes tell it, these are compared alone: that takes no time, and
    shows what would be too little of a whole model to be shown. Some are used only where the whole model opens with
    them and writes what it wrote.

    Args:
        builder: Of candidates.
        quantized: As much on integers as there may be; None where nothing may.
        bench: Opens and runs them.
        rewrites: Those that are probed where they change something.
    """
    builder.write(frozenset())
    plain = _Plain(builder, bench)
    sentences: dict[Rewrite, str] = {}
    refused, float_ratio = list[str](), 1.0
    for rewrite in sorted(builder.possible.intersection(rewrites)):
        assignment, excerpts = quantized if rewrite in _OF_QUANTIZED else {}, builder.excerpts(rewrite)
        ratio = None
        try:
            if excerpts is not None:
                alone = _gain_alone(excerpts, bench)
                is_used = alone is not None and (
                    rewrite not in _COMPARED or plain.is_kept_by(plain.with_rewrite({}, rewrite), {})
                )
                ratio = alone if is_used else None
            elif assignment is not None:
                ratio = _gain(plain, assignment, rewrite)
                float_ratio *= 1.0 if assignment or ratio is None else ratio
        except ModelError as error:
            refused.append(f"{IN_WORDS[rewrite]}: not tried, {error}")
        if ratio is not None:
            sentences[rewrite] = _sentence(rewrite, ratio, is_alone=excerpts is not None)
    builder.write(frozenset(sentences))
    return Probed([*sentences.values(), *refused], float_ratio)


def race(bench: Bench, first: Candidate, second: Candidate, seconds: float) -> Mapping[str, Timings]:
    """Latencies of the second candidate against the first, interleaved, by target name.

    Args:
        bench: Opens and runs them.
        first: One.
        second: The other.
        seconds: For running them, roughly; a few rounds take longer where an inference does.

    Raises:
        ModelError: onnxruntime refuses one of them.
    """
    opened, other = (_opened(bench, each) for each in (first, second))
    return _raced(bench, opened, other, seconds)


def takes_candidates(rewrite: Rewrite, builder: Builder) -> bool:
    """Whether whole models are opened to probe a rewrite, which takes time."""
    return rewrite in _COMPARED or builder.excerpts(rewrite) is None


def probing_seconds(opening_s: float, float_s: float) -> float:
    """What probing one rewrite takes at most.

    Args:
        opening_s: For opening a candidate.
        float_s: For running it, on all targets together.
    """
    return 2 * (opening_s + _N_COMPARED * float_s) + max(_PROBE_SECONDS, 2 * LEAST_RACED * float_s)


def _opened(bench: Bench, candidate: Candidate) -> Opened:
    return bench.opener.open(*candidate.parts)


def _raced(bench: Bench, first: Opened, second: Opened, seconds: float) -> Mapping[str, Timings]:
    n_rounds = int(max(LEAST_RACED, min(_MOST_RACED, seconds / (2 * sum(bench.float_s.values())))))
    return bench.compare(first, second, n_rounds)


def _gain_alone(excerpts: tuple[Excerpt, Excerpt], bench: Bench) -> float | None:
    """The ratio of latencies of the second one to the first, as ``_gain``, on random inputs."""
    opener = Opener(bench.targets)
    first, second = (opener.open(each.model, {}) for each in excerpts)
    rng = np.random.default_rng(bench.seed)
    feed: Feed = {name: rng.standard_normal(shape, np.float32) for name, shape in excerpts[0].shapes.items()}
    return _shown(bench.compare(first, second, _N_RACED_ALONE, feed))


def _gain(plain: "_Plain", assignment: Assignment, rewrite: Rewrite) -> float | None:
    """The ratio of latencies on the target where a rewrite wins least; None where it is not shown to win on all.

    Nor where the model would write others: that is looked at where it wins, as it takes as long.
    """
    other = plain.with_rewrite(assignment, rewrite)
    ratio = _shown(_raced(plain.bench, plain.opened(assignment), other, _PROBE_SECONDS))
    if ratio is not None and rewrite in (*_OF_FLOAT, *_COMPARED) and not plain.is_kept_by(other, assignment):
        return None
    return ratio


@dataclass(slots=True)
class _Plain:
    """Candidates without rewrites, opened and run once for all that they are compared with: slow models take long."""

    builder: Builder
    bench: Bench
    _known: dict[frozenset[tuple[str, str]], Opened] = field(default_factory=dict)
    _worst_db: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)

    def opened(self, assignment: Assignment) -> Opened:
        key = frozenset(assignment.items())
        if key not in self._known:
            self._known[key] = _opened(self.bench, self.builder.build(assignment))
        return self._known[key]

    def with_rewrite(self, assignment: Assignment, rewrite: Rewrite) -> Opened:
        self.builder.write(frozenset({rewrite}))
        candidate = self.builder.build(assignment)
        self.builder.write(frozenset())
        return _opened(self.bench, candidate)

    def is_kept_by(self, other: Opened, assignment: Assignment) -> bool:
        """Whether another one is as near to the float model, or near enough, on a few samples."""
        key = frozenset(assignment.items())
        if key not in self._worst_db:
            self._worst_db[key] = self._db(self.opened(assignment))
        return self._db(other) >= min(self._worst_db[key] - 1, _ENOUGH_DB)

    def _db(self, opened: Opened) -> float:
        return self.bench.untimed_quality(opened, _N_COMPARED).worst_db


def _shown(timings: Mapping[str, Timings]) -> float | None:
    is_shown = all(timing.ratio + 2 * timing.error < 1 for timing in timings.values())
    return max(timing.ratio for timing in timings.values()) if is_shown else None


def _sentence(rewrite: Rewrite, ratio: float, *, is_alone: bool) -> str:
    what, alone, whole, before = _SENTENCES[rewrite]
    return f"{what}: {alone if is_alone else whole} {ratio:.3f} of what {before}"
