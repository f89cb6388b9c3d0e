"""Files of the evaluations that are worth a last measurement."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from autoquant.api.deadline import N_FINALISTS
from autoquant.api.folder import RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.domain.accuracy import Form
from autoquant.domain.measurement import Evaluation, Measurement
from autoquant.domain.objective import clamped_db
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import BiasCorrection, Rounding
from autoquant.measurement.costs import FEW, FileCosts
from autoquant.model.io import save_pieces, sha256_of
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.overrides import op_types_with_float_outputs, stored_scales, tensor_quant_overrides
from autoquant.qdq.plan import Plan

__all__ = ["Finalist", "Finalists", "Refine", "Refined"]

_REFINED = "-refined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The same assignment with other integers.

    Attributes:
        candidate: Has the kernels of the plain one.
        algorithms: That were done beside those of the form.
        once_s: Seconds that went into what later finalists need too.
    """

    candidate: Candidate
    algorithms: tuple[str, ...]
    once_s: float = 0.0


class Refine(Protocol):
    """Refines finalists."""

    @property
    def once_s(self) -> float:
        """Seconds so far that another finalist will not take again."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing is refined any more."""
        ...

    def __call__(self, assignment: Assignment) -> Refined | None:
        """A refined candidate; None where there is nothing to refine or no time."""
        ...

    def close(self) -> None:
        """There are no more finalists."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A file.

    Attributes:
        evaluation: Of the search.
        path: Of the file.
        sha256: Digest of it.
        size_bytes: Of it; it has no external data.
        algorithms: For accuracy.
        plain: Id of the finalist that this one is a refinement of; None for those that are none.
    """

    evaluation: Evaluation
    path: Path
    sha256: str
    size_bytes: int
    algorithms: tuple[str, ...]
    plain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalists:
    """Writes finalists as long as they can be measured in the time that is left.

    Attributes:
        ingredients: What candidates are built from.
        builder: Builds them as the search did.
        refine: Refines them, if anything does.
        folder: Of the run.
    """

    ingredients: Ingredients
    builder: Builder
    refine: Refine | None
    folder: RunFolder

    def write(
        self,
        chosen: Sequence[Evaluation],
        end: float,
        *,
        float_s: Mapping[str, float],
        costs: FileCosts,
    ) -> dict[str, Finalist]:
        """Files by id.

        The first one is written whatever the time, a few that a single process can time, more as long as several can.

        Args:
            chosen: The most important first.
            end: ``time.perf_counter()`` at which their measurement should end.
            float_s: Seconds of an inference of the float model, by target name.
            costs: Of each file.
        """
        found: dict[str, Finalist] = {}
        latencies, refined, writing_s = [sum(float_s.values())], list[float](), 0.0
        with nullcontext() if self.refine is None else closing(self.refine):
            for number, evaluation in enumerate(chosen, 1):
                assert isinstance(evaluation.outcome, Measurement)
                latencies.append(evaluation.outcome.expected_s(float_s))
                is_refining = self.refine is not None and not self.refine.is_over
                twice = [*refined, latencies[-1]] if is_refining else refined
                needed = _measuring_seconds(latencies, twice, costs, is_rough=number <= FEW)
                if number > 1 and end - time.perf_counter() < needed + writing_s:
                    break
                start, once_s = time.perf_counter(), self._once_s
                versions = dict(self._versions(evaluation))
                refined += [latencies[-1]] * (len(versions) - 1)
                found.update(versions)
                writing_s = time.perf_counter() - start - (self._once_s - once_s)
        return found

    @property
    def _once_s(self) -> float:
        return 0.0 if self.refine is None else self.refine.once_s

    def _versions(self, evaluation: Evaluation) -> Iterator[tuple[str, Finalist]]:
        """As it was in the search, and refined."""
        name, assignment = f"t{evaluation.trial.number:04d}", evaluation.quantized
        candidate = self.builder.build(assignment)
        algorithms = self._algorithms(assignment, candidate)
        yield name, self._write(name, candidate, evaluation, algorithms)
        refined = None if self.refine is None else self.refine(assignment)
        if refined is not None and refined.candidate.digest != candidate.digest:
            other, algorithms = name + _REFINED, (*self._of_form, *refined.algorithms)
            yield other, self._write(other, refined.candidate, evaluation, algorithms, plain=name)

    @property
    def _of_form(self) -> tuple[str, ...]:
        return (str(Form.EQUALISED),) if self.ingredients.form is Form.EQUALISED else ()

    def _algorithms(self, assignment: Assignment, candidate: Candidate) -> tuple[str, ...]:
        schemes = {scheme.name: scheme for scheme in self.ingredients.definition.schemes}
        found = [*self._of_form]
        corrected = {
            region: name
            for region, name in assignment.items()
            if schemes[name].bias is BiasCorrection.MEAN or schemes[name].rounding is Rounding.ADAQUANT
        }
        found += [f"bias {BiasCorrection.MEAN}"] if self.builder.expected_shifts(corrected) else []
        found += sorted(f"rounding {rounding}" for rounding in candidate.roundings)
        return tuple(found)

    def _write(
        self,
        name: str,
        candidate: Candidate,
        evaluation: Evaluation,
        algorithms: tuple[str, ...],
        plain: str | None = None,
    ) -> Finalist:
        assignment = evaluation.quantized
        path = self.folder.models / f"{name}.onnx"
        plan = self.builder.plan(assignment)
        provenance = {
            **self._provenance(assignment),
            **(self._measured(evaluation) if plain is None else {}),
            "autoquant.accuracy": json.dumps(list(algorithms)),
            **self._lists(plan),
        }
        save_pieces(candidate.pieces(provenance), path)
        scales = stored_scales(candidate, self.ingredients.prepared.graph)
        overrides = {**tensor_quant_overrides(plan, self.builder.planner), **scales}
        self.folder.write_text(f"models/{name}.overrides.json", _one_a_line(overrides))
        return Finalist(
            evaluation=evaluation,
            path=path,
            sha256=sha256_of(path),
            size_bytes=path.stat().st_size,
            algorithms=algorithms,
            plain=plain,
        )

    def _lists(self, plan: Plan) -> Mapping[str, str]:
        """Lists for onnxruntime's own tools, to make the file again."""
        graph = self.ingredients.prepared.graph
        blocks = {index for index in plan.dynamic if plan.schemes[index].is_blockwise}
        quantized, dynamic, blockwise = (
            json.dumps([graph.nodes[i].name for i in sorted(indices)])
            for indices in (plan.integer | plan.absorbed.keys(), plan.dynamic - blocks, blocks)
        )
        floats = op_types_with_float_outputs(plan, graph)
        return {
            "autoquant.nodes_to_quantize": quantized,
            **({"autoquant.nodes_to_quantize_dynamic": dynamic} if plan.dynamic - blocks else {}),
            **({"autoquant.nodes_to_quantize_blockwise": blockwise} if blocks else {}),
            **({} if floats is None else {"autoquant.op_types_with_float_outputs": json.dumps(sorted(floats))}),
        }

    @staticmethod
    def _measured(evaluation: Evaluation) -> Mapping[str, str]:
        outcome = evaluation.outcome
        assert isinstance(outcome, Measurement)
        timed = outcome.latency if outcome.is_complete else {}
        ratios = {target: round(latency.ratio, 4) for target, latency in timed.items()}
        measured = {
            "snr_db": round(clamped_db(outcome.quality.worst_db), 3),
            "n_samples": outcome.quality.n_samples,
            "ratio": ratios,
        }
        return {"autoquant.measured_in_search": json.dumps(measured)}

    def _provenance(self, assignment: Assignment) -> Mapping[str, str]:
        return {
            "autoquant.version": metadata.version("autoquant"),
            "autoquant.assignment": json.dumps(dict(assignment)),
            "autoquant.calibration": self.ingredients.statistics.digest,
            "autoquant.source_sha256": self.ingredients.prepared.source_sha256,
            "autoquant.filling": json.dumps(self.ingredients.plain_filling),
            "autoquant.rewrites": json.dumps(sorted(self.builder.rewrites)),
        }


def _one_a_line(values: Mapping[str, object]) -> str:
    """JSON; with ``indent`` Python's encoder takes three times as long, a fifth of a second where scales are many."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return f"{{\n{lines}\n}}\n"


def _measuring_seconds(
    latencies: Sequence[float], twice: Sequence[float], costs: FileCosts, *, is_rough: bool
) -> float:
    """What the last measurement takes of float and finalists of these latencies, some of which have two versions.

    Both are run on every sample, one is timed. Beyond ``N_FINALISTS`` none is planned to be timed: those that are good
    take the places of some of the others.
    """
    timed_s = sum(costs.seconds(latency_s, is_rough=is_rough) for latency_s in latencies[: 1 + N_FINALISTS])
    return timed_s + sum(costs.judging_seconds(latency_s) for latency_s in (*latencies[1 + N_FINALISTS :], *twice))
