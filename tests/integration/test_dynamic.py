"""Searches in which the ranges of activations are found when the model runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from onnxruntime.quantization import quantize_dynamic

import autoquant
from autoquant import Budget
from tests.models import beyond_onnx, floats, model_of, saved

pytestmark = pytest.mark.usefixtures("all_finalists")

SPACE = """
schema = 1
accuracy = "full"
[ep.cpu]
schemes = [{schemes}]
op_types = ["Gemm", "MatMul", "LSTM", "Relu", "Reshape"]
"""
SCHEMES = {
    "dynamic-channel": 'activation = "u8:tensor:asym"\nweight = "s8:channel:sym"\nranges = "dynamic"\n',
    "dynamic-block-32": 'activation = "s8:block-32:sym"\nweight = "s8:block-32:sym"\nranges = "dynamic"\n',
    "dynamic-block-32-s4": 'activation = "s8:block-32:sym"\nweight = "s4:block-32:sym"\nranges = "dynamic"\n'
    'rounding = "gptq"\n',
    "static": 'activation = "u8:tensor:asym"\nweight = "s8:channel:sym"\nranges = "min-max"\n',
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An LSTM and two linear layers, wide enough that integers are faster."""
    made = model_of(
        "(float[8,1,128] x) => (float[8,256] y)",
        """l = LSTM<hidden_size=128>(x, w, r) flat = Constant<value = int64[2] {8, 128}>() f = Reshape(l, flat)
           g = Gemm(f, v, b) h = Relu(g) y = Gemm<transB=1>(h, u)""",
        {
            "w": floats(1, 512, 128, scale=0.1),
            "r": floats(1, 512, 128, scale=0.1, seed=1),
            "v": floats(128, 512, scale=0.1),
            "b": floats(512),
            "u": floats(256, 512, scale=0.1),
        },
    )
    return saved(made, tmp_path / "model.onnx")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """One row at a time through matrices that are larger than caches: reading a quarter of the bytes is faster."""
    made = model_of(
        "(float[1,1024] x) => (float[1,1024] y)",
        "g = Gemm(x, v, b) h = Relu(g) y = MatMul(h, u)",
        {"v": floats(1024, 1024, scale=0.03), "b": floats(1024), "u": floats(1024, 1024, scale=0.03)},
    )
    return saved(made, tmp_path / "model.onnx")


def searched(
    model: Path,
    schemes: str,
    n_trials: int,
    run: str = "run",
    warm_start: Path | None = None,
    shape: Sequence[int] = (8, 1, 128),
) -> Path:
    folder = model.parent
    listed = (f"[schemes.{name}]\n{content}" for name, content in SCHEMES.items() if f'"{name}"' in schemes)
    (folder / "space.toml").write_text(SPACE.format(schemes=schemes) + "".join(listed))
    first, second = ({"x": np.stack([floats(*shape, seed=s + i) for i in range(8)])} for s in (0, 100))
    autoquant.search(
        model,
        calibration=first,
        evaluation=second,
        space=str(folder / "space.toml"),
        budget=Budget(trials=n_trials),
        out=folder / run,
        cache=folder / "cache",
        warm_start=warm_start,
    )
    return folder / run


def quantized_members(folder: Path) -> list[dict[str, Any]]:
    return [member for member in json.loads((folder / "front.json").read_text())["members"] if member["assignment"]]


@pytest.mark.parametrize("schemes", ['"dynamic-channel"', '"static", "dynamic-channel"'], ids=["alone", "mixed"])
def test_no_trial_fails_and_every_member_opens(model: Path, schemes: str) -> None:
    folder = searched(model, schemes, 8)
    assert "static" in schemes or not json.loads((folder / "run.json").read_text())["mean_biases"]
    trials = pd.read_csv(folder / "trials.csv")
    assert set(trials.state) <= {"complete", "rejected-early", "untimed"}
    schemes_of = trials[[column for column in trials.columns if column.startswith("scheme[")]]
    uniform = (schemes_of == "dynamic-channel").all(axis=1)
    assert uniform.any()
    assert trials[uniform].snr_db.min() > 25
    for path in folder.glob("models/*.onnx"):
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_a_member_is_a_warm_start_with_its_dynamic_regions(model: Path) -> None:
    folder = searched(model, '"dynamic-channel"', 6)
    (member, *_) = quantized_members(folder)
    assert set(member["assignment"].values()) == {"dynamic-channel"}
    again = searched(model, '"dynamic-channel"', 3, "again", folder / "models" / f"{member['id']}.onnx")
    (note,) = (n for n in json.loads((again / "run.json").read_text())["notes"] if n.startswith("warm start"))
    assert f"{len(member['assignment'])} of " in note
    assert "not taken over" not in note


@pytest.mark.parametrize(("taken", "least_db", "bits"), [("dynamic-block-32", 35, 8), ("dynamic-block-32-s4", 14, 4)])
def test_members_with_blocks_say_which_nodes_have_them_and_are_a_warm_start(
    rows: Path, taken: str, least_db: float, bits: int
) -> None:
    folder = searched(rows, f'"{taken}"', 4, shape=(1, 1024))
    named = []
    for path in folder.glob("models/*.onnx"):
        model = onnx.load(path)
        said = {entry.key: entry.value for entry in model.metadata_props}
        nodes = json.loads(said.get("autoquant.nodes_to_quantize_blockwise", "[]"))
        assert sorted(nodes) == sorted(beyond_onnx(model))
        named += [nodes] if nodes else []
    assert named
    assert all({"g", "y"} >= set(nodes) > set() for nodes in named)
    (member, *_) = quantized_members(folder)
    assert member["snr_db"]["worst"] > least_db
    n_weights = 1024**2 * len(member["assignment"])
    assert (
        member["size_bytes"] < n_weights * (bits / 8 + 4 / 32) + (2 - len(member["assignment"])) * 4 * 1024**2 + 2**15
    )
    again = searched(rows, f'"{taken}"', 3, "again", folder / member["path"], shape=(1, 1024))
    (note,) = (n for n in json.loads((again / "run.json").read_text())["notes"] if n.startswith("warm start"))
    assert "not taken over" not in note


def test_a_member_is_made_again_by_quantize_dynamic(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for scales that it cannot be told, those of weights for kernels that saturate."""
    monkeypatch.setattr("autoquant.api.steps.preparation.is_saturating", lambda _: False)
    folder = searched(model, '"dynamic-channel"', 6)
    feed = {"x": floats(8, 1, 128, seed=99)}
    n_members = 0
    for path in folder.glob("models/*.onnx"):
        metadata = {str(entry.key): str(entry.value) for entry in onnx.load(path).metadata_props}
        nodes = json.loads(metadata.get("autoquant.nodes_to_quantize_dynamic", "[]"))
        if not nodes:
            continue
        n_members += 1
        assert json.loads(metadata["autoquant.nodes_to_quantize"]) == []
        quantize_dynamic(
            folder / "prepared.onnx",
            tmp_path / "again.onnx",
            per_channel=True,
            nodes_to_quantize=[*nodes, *(f"{node}_MatMul" for node in nodes)],
            op_types_to_quantize=["MatMul", "Gemm", "LSTM"],
        )
        ours, theirs = (
            ort.InferenceSession(each, providers=["CPUExecutionProvider"]).run(None, feed)[0]
            for each in (path, tmp_path / "again.onnx")
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert n_members
