"""What a run shares with the one that it goes on with, or whose trials it learns from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from autoquant.api.folder import read_json
from autoquant.domain.accuracy import Form
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import TensorName
from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.errors import OutputError
from autoquant.metrics.grammar import parse_metrics
from autoquant.rewrites.filled import Filling
from autoquant.rounding.rounded import Asked
from autoquant.runtime.environment import describe_environment, differences

__all__ = ["Earlier", "read_earlier"]

_ADVICE = "begin another run in another folder"

_FIXED = {
    "model_sha256": "model",
    "weights_sha256": "set of external weights",
    "targets": "target",
    "objectives": "set of objectives",
    "accuracy": "level of accuracy",
    "space_digest": "space",
    "n_regions": "number of regions",
    "dims": "set of sizes of dimensions",
    "calibration_digest": "calibration data",
    "evaluation_digest": "evaluation data",
    "held_out_digest": "held-out data",
}
"""What both runs have in their configuration, and what it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What the first run found out, and later ones go on with, so that equal assignments stay equal models.

    Attributes:
        n_calibration_samples: That there was time for.
        n_evaluation_samples: The same, among those that guide the search.
        rewrites: Those that are used.
        filling: How far channels are filled up; None where they are not.
        form: Of the float model.
        has_mean_biases: Whether biases are corrected where the space says nothing of them.
        unrounded: Weights, and on which grids, that there was no time to round as the space asks for.
        samplers: That its trials come from, in order.
        prior: What it expected of latencies; None where nothing was profiled.
    """

    n_calibration_samples: int
    n_evaluation_samples: int
    rewrites: Rewrites
    filling: Filling | None
    form: Form
    has_mean_biases: bool
    unrounded: frozenset[Asked]
    samplers: tuple[str, ...]
    prior: LatencyPrior | None


def read_earlier(folder: Path, now: Mapping[str, object]) -> Earlier:
    """Read ``run.json``, which is there before the first trial.

    Args:
        folder: Of the run.
        now: The configuration of the one that goes on with it.

    Raises:
        OutputError: It is missing or damaged, or tells of another search or environment.
    """
    document = read_json(folder / "run.json", _ADVICE)
    earlier, environment = document.get("configuration"), document.get("environment")
    n_calibration, n_evaluation = document.get("n_calibration_samples"), document.get("n_evaluation_samples")
    form, unrounded = document.get("form"), _unrounded(document.get("unrounded"))
    if not (
        isinstance(earlier, dict)
        and isinstance(environment, dict)
        and isinstance(n_calibration, int)
        and isinstance(n_evaluation, int)
        and form in tuple(Form)
        and unrounded is not None
    ):
        raise OutputError(f"{folder / 'run.json'}: it is missing or damaged; {_ADVICE}")
    _refuse_another_search(folder, earlier, now)
    _refuse_another_environment(folder, environment)
    return Earlier(
        n_calibration_samples=n_calibration,
        n_evaluation_samples=n_evaluation,
        rewrites=_rewrites(document.get("rewrites")),
        filling=_filling(document.get("filling")),
        form=Form(str(form)),
        has_mean_biases=document.get("mean_biases") is True,
        unrounded=unrounded,
        samplers=_samplers(document.get("samplers"), earlier.get("sampler", now["sampler"])),
        prior=_prior(folder, document),
    )


def _samplers(found: object, last: object) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list) and found else (str(last),)


def _refuse_another_search(folder: Path, earlier: Mapping[str, object], now: Mapping[str, object]) -> None:
    for key, name in _FIXED.items():
        if key in earlier and earlier[key] != now[key]:
            is_other_space = key == "space_digest" and earlier.get("space", now["space"]) != now["space"]
            told = "space" if is_other_space else key
            raise OutputError(
                f"{folder}: its run has another {name} ({earlier[told]}, now {now[told]});"
                " use the same to go on, or begin another run in another folder"
            )
    _refuse_other_metrics(folder, earlier, now)


def _refuse_another_environment(folder: Path, environment: Mapping[str, object]) -> None:
    present = describe_environment()
    if changes := [*differences(environment, present), *_other_version(environment, present)]:
        raise OutputError(
            f"{folder}: its run was measured in another environment ({'; '.join(changes)});"
            " go on where it began, or begin another run in another folder"
        )


def _refuse_other_metrics(folder: Path, earlier: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Drops of trials are known by the names of metrics."""
    before, after = _metrics(earlier), _metrics(now)
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            raise OutputError(
                f"{folder}: '{name}' is another metric in its run ({before[name]}, now {after[name]}); give one of them"
                " another name, or begin another run in another folder"
            )


def _metrics(configuration: Mapping[str, object]) -> dict[str, str]:
    """As they are spelled, by name."""
    found = configuration.get("metrics")
    metrics = parse_metrics([str(text) for text in found]) if isinstance(found, list) else ()
    return {metric.name: str(metric) for metric in metrics}


def _other_version(earlier: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Other versions may build another candidate of the same assignment."""
    before, after = (_version(found.get("versions")) for found in (earlier, now))
    return [] if before in (None, after) else [f"autoquant {before}, now {after}"]


def _version(versions: object) -> object:
    return versions.get("autoquant") if isinstance(versions, Mapping) else None


def _prior(folder: Path, document: Mapping[str, object]) -> LatencyPrior | None:
    plain = document.get("latency_prior")
    if plain is None:
        return None
    try:
        return LatencyPrior.parse(plain if isinstance(plain, dict) else {})
    except ValueError as error:
        raise OutputError(f"{folder / 'run.json'}: {error}; give the folder of a run") from error


def _rewrites(found: object) -> Rewrites:
    names = found if isinstance(found, list) else []
    return frozenset(rewrite for rewrite in Rewrite if rewrite in names)


def _filling(found: object) -> Filling | None:
    return Filling(**found) if isinstance(found, dict) and found.keys() == asdict(Filling(1)).keys() else None


def _unrounded(found: object) -> frozenset[Asked] | None:
    """Pairs of a weight and the digest of a grid; None where they are something else."""
    pairs = found if isinstance(found, list) else []
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return None
    return frozenset((TensorName(str(weight)), str(digest)) for weight, digest in pairs)
