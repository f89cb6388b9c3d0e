import json
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import QuantType

from autoquant.errors import ModelError
from autoquant.runtime.overrides import load_overrides


def written(folder: Path, content: object) -> Path:
    file = folder / "t0001.overrides.json"
    file.write_text(json.dumps(content))
    return file


def test_types_become_members_and_numbers_become_arrays_of_the_stored_type(tmp_path: Path) -> None:
    file = written(tmp_path, {"t": [{"quant_type": "QUInt16", "scale": 0.1, "zero_point": 40000}]})
    (found,) = load_overrides(file)["t"]
    assert found["quant_type"] is QuantType.QUInt16
    assert (found["scale"].dtype, found["scale"].shape, found["scale"]) == (np.float32, (), np.float32(0.1))
    assert (found["zero_point"].dtype, found["zero_point"].shape, found["zero_point"]) == (np.uint16, (), 40000)


def test_the_receivers_of_a_conversion_become_a_set(tmp_path: Path) -> None:
    convert = {"quant_type": "QInt8", "scale": 1, "zero_point": -3, "recv_nodes": ["a", "b"]}
    found = load_overrides(written(tmp_path, {"t": [{"convert": convert}]}))["t"][0]["convert"]
    assert found["recv_nodes"] == {"a", "b"}
    assert found["zero_point"].dtype == np.int8


def test_what_says_nothing_of_numbers_is_left_as_it_is(tmp_path: Path) -> None:
    file = written(tmp_path, {"w": [{"quant_type": "QInt8", "symmetric": True, "axis": 1}]})
    assert load_overrides(file) == {"w": [{"quant_type": QuantType.QInt8, "symmetric": True, "axis": 1}]}


@pytest.mark.parametrize("content", [[1], {"t": [{"quant_type": "QInt7"}]}, {"t": [{"zero_point": 1}]}, {"t": 1}])
def test_what_is_no_overrides_file_is_refused_with_its_name(tmp_path: Path, content: object) -> None:
    with pytest.raises(ModelError, match=r"t0001.overrides.json: these are no tensor overrides .*; give a models/"):
        load_overrides(written(tmp_path, content))


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.json: these are no tensor overrides"):
        load_overrides(tmp_path / "none.json")
