"""The command line: arguments to the API, results to the terminal."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoquant.domain.region import N_REGIONS
from autoquant.domain.sampler import MAX_SEED
from autoquant.domain.target import MAX_THREADS
from autoquant.errors import AutoquantError, DiskFullError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoquant.api.inspect import InspectedModel
    from autoquant.api.result import SearchResult
    from autoquant.api.trials import SearchProgress
    from autoquant.domain.target import Target

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
experiment = typer.Typer(help="Jobs that search many models.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")

Model = Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx file, or example:digits.")]
Affinity = Annotated[str | None, typer.Option(metavar="CORES", help="Cores of the process that measures, e.g. 0,2-3.")]
Calibration = Annotated[
    str | None,
    typer.Option(metavar="DATA", help="Calibration samples: .npz, .npy, a folder of them, or module:callable."),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=N", help="Size of a dynamic dimension; may be given several times."),
]
Threads = Annotated[
    int, typer.Option(min=1, max=MAX_THREADS, help="Intra-op threads; onnxruntime's own default is all cores.")
]

_RESUMED = "; a search that has trials goes on with --resume"


@contextmanager
def _errors(advice: str = "") -> Iterator[None]:
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
    except KeyboardInterrupt:
        typer.echo(f"autoquant: interrupted{advice}", err=True)
        raise typer.Exit(130) from None


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


@app.command()
def search(
    model: Model,
    calibration: Calibration = None,
    evaluation: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Evaluation samples; without them the calibration data are split."),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Samples for the last measurement alone; else half the evaluation samples."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labels of the evaluation samples: .npz or .npy.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Beside SNR: cosine, top1, accuracy or module:function[:min]; may be given several times.",
        ),
    ] = None,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DROP",
            help="Largest drop of a metric, or of every one, e.g. 0.5%; may be given several times.",
        ),
    ] = None,
    minimize: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Objectives: latency, size, metrics. Default latency."),
    ] = None,
    maximize: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Objectives: snr, metrics. Default snr, none where a metric is minimized."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run: new or empty.")] = Path("autoquant-run"),
    ep: Annotated[str, typer.Option(help="Execution provider.")] = "cpu",
    threads: Threads = 1,
    affinity: Affinity = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples of one inference.")] = 1,
    streams: Annotated[int, typer.Option(min=1, max=MAX_THREADS, help="Inferences that run at once.")] = 1,
    time_: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help="Wall-clock budget, e.g. 120s, 5m, 1h. Default 120s, none with --trials."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Largest number of trials.")] = None,
    trial_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Longest time of one trial, e.g. 30s; it then fails. Default many times the usual one."
        ),
    ] = None,
    trial_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MB",
            help="Memory of the process that measures candidates; the last measurement may have more."
            " Default most of what is available.",
        ),
    ] = None,
    space: Annotated[
        str, typer.Option(metavar="NAME_OR_FILE", help="Search space: a shipped one or a file.")
    ] = "default",
    accuracy: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Done for accuracy at no cost in latency: none, fast or full. Default what the space says, else fast.",
        ),
    ] = None,
    min_snr: Annotated[float | None, typer.Option(metavar="DB", help="Lowest SNR of interest.")] = None,
    max_latency_ratio: Annotated[float | None, typer.Option(metavar="R", help="Highest ratio of interest.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Largest file of interest, e.g. 4MB.")] = None,
    regions: Annotated[int, typer.Option(min=1, help="Largest number of regions.")] = N_REGIONS,
    dim: Dims = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of proposals, orders and resampling.")] = 0,
    sampler: Annotated[
        str, typer.Option(metavar="SAMPLER", help="structure, or tpe, tpe-univariate, nsga2, random to compare with.")
    ] = "structure",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Tried right after the uniform recipes: an earlier run, a QDQ model or overrides (.json).",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print front.json instead of the summary.")] = False,
) -> None:
    """Search the mixed-precision models that no other one beats in latency, SNR or what else is asked for."""
    started = time.perf_counter()
    with _errors(_RESUMED):
        from autoquant import Budget, Demands
        from autoquant.api.configuration import DEFAULT_SECONDS
        from autoquant.api.objectives import objective_names
        from autoquant.api.search import search as run
        from autoquant.api.spelling import bytes_of, drops_of, seconds_of

        seconds = None if time_ is None else seconds_of(time_, "--time")
        if seconds is None and trials is None:
            seconds = DEFAULT_SECONDS
            _say(f"budget: {seconds:g} s (--time and --trials change it)", quiet or as_json)
        with _prints_aside(as_json), _progress_line(quiet or as_json) as show:
            result = run(
                model,
                calibration=calibration,
                evaluation=evaluation,
                held_out=held_out,
                labels=labels,
                metrics=metric or (),
                objectives=objective_names(minimize, maximize, metric or ()),
                targets=[_target(ep, threads, batch, streams, affinity)],
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
                dims=_dims(dim or []),
                seed=seed,
                sampler=sampler,
                resume=resume,
                warm_start=warm_start,
                spent_s=time.perf_counter() - started,
                on_progress=show,
            )
        _tell_result(result, quiet=quiet, as_json=as_json)


@app.command()
def resolve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    min_snr: Annotated[float, typer.Option(metavar="DB", help="SNR that the model shall keep.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the new run: new or empty.")],
    max_latency_ratio: Annotated[float | None, typer.Option(metavar="R", help="Highest ratio of interest.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="The run's model, where its file moved.")] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="DATA", help="The run's samples, where they moved or were Python objects.")
    ] = None,
    evaluation: Annotated[str | None, typer.Option(metavar="DATA", help="The same.")] = None,
    held_out: Annotated[str | None, typer.Option(metavar="DATA", help="The same.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="The run's labels, where their file moved.")
    ] = None,
    space: Annotated[str | None, typer.Option(metavar="FILE", help="The run's space, where its file moved.")] = None,
    time_: Annotated[str, typer.Option("--time", metavar="TIME", help="Most time that it takes.")] = "60s",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print front.json instead of the summary.")] = False,
) -> None:
    """Give the fastest model that a finished run predicts to keep another SNR, and measure only that one, or a few."""
    started = time.perf_counter()
    with _errors():
        from autoquant.api.resolve import resolve as solve
        from autoquant.api.spelling import seconds_of

        with _prints_aside(as_json), _progress_line(quiet or as_json) as show:
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
        _tell_result(result, quiet=quiet, as_json=as_json)


@app.command()
def regions(
    model: Model,
    calibration: Calibration = None,
    space: Annotated[str, typer.Option(metavar="NAME_OR_FILE", help="Search space.")] = "default",
    ep: Annotated[str, typer.Option(help="Execution provider.")] = "cpu",
    n_regions: Annotated[int, typer.Option("--regions", min=1, help="Largest number of regions.")] = N_REGIONS,
    dim: Dims = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the regions of a model: the parts that change precision as one."""
    with _errors():
        from autoquant.api import steps

        with _prints_aside(as_json):
            prepared = steps.prepare_without_data(model, calibration, dims=_dims(dim or []))
        found = steps.find_regions(prepared, space=space, ep=ep, n_regions=n_regions)
        if as_json:
            rows = [{"id": r.id, "work": r.work, "op_types": r.op_types, "nodes": r.nodes} for r in found]
            typer.echo(json.dumps({"schema_version": 1, "regions": rows}, indent=1))
            return
        for region in found:
            typer.echo(
                f"{region.id:36s} {region.work:6.1%}  {len(region.nodes):3d} nodes  {' '.join(region.op_types[:8])}"
            )
        typer.echo(f"{len(found)} regions, {sum(len(r.nodes) for r in found)} quantizable nodes")


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Any .onnx file, quantized or not.")],
    ep: Annotated[str, typer.Option(help="Execution provider.")] = "cpu",
    threads: Threads = 1,
    against: Annotated[
        str | None, typer.Option(metavar="FLOAT", help="The float model that it was made from: what became of it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Print what onnxruntime really runs of a model, and why it is not what the file says."""
    with _errors():
        from autoquant import Target, inspect_model

        found = inspect_model(model, target=Target(ep, threads=threads), against=against)
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=1))
            return
        _print_inspection(found)


@app.command()
def bench(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Any .onnx files; the first is the baseline.")
    ],
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Samples: .npz, .npy, a folder of them, or module:callable.")
    ],
    ep: Annotated[str, typer.Option(help="Execution provider.")] = "cpu",
    threads: Threads = 1,
    affinity: Affinity = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples of one inference.")] = 1,
    streams: Annotated[int, typer.Option(min=1, max=MAX_THREADS, help="Inferences that run at once.")] = 1,
    time_: Annotated[
        str, typer.Option("--time", metavar="TIME", help="Most time that it takes, but for the first process.")
    ] = "60s",
    precision: Annotated[
        float, typer.Option(min=1e-4, max=0.5, help="Half the interval of a ratio, as a share, that is enough.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of orders.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure models against the first one, with intervals and a verdict."""
    with _errors():
        from autoquant import compare
        from autoquant.api.spelling import seconds_of
        from autoquant.report.terminal import print_table

        with _prints_aside(as_json):
            found = compare(
                models,
                data,
                targets=[_target(ep, threads, batch, streams, affinity)],
                seconds=seconds_of(time_, "--time"),
                precision=precision,
                seed=seed,
            )
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=1))
            return
        print_table(("model", "ratio", "95 %", "ms", "p99 ms", "SNR dB", "opening ms", "memory MB"), found.rows)
        for sentence in (*found.verdicts, found.sentence, *found.notes):
            typer.echo(sentence)


@experiment.command("run")
def run_experiment(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Job file, e.g. experiments/nightly.toml.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Up to 20 s a model: does everything run?")] = False,
    reports: Annotated[Path, typer.Option(metavar="DIR", help="Where reports go.")] = Path("reports"),
) -> None:
    """Search every model of a job, write a summary, and fail when a demand is missed."""
    with _errors():
        from autoquant.experiment.run import run_job

        outcome = run_job(file, smoke=smoke, reports=reports, on_line=typer.echo)
        typer.echo(f"{outcome.summary_path}")
    raise typer.Exit(1 if outcome.is_missed else 0)


def _target(ep: str, threads: int, batch: int, streams: int, affinity: str | None) -> "Target":
    from autoquant import Target
    from autoquant.api.spelling import cores_of

    return Target(ep, threads, batch=batch, streams=streams, affinity=cores_of(affinity) if affinity else ())


def _dims(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not (size.isascii() and size.isdigit()) or not 0 < int(size) < 2**31:
            raise UsageError(f"--dim {text}: write NAME=N with a positive number, e.g. batch=1")
        found[name] = int(size)
    return found


def _say(text: str, is_quiet: bool) -> None:
    if not is_quiet:
        typer.echo(text)


def _prints_aside(as_json: bool) -> AbstractContextManager[object]:
    """What the user's own code prints goes to standard error where standard output shall be JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


@contextmanager
def _progress_line(is_quiet: bool) -> "Iterator[Callable[[SearchProgress], None]]":
    """One live line on a terminal, nothing elsewhere, as without standard error."""
    if is_quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from autoquant.report.live import live_line

    with live_line() as line:
        yield lambda at: line.tell(at.phase, at.seconds_left, at.n_evaluations, at.best)


def _tell_result(result: "SearchResult", *, quiet: bool, as_json: bool) -> None:
    if as_json:
        typer.echo((result.folder / "front.json").read_text(encoding="utf-8"), nl=False)
    elif not quiet:
        _print_result(result)


def _print_result(result: "SearchResult") -> None:
    from autoquant.report.summary import run_sentences
    from autoquant.report.tables import member_rows
    from autoquant.report.terminal import print_table

    for sentence in (*run_sentences(result.record), *result.record.notes):
        typer.echo(sentence)
    print_table(*member_rows(result.record.front))
    typer.echo(f"{result.folder}/report.html")


def _print_inspection(found: "InspectedModel") -> None:
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
