"""Short-time Fourier transforms by operators that integer kernels are known for."""

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.chain import Chain, of_each_chain

__all__ = ["lower_stft"]

_LONGEST = 1024
"""Window of which a Conv takes no longer than onnxruntime's transform, in float."""
_REAL_AXES = (2, 3)
"""Of a signal: its samples alone, or with one number each."""
Floats = npt.NDArray[np.float32]


@of_each_chain()
def lower_stft(graph: Graph, chain: Chain) -> None:
    """An STFT of real signals with a constant window and step becomes a Conv with a kernel for each frequency.

    onnxruntime transforms each frame by itself, slowly where its length is no power of two. The model stays as it
    is, and is given back where there is nothing to do.
    """
    node = chain.node
    if node.op_type != "STFT":
        return
    window, step = _window(graph, node), _number(graph, node, 1)
    shape = graph.shape(node.inputs[0]) or ()
    is_real = len(shape) in _REAL_AXES and shape[2:] in ((), (1,)) and node.inputs[0] in graph.float_tensors
    if window is None or not step or not is_real or 0 in shape or not 0 < window.size <= min(shape[1], _LONGEST):
        return
    n_bins = window.size // 2 + 1 if node.attributes.get("onesided", 1) else window.size
    chain.reshape((shape[0], 1, shape[1]), "line")
    chain.add("Conv", {"weight": _kernels(window, n_bins)}, strides=[step], kernel_shape=[window.size])
    chain.reshape((shape[0], 2, n_bins, -1), "parts")
    chain.add("Transpose", part="spectrum", perm=[0, 3, 2, 1])


def _window(graph: Graph, node: Node) -> Floats | None:
    """By which frames are multiplied, ones where it is left out; None where it is not known, or of another length."""
    name, length = next(iter(node.inputs[2:]), ""), _number(graph, node, 3)
    if not name:
        return np.ones(length, np.float32) if length else None
    known = graph.is_constant(TensorName(name)) and graph.constant(TensorName(name)).dtype == np.float32
    window = graph.constant(TensorName(name)).ravel() if known else None
    is_whole = window is not None and (length == window.size or len(node.inputs) <= 3 or not node.inputs[3])
    return window if is_whole else None


def _number(graph: Graph, node: Node, slot: int) -> int:
    """A constant that a node reads; 0 where it is left out or no constant."""
    name = next(iter(node.inputs[slot:]), "")
    return int(graph.constant(TensorName(name)).item()) if name and graph.is_constant(TensorName(name)) else 0


def _kernels(window: Floats, n_bins: int) -> Floats:
    """Shape (2 * bins, 1, length): the real parts, then the imaginary ones."""
    angles = 2 * np.pi / window.size * (np.outer(np.arange(n_bins), np.arange(window.size)) % window.size)
    waves = np.concatenate([np.cos(angles), -np.sin(angles)])
    return np.asarray(waves * window, np.float32)[:, None]
