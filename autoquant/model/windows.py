"""How the windows of pools and convolutions lie on what they read."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoquant.model.graph import Graph, Node

__all__ = ["RANKS", "SPATIAL", "UNPADDED", "Axis", "pads_of", "window_axes"]

RANKS = (3, 4)
"""Of lines and images."""
SPATIAL = 2
"""The first axis of the places of an image or a line."""
UNPADDED = (b"NOTSET", b"VALID")
"""Values of ``auto_pad`` that put no places around it, the usual one first."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How windows lie along an axis of what a pool reads.

    Attributes:
        size: None where it is not known.
        span: Places from the first to the last of a window.
        stride: From one window to the next.
        dilation: From one place of a window to the next.
        pad: Places put around what is read, together.
        before: Those of them that come before it.
    """

    size: int | None
    span: int
    stride: int
    dilation: int
    pad: int
    before: int

    @property
    def is_divided(self) -> bool:
        """Whether the last window ends where the padding does."""
        return self.size is not None and (self.size + self.pad - self.span) % self.stride == 0

    @property
    def is_ceiled(self) -> bool | None:
        """Whether ``ceil_mode`` adds a window: onnxruntime makes none that begins behind what is read.

        None where the size is not known.
        """
        if self.size is None:
            return None
        last = -(-(self.size + self.pad - self.span) // self.stride)
        return not self.is_divided and last * self.stride < self.size + self.before

    @property
    def is_tiled(self) -> bool:
        """Whether windows lie side by side and nothing is left over."""
        return self.stride == self.span and self.is_divided

    @property
    def is_one_window(self) -> bool:
        """Whether there is no place but those of one window."""
        return self.span == self.size and not self.pad


def window_axes(node: Node, graph: Graph) -> list[Axis]:
    """Of a pool, one for each axis of images or lines; no sizes are known where their number is not."""
    window = node.attributes["kernel_shape"]
    sizes = (graph.sizes(node.inputs[0]) or ())[SPATIAL:] or (None,) * len(window)
    n_axes, pads = len(window), node.attributes.get("pads", (0,) * 2 * len(window))
    strides, dilations = (node.attributes.get(name, (1,) * n_axes) for name in ("strides", "dilations"))
    return [
        Axis(
            size=sizes[i],
            span=dilations[i] * (window[i] - 1) + 1,
            stride=strides[i],
            dilation=dilations[i],
            pad=pads[i] + pads[i + n_axes],
            before=pads[i],
        )
        for i in range(n_axes)
    ]


def pads_of(node: Node, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Places that a Conv puts before what it reads along each axis, then those behind it.

    Where windows begin more than two places behind the end of the one before, onnxruntime leaves places out at the ends
    with ``auto_pad``, which is not told here.

    Args:
        node: What says so: by ``pads``, or by ``auto_pad``.
        sizes: Of what it reads, along each axis of places.
        spans: Places from the first to the last of a window.
        strides: From one window to the next.
    """
    mode, none = node.attributes.get("auto_pad", b"NOTSET"), (0,) * 2 * len(sizes)
    if mode not in (b"SAME_UPPER", b"SAME_LOWER"):  # an empty one is NOTSET to onnxruntime
        return none if mode == b"VALID" else tuple(node.attributes.get("pads") or none)
    both = [
        max((-(-size // stride) - 1) * stride + span - size, 0)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    less, more = [n // 2 for n in both], [n - n // 2 for n in both]
    return (*less, *more) if mode == b"SAME_UPPER" else (*more, *less)
