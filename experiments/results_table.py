"""``results.md``: one row a model, computed from ``results.json``."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.remeasure import DEMANDS_DB, mean_saving

__all__ = ["best_ratio", "render_results", "verdict"]

SHOWN_DB = (20, 30, 40, 50)
RATIO_TOLERANCE = 0.02
SNR_TOLERANCE_DB = 0.5

Record = Mapping[str, Any]
"""A measured model in ``results.json``: ``snr_db``, ``ratio``, ``ratio_high``; members also have ``is_float``."""

HEADER = (
    "| model | float ms | regions | evaluations | search s | mean saving: recipes | mean saving: front "
    + "".join(f"| {demand} dB " for demand in SHOWN_DB)
    + "| verdict |"
)
LEGEND = f"""\
At each SNR demand: latency ratio of the fastest member of the front that meets it / of the fastest recipe; 1 is float.
Mean saving: 1 - ratio, averaged over the demands {", ".join(map(str, DEMANDS_DB))} dB, the recipes taken together.
Beats: at some demand a quantized member is faster, beyond its interval, than float and each recipe, or as fast as a
recipe it has over {SNR_TOLERANCE_DB} dB more, and at no demand a recipe is faster by over {RATIO_TOLERANCE}."""


def render_results(results: Record) -> str:
    """The table of all models, a legend and the environments."""
    n_columns = HEADER.count("|") - 1
    rows = [_row(name, record) for name, record in sorted(results["models"].items())]
    environments = [_environment(environment) for environment in results["environments"].values()]
    return "\n".join([HEADER, "|---" * n_columns + "|", *rows, "", LEGEND, "", *environments])


def verdict(members: Sequence[Record], recipes: Sequence[Record]) -> str:
    """In words, what the front is worth against the recipes.

    Args:
        members: Of the front, the user's own float model left out.
        recipes: All that were measured.

    Returns:
        ``behind at X dB``, ``nothing pays``, ``beats`` or ``level``.
    """
    behind = [d for d in DEMANDS_DB if best_ratio(recipes, d) < best_ratio(members, d) - RATIO_TOLERANCE]
    if behind:
        return f"behind at {', '.join(map(str, behind))} dB"
    quantized = [member for member in members if not member["is_float"]]
    if not quantized:
        return "nothing pays"
    is_ahead = any(_is_faster(member, recipes) or _is_better(member, recipes) for member in quantized)
    return "beats" if is_ahead else "level"


def best_ratio(records: Sequence[Record], demand_db: float) -> float:
    """Latency ratio of the fastest that meets a demand; 1 where float does."""
    return min((r["ratio"] for r in records if r["snr_db"] >= demand_db and r["ratio"] < 1), default=1.0)


def _is_faster(member: Record, recipes: Sequence[Record]) -> bool:
    """Whether it is the fastest at a demand that it meets, beyond its interval."""
    met = [demand for demand in DEMANDS_DB if member["snr_db"] >= demand]
    return any(member["ratio_high"] < best_ratio(recipes, demand) for demand in met)


def _is_better(member: Record, recipes: Sequence[Record]) -> bool:
    """Whether it has a higher SNR than each recipe that is as fast, and one that is of use."""
    rivals = [recipe["snr_db"] for recipe in recipes if recipe["ratio"] <= member["ratio_high"]]
    is_useful = member["snr_db"] >= DEMANDS_DB[0] and member["ratio_high"] < 1
    return is_useful and bool(rivals) and member["snr_db"] > max(rivals) + SNR_TOLERANCE_DB


def _row(name: str, record: Record) -> str:
    if "error" in record:
        return _line([name, *[""] * (HEADER.count("|") - 3), f"not measured: {record['error']}"])
    search, members, recipes = record["search"], record["members"], record["recipes"]
    savings = (mean_saving((r["snr_db"], r["ratio"]) for r in records) for records in (recipes, members))
    counts = [str(search.get(key, "")) for key in ("n_regions", "n_evaluations")]
    ratios = [f"{_ratio(best_ratio(members, d))} / {_ratio(best_ratio(recipes, d))}" for d in SHOWN_DB]
    words = f"search failed: {search['error']}" if search["error"] else verdict(members, recipes)
    numbers = [f"{search['seconds']:.0f}", *(f"{saving:.3f}" for saving in savings), *ratios]
    return _line([name, f"{record['float_ms']:.2f}", *counts, *numbers, words])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _ratio(ratio: float) -> str:
    return "1" if ratio == 1 else f"{ratio:.2f}"


def _environment(environment: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"{environment['cpu']}, {environment['n_cpus']} processors, {environment['system']}; {versions}."
