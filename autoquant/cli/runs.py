"""The commands that search: a model, a finished run for another demand, the models of a job."""

import time
from pathlib import Path
from typing import Annotated

import typer

from autoquant.cli.errors import tell_errors
from autoquant.cli.options import (
    BUDGET,
    DATA,
    SEARCH,
    WANTED,
    Affinity,
    Batch,
    Calibration,
    Dims,
    FrontAsJson,
    MaxLatencyRatio,
    Model,
    Provider,
    Quiet,
    Streams,
    Threads,
    dims_of,
    target_of,
)
from autoquant.cli.output import print_result, prints_aside, progress_line, say, say_if_heard
from autoquant.domain.region import N_REGIONS
from autoquant.domain.sampler import MAX_SEED

__all__ = ["resolve", "run_experiment", "search"]


def search(
    model: Model,
    calibration: Calibration = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Evaluation samples; without them the calibration data are split.",
            rich_help_panel=DATA,
        ),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Samples for the last measurement alone; else half the evaluation samples.",
            rich_help_panel=DATA,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labels of the evaluation samples: .npz or .npy.", rich_help_panel=DATA),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Beside SNR: cosine, top1, accuracy or module:function[:min]; may be given several times.",
            rich_help_panel=WANTED,
        ),
    ] = None,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DROP",
            help="Largest drop of a metric, or of every one, e.g. 0.5%; may be given several times.",
            rich_help_panel=WANTED,
        ),
    ] = None,
    minimize: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Objectives: latency, size, metrics. Default latency.", rich_help_panel=WANTED
        ),
    ] = None,
    maximize: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Objectives: snr, metrics. Default snr, none where a metric is minimized.",
            rich_help_panel=WANTED,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run: new or empty.")] = Path("autoquant-run"),
    ep: Provider = "cpu",
    threads: Threads = 1,
    affinity: Affinity = None,
    batch: Batch = 1,
    streams: Streams = 1,
    time_: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Wall-clock budget, e.g. 120s, 5m, 1h. Default 120s, none with --trials.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Largest number of trials.", rich_help_panel=BUDGET)] = None,
    trial_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Longest time of one trial, e.g. 30s; it then fails. Default many times the usual one.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    trial_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MB",
            help="Memory of the process that measures candidates; the last measurement may have more."
            " Default most of what is available.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    space: Annotated[
        str, typer.Option(metavar="NAME_OR_FILE", help="Search space: a shipped one or a file.", rich_help_panel=SEARCH)
    ] = "default",
    accuracy: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Done for accuracy at no cost in latency: none, fast or full. Default what the space says, else fast.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    min_snr: Annotated[
        float | None, typer.Option(metavar="DB", help="Lowest SNR of members.", rich_help_panel=WANTED)
    ] = None,
    max_latency_ratio: MaxLatencyRatio = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Largest file of members, e.g. 4MB.", rich_help_panel=WANTED)
    ] = None,
    regions: Annotated[int, typer.Option(min=1, help="Largest number of regions.", rich_help_panel=SEARCH)] = N_REGIONS,
    dim: Dims = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Of proposals, orders and resampling.", rich_help_panel=SEARCH)
    ] = 0,
    sampler: Annotated[
        str,
        typer.Option(
            metavar="SAMPLER",
            help="structure, or tpe, tpe-univariate, nsga2, random to compare with.",
            rich_help_panel=SEARCH,
        ),
    ] = "structure",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Tried right after the uniform recipes: an earlier run, a QDQ model or overrides (.json).",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: FrontAsJson = False,
) -> None:
    """Search the mixed-precision models that no other one beats in latency, SNR or what else is asked for."""
    started = time.perf_counter()
    with tell_errors(out):
        from autoquant import Budget, Demands
        from autoquant.api.configuration import DEFAULT_SECONDS
        from autoquant.api.objectives import objective_names
        from autoquant.api.search import search as run
        from autoquant.api.spelling import bytes_of, drops_of, seconds_of

        seconds = None if time_ is None else seconds_of(time_, "--time")
        if seconds is None and trials is None:
            seconds = DEFAULT_SECONDS
            say(f"budget: {seconds:g} s (--time and --trials change it)", quiet or as_json)
        with prints_aside(as_json), progress_line(quiet or as_json) as show:
            result = run(
                model,
                calibration=calibration,
                evaluation=evaluation,
                held_out=held_out,
                labels=labels,
                metrics=metric or (),
                objectives=objective_names(minimize, maximize, metric or ()),
                targets=[target_of(ep, threads, batch, streams, affinity)],
                budget=Budget(
                    seconds=seconds,
                    trials=trials,
                    trial_seconds=None if trial_time is None else seconds_of(trial_time, "--trial-time"),
                    trial_memory_mb=trial_memory,
                ),
                demands=Demands(
                    min_snr_db=min_snr,
                    max_latency_ratio=max_latency_ratio,
                    max_size_bytes=None if max_size is None else bytes_of(max_size, "--max-size"),
                    max_drop=drops_of(max_drop or [], metric or []),
                ),
                out=out,
                space=space,
                accuracy=accuracy,
                n_regions=regions,
                dims=dims_of(dim or []),
                seed=seed,
                sampler=sampler,
                resume=resume,
                warm_start=warm_start,
                spent_s=time.perf_counter() - started,
                on_progress=show,
            )
        print_result(result, quiet=quiet, as_json=as_json)


def resolve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that has trials.")],
    min_snr: Annotated[
        float, typer.Option(metavar="DB", help="SNR that the model shall keep.", rich_help_panel=WANTED)
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the new run: new or empty.")],
    max_latency_ratio: MaxLatencyRatio = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="The run's model, where its file moved.")] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="DATA", help="The run's samples, where they moved or were Python objects.")
    ] = None,
    evaluation: Annotated[str | None, typer.Option(metavar="DATA", help="Its evaluation samples, likewise.")] = None,
    held_out: Annotated[str | None, typer.Option(metavar="DATA", help="Its held-out samples, likewise.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="The run's labels, where their file moved.")
    ] = None,
    space: Annotated[str | None, typer.Option(metavar="FILE", help="The run's space, where its file moved.")] = None,
    time_: Annotated[str, typer.Option("--time", metavar="TIME", help="Most time that it takes.")] = "60s",
    quiet: Quiet = False,
    as_json: FrontAsJson = False,
) -> None:
    """Give the fastest model that a finished run predicts to keep another SNR, and measure only that one, or a few."""
    started = time.perf_counter()
    with tell_errors():
        from autoquant.api.resolve import resolve as solve
        from autoquant.api.spelling import seconds_of

        with prints_aside(as_json), progress_line(quiet or as_json) as show:
            result = solve(
                run,
                min_snr_db=min_snr,
                max_latency_ratio=max_latency_ratio,
                out=out,
                seconds=seconds_of(time_, "--time"),
                model=model,
                calibration=calibration,
                evaluation=evaluation,
                held_out=held_out,
                labels=labels,
                space=space,
                spent_s=time.perf_counter() - started,
                on_progress=show,
            )
        print_result(result, quiet=quiet, as_json=as_json)


def run_experiment(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Job file, e.g. experiments/nightly.toml.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Up to 20 s a model: does everything run?")] = False,
    reports: Annotated[Path, typer.Option(metavar="DIR", help="Where reports go.")] = Path("reports"),
) -> None:
    """Search every model of a job, write a summary, and fail when a demand is missed."""
    with tell_errors():
        from autoquant.experiment.run import run_job

        outcome = run_job(file, smoke=smoke, reports=reports, on_line=say_if_heard)
        say_if_heard(f"{outcome.summary_path}")
    raise typer.Exit(1 if outcome.is_missed else 0)
