"""Demands that ``autoquant resolve`` does not build a model for."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from autoquant.api.processes import process_errors
from autoquant.report.front_json import front_from_json
from autoquant.study.demand import Predicted
from autoquant.study.layout import Layout
from autoquant.study.study import Study
from tests.integration.conftest import Command, contents
from tests.unit.api.resolving import a_prediction


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["--min-snr", "150"], "nothing faster than float is predicted to keep 150 dB; demand less"),
        (["--min-snr", "20", "--max-latency-ratio", "0.001"], "of float's latency, not 0.001; demand less of one"),
        (["--min-snr", "20", "--time", "soon"], "--time soon: write a number with a unit"),
        (["--min-snr", "nan"], "the lowest SNR is nan dB"),
    ],
)
def test_what_cannot_be_had_is_one_sentence_and_leaves_nothing(
    command: Command, digits: dict[Path, bytes], arguments: list[str], phrase: str
) -> None:
    result = command("resolve", "digits", "--out", "other", *arguments)
    assert result.exit_code == 2, result.output
    assert phrase in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not Path("other").exists()
    assert contents("digits") == digits


@pytest.mark.usefixtures("digits")
def test_the_preprocessed_model_alone_is_no_answer_beyond_its_snr(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def faster_than_float(*_: Any, **named: Any) -> Predicted:
        asked.append(named["process_errors"])
        return a_prediction(assignment={}, snr_db=120.0, ratios=(0.95,))

    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", faster_than_float)
    result = command("resolve", "digits", "--min-snr", "121", "--out", "other")
    assert result.exit_code == 2, result.output
    assert "nothing faster than float is predicted to keep 121 dB; " in result.stderr
    front = front_from_json(Path("digits/front.json").read_text(encoding="utf-8"))
    assert asked == [process_errors(front, ["cpu-1t"])]
    assert command("resolve", "digits", "--min-snr", "100", "--out", "other").exit_code == 0
    assert len(pd.read_csv("other/trials.csv")) == 14 + 1


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize(("ratio", "is_built"), [(1.1, True), (1.3, False)])
def test_what_is_slower_than_float_without_doubt_is_not_built(
    command: Command, monkeypatch: pytest.MonkeyPatch, ratio: float, is_built: bool
) -> None:
    def slower(study: Study, layout: Layout, **_: Any) -> Predicted:
        region, scheme = next((int(i), int(j)) for i, j in np.argwhere(layout.allowed) if j)
        return a_prediction(
            assignment={layout.regions[region]: layout.schemes[scheme]},
            snr_db=60.0,
            ratios=(ratio,),
            ratio_errors=(0.1,),
        )

    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", slower)
    result = command("resolve", "digits", "--min-snr", "20", "--out", "other")
    assert result.exit_code == (0 if is_built else 2), result.output
    assert ("nothing faster than float is predicted to keep 20 dB" in result.stderr) is not is_built
