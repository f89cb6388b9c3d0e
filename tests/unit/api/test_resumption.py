import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api.resumption import read_earlier
from autoquant.domain.accuracy import Form
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.rewrite import Rewrite
from autoquant.errors import OutputError
from autoquant.rewrites.filled import Filling
from autoquant.runtime.environment import describe_environment

NOW: Mapping[str, Any] = {
    "model_sha256": "m1",
    "weights_sha256": [],
    "targets": [{"ep": "cpu"}],
    "objectives": ["snr", "latency"],
    "accuracy": "fast",
    "space": "default",
    "space_digest": "s1",
    "n_regions": 40,
    "dims": {},
    "calibration_digest": "c1",
    "evaluation_digest": "e1",
    "held_out_digest": None,
    "metrics": ["top1", "mine=tasks:error:min"],
    "sampler": "structure",
    "seed": 0,
}
PRIOR = LatencyPrior(
    base=1.1, change=np.array([[-0.2, -0.1]]), spread=np.ones((1, 2)), border=np.zeros(0), border_spread=np.zeros(0)
)


def a_run(folder: Path, configuration: Mapping[str, object] | None = None, **changes: object) -> Path:
    """The folder of a run with this ``run.json``."""
    document = {
        "configuration": {**NOW, **(configuration or {})},
        "environment": describe_environment(),
        "n_calibration_samples": 8,
        "n_evaluation_samples": 6,
        "form": "equalised",
        **changes,
    }
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def refused(folder: Path, now: Mapping[str, object] = NOW) -> str:
    with pytest.raises(OutputError) as error:
        read_earlier(folder, now)
    return str(error.value).removeprefix(f"{folder}")


def test_what_a_run_found_out_is_read(tmp_path: Path) -> None:
    found = read_earlier(
        a_run(
            tmp_path,
            {"sampler": "tpe"},
            rewrites=["plain_sums", "of another version"],
            mean_biases=True,
            unrounded=[["w", "g1"], ["w", "g2"]],
            filling={"multiple": 16, "is_tight": True},
            latency_prior=PRIOR.plain(),
        ),
        NOW,
    )
    assert (found.n_calibration_samples, found.n_evaluation_samples, found.form) == (8, 6, Form.EQUALISED)
    assert (found.rewrites, found.has_mean_biases, found.samplers) == (frozenset({Rewrite.PLAIN_SUMS}), True, ("tpe",))
    assert found.unrounded == {("w", "g1"), ("w", "g2")}
    assert found.filling == Filling(16, is_tight=True)
    assert found.prior is not None
    assert found.prior.plain() == PRIOR.plain()


def test_what_a_run_does_not_tell_was_not_there(tmp_path: Path) -> None:
    found = read_earlier(a_run(tmp_path), NOW)
    assert (found.rewrites, found.has_mean_biases) == (frozenset(), False)
    assert (found.unrounded, found.prior, found.filling) == (frozenset(), None, None)


def test_the_sampler_of_a_run_that_does_not_tell_is_that_of_now(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    del document["configuration"]["sampler"]
    (folder / "run.json").write_text(json.dumps(document))
    assert read_earlier(folder, {**NOW, "sampler": "random"}).samplers == ("random",)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model_sha256", "m2", "another model (m2, now m1)"),
        ("weights_sha256", ["w1"], "another set of external weights (['w1'], now [])"),
        ("targets", [], "another target ([], now [{'ep': 'cpu'}])"),
        ("objectives", ["snr"], "another set of objectives (['snr'], now ['snr', 'latency'])"),
        ("accuracy", "full", "another level of accuracy (full, now fast)"),
        ("space_digest", "s2", "another space (s2, now s1)"),
        ("n_regions", 41, "another number of regions (41, now 40)"),
        ("dims", {"N": 1}, "another set of sizes of dimensions ({'N': 1}, now {})"),
        ("calibration_digest", "c2", "another calibration data (c2, now c1)"),
        ("evaluation_digest", "e2", "another evaluation data (e2, now e1)"),
        ("held_out_digest", "h1", "another held-out data (h1, now None)"),
    ],
)
def test_a_run_of_another_search_is_refused(key: str, value: object, said: str, tmp_path: Path) -> None:
    expected = f": its run has {said}; use the same to go on, or begin another run in another folder"
    assert refused(a_run(tmp_path, {key: value})) == expected


def test_another_space_is_told_by_its_name_where_that_differs(tmp_path: Path) -> None:
    assert ": its run has another space (own.toml, now default);" in refused(
        a_run(tmp_path, {"space": "own.toml", "space_digest": "s2"})
    )


def test_a_space_under_another_name_and_another_seed_are_the_same_search(tmp_path: Path) -> None:
    read_earlier(a_run(tmp_path, {"space": "copy.toml", "seed": 7}), NOW)


def test_what_an_older_run_did_not_tell_is_not_compared(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    document["configuration"] = {"seed": 0}
    (folder / "run.json").write_text(json.dumps(document))
    assert read_earlier(folder, NOW).samplers == ("structure",)


@pytest.mark.parametrize(
    "changes",
    [
        {"configuration": None},
        {"environment": "mine"},
        {"n_calibration_samples": "8"},
        {"n_evaluation_samples": None},
        {"form": "round"},
        {"form": None},
        {"unrounded": [["w"]]},
        {"unrounded": [5]},
    ],
)
def test_a_damaged_run_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, **changes}))
    assert refused(folder) == "/run.json: it is missing or damaged; begin another run in another folder"


def test_a_run_that_does_not_name_its_space_is_one_of_another_space(tmp_path: Path) -> None:
    folder = a_run(tmp_path, {"space_digest": "s2"})
    document = json.loads((folder / "run.json").read_text())
    del document["configuration"]["space"]
    (folder / "run.json").write_text(json.dumps(document))
    assert ": its run has another space (s2, now " in refused(folder)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == "/run.json: it is missing or damaged; begin another run in another folder"


def test_a_damaged_prior_is_refused(tmp_path: Path) -> None:
    for prior in ({}, [1], {**PRIOR.plain(), "border": [1.0]}):
        assert "/run.json: this is no latency prior" in refused(a_run(tmp_path, latency_prior=prior))


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (["top1@y"], None),
        (["mine=tasks:error:min", "other=tasks:wer"], None),
        ([], None),
        (["mine=tasks:error"], "'mine' is another metric in its run (mine=tasks:error, now mine=tasks:error:min)"),
        (["mine=top1"], "'mine' is another metric in its run (mine=top1, now mine=tasks:error:min)"),
    ],
)
def test_a_name_stays_with_its_metric_while_others_come_and_go(
    metrics: list[str], said: str | None, tmp_path: Path
) -> None:
    folder = a_run(tmp_path, {"metrics": metrics})
    if said is None:
        read_earlier(folder, NOW)
    else:
        assert refused(folder).startswith(f": {said}; give one of them another name")


def test_a_run_of_another_environment_is_refused(tmp_path: Path) -> None:
    here = describe_environment()
    versions = here["versions"]
    assert isinstance(versions, dict)
    elsewhere = {**here, "cpu": "Imaginary 9000", "versions": {**versions, "autoquant": "0.0.1"}}
    said = refused(a_run(tmp_path, environment=elsewhere))
    assert f"environment (cpu Imaginary 9000, now {here['cpu']}; autoquant 0.0.1, now {versions['autoquant']});" in said


def test_the_version_of_a_run_that_does_not_tell_is_not_compared(tmp_path: Path) -> None:
    here = describe_environment()
    versions = here["versions"]
    assert isinstance(versions, dict)
    others = {name: version for name, version in versions.items() if name != "autoquant"}
    read_earlier(a_run(tmp_path, environment={**here, "versions": others}), NOW)
