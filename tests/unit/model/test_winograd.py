import numpy as np

from autoquant.model.winograd import TILE, WINDOW, combine_products, transform_weight, transform_windows
from tests.models import floats


def test_a_tile_is_what_a_convolution_makes_of_its_window() -> None:
    window, weight = floats(5, WINDOW, WINDOW), floats(3, 5, 3, 3, seed=1)
    spread = transform_windows(5).reshape(5, WINDOW**2, WINDOW, WINDOW)
    windows = np.einsum("cpuv,cuv->pc", spread, window)
    products = np.einsum("pmc,pc->pm", transform_weight(weight), windows)
    tile = (combine_products() @ products).T.reshape(3, TILE, TILE)
    places = np.lib.stride_tricks.sliding_window_view(window, (3, 3), axis=(1, 2))
    np.testing.assert_allclose(tile, np.einsum("cijuv,mcuv->mij", places, weight), atol=1e-4)


def test_transforms_are_float32() -> None:
    made = (transform_windows(2), transform_weight(floats(3, 2, 3, 3)), combine_products())
    assert [array.dtype for array in made] == [np.float32] * 3
    assert [array.shape for array in made] == [(72, 1, 6, 6), (36, 3, 2), (16, 36)]
