import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import SearchData
from autoquant.api.documents import (
    configuration_document,
    ingredients_document,
    region_from,
    scheme_rows,
    write_reports,
)
from autoquant.api.folder import RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.feed import Samples
from autoquant.domain.region import NodeName, RegionId, TensorName
from autoquant.domain.scheme import BiasCorrection, Operators, RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import Target
from autoquant.model.graph import Graph
from autoquant.model.prepared import PreparedModel
from autoquant.model.source import SourceFiles
from autoquant.rounding.rounded import RoundedWeights
from tests.models import floats, model_of
from tests.records import a_ledger, a_record, a_region

ALL = Scheme(
    name="all",
    activation=TensorFormat.parse("u8:tensor:asym"),
    weight=TensorFormat.parse("s8:channel:sym"),
    ranges=RangeMethod.parse("percentile-99.99"),
)
LINEAR = replace(ALL, name="linear", operators=Operators.LINEAR, bias=BiasCorrection.MEAN, rounding=Rounding.GPTQ)
SPACE = SpaceDefinition(
    name="own",
    schemes=(ALL, LINEAR),
    op_types=frozenset({"Gemm", "Sigmoid"}),
    rules=(),
    groups=(),
    accuracy=Accuracy.FULL,
    digest="s1",
)
REGIONS = tuple(
    replace(a_region(name, op_types=(op_type,), work=work), nodes=(NodeName(name),))
    for name, op_type, work in (("a", "Gemm", 0.75), ("y", "Sigmoid", 0.25))
)


def ingredients(difference_db: float = math.inf) -> Ingredients:
    model = model_of("(float[4,4] x) => (float[4,4] y)", "a = Gemm(x, w) y = Sigmoid(a)", {"w": floats(4, 4)})
    prepared = PreparedModel(
        graph=Graph(model),
        digest="p1",
        source=Path("model.onnx"),
        source_sha256="m1",
        difference_db=difference_db,
        latency_ratio=1.0,
        notes=(),
    )
    statistics = Statistics(tensors={}, digest="c1", n_samples=8)
    return Ingredients(prepared=prepared, regions=REGIONS, statistics=statistics, definition=SPACE)


def some_samples(digest: str) -> Samples:
    feeds = [{"x": np.zeros((4, 4), np.float32)}]
    return Samples(feeds=feeds, feed_digests=["f1"], names=["x"], labels={}, digest=digest, source="")


def some_data(held_out: str | None, *, is_pooled: bool) -> SearchData:
    return SearchData(
        calibration=some_samples("c1"),
        search=some_samples("half of e1"),
        held_out=None if held_out is None else some_samples(held_out),
        evaluation_digest="e1",
        is_pooled=is_pooled,
        unit="evaluation samples",
        notes=(),
    )


ASKED = Configuration(
    model=Path("model.onnx"),
    calibration="calib.npz",
    evaluation="eval.npz",
    targets=(Target(),),
    budget=Budget(seconds=60.0),
    demands=Demands(),
    out=Path("run"),
    space="own.toml",
    n_regions=11,
)


@pytest.mark.parametrize(
    ("held_out", "is_pooled", "digest"), [("h1", False, "h1"), ("half of e1", True, None), (None, False, None)]
)
def test_data_are_known_by_their_digests_and_what_was_divided_by_that_of_the_whole(
    held_out: str | None, is_pooled: bool, digest: str | None
) -> None:
    source = SourceFiles({Path("model.onnx"): "m1"}, 1, {})
    found = configuration_document(ASKED, source, some_data(held_out, is_pooled=is_pooled), SPACE)
    keys = ("calibration_digest", "evaluation_digest", "held_out_digest", "model_sha256", "weights_sha256")
    assert [found[key] for key in keys] == ["c1", "e1", digest, "m1", []]


def test_the_level_of_accuracy_is_that_of_the_space_where_nothing_was_asked_for() -> None:
    files = SourceFiles({Path("m.onnx"): "m1", Path("w.bin"): "w1", Path("v.bin"): "v1"}, 3, {})
    found = configuration_document(ASKED, files, some_data(None, is_pooled=False), SPACE)
    assert ASKED.accuracy is None
    assert (found["accuracy"], found["space"], found["space_digest"]) == ("full", "own.toml", "s1")
    assert found["weights_sha256"] == ["w1", "v1"]
    assert ASKED.plain().keys() < found.keys()
    assert json.loads(json.dumps(found, allow_nan=False))["n_regions"] == 11


@pytest.mark.parametrize(("difference_db", "told"), [(math.inf, None), (97.126, 97.13)])
def test_a_difference_that_is_none_is_null(difference_db: float, told: float | None) -> None:
    found = json.loads(json.dumps(ingredients_document(ingredients(difference_db)), allow_nan=False))
    assert found["preprocessed_difference_db"] == told


def test_what_candidates_are_built_from_is_told_in_plain_values() -> None:
    unfinished = frozenset({(TensorName("w"), "g2"), (TensorName("w"), "g1"), (TensorName("b"), "g3")})
    given = replace(
        ingredients(),
        form=Form.EQUALISED,
        has_mean_biases=True,
        rounder=RoundedWeights({}, unfinished),
        own_errors={RegionId("a"): {"all": 0.5}},
    )
    found = json.loads(json.dumps(ingredients_document(given), allow_nan=False))
    assert (found["n_calibration_samples"], found["form"], found["mean_biases"]) == (8, "equalised", True)
    assert found["unrounded"] == [["b", "g3"], ["w", "g1"], ["w", "g2"]]
    assert found["own_errors"] == {"a": {"all": 0.5}}
    assert list(found["schemes"]) == ["all", "linear"]
    plain = ingredients_document(ingredients())
    assert (plain["form"], plain["unrounded"], plain["own_errors"]) == ("plain", [], None)


def test_schemes_that_quantize_a_region_alike_are_twins() -> None:
    model = model_of("(float[4,4] x) => (float[4,4] a)", "a = Gemm(x, w)", {"w": floats(4, 4)})
    prepared = replace(ingredients().prepared, graph=Graph(model))
    alike = replace(LINEAR, bias=BiasCorrection.NONE, rounding=Rounding.NEAREST)
    definition = replace(SPACE, schemes=(ALL, alike))
    node = (NodeName("a"),)
    regions = [replace(REGIONS[0], static=node, linear=node)]
    statistics = ingredients().statistics
    alone = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
    assert ingredients_document(alone)["twins"] == {"a": {"linear": "all"}}


def test_regions_are_read_as_they_were_written_but_for_their_tensors() -> None:
    rows = json.loads(json.dumps(ingredients_document(ingredients())))["regions"]
    assert [region_from(row) for row in rows] == [replace(region, inputs=(), outputs=()) for region in REGIONS]


def test_schemes_are_spelled_as_in_a_space_file() -> None:
    assert scheme_rows([ALL, LINEAR]) == {
        "all": {
            "activation": "u8:tensor:asym",
            "weight": "s8:channel:sym",
            "ranges": "percentile-99.99",
            "operators": "all",
            "bias": "none",
            "rounding": "nearest",
        },
        "linear": {
            "activation": "u8:tensor:asym",
            "weight": "s8:channel:sym",
            "ranges": "percentile-99.99",
            "operators": "linear",
            "bias": "mean",
            "rounding": "gptq",
        },
    }
    assert scheme_rows([]) == {}


def test_a_finished_run_has_all_its_files_and_a_ledger_only_where_there_is_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    written = {"trials.csv", "front.csv", "report.html", "run.json", "front.json"}
    for ledger in (None, a_ledger(), None):
        write_reports(folder, a_record(ledger=ledger), {"seed": 7})
        found = {path.name for path in folder.path.iterdir() if path.suffix in (".csv", ".html", ".json")}
        assert found == written | ({"ledger.csv"} if ledger else set())
        assert json.loads((folder.path / "run.json").read_text()) == {"seed": 7}
    folder.close()


def test_of_a_document_that_is_no_json_nothing_is_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_reports(folder, a_record(), {"ratio": math.nan})
    assert not list(folder.path.glob("*.csv"))
    folder.close()


def test_the_log_says_what_was_found_and_the_notes_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    with caplog.at_level(logging.INFO, "autoquant"):
        write_reports(folder, a_record(notes=("100 % of the data", "were %s.")), {})
    messages = [record.getMessage() for record in caplog.records]
    assert messages[-2:] == ["100 % of the data", "were %s."]
    assert len(messages) > 2
    folder.close()
