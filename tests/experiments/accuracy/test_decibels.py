import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.accuracy.algorithms import ALGORITHMS, PLAIN
from experiments.accuracy.ceilings import CEILINGS, FLOAT_WEIGHTS
from experiments.accuracy.decibels import BEST, main, render_ceilings, render_decibels
from tests.models import floats, model_of, saved

MEAN, OBSERVED = "bias mean", "bias observed"


def a_record(algorithm: str, snr_db: float, *, mix: int = 0, same_kernels: bool = True) -> dict[str, Any]:
    return {"scheme": "a", "mix": mix, "algorithm": algorithm, "snr_db": snr_db, "same_kernels": same_kernels}


def rows_of(*records: dict[str, Any]) -> list[str]:
    return render_decibels({"parts": {"digits": {"decibels": list(records)}}}).splitlines()[2:]


def test_a_recipe_has_its_decibels_and_what_each_algorithm_wins() -> None:
    (row,) = rows_of(a_record(PLAIN, 30.0), a_record(MEAN, 32.5), a_record(OBSERVED, 29.0))
    assert row == "| digits | a | 30.0 | +2.5 | -1.0 | yes |"


def test_mixes_are_one_row_with_an_interval_and_those_of_infinite_quality_do_not_count() -> None:
    records = [a_record(PLAIN, 20.0), a_record(MEAN, 20.0), a_record(OBSERVED, 20.0, same_kernels=False)]
    for mix, gain in ((1, 1.0), (2, 3.0)):
        records += [
            a_record(PLAIN, 40.0, mix=mix),
            a_record(MEAN, 40.0 + gain, mix=mix),
            a_record(OBSERVED, 41.0, mix=mix),
        ]
    records += [a_record(name, 0.0, mix=3) | {"snr_db": None} for name in ALGORITHMS]
    uniform, mixes = rows_of(*records)
    assert uniform.endswith("| no |")
    assert mixes == "| digits | 2 mixes | 40.0 | +2.0 ± 2.0 | +1.0 ± 0.0 | yes |"


def test_what_was_not_measured_of_a_model_is_blank() -> None:
    parts = {
        "one": {"decibels": [a_record(PLAIN, 30.0), a_record(MEAN, 32.5), a_record(OBSERVED, 29.0)]},
        "two": {"decibels": [a_record(PLAIN, 30.0), a_record(OBSERVED, 31.0)]},
        "three": {"decibels": [a_record(PLAIN, 30.0, mix=1), a_record(MEAN, 31.0, mix=1)]},
    }
    rows = render_decibels({"parts": parts}).splitlines()[3:]
    assert rows == ["| two | a | 30.0 |  | +1.0 | yes |", "| three | 1 mixes | 30.0 | +1.0 |  | yes |"]


def a_part(plain: float, best: float, ceiling: float) -> dict[str, Any]:
    ceilings = [a_record(name, ceiling if name == FLOAT_WEIGHTS[1] else 20.0) for name in CEILINGS]
    return {"decibels": [a_record(PLAIN, plain), a_record(BEST, best)], "ceilings": ceilings}


def test_what_was_won_is_a_share_of_what_float_weights_would_win_where_that_is_something() -> None:
    parts = {"one": a_part(20.0, 23.0, 24.0), "two": a_part(20.0, 19.0, 20.5)}
    rows = render_ceilings({"parts": parts}).splitlines()[2:]
    assert rows[0] == "| one | a | 20.0 | 20.0 | 20.0 | 24.0 | 20.0 | 20.0 | +3.0 | +4.0 | 75% |"
    assert rows[1].endswith("| -1.0 | +0.5 |  |")
    assert rows[2].endswith("| +1.0 | +2.2 | 75% |")


def test_a_recipe_with_an_snr_that_is_no_number_has_a_row_and_is_in_no_median() -> None:
    """As JSON has it where outputs are equal or useless."""
    odd = a_part(20.0, 26.0, 28.0)
    odd["ceilings"][0]["snr_db"] = odd["decibels"][0]["snr_db"] = None
    parts = {"a": a_part(20.0, 26.0, 28.0), "odd": odd}
    rows = render_ceilings({"parts": parts}).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["a", "odd", "median of 1"]
    assert "| odd |" in render_decibels({"parts": {"odd": odd}})


def test_without_ceilings_there_is_no_table_of_them() -> None:
    assert render_ceilings({"parts": {"digits": {"decibels": [a_record(PLAIN, 30.0)]}}}) == ""


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A folder with a model, channels of which can be balanced, and its data."""
    weight = floats(8, 3, 3, 3)
    weight[0] *= 16
    body = """a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv(r, v, d) s = Relu(c)
              p = GlobalAveragePool(s) f = Flatten(p) y = Gemm(f, g, h)"""
    constants = {
        "w": weight,
        "b": floats(8),
        "v": floats(8, 8, 3, 3),
        "d": floats(8),
        "g": floats(8, 4),
        "h": floats(4),
    }
    folder = tmp_path / "small"
    folder.mkdir()
    saved(model_of("(float[1,3,8,8] x) => (float[1,4] y)", body, constants), folder / "model.onnx")
    for name, seed in (("calib", 0), ("eval", 100)):
        np.savez(folder / f"{name}.npz", x=np.concatenate([floats(1, 3, 8, 8, seed=seed + i) for i in range(8)]))
    return str(folder)


def test_it_measures_and_writes_what_it_found(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "decibels.json"
    assert main([str(out), small, "--schemes", "u8s8-tensor-minmax", "--mixes", "2"]) == 0
    part = json.loads(out.read_text(encoding="utf-8"))["parts"]["small"]
    assert len(part["decibels"]) == 3 * len(ALGORITHMS)
    assert len(part["ceilings"]) == 3 * len(CEILINGS)
    assert all(record["same_kernels"] for record in part["decibels"])
    different = {record["snr_db"] for record in part["decibels"] if record["mix"] == 0}
    assert len(different) >= len(ALGORITHMS) - 2, "GPTQ takes the place of AdaQuant where kernels saturate"
    assert "| small | u8s8-tensor-minmax |" in capsys.readouterr().out


def test_it_measures_the_recipes_of_another_space(small: str, tmp_path: Path) -> None:
    out, scheme = tmp_path / "decibels.json", "u8s8-channel-pow2-minmax"
    assert main([str(out), small, "--space", "power_of_two", "--schemes", scheme, "--mixes", "0"]) == 0
    part = json.loads(out.read_text(encoding="utf-8"))["parts"]["small"]
    assert part["settings"]["space"] == "power_of_two"
    assert {record["scheme"] for record in part["decibels"]} == {scheme}
