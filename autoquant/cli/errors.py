"""How a command ends that cannot go on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from autoquant.cli.output import say_no_more
from autoquant.domain.reason import is_disk_full
from autoquant.errors import AutoquantError, DiskFullError

__all__ = ["tell_errors"]


_GOES_ON = "; the trials so far are kept, go on with --resume"
_BEGINS_AGAIN = " before the first trial, so that nothing is kept; begin the search again"


@contextmanager
def tell_errors(out: Path | None = None) -> Iterator[None]:
    """What the user can put right is one sentence and exit code 2.

    Args:
        out: The folder of a search. Where it has trials, these can be gone on with after Ctrl-C, or when there is room
            on the disk again.
    """
    try:
        yield
    except AutoquantError as error:
        typer.echo(
            f"autoquant: {error}{_GOES_ON if isinstance(error, DiskFullError) and _has_trials(out) else ''}", err=True
        )
        raise typer.Exit(2) from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        typer.echo("autoquant: there is no room for what is printed; make room, or print elsewhere", err=True)
        say_no_more()
        raise typer.Exit(2) from None
    except MemoryError:
        typer.echo("autoquant: there is not enough memory; use a larger machine", err=True)
        raise typer.Exit(2) from None
    except (KeyboardInterrupt, ImportError) as error:
        if not _is_interrupted(error):
            raise
        begins_again = "" if out is None else _BEGINS_AGAIN
        typer.echo(f"autoquant: interrupted{_GOES_ON if _has_trials(out) else begins_again}", err=True)
        raise typer.Exit(130) from None


def _has_trials(out: Path | None) -> bool:
    from autoquant.api.folder import JOURNAL

    return out is not None and os.path.exists(out / JOURNAL)  # that of Path raises where a name is too long


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C was pressed: while an extension module is imported, Python makes an ImportError of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
