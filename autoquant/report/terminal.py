"""Tables for a terminal, whole at 80 columns or wherever they are narrower than it."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_table"]

_SHORT = 16
"""A column whose cells have no more characters keeps them in one line; others share what is left, and fold."""
_LEAST = 12
"""What a column that folds should have."""
_HEADINGS = (8, 6, 4)
"""Where a heading over shorter cells is broken: the first at which the table fits."""
_GAPS = (2, 1)
"""Between columns, the narrow one where the wide one leaves too little."""
Columns = Sequence[Sequence[str]]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], console: Console | None = None) -> None:
    """Print rows, nothing where there are none; nothing is cut off, and brackets in names are no markup.

    Short cells, which numbers are in, are never folded: where the terminal is too narrow for them it breaks the lines.

    Args:
        headings: One for each column.
        rows: As many cells each; they may have several lines.
        console: Where to; the terminal by default.
    """
    cells, printed = list(rows), console or Console()
    if not cells:
        return
    columns = list(zip(*cells, strict=True))
    folded = [(_folded(headings, columns, width), gap) for width in _HEADINGS for gap in _GAPS]
    widths = [_least_width(found, columns, gap) for found, gap in folded]
    fitting = next((i for i, width in enumerate(widths) if width <= printed.width), len(folded) - 1)
    found, gap = folded[fitting]
    table = Table(box=SIMPLE, show_edge=False, padding=(0, gap - 1, 0, 0))
    for heading, column in zip(found, columns, strict=True):
        table.add_column(Text(heading), no_wrap=_width(column) <= _SHORT, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    before, printed.width = printed.width, max(printed.width, widths[fitting])
    printed.print()
    printed.print(table)
    printed.print()
    printed.width = before


def _folded(headings: Sequence[str], columns: Columns, width: int) -> list[str]:
    pairs = zip(headings, columns, strict=True)
    return ["\n".join(textwrap.wrap(heading, max(_width(column), width))) for heading, column in pairs]


def _least_width(headings: Sequence[str], columns: Columns, gap: int) -> int:
    widths = map(_width, columns)
    short = [
        _LEAST if width > _SHORT else max(width, _width(heading.splitlines()))
        for heading, width in zip(headings, widths, strict=True)
    ]
    return sum(short) + gap * len(short)


def _width(cells: Sequence[str]) -> int:
    return max(map(cell_len, cells))
