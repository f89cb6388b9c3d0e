"""What the delivered and the built models really run: the promises about precision, read back from onnxruntime."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import autoquant
from autoquant import Budget, inspect_model
from autoquant.api.steps import prepare, read_data
from autoquant.examples import example
from autoquant.inspection.kernels import Runs
from autoquant.inspection.written import Written
from autoquant.model.copies import Model
from autoquant.model.io import sha256_of
from autoquant.model.optimized import OptimizedGraph, read_optimized
from autoquant.qdq.overrides import op_types_with_float_outputs
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, Case, Quantized, case_of, opened
from tests.integration.conftest import deliver_all_finalists
from tests.parity.quantizer import quantized_by_onnxruntime

UNIFORM = [U8S8_TENSOR, U8S8_CHANNEL]


@dataclass(frozen=True)
class Subject:
    """A model with its data."""

    model: str
    calibration: Path
    evaluation: Path

    @property
    def case(self) -> Case:
        samples = read_data(self.model, self.calibration)
        return case_of(prepare(self.model, samples).graph.model, samples.feeds[0])


def zoo(name: str) -> Subject:
    folder = Path(os.environ.get("AUTOQUANT_ZOO", "zoo")) / name
    return Subject(str(folder / "model.onnx"), folder / "calib.npz", folder / "eval.npz")


def digits() -> Subject:
    return Subject("example:digits", example("digits").calibration, example("digits").evaluation)


@pytest.fixture(
    scope="module",
    params=["digits", *(pytest.param(name, marks=pytest.mark.zoo) for name in ("ppocr2_cls", "opennsfw"))],
)
def subject(request: pytest.FixtureRequest) -> Subject:
    return digits() if request.param == "digits" else zoo(request.param)


@pytest.fixture(scope="module")
def run(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> autoquant.SearchResult:
    """A short search; all its finalists are members."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patched:
        deliver_all_finalists(patched)
        return autoquant.search(
            subject.model,
            calibration=subject.calibration,
            evaluation=subject.evaluation,
            budget=Budget(trials=12),
            out=folder / "run",
            cache=folder / "cache",
        )


def optimized(model: Model, folder: Path) -> OptimizedGraph:
    opened(model, str(folder / "optimized.onnx"))
    return read_optimized(folder / "optimized.onnx")


@pytest.mark.parametrize("taken", UNIFORM, ids=lambda taken: taken.name)
def test_all_regions_on_8_bits_run_the_kernels_of_onnxruntimes_uniform_model(
    subject: Subject, taken: object, tmp_path: Path
) -> None:
    case = subject.case
    ours: Quantized = case.hard_sigmoids_in_float.quantized(taken)  # type: ignore[arg-type]
    chosen = ours.plan.integer | set(ours.plan.absorbed)
    excluded = op_types_with_float_outputs(ours.plan, case.graph) or ()
    theirs = quantized_by_onnxruntime(
        case,
        per_channel=taken is U8S8_CHANNEL,
        nodes=[node.name for node in case.graph.nodes if node.index in chosen],
        options={"OpTypesToExcludeOutputQuantization": sorted(excluded)},
    )
    found, expected = (optimized(model, tmp_path) for model in (ours.model, theirs))
    assert Counter(found.kernels) == Counter(expected.kernels)
    assert found.integer_nodes == expected.integer_nodes


def test_no_region_on_8_bits_runs_the_kernels_of_the_float_model(subject: Subject, tmp_path: Path) -> None:
    """Counted: onnxruntime itself puts them into another order from one opening of a model to the next."""
    case = subject.case
    found, expected = (optimized(model, tmp_path) for model in (case.quantized(None).model, case.graph.model))
    assert Counter(found.kernels) == Counter(expected.kernels)
    assert found.integer_nodes == frozenset()


def members_of(run: autoquant.SearchResult) -> Iterator[tuple[dict[str, Any], Path]]:
    for member in json.loads((run.folder / "front.json").read_text())["members"]:
        yield member, run.folder / member["path"]


def test_the_delivered_files_are_the_measured_ones(run: autoquant.SearchResult) -> None:
    assert [(member["sha256"], member["size_bytes"]) for member, _ in members_of(run)] == [
        (sha256_of(path), path.stat().st_size) for _, path in members_of(run)
    ]


def test_what_a_delivered_model_keeps_in_float_runs_in_float(run: autoquant.SearchResult) -> None:
    for member, path in members_of(run):
        found = inspect_model(path).inspection
        kept = [node for node in found.nodes if node.written is Written.FLOAT and node.fused_into is None]
        assert [node.name for node in kept if not node.is_as_written] == [], member["id"]


def remarks_on_saturation(run: autoquant.SearchResult) -> list[tuple[object, str]]:
    return [
        (member["id"], remark.text)
        for member, path in members_of(run)
        for remark in inspect_model(path).inspection.remarks
        if "saturate" in remark.text
    ]


def test_no_delivered_model_can_saturate(run: autoquant.SearchResult) -> None:
    assert remarks_on_saturation(run) == []


def test_no_delivered_model_can_saturate_where_kernels_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if those of this processor did, whatever they do."""
    for module in ("steps.preparation", "inspect"):
        monkeypatch.setattr(f"autoquant.api.{module}.is_saturating", lambda _: True)
    run = autoquant.search(
        "example:digits", space="quick", n_regions=4, budget=Budget(trials=6), out=tmp_path / "run", cache=tmp_path
    )
    schemes = json.loads((run.folder / "run.json").read_text())["schemes"].values()
    assert {scheme["weight"] for scheme in schemes} == {"s8:channel:sym:unsaturated"}
    assert remarks_on_saturation(run) == []


def kernels_of(scheme: str) -> Runs:
    """What products run as that take it."""
    if "-block-" in scheme:
        return Runs.WEIGHT_ONLY
    return Runs.DYNAMIC if scheme.startswith("dynamic") else Runs.INTEGER


def test_what_a_delivered_model_quantizes_runs_on_the_kernels_of_its_schemes(run: autoquant.SearchResult) -> None:
    for member, path in members_of(run):
        found = inspect_model(path).inspection
        assert {node.name: node.causes for node in found.unlike_written} == {}, member["id"]
        quantized = found.kernels.keys() & {Runs.INTEGER, Runs.DYNAMIC, Runs.WEIGHT_ONLY}
        assert quantized == set(map(kernels_of, member["assignment"].values())), member["id"]
