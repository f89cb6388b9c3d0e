"""How a command ends that cannot go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from autoquant.errors import AutoquantError, DiskFullError

__all__ = ["tell_errors"]


@contextmanager
def tell_errors(advice: str = "") -> Iterator[None]:
    """What the user can put right is one sentence and exit code 2.

    ``advice`` is for who can go on with what is there: after Ctrl-C, or when there is room on the disk again.
    """
    try:
        yield
    except AutoquantError as error:
        typer.echo(f"autoquant: {error}{advice if isinstance(error, DiskFullError) else ''}", err=True)
        raise typer.Exit(2) from None
    except MemoryError:
        typer.echo("autoquant: there is not enough memory; use a larger machine", err=True)
        raise typer.Exit(2) from None
    except (KeyboardInterrupt, ImportError) as error:
        if not _is_interrupted(error):
            raise
        typer.echo(f"autoquant: interrupted{advice}", err=True)
        raise typer.Exit(130) from None


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C was pressed: while an extension module is imported, Python makes an ImportError of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
