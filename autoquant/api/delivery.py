"""From the evaluations to the measured front and its files."""

import logging
import math
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from autoquant.api.deadline import Deadline, most_finalists, writing_seconds
from autoquant.api.evaluator import BenchFacts
from autoquant.api.finalists import Finalist, Finalists
from autoquant.api.folder import RunFolder, writing
from autoquant.api.refinement import ENDED
from autoquant.api.steps import running
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.counted import counted
from autoquant.domain.division import Division
from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.measurement import Believed, Evaluation, Latency, Measurement
from autoquant.domain.objective import Bounds, Objectives, Standing, standing_of
from autoquant.domain.scheme import FLOAT
from autoquant.front.alike import with_known_latencies
from autoquant.front.selection import choose_finalists, choose_members, is_comparable, keeps_drops, spares
from autoquant.measurement.costs import FEW, LEAST_SESSIONS, WANTED_SESSIONS, FileCosts
from autoquant.measurement.effective import REQUANTIZED
from autoquant.measurement.files import FileBenchSetup
from autoquant.measurement.joint import JointMeasurement
from autoquant.measurement.judging import Wishes
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged, Measured
from autoquant.model.io import save_model, sha256_of
from autoquant.model.prepared import PreparedModel
from autoquant.model.source import SourceFiles
from autoquant.report.tables import rounds_table

__all__ = ["PREPARED", "Delivery"]

PREPARED = "prepared.onnx"
"""The preprocessed float model: what ``*.overrides.json`` is for, with the nodes that a member's metadata name."""

_LOG = logging.getLogger("autoquant")
_MOST_SESSIONS_WITHIN = 12
"""Processes of the last measurement, as long as ratios are not known precisely, within a time budget, of which trials
may have left some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Writes finalists, measures the files, and keeps those that belong on the front; adds to ``notes``.

    ``source`` must be as it was before and after the measurement; ``believed`` says of trials, by number, what counts
    where finalists are chosen; ``tell`` is told the name of each stage.
    """

    source: SourceFiles
    prepared: PreparedModel
    finalists: Finalists
    facts: BenchFacts
    division: Division
    files: FileBenchSetup
    costs: FileCosts
    memory_bytes: int | None
    file_s: float | None
    folder: RunFolder
    objectives: Objectives
    bounds: Bounds
    believed: Mapping[int, Believed]
    is_ended: Callable[[], bool]
    tell: Callable[[str], None]
    notes: list[str]

    def deliver(self, evaluations: Sequence[Evaluation], deadline: Deadline) -> Front:
        """The front; every number in it comes from the files themselves, measured together."""
        is_refined = self.finalists.refine is not None
        self.tell("refine" if is_refined else "finish")
        float_path = self._write_float()
        save_model(self.prepared.graph.model, self.folder.path / PREPARED)
        end = time.perf_counter() + deadline.left - writing_seconds(len(evaluations))
        finalists = self._write_finalists(evaluations, end)
        files = {name: finalist.path for name, finalist in finalists.items()}
        _LOG.info("%d finalists", len(files))
        if is_refined:
            self.tell("finish")
        measured, is_late = self._measure(finalists, end)
        baseline = measured.pop(REFERENCE)
        within = {
            name: found for name, found in measured.items() if keeps_drops(found.judged.metrics, self.bounds.max_drops)
        }
        if self.bounds.max_drops:
            _LOG.info("%d of %d measured files drop no more than is allowed", len(within), len(measured))
        standings = dict(_standings(within, finalists))
        kept = choose_members(
            standings,
            lambda name, other: other in within[name].faster_than,
            float_bytes=self.source.size_bytes,
            objectives=self.objectives,
            bounds=self.bounds,
        )
        if not kept:
            judged = {name: s for name, s in standings.items() if is_comparable(s, self.objectives, self.bounds)}
            self.notes.extend(_likely_sentences(judged, self.bounds, is_late=is_late))
        for name in set(files) - set(kept):
            files[name].unlink()
            files[name].with_suffix(".overrides.json").unlink()
        members = [self._member(name, finalists[name], measured[name]) for name in kept]
        return Front(
            model_path=str(self.prepared.source),
            model_sha256=self.prepared.source_sha256,
            targets=tuple(self.files.targets),
            members=(*members, self._float_member(float_path, baseline)),
            objectives=self.objectives.goals,
        )

    def _write_finalists(self, evaluations: Sequence[Evaluation], end: float) -> dict[str, Finalist]:
        outcomes = [evaluation.outcome for evaluation in evaluations if evaluation.is_quantized]
        complete = [outcome for outcome in outcomes if isinstance(outcome, Measurement) and outcome.is_complete]
        errors_db = [outcome.quality.error_db for outcome in complete]
        chosen = choose_finalists(
            self._candidates(evaluations),
            most_finalists(errors_db, is_refined=self.finalists.refine is not None),
            float_bytes=self.source.size_bytes,
            objectives=self.objectives,
            bounds=self.bounds,
            believed=self.believed,
        )
        written = self.finalists.write(chosen, end, float_s=self.facts.float_s, costs=self.costs)
        n_written = sum(finalist.plain is None for finalist in written.values())
        has_failed = any(note.startswith(ENDED) for note in self.notes)
        is_full = self.finalists.ingredients.definition.accuracy is Accuracy.FULL
        if is_full and written and n_written == len(written) and not has_failed:
            has_static = self.finalists.refine is not None
            why = "there was no time, or nothing in them that it changes" if has_static else "all ranges are dynamic"
            self.notes.append(f"refinement: no finalist has a refined version: {why}")
        if n_written < min(FEW, len(chosen)):
            is_scoring = self.costs.is_scoring_most(sum(self.facts.float_s.values()))
            other = "a faster metric, best one of a score a sample" if is_scoring else "fewer evaluation samples"
            self.notes.append(
                f"there was time to measure {n_written} of the {len(chosen)} candidates that could be on the front;"
                f" give the search more time, or use {other}"
            )
        return written

    def _candidates(self, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Untimed ones too whose kernels were timed, unless drops count: in a few samples these look small."""
        if self.objectives.metrics or self.bounds.max_drops:
            return evaluations
        schemes = {scheme.name: scheme for scheme in self.finalists.ingredients.definition.schemes}
        return with_known_latencies(evaluations, schemes, self.believed)

    def _superseded(
        self, finalists: Mapping[str, Finalist], said: list[str], judged: Mapping[str, Judged]
    ) -> list[str]:
        """Of each finalist and its refinement one: the other keeps the demands, or has the higher SNR where both do.

        SNRs are those of the held-out samples, or of all where none are held out; neither version was fitted to them.
        Where held-out ones were not run, the plain version stays.
        Both have the same kernels, so that nothing of their latencies could decide. What is to be said of the gains is
        all that ``said`` holds then.
        """
        found, gains = [], []
        said.clear()
        for name, finalist in finalists.items():
            if finalist.plain is None or not {name, finalist.plain} <= judged.keys():
                continue
            if self.division.n_held_out and judged[name].snr_held_out is None:  # the user wanted no more of it
                found.append(name)
                continue
            refined, plain = (
                (self._keeps(finalists[n], judged[n]), _held_out_db(judged[n])) for n in (name, finalist.plain)
            )
            found.append(finalist.plain if refined > plain else name)
            gains.append(0.0 if refined[1] == plain[1] else refined[1] - plain[1])
        if gains:
            n_better, median = sum(gain > 0 for gain in gains), statistics.median(gains)
            where = "held-out" if self.division.n_held_out else "evaluation"
            said.append(
                f"refinement: better on the {where} samples in {n_better} of {len(gains)} finalists, by"
                f" {median:.1f} dB in the median of all"
            )
        return found

    def _spares(
        self,
        finalists: Mapping[str, Finalist],
        judged: Mapping[str, Judged],
        ratios: Mapping[str, Mapping[str, Sequence[float]]],
    ) -> list[str]:
        """By what all samples say of outputs, and of latencies by the mean of what is believed and every process says.

        One process may have been disturbed: what trials said counts like another one.
        """
        expected: dict[str, Standing] = {}
        for name, finalist in finalists.items():
            trial, outcome = finalist.evaluation.trial, finalist.evaluation.outcome
            assert isinstance(outcome, Measurement)
            believed = standing_of(outcome, self.believed.get(trial.number)).latency
            known = ratios.get(name, {})
            latency = {
                target: each.moved_to(statistics.mean([each.ratio, *known.get(target, ())]))
                for target, each in believed.items()
            }
            found = _standing(judged[name], latency, finalist) if name in judged else None
            expected |= {} if found is None else {name: found}
        return spares(expected, self.objectives, self.bounds)

    def _keeps(self, finalist: Finalist, judged: Judged) -> bool:
        standing = _standing(judged, {}, finalist)
        return (
            standing is not None and self.bounds.keeps(standing) and keeps_drops(judged.metrics, self.bounds.max_drops)
        )

    def _measure(self, finalists: Mapping[str, Finalist], deadline: float) -> tuple[dict[str, Measured], bool]:
        """What is measured by id, and whether more time would have been of use."""
        files = {name: finalist.path for name, finalist in finalists.items()}
        said: list[str] = []
        final = JointMeasurement(
            self.files,
            files,
            deadline,
            self.is_ended,
            n_sessions=1 if not files else WANTED_SESSIONS if math.isinf(deadline) else _MOST_SESSIONS_WITHIN,
            least_sessions=LEAST_SESSIONS if files else 1,
            has_quality=bool(files) or self.files.make_scorer is not None,
            wishes=Wishes(
                superseded=partial(self._superseded, finalists, said), spares=partial(self._spares, finalists)
            ),
            memory_bytes=self.memory_bytes,
            file_s=self.file_s,
            division=self.division,
        )
        with running(self.files.baseline):
            measured = final.run()
        self.source.refuse_changed()
        sentences = [*final.notes, *([] if self.is_ended() or not files else _process_sentences(measured[REFERENCE]))]
        self.notes.extend([*said, *(f"last measurement: {sentence}" for sentence in sentences)])
        self.notes.extend(_lost_sentences(final.lost, len(files)))
        for name, reason in final.lost.items():
            _LOG.warning("%s is not delivered: %s", files[name].name, reason)
        self.folder.write_text(
            "latency.csv",
            rounds_table(
                (number, target, found.seconds, found.is_repeated) for number, target, found in final.rounds
            ).to_csv(index=False),
        )
        return measured, final.is_late

    def _write_float(self) -> Path:
        self.source.refuse_changed()
        target = self.folder.models / f"{FLOAT_ID}.onnx"
        first = self.prepared.source
        for file in self.source.digests:
            with writing(self.folder.models):
                place = target if file == first else self.folder.models / file.relative_to(first.parent)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
        return target

    def _place(self, path: PurePath) -> str:
        """In the run, spelled alike on every system."""
        return path.relative_to(self.folder.path).as_posix()

    def _member(self, name: str, finalist: Finalist, measured: Measured) -> Member:
        outcome, path = finalist.evaluation.outcome, finalist.path
        assert isinstance(outcome, Measurement)
        asked = finalist.evaluation.trial.assignment
        effective = {region: scheme for region, scheme in outcome.effective.items() if scheme != FLOAT}
        lost = sum(1 for region, scheme in asked.items() if scheme != FLOAT and region not in effective)
        note = "" if effective else "float, preprocessed: shapes frozen, constants folded"
        if effective and lost:
            note = f"asked for integers but without an integer kernel of their own: {counted(lost, 'region')}"
        if REQUANTIZED in effective.values():
            note = "onnxruntime quantized float operators unasked; the assignment names the regions"
        return Member(
            id=name,
            path=self._place(path),
            sha256=finalist.sha256,
            size_bytes=finalist.size_bytes,
            quality=measured.judged.quality,
            latency=measured.latency,
            footprint=measured.footprint,
            assignment=effective,
            note=note,
            algorithms=finalist.algorithms,
            snr_search=measured.judged.snr_search,
            snr_held_out=measured.judged.snr_held_out,
            metrics=measured.judged.metrics,
        )

    def _float_member(self, path: Path, measured: Measured) -> Member:
        return Member(
            id=FLOAT_ID,
            path=self._place(path),
            sha256=sha256_of(path),
            size_bytes=self.source.size_bytes,
            quality=None,
            latency=measured.latency,
            footprint=measured.footprint,
            assignment={},
            note="the given model",
            metrics=measured.judged.metrics,
        )


def _lost_sentences(lost: Mapping[str, str], n_files: int) -> Iterator[str]:
    """Of files that cannot be delivered, by reason."""
    for reason, n in Counter(lost.values()).items():
        yield f"last measurement: {n} of {counted(n_files, 'file')} cannot be delivered: {reason}"


def _process_sentences(baseline: Measured) -> Iterator[str]:
    """Of intervals that say less than others do."""
    if any(latency.n_sessions == 1 for latency in baseline.latency.values()):
        yield (
            "there was time for one process alone, so that intervals do not say how far off another one may be; give"
            " more time"
        )


def _standings(measured: Mapping[str, Measured], finalists: Mapping[str, Finalist]) -> Iterator[tuple[str, Standing]]:
    for name, found in measured.items():
        standing = _standing(found.judged, found.latency, finalists[name])
        if standing is not None:
            yield name, standing


def _likely_sentences(standings: Mapping[str, Standing], bounds: Bounds, *, is_late: bool) -> Iterator[str]:
    """How many models within the demands are faster than float in the median, where none is shown to be."""
    kept = [standing.latency.values() for standing in standings.values() if bounds.keeps(standing)]
    fastest = [min(latencies, key=lambda latency: latency.ratio) for latencies in kept]
    likely = sorted((latency for latency in fastest if round(latency.ratio, 2) < 1), key=lambda latency: latency.ratio)
    if likely:
        low, high = (f"{bound:.2f}" for bound in (likely[0].ratio_low, likely[0].ratio_high))
        advice = "give more time, or search again where" if is_late else "search again where"
        yield (
            f"of the measured models {len(likely)} had a lower median than float, the lowest {likely[0].ratio:.2f} of"
            f" it, but none is shown to be faster (a further process lies between {low} and {high} there): {advice}"
            " nothing else runs"
        )


def _standing(judged: Judged, latency: Mapping[str, Latency], finalist: Finalist) -> Standing | None:
    """None for a file whose outputs were not compared."""
    if judged.quality is None:
        return None
    drops = {metric: value.drop.all.value for metric, value in judged.metrics.items()}
    return Standing(quality=judged.quality, latency=latency, size_bytes=finalist.size_bytes, drops=drops)


def _held_out_db(judged: Judged) -> float:
    """On held-out samples, or on all where there are none."""
    if judged.snr_held_out is not None:
        return judged.snr_held_out.worst_db
    return -math.inf if judged.quality is None else judged.quality.worst_db
