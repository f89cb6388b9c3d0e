"""Regions, schemes and borders as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT, Operators, Scheme

__all__ = ["Codes", "Floats", "Layout"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Regions, schemes and borders as arrays.

    Attributes:
        regions: In topological order.
        schemes: Names of all schemes, float first.
        kinds: For each scheme 0 float, 1 all operators, 2 linear operators only; shape (S,).
        formats: For each scheme the number of its tensor formats, 0 for float and the first scheme's; shape (S,).
        allowed: Which schemes each region may take; shape (R, S).
        edges: Pairs of touching regions; shape (E, 2).
        work: Estimated share of the arithmetic; shape (R,).
        patterns: Number of each region's pattern; regions of one pattern are expected to be alike; shape (R,).
    """

    regions: tuple[RegionId, ...]
    schemes: tuple[str, ...]
    kinds: Codes
    formats: Codes
    allowed: npt.NDArray[np.bool_]
    edges: Codes
    work: Floats
    patterns: Codes

    @classmethod
    def of(
        cls,
        choices: Mapping[RegionId, Sequence[str]],
        schemes: Mapping[str, Scheme],
        edges: Sequence[tuple[RegionId, RegionId]],
        work: Mapping[RegionId, float],
        patterns: Mapping[RegionId, str] | None = None,
    ) -> "Layout":
        """Arrays from names; without patterns every region has its own."""
        regions = tuple(choices)
        names = (FLOAT, *schemes)
        position = {region: i for i, region in enumerate(regions)}
        pairs = [(position[a], position[b]) for a, b in edges if a in position and b in position]
        formats = list(dict.fromkeys((scheme.activation, scheme.weight) for scheme in schemes.values()))
        kinds = [0, *(2 if scheme.operators is Operators.LINEAR else 1 for scheme in schemes.values())]
        return cls(
            regions=regions,
            schemes=names,
            kinds=np.array(kinds),
            formats=np.array([0, *(formats.index((s.activation, s.weight)) for s in schemes.values())]),
            allowed=np.array([[name in choices[region] for name in names] for region in regions]),
            edges=np.array(pairs, dtype=np.int64).reshape(-1, 2),
            work=np.array([work[region] for region in regions]),
            patterns=np.unique([(patterns or {}).get(r, f"{r}") for r in regions], return_inverse=True)[1],
        )

    @property
    def choices(self) -> dict[RegionId, tuple[str, ...]]:
        """Names of the schemes that each region may take."""
        return {
            region: tuple(name for name, ok in zip(self.schemes, allowed, strict=True) if ok)
            for region, allowed in zip(self.regions, self.allowed, strict=True)
        }

    def encode(self, params: Mapping[str, str]) -> Codes:
        """Scheme numbers by region; shape (R,)."""
        return np.array([self.schemes.index(params[region]) for region in self.regions])

    def decode(self, codes: Codes) -> dict[str, str]:
        """The inverse of ``encode``."""
        return {region: self.schemes[code] for region, code in zip(self.regions, codes, strict=True)}
