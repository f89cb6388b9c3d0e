import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import autoquant
from autoquant import AutoquantError, Budget
from autoquant.api import steps
from autoquant.examples import example
from experiments.search.recorded import read_recorded
from tests.searches import end_after


def test_a_run_is_read_as_its_sampler_saw_it(run: Path) -> None:
    found, trials = read_recorded(run), pd.read_csv(run / "trials.csv")
    document = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert found.name == "digits"
    assert found.about["seed"] == 0
    assert found.layout.regions == tuple(row["id"] for row in document["regions"])
    assert found.layout.schemes == ("float", *document["schemes"])
    errors = found.layout.own_errors
    assert errors is not None
    assert (errors[found.layout.allowed] > 0).sum() > 0
    for region, row in zip(found.layout.regions, errors, strict=True):
        assert dict(zip(found.layout.schemes, row, strict=True)) == {"float": 0.0, **document["own_errors"][region]}
    assert len(found.layout.edges) == len(document["latency_prior"]["border"])
    assert len(found.found) == len(trials)
    np.testing.assert_allclose(found.found.ratios[:, 0], trials["ratio"], rtol=1e-5)
    np.testing.assert_array_equal(found.is_new, ~trials["digest"].duplicated())
    timed = trials["digest"].where(trials["ratio"].notna())
    np.testing.assert_array_equal(found.is_newly_timed, timed.notna() & ~timed.duplicated())


def test_regions_of_one_pattern_are_alike(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    document = json.loads((run / "run.json").read_text(encoding="utf-8"))
    document["regions"][1]["pattern"] = document["regions"][0]["pattern"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(document), encoding="utf-8")
    first, second, *others = read_recorded(tmp_path / "run").layout.patterns
    assert first == second
    assert first not in others


def test_runs_of_other_versions_are_refused(run: Path, tmp_path: Path) -> None:
    document = json.loads((run / "run.json").read_text(encoding="utf-8"))
    for name in ("front.json", "study.journal", "prepared.onnx"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    del document["latency_prior"]
    (tmp_path / "run.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(AutoquantError, match="this is no run of this version"):
        read_recorded(tmp_path)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AutoquantError, match="it is missing or damaged; give a finished run"):
        read_recorded(tmp_path)


def test_schemes_that_quantize_a_region_alike_are_one_choice_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_after(monkeypatch, n_processes=1)
    own, definition = example("digits"), steps.definition_of("default", "cpu")
    autoquant.search("example:digits", budget=Budget(trials=2), out=tmp_path / "run", cache=tmp_path / "cache")
    prepared = steps.prepare(own.model, steps.read_data(own.model, own.calibration))
    regions = steps.find_regions(prepared, space=definition)
    layout = steps.layout_of(prepared, regions, definition, steps.twins_of(prepared, regions, definition))
    found = read_recorded(tmp_path / "run").layout
    assert found.regions == layout.regions
    np.testing.assert_array_equal(found.same, layout.same)
    assert (found.allowed != (found.same >= 0)).any()
