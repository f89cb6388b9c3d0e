"""Options that several commands share, and the reading of those that are text."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from autoquant.domain.target import MAX_THREADS
from autoquant.errors import UsageError

if TYPE_CHECKING:
    from autoquant.domain.target import Target

__all__ = [
    "BUDGET",
    "DATA",
    "SEARCH",
    "TARGET",
    "WANTED",
    "Affinity",
    "Batch",
    "Calibration",
    "Dims",
    "FrontAsJson",
    "MaxLatencyRatio",
    "Model",
    "Provider",
    "Quiet",
    "Streams",
    "Threads",
    "dims_of",
    "target_of",
]

DATA, WANTED, TARGET, BUDGET, SEARCH = "Data", "What is wanted", "Target", "Budget", "How it searches"
"""Headings of the help, under which options of one kind are listed."""

Model = Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx file, or example:digits.")]
Calibration = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="Calibration samples: .npz, .npy, a folder of them, module:callable, or example:digits.",
        rich_help_panel=DATA,
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N", help="Size of a dynamic dimension; may be given several times.", rich_help_panel=DATA
    ),
]
MaxLatencyRatio = Annotated[
    float | None, typer.Option(metavar="R", help="Largest latency ratio of members.", rich_help_panel=WANTED)
]

Provider = Annotated[str, typer.Option(help="Execution provider.", rich_help_panel=TARGET)]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=MAX_THREADS, help="Intra-op threads; onnxruntime's own default is all cores.", rich_help_panel=TARGET
    ),
]
Affinity = Annotated[
    str | None,
    typer.Option(metavar="CORES", help="Cores of the process that measures, e.g. 0,2-3.", rich_help_panel=TARGET),
]
Batch = Annotated[int, typer.Option(min=1, help="Samples of one inference.", rich_help_panel=TARGET)]
Streams = Annotated[
    int, typer.Option(min=1, max=MAX_THREADS, help="Inferences that run at once.", rich_help_panel=TARGET)
]

Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
FrontAsJson = Annotated[bool, typer.Option("--json", help="Print front.json instead of the summary.")]


def target_of(ep: str, threads: int, batch: int, streams: int, affinity: str | None) -> "Target":
    """Where it is measured.

    Raises:
        UsageError: The cores are not spelled as such.
    """
    from autoquant import Target
    from autoquant.api.spelling import cores_of

    return Target(ep, threads, batch=batch, streams=streams, affinity=cores_of(affinity) if affinity else ())


def dims_of(texts: list[str]) -> dict[str, int]:
    """Sizes of dynamic dimensions by name.

    Raises:
        UsageError: One is not ``NAME=N`` with a positive number, or there are two sizes of one name.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not re.fullmatch(r"[0-9]{1,10}", size) or not 0 < int(size) < 2**31:
            raise UsageError(f"--dim {text}: write NAME=N with a positive number below 2**31, e.g. batch=1")
        if found.setdefault(name, int(size)) != int(size):
            raise UsageError(f"--dim {text}: there is another size of {name}, {found[name]}; give one of them")
    return found
