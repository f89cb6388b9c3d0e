"""From the evaluations to the measured front and its files."""

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from autoquant.api.configuration import Demands
from autoquant.api.deadline import N_SESSIONS, Deadline
from autoquant.api.folder import RunFolder, writing
from autoquant.build.builder import Builder
from autoquant.build.overrides import tensor_quant_overrides
from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.measurement import Evaluation, Latency, Measurement, Quality
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import FLOAT
from autoquant.front.selection import choose_finalists, choose_members
from autoquant.measure.bench import Bench
from autoquant.model.fragments import inline_external
from autoquant.model.io import files_of, save_model, sha256_of, size_bytes_of
from autoquant.model.prepared import PreparedModel

__all__ = ["Delivery"]

_LOG = logging.getLogger("autoquant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Writes finalists, measures the files, and keeps those that belong on the front."""

    prepared: PreparedModel
    builder: Builder
    bench: Bench
    folder: RunFolder
    calibration_digest: str
    demands: Demands

    def deliver(self, evaluations: Sequence[Evaluation], deadline: Deadline) -> Front:
        """The front; every number in it comes from the files themselves, measured together."""
        float_s = sum(self.bench.float_s.values())
        limit = deadline.n_finalists(float_s, len(self.bench.feeds), 0.05 + float_s)
        finalists = {
            f"t{e.trial.number:04d}": e
            for e in choose_finalists(evaluations, limit, min_snr_db=self.demands.min_snr_db)
        }
        _LOG.info("%d finalists", len(finalists))
        files = {name: self._write(name, evaluation) for name, evaluation in finalists.items()}
        float_path = self._write_float()
        stop = time.perf_counter() + max(0.0, deadline.left - 2.0)
        measured = self.bench.measure_files({**files, FLOAT_ID: float_path}, n_sessions=N_SESSIONS, deadline=stop)
        _, float_latency = measured.pop(FLOAT_ID)
        kept = choose_members(
            measured, min_snr_db=self.demands.min_snr_db, max_latency_ratio=self.demands.max_latency_ratio
        )
        for name in set(files) - set(kept):
            for file in list(files_of(files[name])):
                file.unlink()
            files[name].with_suffix(".overrides.json").unlink()
        members = [self._member(name, files[name], finalists[name], *measured[name]) for name in kept]
        return Front(
            model_path=str(self.prepared.source),
            model_sha256=self.prepared.source_sha256,
            targets=tuple(self.bench.targets),
            members=(*members, self._float_member(float_path, float_latency)),
        )

    def _write(self, name: str, evaluation: Evaluation) -> Path:
        assignment = _quantized(evaluation)
        candidate = self.builder.build(assignment)
        path = self.folder.models / f"{name}.onnx"
        plan = self.builder.plan(assignment)
        overrides = tensor_quant_overrides(plan, self.builder.planner)
        model = inline_external(candidate.skeleton, candidate.constants, self._provenance(evaluation, assignment))
        save_model(model, path)
        self.folder.write_text(f"models/{name}.overrides.json", json.dumps(overrides, indent=1) + "\n")
        return path

    def _provenance(self, evaluation: Evaluation, assignment: Assignment) -> Mapping[str, str]:
        outcome = evaluation.outcome
        assert isinstance(outcome, Measurement)
        ratios = {target: round(latency.ratio, 4) for target, latency in outcome.latency.items()}
        measured = {
            "snr_db": round(outcome.quality.worst_db, 3),
            "n_samples": outcome.quality.n_samples,
            "ratio": ratios,
        }
        return {
            "autoquant.version": metadata.version("autoquant"),
            "autoquant.assignment": json.dumps(dict(assignment)),
            "autoquant.calibration": self.calibration_digest,
            "autoquant.measured_in_search": json.dumps(measured),
            "autoquant.source_sha256": self.prepared.source_sha256,
        }

    def _write_float(self) -> Path:
        target = self.folder.models / f"{FLOAT_ID}.onnx"
        first = self.prepared.source
        for file in files_of(first):
            with writing(self.folder.models):
                place = target if file == first else self.folder.models / file.relative_to(first.parent)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
        return target

    def _member(
        self, name: str, path: Path, evaluation: Evaluation, quality: Quality, latency: Mapping[str, Latency]
    ) -> Member:
        outcome = evaluation.outcome
        assert isinstance(outcome, Measurement)
        asked = evaluation.trial.assignment
        effective = {region: scheme for region, scheme in outcome.effective.items() if scheme != FLOAT}
        lost = sum(1 for region, scheme in asked.items() if scheme != FLOAT and region not in effective)
        note = "" if effective else "float, preprocessed: shapes frozen, constants folded"
        if effective and lost:
            note = f"{lost} regions that were asked to be quantized hold no operator that runs on integers"
        return Member(
            id=name,
            path=str(path.relative_to(self.folder.path)),
            sha256=sha256_of(path),
            size_bytes=size_bytes_of(path),
            quality=quality,
            latency=dict(latency),
            assignment=effective,
            note=note,
        )

    def _float_member(self, path: Path, latency: Mapping[str, Latency]) -> Member:
        return Member(
            id=FLOAT_ID,
            path=str(path.relative_to(self.folder.path)),
            sha256=sha256_of(path),
            size_bytes=size_bytes_of(path),
            quality=None,
            latency={name: _as_reference(found) for name, found in latency.items()},
            assignment={},
            note="the given model",
        )


def _as_reference(latency: Latency) -> Latency:
    return Latency(
        median_ms=latency.median_ms,
        low_ms=latency.low_ms,
        high_ms=latency.high_ms,
        ratio=1.0,
        ratio_low=1.0,
        ratio_high=1.0,
        n_rounds=latency.n_rounds,
    )


def _quantized(evaluation: Evaluation) -> Assignment:
    return {region: name for region, name in evaluation.trial.assignment.items() if name != FLOAT}
