"""The command line: arguments to the API, results to the terminal."""

from typing import Annotated

import typer

from autoquant.cli.models import bench, inspect, regions
from autoquant.cli.runs import resolve, run_experiment, search

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
experiment = typer.Typer(help="Jobs that search many models.", no_args_is_help=True)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from autoquant import __version__

        typer.echo(f"autoquant {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Accuracy-latency auto-tuning of mixed-precision QDQ models for onnxruntime."""


for command in (search, resolve, regions, inspect, bench):
    app.command()(command)
app.add_typer(experiment, name="experiment")
experiment.command("run")(run_experiment)
