"""The shipped example is what its parameters are exported as."""

import onnx
from onnx import numpy_helper

from autoquant.examples import example
from experiments.digits.architecture import BLOCKS, list_convs, make_shortcut, make_stem
from experiments.digits.export import make_model


def test_the_parameters_of_the_shipped_model_give_its_bytes_again() -> None:
    path = example("digits").model
    state = {t.name.replace(".", "/"): numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    assert make_model(state).SerializeToString(deterministic=True) == path.read_bytes()


def test_every_convolution_has_the_channels_that_the_one_before_gives() -> None:
    channels = make_stem().channels_out
    for block in BLOCKS:
        assert (block.channels_in, block.has_shortcut) == (
            channels,
            channels != block.channels_out or block.stride != 1,
        )
        for conv in list_convs(block):
            assert conv.channels_in == channels
            channels = conv.channels_out
        assert make_shortcut(block).channels_out == channels == block.channels_out
