"""Small layouts, and problems on them with known answers."""

import itertools
from collections.abc import Mapping

import numpy as np

from autoquant.domain.region import RegionId
from autoquant.domain.scheme import Operators, RangeKind, RangeMethod, Scheme, TensorFormat
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Layout


def a_scheme(
    name: str,
    operators: Operators = Operators.ALL,
    *,
    ranges: RangeKind = RangeKind.MIN_MAX,
    weight: str = "s8:channel:sym",
) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse("u8:tensor:asym"),
        weight=TensorFormat.parse(weight),
        ranges=RangeMethod(ranges),
        operators=operators,
    )


SCHEMES = {"a": a_scheme("a"), "b": a_scheme("b", Operators.LINEAR)}
CHOICES = ("float", "a", "b")
WITH_DYNAMIC = {**SCHEMES, "d": a_scheme("d", ranges=RangeKind.DYNAMIC)}


def a_layout(
    n_regions: int = 6, seed: int = 0, share_of_edges: float = 0.2, schemes: Mapping[str, Scheme] = SCHEMES
) -> Layout:
    """A chain with some further edges; the last region cannot take the first scheme."""
    rng = np.random.default_rng(seed)
    regions = tuple(RegionId(f"r{i:02d}") for i in range(n_regions))
    pairs = itertools.combinations(range(n_regions), 2)
    edges = [(regions[a], regions[b]) for a, b in pairs if b == a + 1 or rng.random() < share_of_edges]
    choices = dict.fromkeys(regions, ("float", *schemes)) | {regions[-1]: ("float", *list(schemes)[1:])}
    return Layout.of(choices, schemes, edges, dict(zip(regions, rng.dirichlet(np.ones(n_regions)), strict=True)))


def a_landscape(layout: Layout, *, n_outputs: int = 1, n_targets: int = 1, seed: int = 0) -> Landscape:
    """Regions that save latency at different prices in noise, and borders most of which cost something."""
    rng = np.random.default_rng(seed)
    shape = layout.allowed.shape
    noise = 10 ** rng.uniform(-6, -2.5, (n_outputs, *shape))
    noise[:, :, 0] = 0
    own = -layout.work[:, None] * rng.uniform(0.2, 0.8, (n_targets, shape[0], 1 + layout.n_kinds))
    own[:, :, 0] = 0
    border = rng.normal(0.02, 0.02, (n_targets, len(layout.edges)))
    return Landscape(layout, noise, np.ones(n_targets), own[..., layout.kinds], border)


def every_assignment(layout: Layout) -> Codes:
    return np.array(list(itertools.product(*(np.flatnonzero(row) for row in layout.allowed))))
