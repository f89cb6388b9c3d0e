"""The network as plain values, read by torch and by the ONNX graph alike.

It has what real exports have and a search must cope with: convolutions followed by an unfused BatchNormalization,
strided and residual blocks, inverted residual blocks with depthwise convolutions, a squeeze-and-excitation gate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCKS",
    "BN_EPSILON",
    "N_CLASSES",
    "UPSAMPLING",
    "Block",
    "ConvBn",
    "State",
    "list_convs",
    "make_shortcut",
    "make_stem",
]

UPSAMPLING = 5
BN_EPSILON = 1e-5
State = dict[str, NDArray[np.float32]]
"""Parameters and running statistics by scope, e.g. ``"stage1/block0/conv1/bn/weight"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One residual block.

    Attributes:
        name: Scope of its nodes, e.g. ``"stage1/block0"``.
        channels_in: Channels entering.
        channels_out: Channels leaving.
        stride: Stride of its spatial convolution.
        expansion: Hidden channels of an inverted residual with a depthwise convolution; 0 for a basic block.
        squeeze: Channels of the squeeze-and-excitation bottleneck; 0 for none.
    """

    name: str
    channels_in: int
    channels_out: int
    stride: int = 1
    expansion: int = 0
    squeeze: int = 0

    @property
    def has_shortcut(self) -> bool:
        """Whether the skip connection is a 1 x 1 convolution."""
        return self.stride != 1 or self.channels_in != self.channels_out


STEM_CHANNELS = 32
N_CLASSES = 10
BLOCKS = (
    Block(name="stage1/block0", channels_in=32, channels_out=32),
    Block(name="stage1/block1", channels_in=32, channels_out=32),
    Block(name="stage2/block0", channels_in=32, channels_out=64, stride=2),
    Block(name="stage2/block1", channels_in=64, channels_out=64, expansion=128, squeeze=16),
    Block(name="stage3/block0", channels_in=64, channels_out=64, stride=2),
    Block(name="stage3/block1", channels_in=64, channels_out=64, expansion=96),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvBn:
    """A convolution without bias, followed by a BatchNormalization, perhaps by a Relu."""

    name: str
    channels_in: int
    channels_out: int
    kernel: int
    stride: int = 1
    groups: int = 1
    relu: bool = True


def list_convs(block: Block) -> tuple[ConvBn, ...]:
    """The convolutions on the main path of a block."""
    name, hidden = block.name, block.expansion
    if hidden:
        return (
            ConvBn(name=f"{name}/expand", channels_in=block.channels_in, channels_out=hidden, kernel=1),
            ConvBn(
                name=f"{name}/depthwise",
                channels_in=hidden,
                channels_out=hidden,
                kernel=3,
                stride=block.stride,
                groups=hidden,
            ),
            ConvBn(name=f"{name}/project", channels_in=hidden, channels_out=block.channels_out, kernel=1, relu=False),
        )
    return (
        ConvBn(
            name=f"{name}/conv1",
            channels_in=block.channels_in,
            channels_out=block.channels_out,
            kernel=3,
            stride=block.stride,
        ),
        ConvBn(
            name=f"{name}/conv2", channels_in=block.channels_out, channels_out=block.channels_out, kernel=3, relu=False
        ),
    )


def make_stem() -> ConvBn:
    """The first convolution."""
    return ConvBn(name="stem", channels_in=1, channels_out=STEM_CHANNELS, kernel=3)


def make_shortcut(block: Block) -> ConvBn:
    """The convolution on the skip connection of a block that changes the shape."""
    return ConvBn(
        name=f"{block.name}/shortcut",
        channels_in=block.channels_in,
        channels_out=block.channels_out,
        kernel=1,
        stride=block.stride,
        relu=False,
    )
