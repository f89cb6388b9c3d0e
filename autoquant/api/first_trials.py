"""What is tried before the sampler proposes: the uniform recipes, a warm start, one-region probes."""

from collections.abc import Collection, Iterable, Sequence

from autoquant.domain.measurement import Evaluation, Measurement
from autoquant.domain.region import Assignment, Region, RegionId
from autoquant.domain.scheme import FLOAT, Scheme
from autoquant.domain.space import SearchSpace

__all__ = [
    "Key",
    "key_of",
    "one_of_each_kind",
    "probes",
    "recipes_and_warm_start",
    "with_known_kernels",
    "without_ends",
]

_LEAST_WORK, _NEARLY_ALL = 0.5, 0.8
Key = tuple[str, ...]
"""The schemes of all regions, in the order of the space."""


def key_of(assignment: Assignment, space: SearchSpace) -> Key:
    """What is equal for equal assignments."""
    return tuple(assignment.get(region, FLOAT) for region in space.choices)


def recipes_and_warm_start(
    space: SearchSpace,
    regions: Iterable[Region],
    warm: Iterable[Assignment],
    *,
    is_short: bool,
    is_float_faster: bool = False,
) -> Sequence[Assignment]:
    """The preprocessed model, uniform recipes, a warm start.

    Where time ``is_short`` a recipe comes first, as there may be no other, and those whose kernels one before them has
    come after all that differ more. The preprocessed model takes as long as two or three of them, and its outputs are
    known: it comes between, and second where it is likely to be faster than the user's. Recipes that are nearly float
    are left to the sampler then.
    """
    recipes = [recipe for recipe in map(space.uniform, space.schemes) if recipe]
    if not is_short:
        return [{}, *recipes, *warm]
    worthy, twins = _of_much_work(recipes, regions), with_known_kernels(space)
    different = [recipe for recipe in worthy if recipe not in twins]
    n_before = 1 if is_float_faster else len(different)
    return [*different[:n_before], {}, *different[n_before:], *(twin for twin in twins if twin in worthy), *warm]


def one_of_each_kind(
    space: SearchSpace, regions: Iterable[Region], warm: Iterable[Assignment], *, is_float_faster: bool
) -> Sequence[Assignment]:
    """The first static, dynamic and blockwise recipes alone, and a warm start: the sampler chooses what comes next.

    Those that are nearly float are left to it too, and so is the preprocessed model, unless it is likely to be faster
    than the user's: then it comes second. A dynamic recipe that quantizes nearly as much as the static one comes before
    it, as it is of a transformer or a recurrent network then.

    References:
        onnxruntime's documentation, "Quantize ONNX models": dynamic quantization for RNN and transformer-based models,
        static for CNN.
    """
    found: dict[tuple[bool, bool], Assignment] = {}
    for name, scheme in space.schemes.items():
        recipe = space.uniform(name)
        if recipe and recipe not in found.values():
            found.setdefault((scheme.is_dynamic, scheme.is_blockwise), recipe)
    first = [*_of_much_work(found.values(), regions), *warm]
    static, dynamic = found.get((False, False)), found.get((True, False))
    if static in first and dynamic in first and dynamic in _of_much_work([static, dynamic], regions, _NEARLY_ALL):
        first = [dynamic, *(recipe for recipe in first if recipe != dynamic)]
    return [*first[:1], {}, *first[1:]] if is_float_faster else first


def _of_much_work(
    recipes: Collection[Assignment], regions: Iterable[Region], least_share: float = _LEAST_WORK
) -> list[Assignment]:
    """Those that quantize such a share, half by default, of what the one with most work quantizes."""
    work = {region.id: region.work for region in regions}
    shares = [sum(work[region] for region in recipe) for recipe in recipes]
    least = least_share * max(shares, default=0.0)
    return [recipe for recipe, share in zip(recipes, shares, strict=True) if share >= least]


def with_known_kernels(space: SearchSpace) -> list[Assignment]:
    """Uniform recipes with the kernels of one before them in every region: its latency is known."""
    found: list[Assignment] = []
    seen = {tuple[object, ...](None for _ in space.choices)}
    for name, scheme in space.schemes.items():
        assignment = space.uniform(name)
        kernels = tuple(scheme.kernels if region in assignment else None for region in space.choices)
        if assignment and kernels in seen:
            found.append(assignment)
        seen.add(kernels)
    return found


def probes(space: SearchSpace, evaluations: Sequence[Evaluation], *, n_earlier: int, n_most: int) -> list[Assignment]:
    """One region, or as many neighbours as it takes, under the uniform recipe with the best SNR.

    That is the better one of the best static and the best dynamic one; where it leaves a region float, the other,
    and where both do one of blocks. A search that goes on knows the regions that earlier mixes quantized.

    Args:
        space: Regions and their choices.
        evaluations: So far, the recipes among them.
        n_earlier: Of these, those of the search that is gone on with.
        n_most: Of probes.
    """
    recipes, best = _recipes(space), _best_recipes(space, evaluations)
    known = _mixed(space, recipes, evaluations[:n_earlier])
    quantized = [region for region in space.choices if region in best and region not in known]
    size = max(1, -(-len(quantized) // max(1, n_most)))
    return [
        {region: best[region] for region in quantized[start : start + size]} for start in range(0, len(quantized), size)
    ]


def without_ends(
    space: SearchSpace, evaluations: Iterable[Evaluation], regions: Iterable[Region], ends: Collection[RegionId]
) -> list[Assignment]:
    """The uniform recipe with the best SNR, as for ``probes``, without regions at both ends, unless most work is there.

    Noise of the first ones goes through all others, and that of the last ones is not averaged out by any.
    """
    best = _best_recipes(space, evaluations)
    inner = {region: name for region, name in best.items() if region not in ends}
    return [inner] if inner and inner != best and inner in _of_much_work([best, inner], regions) else []


def _recipes(space: SearchSpace) -> dict[Key, Scheme]:
    return {key_of(space.uniform(name), space): scheme for name, scheme in space.schemes.items()}


def _mixed(space: SearchSpace, recipes: Iterable[Key], evaluations: Iterable[Evaluation]) -> set[RegionId]:
    """Regions that mixes quantized."""
    mixes = (
        evaluation.trial.assignment
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Measurement) and key_of(evaluation.trial.assignment, space) not in recipes
    )
    return {region for mix in mixes for region, name in mix.items() if name != FLOAT}


def _best_recipes(space: SearchSpace, evaluations: Iterable[Evaluation]) -> Assignment:
    """The scheme of each region that the best static or dynamic recipe quantizes; blocks where nothing else does.

    They are always the most accurate, and tell little of the schemes that save more.
    """
    recipes, best = _recipes(space), dict[tuple[bool, bool], tuple[float, Assignment]]()
    for evaluation in evaluations:
        key, outcome = key_of(evaluation.trial.assignment, space), evaluation.outcome
        if key not in recipes or not any(name != FLOAT for name in key) or not isinstance(outcome, Measurement):
            continue  # a recipe that no region may take is the preprocessed model
        recipe, found = recipes[key], (outcome.quality.worst_db, evaluation.trial.assignment)
        kind = not recipe.is_blockwise, recipe.is_dynamic
        best[kind] = max(best.get(kind, found), found, key=lambda pair: pair[0])
    merged: dict[RegionId, str] = {}
    for _, (_, assignment) in sorted(best.items(), key=lambda item: (item[0][0], item[1][0])):
        merged.update({region: name for region, name in assignment.items() if name != FLOAT})
    return merged
