"""Regions, schemes and borders as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT, Operators, Scheme

__all__ = ["ALL", "DYNAMIC", "LINEAR", "Codes", "Floats", "Layout", "distinct", "pick"]

ALL, LINEAR, DYNAMIC = 1, 2, 3
"""Kinds of schemes: all operators, linear operators only, linear ones with the range of each input."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Regions, schemes and borders as arrays.

    Attributes:
        regions: In topological order.
        schemes: Names of all schemes, float first.
        kinds: For each scheme 0 float, ``ALL``, ``LINEAR`` or ``DYNAMIC``; shape (S,).
        formats: For each scheme the number of its tensor formats, 0 for float and for those of the first static and of
            the first dynamic scheme; shape (S,).
        same: For each region and scheme the number of the scheme that quantizes the region so, most often its own; -1
            where the region may not take it; shape (R, S).
        allowed: Which schemes each region may take, of equal ones the first; shape (R, S).
        edges: Pairs of touching regions; shape (E, 2).
        work: Estimated share of the arithmetic; shape (R,).
        patterns: Number of each region's pattern; regions of one pattern are expected to be alike; shape (R,).
        own_errors: Relative squared errors of what each region quantizes under each scheme, without what the model
            makes of them; shape (R, S), 0 for float. None where they are not known.
    """

    regions: tuple[RegionId, ...]
    schemes: tuple[str, ...]
    kinds: Codes
    formats: Codes
    same: Codes
    allowed: npt.NDArray[np.bool_]
    edges: Codes
    work: Floats
    patterns: Codes
    own_errors: Floats | None = None

    @classmethod
    def of(
        cls,
        choices: Mapping[RegionId, Sequence[str]],
        schemes: Mapping[str, Scheme],
        edges: Sequence[tuple[RegionId, RegionId]],
        work: Mapping[RegionId, float],
        patterns: Mapping[RegionId, str] | None = None,
        own_errors: Mapping[RegionId, Mapping[str, float]] | None = None,
        twins: Mapping[RegionId, Mapping[str, str]] | None = None,
    ) -> "Layout":
        """Arrays from names.

        Args:
            choices: Schemes that each region may take, float first.
            schemes: By name.
            edges: Pairs of touching regions.
            work: Estimated share of the arithmetic.
            patterns: Without them every region has its own.
            own_errors: Relative squared errors.
            twins: By region, schemes that write the same of it as another one of its choices, maybe float, with that
                one's name.
        """
        regions = tuple(choices)
        names = (FLOAT, *schemes)
        same = np.array([_same(choices[region], (twins or {}).get(region, {}), names) for region in regions])
        position = {region: i for i, region in enumerate(regions)}
        pairs = [(position[a], position[b]) for a, b in edges if a in position and b in position]
        return cls(
            regions=regions,
            schemes=names,
            kinds=np.array([0, *map(_kind, schemes.values())]),
            formats=np.array([0, *_formats(tuple(schemes.values()))]),
            same=same,
            allowed=same == np.arange(len(names)),
            edges=np.array(pairs, dtype=np.int64).reshape(-1, 2),
            work=np.array([work[region] for region in regions]),
            patterns=np.unique([(patterns or {}).get(r, f"{r}") for r in regions], return_inverse=True)[1],
            own_errors=None
            if own_errors is None
            else np.array([[own_errors[region].get(name, 0.0) for name in names] for region in regions]),
        )

    @property
    def n_kinds(self) -> int:
        """Of schemes, float left out: three where one is dynamic, otherwise two."""
        return max(LINEAR, int(self.kinds.max()))

    def carries_integers(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Whether regions take integers from touching regions and give them; shape (n, R) for (n, R).

        Dynamic ones read and write floats, as float ones do.
        """
        kinds = self.kinds[codes]
        return np.asarray((kinds == ALL) | (kinds == LINEAR))

    def unlike(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Which borders have integers on one side alone; shape (n, E) for (n, R)."""
        integer = self.carries_integers(codes)
        return np.asarray(integer[:, self.edges[:, 0]] != integer[:, self.edges[:, 1]])

    @property
    def choices(self) -> dict[RegionId, tuple[str, ...]]:
        """Names of the schemes that each region may take."""
        return {
            region: tuple(name for name, code in zip(self.schemes, same, strict=True) if code >= 0)
            for region, same in zip(self.regions, self.same, strict=True)
        }

    def encode(self, params: Mapping[str, str]) -> Codes:
        """Scheme numbers by region, of equal schemes the first; shape (R,)."""
        codes = np.array([self.schemes.index(params[region]) for region in self.regions])
        same = self.same[np.arange(len(codes)), codes]
        return np.where(same >= 0, same, codes)

    def uniform(self, kind: int) -> Codes:
        """Every region under the first scheme of a kind that quantizes it, float where there is none; shape (R,)."""
        fits = (self.same > 0) & (self.kinds == kind)
        first = fits.argmax(axis=1)
        return np.where(fits.any(axis=1), self.same[np.arange(len(first)), first], 0)

    def decode(self, codes: Codes) -> dict[str, str]:
        """The inverse of ``encode``, but for the names of equal schemes."""
        return {region: self.schemes[code] for region, code in zip(self.regions, codes, strict=True)}


def pick(table: Floats, codes: Codes) -> Floats:
    """What a table of shape (R, S) has of each region under its scheme; shape (n, R) for (n, R)."""
    return np.asarray(table.take(codes + table.shape[1] * np.arange(len(table))))


def distinct(codes: Codes) -> Codes:
    """Different assignments, shape (m, R) for (n, R), in the order of ``numpy.unique``, which takes thrice the time."""
    rows = sorted({row.tobytes() for row in codes.astype(">i8")})
    return np.frombuffer(b"".join(rows), dtype=">i8").reshape(-1, codes.shape[1]).astype(np.int64)


def _same(choices: Sequence[str], twins: Mapping[str, str], names: Sequence[str]) -> list[int]:
    return [names.index(twins.get(name, name)) if name in choices else -1 for name in names]


def _kind(scheme: Scheme) -> int:
    if scheme.is_dynamic:
        return DYNAMIC
    return LINEAR if scheme.operators is Operators.LINEAR else ALL


def _formats(schemes: Sequence[Scheme]) -> list[int]:
    """Numbers of tensor formats, those of the first static and of the first dynamic scheme being 0."""
    found = list(dict.fromkeys((scheme.is_dynamic, scheme.activation, scheme.weight) for scheme in schemes))
    first = {is_dynamic: next((pair for pair in found if pair[0] is is_dynamic), None) for is_dynamic in (False, True)}
    others = [pair for pair in found if pair not in first.values()]
    keys = [(scheme.is_dynamic, scheme.activation, scheme.weight) for scheme in schemes]
    return [0 if key in first.values() else 1 + others.index(key) for key in keys]
