"""A large search: 200 regions, 1,500 nodes, three targets.

``python -m experiments.search.scale OUT.json [--time 600s] [--blocks 250] [--regions 200]`` makes a network of inverted
residual blocks (Sandler et al. 2018, arXiv 1801.04381) with random weights, each of six nodes, searches it for one
thread, for two, and for two inferences at once, and takes what asking costs, the memory of both processes, and how the
front grows. The files of the front and those of onnxruntime's own recipes are then measured in rounds that all of them
share, for half the time of the search. The network's channels are as many as kernels for integers want, and its
residual branches are scaled so that noise grows with depth as the signal does. OUT.json has a part for each size. Exit
code 2: the search failed.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoquant import AutoquantError, Budget, Target, compare, search
from autoquant.api.comparison import Comparison
from autoquant.domain.measurement import Trial
from autoquant.study.study import Study
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.recipes import build_recipes
from experiments.results import seconds_of
from experiments.search.versus import read_trials
from experiments.search.yardsticks import Point, mean_saving

__all__ = ["large_model", "main", "measure_scale", "render_scale"]

TARGETS = (Target("cpu"), Target("cpu", threads=2), Target("cpu", streams=2))
CHANNELS, EXPANDED, SIDE = 64, 256, 7
"""Of the network: its channels, those inside a block, and height and width of its images."""
N_SAMPLES = 16
COMPARING_SHARE, PRECISION = 0.5, 0.02
"""Of the search's time, for measuring its files beside recipes; half the interval of a ratio that ends it."""
_KB = 1024 if sys.platform.startswith("linux") else 1
"""Of what ``getrusage`` counts memory in."""


def large_model(n_blocks: int) -> onnx.ModelProto:
    """Blocks of Conv, Clip, depthwise Conv, Clip, Conv, Add."""
    rng, branch = np.random.default_rng(0), 1 / np.sqrt(n_blocks)
    nodes: list[onnx.NodeProto] = []
    weights = {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    previous = "x"
    for block in range(n_blocks):
        name = f"block{block:03d}"
        shapes = {
            "expand": (EXPANDED, CHANNELS, 1, 1),
            "depth": (EXPANDED, 1, 3, 3),
            "project": (CHANNELS, EXPANDED, 1, 1),
        }
        for part, shape in shapes.items():
            weights[f"{name}.{part}.w"] = _normal(rng, shape, branch if part == "project" else 1.0)
        nodes += [
            helper.make_node("Conv", [previous, f"{name}.expand.w"], [f"{name}.e"]),
            helper.make_node("Clip", [f"{name}.e", "zero", "six"], [f"{name}.ec"]),
            helper.make_node(
                "Conv", [f"{name}.ec", f"{name}.depth.w"], [f"{name}.d"], group=EXPANDED, pads=[1, 1, 1, 1]
            ),
            helper.make_node("Clip", [f"{name}.d", "zero", "six"], [f"{name}.dc"]),
            helper.make_node("Conv", [f"{name}.dc", f"{name}.project.w"], [f"{name}.p"]),
            helper.make_node("Add", [previous, f"{name}.p"], [f"{name}.y"]),
        ]
        previous = f"{name}.y"
    nodes.append(helper.make_node("GlobalAveragePool", [previous], ["y"]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CHANNELS, 1, 1])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> npt.NDArray[np.float32]:
    """Standard deviations of He et al. 2015 (arXiv 1502.01852), scaled.

    Branches are scaled by one over the root of their number, so that all of them together add as much as comes in
    (Zhang et al. 2019, arXiv 1901.09321, have such factors).
    """
    deviation = scale * float(np.sqrt(2 / np.prod(shape[1:])))
    return rng.normal(0.0, deviation, shape).astype(np.float32)


@contextmanager
def timed_asks() -> Iterator[list[float]]:
    """Processor seconds of each proposal of the studies inside; what was enqueued is none."""
    seconds: list[float] = []
    ask = Study.ask

    def timed(study: Study) -> Trial:
        start, is_proposal = time.process_time(), study.n_enqueued == 0
        trial = ask(study)
        if is_proposal:
            seconds.append(time.process_time() - start)
        return trial

    with mock.patch.object(Study, "ask", timed):
        yield seconds


def measure_scale(n_blocks: int, n_regions: int, seconds: float) -> dict[str, Any]:
    """One search."""
    samples = np.random.default_rng(1).standard_normal((2 * N_SAMPLES, CHANNELS, SIDE, SIDE)).astype(np.float32)
    with TemporaryDirectory() as folder, timed_asks() as asks:
        out = Path(folder)
        onnx.save(large_model(n_blocks), out / "model.onnx")
        np.savez(out / "calibration.npz", x=samples[:N_SAMPLES])
        np.savez(out / "evaluation.npz", x=samples[N_SAMPLES:])
        started = datetime.now()  # as Optuna has it: local time, without a zone
        result = search(
            out / "model.onnx",
            calibration=out / "calibration.npz",
            evaluation=out / "evaluation.npz",
            targets=TARGETS,
            budget=Budget(seconds=seconds),
            n_regions=n_regions,
            out=out / "run",
            cache=out / "cache",
        )
        peaks = {"peak_mb": _peak_mb(resource.RUSAGE_SELF), "peak_measuring_mb": _peak_mb(resource.RUSAGE_CHILDREN)}
        trials = read_trials(out / "run" / "study.journal", started)
        members = [out / "run" / member.path for member in result.record.front.members[:-1]]
        recipes = list(build_recipes(out / "model.onnx", out / "calibration.npz", out / "recipes").values())
        compared = compare(
            [out / "model.onnx", *members, *recipes],
            out / "evaluation.npz",
            targets=TARGETS,
            seconds=COMPARING_SHARE * seconds,
            precision=PRECISION,
        )
    return {
        "n_nodes": len(large_model(n_blocks).graph.node),
        "n_regions": len(result.record.regions),
        "targets": [target.name for target in TARGETS],
        "n_trials": trials["n_trials"],
        "growth": trials["growth"],
        "asks_s": asks,
        "phases_s": dict(result.record.phases),
        **peaks,
        "members": _points(compared, members),
        "recipes": _points(compared, recipes),
        "notes": [note.replace(folder, "OUT") for note in compared.notes],
    }


def _peak_mb(who: int) -> float:
    """Of this process, or of those that it started and that ended."""
    return resource.getrusage(who).ru_maxrss * _KB / 1e6


def _points(compared: Comparison, files: Sequence[Path]) -> dict[str, list[Point]]:
    """SNR up to 200 dB and ratio of some files, by target."""
    names = {str(file) for file in files}
    table = compared.table[compared.table["model"].isin(names)]
    return {
        target.name: [
            (min(snr_db, 200.0), ratio)
            for snr_db, ratio in table.loc[table["target"] == target.name, ["snr_db", "ratio"]].itertuples(index=False)
        ]
        for target in TARGETS
    }


def render_scale(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each size and target."""
    rows = []
    for part in document["parts"].values():
        for target in part["targets"]:
            last = part["asks_s"][-50:]
            rows.append(
                [
                    str(part["n_nodes"]),
                    str(part["n_regions"]),
                    target,
                    f"{part['settings']['seconds']:.0f}",
                    str(part["n_trials"]),
                    f"{1e3 * statistics.median(last):.0f}" if last else "",
                    f"{1e3 * max(last):.0f}" if last else "",
                    f"{part['peak_mb']:.0f}",
                    f"{part['peak_measuring_mb']:.0f}",
                    f"{mean_saving(part['recipes'][target]):.3f}",
                    f"{mean_saving(part['members'][target]):.3f}",
                ]
            )
    headings = (
        "nodes",
        "regions",
        "target",
        "seconds",
        "trials",
        "asking, median ms",
        "longest",
        "peak MB",
        "of the other process",
    )
    return markdown((*headings, "mean saving: recipes", "front"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search.scale", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--time", default="600s", help="default: %(default)s")
    parser.add_argument("--blocks", type=int, default=250, help="default: %(default)s")
    parser.add_argument("--regions", type=int, default=200, help="default: %(default)s")
    asked = parser.parse_args(arguments)
    try:
        seconds = seconds_of(asked.time)
        part = new_part("experiments.search.scale", seconds=seconds)
        part |= measure_scale(asked.blocks, asked.regions, seconds)
    except (AutoquantError, ValueError) as error:
        print(f"experiments.search.scale: {error}", file=sys.stderr)
        return 2
    write_part(asked.out, f"{asked.blocks}-{asked.regions}", part)
    print(render_scale(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
