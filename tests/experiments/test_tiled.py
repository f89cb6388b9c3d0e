from experiments.bench.tiled import chain, measure_tiled, render_tiled, tile_by_tile
from tests.models import op_types


def test_small_convolutions_are_computed_tile_by_tile_too() -> None:
    found, is_tried = tile_by_tile(chain(8, 12, 12))
    assert op_types(found).count("MatMul") == 4
    assert not is_tried


def test_both_are_measured_together() -> None:
    found = measure_tiled((8, 12, 12), 1.0)
    assert found["snr_db"] > 100
    assert found["ratio"] > 0
    part = {"shape": [8, 12, 16], "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6, "snr_db": 120.0, "is_tried": True}
    assert "| 8 | 12 x 16 | 0.50 (0.40 to 0.60) | 120 | yes |" in render_tiled({"parts": {"a": part}})
