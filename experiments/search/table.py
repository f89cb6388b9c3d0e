"""Every assignment of a small space with what was measured of it, in one file."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import Region, RegionId
from autoquant.domain.scheme import FLOAT, BiasCorrection, Operators, RangeMethod, Scheme, TensorFormat
from autoquant.domain.space import SearchSpace
from autoquant.errors import UsageError
from autoquant.measurement.effective import REQUANTIZED
from autoquant.study.layout import Layout

__all__ = ["FAILED", "Problem", "Table", "load_table", "save_table"]

FAILED = -1
"""Graph of an assignment that cannot be built or run."""
Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is searched.

    Attributes:
        regions: The partition.
        space: What each may take.
        borders: Pairs of regions that touch.
        outputs: Names of the model's float outputs.
    """

    regions: tuple[Region, ...]
    space: SearchSpace
    borders: tuple[tuple[RegionId, RegionId], ...]
    outputs: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Schemes in the order of their codes; the last one is asked of no region, but some run it."""
        return (FLOAT, *self.space.schemes, REQUANTIZED)

    @property
    def layout(self) -> Layout:
        """For the structure sampler."""
        work = {region.id: region.work for region in self.regions}
        patterns = {region.id: region.pattern for region in self.regions}
        return Layout.of(self.space.choices, self.space.schemes, self.borders, work, patterns)

    @property
    def n_assignments(self) -> int:
        """In the space."""
        return int(np.prod([len(names) for names in self.space.choices.values()], dtype=np.int64))

    def every_assignment(self) -> npt.NDArray[np.uint8]:
        """Codes of all assignments, shape (N, R), in lexical order."""
        axes = [[self.names.index(name) for name in names] for names in self.space.choices.values()]
        grid = np.meshgrid(*axes, indexing="ij")
        return np.stack(grid, axis=-1).reshape(-1, len(axes)).astype(np.uint8)

    def decode(self, codes: Ints) -> dict[RegionId, str]:
        """An assignment from the codes of all regions."""
        return {region: self.names[code] for region, code in zip(self.space.choices, codes, strict=True)}

    def encode(self, assignment: Mapping[RegionId, str]) -> npt.NDArray[np.uint8]:
        """The inverse of ``decode``; regions that are not named are float."""
        return np.array([self.names.index(assignment.get(region, FLOAT)) for region in self.space.choices], np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Assignments and the graphs that they run: equal graphs were measured once.

    Attributes:
        problem: What is searched.
        about: Model, settings, environment, command.
        failures: Why, by row.
        codes: Schemes by region, shape (N, R), as ``Problem.names`` counts them.
        graph: Of each assignment, shape (N,); ``FAILED`` where there is none.
        digests: Of each graph, the first 64 bits; shape (G,).
        snr_db: Of each graph and output, over all samples; shape (G, O).
        ratio: Median of each graph's paired ratios, and the ends of its 95 % interval; shape (G, 3).
        effective: Schemes that really run, by graph; shape (G, R).
        rounds: Timed, of each graph; shape (G,).
    """

    problem: Problem
    about: Mapping[str, Any]
    failures: Mapping[int, str]
    codes: npt.NDArray[np.uint8]
    graph: npt.NDArray[np.int32]
    digests: npt.NDArray[np.uint64]
    snr_db: npt.NDArray[np.float32]
    ratio: npt.NDArray[np.float32]
    effective: npt.NDArray[np.uint8]
    rounds: npt.NDArray[np.int32]

    @property
    def is_complete(self) -> bool:
        """Whether no assignment is missing."""
        return len(self.codes) == self.problem.n_assignments

    def points(self) -> list[tuple[float, float]]:
        """Worst SNR and ratio of every assignment; one that fails is worth nothing."""
        worst = self.snr_db.min(axis=1)
        return [
            (float(worst[graph]), float(self.ratio[graph, 0])) if graph >= 0 else (-math.inf, 1.0)
            for graph in self.graph
        ]


def save_table(path: Path, table: Table) -> None:
    """Write a table; one that is there is replaced at once or not at all."""
    problem = table.problem
    document = {
        "schema_version": 1,
        "about": table.about,
        "failures": {str(row): reason for row, reason in table.failures.items()},
        "regions": [asdict(region) for region in problem.regions],
        "choices": problem.space.choices,
        "schemes": {name: _spelled(scheme) for name, scheme in problem.space.schemes.items()},
        "borders": problem.borders,
        "outputs": problem.outputs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    with half.open("wb") as file:
        np.savez_compressed(
            file,
            document=np.array(json.dumps(document)),
            codes=table.codes,
            graph=table.graph,
            digests=table.digests,
            snr_db=table.snr_db,
            ratio=table.ratio,
            effective=table.effective,
            rounds=table.rounds,
        )
    half.replace(path)


def load_table(path: Path) -> Table:
    """Read a table.

    Raises:
        UsageError: There is none.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        document = json.loads(str(arrays.pop("document")))
        return Table(
            problem=_problem(document),
            about=document["about"],
            failures={int(row): reason for row, reason in document["failures"].items()},
            **arrays,
        )
    except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: it is no table ({error}); make one with python -m experiments.search.enumerate"
        ) from (error)


def _problem(document: Mapping[str, Any]) -> Problem:
    regions: list[dict[str, Any]] = [
        {key: tuple(value) if isinstance(value, list) else value for key, value in region.items()}
        for region in document["regions"]
    ]
    return Problem(
        regions=tuple(Region(**region) for region in regions),
        space=SearchSpace(
            choices={RegionId(region): tuple(names) for region, names in document["choices"].items()},
            schemes={name: _scheme(name, spelled) for name, spelled in document["schemes"].items()},
        ),
        borders=tuple((RegionId(a), RegionId(b)) for a, b in document["borders"]),
        outputs=tuple(document["outputs"]),
    )


def _spelled(scheme: Scheme) -> dict[str, str]:
    return {key: str(getattr(scheme, key)) for key in ("activation", "weight", "ranges", "operators", "bias")}


def _scheme(name: str, spelled: Mapping[str, str]) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse(spelled["activation"]),
        weight=TensorFormat.parse(spelled["weight"]),
        ranges=RangeMethod.parse(spelled["ranges"]),
        operators=Operators(spelled["operators"]),
        bias=BiasCorrection(spelled.get("bias", BiasCorrection.NONE)),
    )
