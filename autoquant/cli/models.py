"""The commands that look at models: their regions, what runs of them, how fast they are."""

import json
from typing import Annotated

import typer

from autoquant.cli.errors import tell_errors
from autoquant.cli.options import (
    Affinity,
    Batch,
    Calibration,
    Dims,
    Model,
    Provider,
    Streams,
    Threads,
    dims_of,
    target_of,
)
from autoquant.cli.output import print_inspection, prints_aside
from autoquant.domain.counted import counted
from autoquant.domain.region import N_REGIONS
from autoquant.domain.sampler import MAX_SEED

__all__ = ["bench", "inspect", "regions"]


def regions(
    model: Model,
    calibration: Calibration = None,
    space: Annotated[str, typer.Option(metavar="NAME_OR_FILE", help="Search space.")] = "default",
    ep: Provider = "cpu",
    n_regions: Annotated[int, typer.Option("--regions", min=1, help="Largest number of regions.")] = N_REGIONS,
    dim: Dims = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the regions of a model: the parts that change precision as one."""
    with tell_errors():
        from autoquant.api import steps
        from autoquant.api.floats import float_sentences, nothing_to_quantize

        with prints_aside(as_json):
            prepared = steps.prepare_without_data(model, calibration, dims=dims_of(dim or []), ep=ep)
        found = steps.find_regions(prepared, space=space, ep=ep, n_regions=n_regions)
        nothing = [] if found else [nothing_to_quantize(prepared.graph)]
        sentences = [*prepared.notes, *nothing, *float_sentences(prepared.graph, found)]
        if as_json:
            rows = [{"id": r.id, "work": r.work, "op_types": r.op_types, "nodes": r.nodes} for r in found]
            typer.echo(json.dumps({"schema_version": 1, "regions": rows, "notes": sentences}, indent=1))
            return
        for region in found:
            n_nodes, op_types = counted(len(region.nodes), "node"), " ".join(region.op_types[:8])
            typer.echo(f"{region.id:36s} {region.work:6.1%}  {n_nodes:>9s}  {op_types}: {region.nodes[0]}")
        n_quantizable = sum(len(region.nodes) for region in found)
        typer.echo(f"{counted(len(found), 'region')}, {counted(n_quantizable, 'quantizable node')}")
        for sentence in sentences:
            typer.echo(sentence)


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Any .onnx file, quantized or not, or example:digits.")],
    ep: Provider = "cpu",
    threads: Threads = 1,
    against: Annotated[
        str | None, typer.Option(metavar="FLOAT", help="The float model that it was made from: what became of it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Print what onnxruntime really runs of a model, and why it is not what the file says."""
    with tell_errors():
        from autoquant import Target, inspect_model

        found = inspect_model(model, target=Target(ep, threads=threads), against=against)
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=1))
            return
        print_inspection(found)


def bench(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Any .onnx files, or example:digits; the first is the baseline."),
    ],
    data: Annotated[
        str,
        typer.Option(metavar="DATA", help="Samples: .npz, .npy, a folder of them, module:callable, or example:digits."),
    ],
    ep: Provider = "cpu",
    threads: Threads = 1,
    affinity: Affinity = None,
    batch: Batch = 1,
    streams: Streams = 1,
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
    with tell_errors():
        from autoquant import compare
        from autoquant.api.spelling import seconds_of
        from autoquant.report.terminal import print_table

        with prints_aside(as_json):
            found = compare(
                models,
                data,
                targets=[target_of(ep, threads, batch, streams, affinity)],
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
