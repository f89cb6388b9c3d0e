"""A search of a model in which an input chooses a branch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pandas as pd
import pytest

import autoquant
from autoquant import Budget
from autoquant.model.around import candidate_in
from autoquant.model.dequantized import float_model
from tests.branching import two_branches
from tests.integration.conftest import deliver_all_finalists
from tests.models import Array, floats, model_of, op_types, saved
from tests.searches import end_after

N = 512
"""Wide enough that integers are faster."""
RATE = 16


def feed_at(rate: int, n: int = 32, seed: int = 0) -> dict[str, Array]:
    return {"x": floats(n, N, seed=seed), "rate": np.array(rate)}


def run_of(model: Path, feed: dict[str, Array]) -> npt.NDArray[np.float32]:
    """As it is delivered, under default options."""
    found: npt.NDArray[np.float32] = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    return found


def searched(model: Path, run: str, **options: Any) -> Path:
    folder = model.parent
    first, second = ([feed_at(RATE, seed=start + i) for i in range(8)] for start in (0, 100))
    autoquant.search(
        model,
        calibration=first,
        evaluation=second,
        space="quick",
        budget=Budget(trials=6),
        out=folder / run,
        cache=folder / "cache",
        **options,
    )
    return folder / run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers at one rate, two others else."""
    first, other = (f"h = Gemm(x, w{y}, b) r = Relu(h) {y} = Gemm(r, v{y})" for y in "te")
    constants = {f"{name}{y}": floats(N, N, scale=0.06, seed=i) for i, y in enumerate("te") for name in "wv"}
    made = model_of(
        f"(float[B,{N}] x, int64 rate) => (float[B,{N}] y)",
        f"c = Equal(rate, k) {two_branches(first, other)}",
        {**constants, "k": np.array(RATE), "b": floats(N)},
    )
    return saved(made, tmp_path_factory.mktemp("branches") / "model.onnx")


@pytest.fixture(scope="module")
def run(model: Path) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=3)
        deliver_all_finalists(patched)
        return searched(model, "run")


def quantized_members(run: Path) -> list[dict[str, Any]]:
    return [member for member in json.loads((run / "front.json").read_text())["members"] if member["assignment"]]


def test_members_quantize_the_branch_and_leave_what_other_inputs_get(model: Path, run: Path) -> None:
    members = quantized_members(run)
    assert members
    assert op_types(onnx.load(run / "prepared.onnx")) == ["Gemm", "Relu", "Gemm"]
    for member in members:
        path = run / member["path"]
        assert "QuantizeLinear" in {node.op_type for node in candidate_in(onnx.load(path).graph).node}
        assert member["size_bytes"] == path.stat().st_size > model.stat().st_size
        samples = [feed_at(RATE, seed=100 + i) for i in range(8)]
        found, expected = (np.stack([run_of(each, feed) for feed in samples]) for each in (path, model))
        snr_db = 10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum())
        assert snr_db == pytest.approx(member["snr_db"]["worst"], abs=0.1)
        for feed in (feed_at(8), feed_at(8, 3), feed_at(RATE, 2)):
            np.testing.assert_allclose(run_of(path, feed), run_of(model, feed), rtol=1e-4, atol=1e-5)


def test_no_trial_fails_and_the_note_says_what_candidates_are(run: Path) -> None:
    assert set(pd.read_csv(run / "trials.csv").state) <= {"complete", "rejected-early", "untimed"}
    notes = json.loads((run / "run.json").read_text())["notes"]
    assert any(note.startswith("all samples take one branch of 'y', by 'rate', which is 16") for note in notes)


def test_a_member_is_inspected_as_the_branch_that_it_is(run: Path) -> None:
    (member, *_) = quantized_members(run)
    found = autoquant.inspect_model(run / member["path"], against=run / "prepared.onnx")
    assert found.comparison is not None
    nodes = {node.name: node for node in found.inspection.nodes}
    assert {"h", "y"} <= nodes.keys() <= {node.name for node in onnx.load(run / "prepared.onnx").graph.node}
    assert {node.runs for node in nodes.values()} >= {"integer"}


def test_a_member_is_a_warm_start_and_has_a_float_model(model: Path, run: Path) -> None:
    (member, *_) = quantized_members(run)
    path = run / member["path"]
    again = searched(model, "again", warm_start=path)
    (note,) = (n for n in json.loads((again / "run.json").read_text())["notes"] if n.startswith("warm start"))
    assert f"{len(member['assignment'])} of 2 regions" in note
    remade = float_model(path, run / "prepared.onnx")
    assert op_types(remade)[:1] == ["Gemm"]
    assert [value.name for value in remade.graph.output] == ["y"]
