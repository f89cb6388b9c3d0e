"""Fourier transforms by operators that integer kernels are known for."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.chain import Chain, of_each_chain

__all__ = ["lower_dft", "lower_stft"]

_LONGEST = 1024
"""Window of which a Conv takes no longer than onnxruntime's transform, in float."""
_REAL_AXES = (2, 3)
"""Of a signal: its samples alone, or with one number each."""
_AXIS_IS_READ = 20
"""Opset since which a DFT reads its axis, which is the last but one by default; before, an attribute says it."""
_LEAST_RANK = 3
_PARTS = (1, 2)
"""Of a real number and of a complex one."""
_MOST_OF_POWERS = 512 * 514
"""Elements of the matrix of a DFT whose length is a power of two, of which a product takes no longer."""
_MOST_OF_A_LINE = 1 << 15
"""Of one of which a single line is transformed: its matrix is read for that line alone."""
_MOST = 1 << 20
"""Of one of another length, which onnxruntime transforms more slowly."""
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


@of_each_chain()
def lower_dft(graph: Graph, chain: Chain) -> None:
    """A DFT along an axis of known length becomes a MatMul with a matrix of cosines and sines.

    It has a row for each part of each number that is read along the axis, and a column for each that is written.
    onnxruntime transforms line by line, slowly where their length is no power of two. The model stays as it is, and is
    given back where there is nothing to do.

    References:
        ONNX operators, DFT, https://onnx.ai/onnx/operators/onnx__DFT.html.
    """
    if chain.node.op_type != "DFT":
        return
    joined = _of_real_numbers(graph, chain.node)
    transform = _transform(graph, chain.node, is_real=joined is not None)
    if transform is None or not transform.pays:
        return
    if joined:
        chain.source, chain.edit.replaced[joined.index] = joined.inputs[0], ()
    n_lines = transform.rank - 2
    kept = (0,) * n_lines
    order = [axis for axis in range(transform.rank - 1) if axis != transform.axis]
    order += [transform.axis, transform.rank - 1]
    if transform.axis < n_lines:
        chain.add("Transpose", part="last", perm=order)
    chain.reshape((*kept, transform.n_places * transform.n_parts), "line")
    chain.add("MatMul", {"weight": transform.matrix()})
    chain.reshape((*kept, transform.n_bins, transform.n_parts_of_bins), "parts")
    if transform.axis < n_lines:
        chain.add("Transpose", part="spectrum", perm=[order.index(axis) for axis in range(transform.rank)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transform:
    """What a DFT computes.

    Attributes:
        rank: Of what it reads; the last axis has the parts of a number.
        axis: That it goes along.
        is_single: Whether it is known to transform one line alone.
        n_places: Along that axis.
        n_parts: 1 of real numbers, 2 of complex ones.
        length: Places that are transformed: others are left out, and missing ones zero.
        is_inverse: Whether it makes a signal of a spectrum.
        is_half: Whether signals are real, and spectra without the half that follows from the other one.
    """

    rank: int
    axis: int
    is_single: bool
    n_places: int
    n_parts: int
    length: int
    is_inverse: bool
    is_half: bool

    @property
    def n_bins(self) -> int:
        """Places that are written along the axis."""
        return self.length // 2 + 1 if self.is_half and not self.is_inverse else self.length

    @property
    def n_parts_of_bins(self) -> int:
        """Of each number that is written."""
        return 1 if self.is_half and self.is_inverse else 2

    @property
    def is_spelled(self) -> bool:
        """Whether ONNX says what it computes: half a spectrum is that of a real signal, and as long as it is."""
        if not self.is_half:
            return True
        return self.n_places == self.length // 2 + 1 and self.n_parts > 1 if self.is_inverse else self.n_parts == 1

    @property
    def pays(self) -> bool:
        """Whether a product takes no longer."""
        is_power = not self.length & (self.length - 1)
        n_elements = self.n_places * self.n_parts * self.n_bins * self.n_parts_of_bins
        return n_elements <= ((_MOST_OF_A_LINE if self.is_single else _MOST_OF_POWERS) if is_power else _MOST)

    def matrix(self) -> Floats:
        """By which numbers in a row are multiplied: shape (places * parts, bins * parts of bins)."""
        places = np.arange(self.n_places)
        angles = 2 * np.pi / self.length * (np.outer(places, np.arange(self.n_bins)) % self.length)
        real, imaginary = np.cos(angles), np.sin(angles) * (1 if self.is_inverse else -1)
        counts = np.where(places < self.length, 1.0, 0.0)
        if self.is_half and self.is_inverse:
            counts[2 * places % self.length != 0] = 2.0  # as is the half that is not read
        if self.is_inverse:
            counts /= self.length
        waves = np.array([[real, imaginary], [-imaginary, real]])[: self.n_parts, : self.n_parts_of_bins]
        rows = waves.transpose(2, 0, 3, 1) * counts[:, None, None, None]
        return np.asarray(rows.reshape(self.n_places * self.n_parts, -1), np.float32)


def _transform(graph: Graph, node: Node, *, is_real: bool) -> _Transform | None:
    """What a DFT computes; None where that is not known.

    Args:
        graph: Of it.
        node: The DFT.
        is_real: Whether it is of the first part alone, as the other one is zero.
    """
    sizes, axis = graph.sizes(node.inputs[0]) or (), _axis(graph, node)
    if len(sizes) < _LEAST_RANK or axis is None or node.inputs[0] not in graph.float_tensors:
        return None
    axis += len(sizes) if axis < 0 else 0
    n_places, n_parts = (sizes[axis] if 0 <= axis < len(sizes) - 1 else None), 1 if is_real else sizes[-1]
    if not n_places or n_parts not in _PARTS:
        return None
    is_inverse, is_half = (bool(node.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    usual = 2 * (n_places - 1) if is_inverse and is_half else n_places
    length = _number(graph, node, 1) if node.inputs[1:] and node.inputs[1] else usual
    if length < 1:
        return None
    found = _Transform(
        rank=len(sizes),
        axis=axis,
        is_single=all(size == 1 for place, size in enumerate(sizes[:-1]) if place != axis),
        n_places=n_places,
        n_parts=n_parts,
        length=length,
        is_inverse=is_inverse,
        is_half=is_half,
    )
    return found if found.is_spelled else None


def _axis(graph: Graph, node: Node) -> int | None:
    """Along which a DFT goes, counted from the end where it is negative; None where it is not known."""
    if opset_of(graph.model) < _AXIS_IS_READ:
        return int(node.attributes.get("axis", 1))
    name = next(iter(node.inputs[2:]), "")
    if not name:
        return -2
    return _number(graph, node, 2) if graph.is_constant(TensorName(name)) else None


def _of_real_numbers(graph: Graph, node: Node) -> Node | None:
    """The Concat that puts zeros behind real numbers, as exporters do where PyTorch has complex ones; or None.

    Only where nothing else reads it, and the DFT may read real numbers.
    """
    joined = graph.producer.get(node.inputs[0])
    if joined is None or joined.op_type != "Concat" or len(joined.inputs) != _PARTS[-1]:
        return None
    shapes = [graph.sizes(name) or () for name in joined.inputs]
    is_last = joined.attributes["axis"] in (-1, len(shapes[0]) - 1) and all(shape[-1:] == (1,) for shape in shapes)
    is_known = graph.is_constant(joined.inputs[1]) and not graph.constant(joined.inputs[1]).any()
    is_one = graph.only_reader(joined.outputs[0]) is not None and not node.attributes.get("onesided", 0)
    return joined if is_last and is_known and is_one else None


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
