"""``versus.md``: who saves how much, what of theirs is left, and what the tools could not do."""

from collections.abc import Mapping
from typing import Any

from experiments.believe.document import markdown, place

__all__ = ["render_versus"]

Part = Mapping[str, Any]
"""What ``versus.json`` has of a model."""
FIRST = ("autoquant", "union")


def render_versus(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model; one for each point that ours does not dominate; one for each run and failure."""
    parts: Mapping[str, Part] = document["parts"]
    tools = sorted({tool for part in parts.values() for tool in part["peers"]})
    headings = ("model", *(f"{name}, mean saving" for name in FIRST), *tools, "left undominated", "seconds")
    texts = [
        markdown(headings, [_savings(name, part, tools) for name, part in parts.items()]),
        _points(parts),
        markdown(
            (
                "model",
                "tool",
                "seconds",
                "limit",
                "load before and after",
                "models",
                "that differ",
                "measured",
                "failures",
            ),
            [_run(name, tool, part) for name, part in parts.items() for tool in part["peers"]],
        ),
        "\n".join(sorted({place(part["environment"]) for part in parts.values()})) + "\n",
    ]
    return "\n".join(text for text in texts if text)


def _savings(name: str, part: Part, tools: list[str]) -> list[str]:
    savings = part["savings"]
    cells = [f"{savings[tool]:.3f}" if tool in savings else "" for tool in (*FIRST, *tools)]
    if part["search"]["error"]:
        cells[0] = part["search"]["error"]
    return [name, *cells, str(len(part["left"])), f"{part['settings']['seconds']:.0f}"]


def _points(parts: Mapping[str, Part]) -> str:
    rows = [[name, *_point(point, part)] for name, part in parts.items() for point in part["left"]]
    headings = ("model", "theirs, left undominated", "SNR, dB", "ratio", "95 %", "ours with that SNR")
    return markdown(headings, rows) if rows else ""


def _point(point: Mapping[str, Any], part: Part) -> list[str]:
    ours = [row for row in part["rows"][FIRST[0]] if row["snr_db"] >= point["snr_db"]]
    best = min(ours, key=lambda row: row["ratio"], default=None)
    found = f"{best['ratio']:.3f} ({best['ratio_low']:.3f} to {best['ratio_high']:.3f})" if best else "float"
    interval = f"{point['ratio_low']:.3f} to {point['ratio_high']:.3f}"
    return [point["name"], f"{point['snr_db']:.1f}", f"{point['ratio']:.3f}", interval, found]


def _run(name: str, tool: str, part: Part) -> list[str]:
    run = part["peers"][tool]
    failures = [f"{variant}: {error}" for variant, error in run["failures"].items()]
    failures += [run["error"]] if run["error"] else []
    failures += [f"{len(run['unmeasured'])} do not run"] if run["unmeasured"] else []
    return [
        name,
        f"{tool} ({', '.join(f'{package} {version}' for package, version in run['versions'].items())})",
        f"{run['seconds']:.0f}" + (", ended" if run["is_ended"] else ""),
        f"{run['limit_s']:.0f}",
        " and ".join(f"{load:.1f}" for load in run["load"]),
        str(run["n_files"]),
        str(run["n_different"]),
        str(len(part["rows"][tool])),
        "; ".join(failures).replace("|", "/"),
    ]
