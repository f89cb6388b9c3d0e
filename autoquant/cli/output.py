"""What commands print, and where."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoquant.api.inspect import InspectedModel
    from autoquant.api.result import SearchResult
    from autoquant.api.trials import SearchProgress

__all__ = ["print_inspection", "print_result", "prints_aside", "progress_line", "say", "say_if_heard", "say_no_more"]


def say(text: str, is_quiet: bool) -> None:
    """Print a line unless it is to be quiet."""
    if not is_quiet:
        typer.echo(text)


def say_if_heard(text: str) -> None:
    """Print a line of what is in files too: where nobody reads it any more, or there is no room, work goes on."""
    try:
        typer.echo(text)
    except OSError:
        say_no_more()


def say_no_more() -> None:
    """Let what is printed from here on, or is still to be written at the end, go nowhere."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


@contextmanager
def prints_aside(as_json: bool) -> Iterator[None]:
    """What the user's own code and its programs print goes to standard error where standard output shall be JSON."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr), _descriptor_aside():
        yield


@contextmanager
def _descriptor_aside() -> Iterator[None]:
    """That of standard output, as that of standard error; nothing where one of them is closed."""
    try:
        os.fstat(2)
        kept = os.dup(1)
    except OSError:
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def progress_line(is_quiet: bool) -> "Iterator[Callable[[SearchProgress], None]]":
    """One live line on a terminal, nothing elsewhere, as without standard error."""
    if is_quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from autoquant.report.live import live_line

    with live_line() as line:
        yield lambda at: line.tell(at.phase, at.seconds_left, at.n_evaluations, at.best)


def print_result(result: "SearchResult", *, quiet: bool, as_json: bool) -> None:
    """The front as ``front.json``, or unless it is to be quiet as sentences and a table."""
    if as_json:
        typer.echo((result.folder / "front.json").read_text(encoding="utf-8"), nl=False)
    elif not quiet:
        _print_summary(result)


def _print_summary(result: "SearchResult") -> None:
    from autoquant.report.summary import run_sentences
    from autoquant.report.tables import member_rows, unshown
    from autoquant.report.terminal import print_table

    for sentence in (*run_sentences(result.record), *result.record.notes):
        typer.echo(sentence)
    print_table(*member_rows(result.record.front))
    others = unshown(result.record.front)
    if others:
        typer.echo(f"{', '.join(others)}: {result.folder}/front.csv")
    typer.echo(f"{result.folder}/report.html")


def print_inspection(found: "InspectedModel") -> None:
    """What runs, what does not run as written, and why."""
    from autoquant.inspection import text
    from autoquant.report.terminal import print_table

    inspection = found.inspection
    print_table(("kernels", "n", "which"), text.kernel_rows(inspection))
    for sentence in text.summary_sentences(inspection):
        typer.echo(sentence)
    print_table(("n", "operator", "file", "runs", "why, and which nodes"), text.finding_rows(inspection))
    print_table(("n", "remark, and on which nodes"), text.remark_rows(inspection))
    for sentence in text.hint_sentences(inspection):
        typer.echo(sentence)
    if found.comparison is not None:
        headings = ("n", "operator", "in the float model", "in this model", "runs", "remark")
        print_table(headings, text.fate_rows(found.comparison))
