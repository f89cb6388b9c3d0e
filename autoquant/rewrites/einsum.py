"""Einsum as a product of matrices, which there are integer kernels for."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.edits import Edit

__all__ = ["lower_einsum"]

Sizes = Mapping[str, int | None]
"""Of each label; None where it is not static."""
Layout = tuple[str, ...]
"""The labels of each dimension: several that share one, or none where its size is 1."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One node that moves values: the axes of a Transpose, or the shape of a Reshape."""

    op_type: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Operand:
    tensor: TensorName
    labels: str
    is_constant: bool


@dataclass(frozen=True, slots=True)
class _Form:
    """A product of matrices that computes an Einsum, with what is done before and behind it."""

    operands: tuple[_Operand, _Operand]
    before: tuple[tuple[_Step, ...], tuple[_Step, ...]]
    behind: tuple[_Step, ...]

    @property
    def is_known(self) -> bool:
        """Whether no Reshape has more than one dimension whose size is not known."""
        return all(step.numbers.count(-1) < 2 for step in (*self.before[0], *self.before[1], *self.behind))

    @property
    def cost(self) -> tuple[int, int]:
        """How many Transposes run, and how many Reshapes."""
        pairs = zip(self.operands, self.before, strict=True)
        steps = [*self.behind, *(step for operand, own in pairs if not operand.is_constant for step in own)]
        n_transposes = sum(step.op_type == "Transpose" for step in steps)
        return n_transposes, len(steps) - n_transposes


def lower_einsum(model: onnx.ModelProto) -> onnx.ModelProto:
    """An Einsum of two operands becomes Transpose, Reshape and MatMul, in the order that moves values least often.

    A constant becomes the second operand, and is itself brought into the shape of the product; without labels that
    operands and output share that is a matrix. As it is stays what repeats a label in one operand, sums in one operand
    alone or in none, spreads a dimension of size 1, or has to Reshape more than one dynamic dimension. Dynamic
    dimensions of one label are taken for equal.

    Args:
        model: Stays as it is, and is given back where there is nothing to do.
    """
    graph = graph_of(model)
    edit = Edit(graph)
    lowering = _Lowering(edit)
    for node in graph.nodes:
        form = _form_of(graph, node)
        if form is not None:
            edit.replaced[node.index] = lowering.nodes(node, form)
    return infer_shapes(edit.model()) if edit.replaced else model


@dataclass(frozen=True, slots=True)
class _Lowering:
    """Writes products of matrices in place of the nodes of one model."""

    edit: Edit
    _rearranged: dict[tuple[TensorName, tuple[_Step, ...]], TensorName] = field(default_factory=dict)

    def nodes(self, node: Node, form: _Form) -> list[onnx.NodeProto]:
        """What takes the place of one."""
        made: list[onnx.NodeProto] = []
        read: list[TensorName] = []
        for end, operand, steps in zip(("first", "second"), form.operands, form.before, strict=True):
            if operand.is_constant:
                read.append(self._constant(operand.tensor, steps))
                continue
            outputs = [self.edit.names.new(f"{operand.tensor}_for_{node.name}") for _ in steps]
            made += self._moves(f"{node.name}_{end}", steps, [operand.tensor, *outputs])
            read.append([operand.tensor, *outputs][-1])
        outputs = [self.edit.names.new(f"{node.name}_product") for _ in form.behind] + [node.outputs[0]]
        made.append(helper.make_node("MatMul", read, outputs[:1], name=node.name))
        return [*made, *self._moves(f"{node.name}_product", form.behind, outputs)]

    def _moves(self, name: str, steps: Sequence[_Step], tensors: Sequence[TensorName]) -> Iterator[onnx.NodeProto]:
        """From the first tensor to the last."""
        for step, (read, written) in zip(steps, itertools.pairwise(tensors), strict=True):
            own = f"{name}_{step.op_type}"
            if step.op_type == "Transpose":
                yield helper.make_node("Transpose", [read], [written], name=own, perm=step.numbers)
            else:
                shape = self.edit.constant(f"{name}_shape", np.array(step.numbers, np.int64))
                yield helper.make_node("Reshape", [read, shape], [written], name=own)

    def _constant(self, tensor: TensorName, steps: tuple[_Step, ...]) -> TensorName:
        """The constant after these steps: another one, as others may read the first, but one for all who read it so."""
        if not steps:
            return tensor
        if (tensor, steps) not in self._rearranged:
            values = self.edit.graph.constant(tensor)
            for step in steps:
                values = (np.transpose if step.op_type == "Transpose" else np.reshape)(values, step.numbers)
            self._rearranged[tensor, steps] = self.edit.constant(f"{tensor}_rearranged", values)
        return self._rearranged[tensor, steps]


def _form_of(graph: Graph, node: Node) -> _Form | None:
    """The cheapest form; None where the node stays."""
    if node.op_type != "Einsum" or len(node.inputs) != 2 or node.outputs[0] not in graph.float_tensors:
        return None
    labels = _labels(node.attributes["equation"].decode())
    if labels is None:
        return None
    *given, output = labels
    operands = [_Operand(name, own, graph.is_constant(name)) for name, own in zip(node.inputs, given, strict=True)]
    sizes = _sizes(graph, operands)
    if sizes is None or all(operand.is_constant for operand in operands):
        return None
    forms = (
        form
        for first, second in (operands, operands[::-1])
        if not first.is_constant
        for form in _forms(first, second, output, sizes)
        if form.is_known
    )
    return min(forms, key=lambda form: form.cost, default=None)


def _labels(equation: str) -> tuple[str, str, str] | None:
    """Those of both operands and of the output, where the equation is a product of matrices."""
    given, arrow, output = equation.replace(" ", "").partition("->")
    first, comma, second = given.partition(",")
    if not arrow:
        output = "".join(sorted(set(first) ^ set(second)))
    labels = first, second, output
    if not comma or not "".join(labels).isalpha() or any(len(set(each)) < len(each) for each in labels):
        return None
    is_product = set(first) ^ set(second) <= set(output) < set(first) | set(second)
    return labels if is_product else None


def _sizes(graph: Graph, operands: Sequence[_Operand]) -> Sizes | None:
    """The size of each label; None where operands do not agree, one is spread, or nothing is left to multiply."""
    found: dict[str, set[int | None]] = {}
    for operand in operands:
        sizes = graph.sizes(operand.tensor) or (None,) * len(operand.labels)
        if len(sizes) != len(operand.labels):
            return None
        for label, size in zip(operand.labels, sizes, strict=True):
            found.setdefault(label, set()).add(size)
    known = {label: sizes - {None} for label, sizes in found.items()}
    if any(len(sizes) > 1 or 0 in sizes or (1 in sizes and None in found[label]) for label, sizes in known.items()):
        return None
    return {label: next(iter(sizes), None) for label, sizes in known.items()}


def _forms(first: _Operand, second: _Operand, output: str, sizes: Sizes) -> Iterator[_Form]:
    """One for each order in which the labels of one kind may stand."""
    a, b = first.labels, second.labels
    kinds = (
        [_only(each, set(a) & set(b) & set(output)) for each in (output, a, b)],
        [_only(each, set(a) - set(b)) for each in (a, output)],
        [_only(each, set(a) & set(b) - set(output)) for each in (a, b)],
        [_only(each, set(b) - set(a)) for each in (b, output)],
    )
    for batch, rows, summed, columns in itertools.product(*map(dict.fromkeys, kinds)):
        leading = (*batch, rows) if batch else tuple(rows)
        yield _Form(
            operands=(first, second),
            before=(
                _steps(tuple(a), (*leading, summed), sizes),
                _steps(tuple(b), (*batch, summed, columns), sizes),
            ),
            behind=_steps((*leading, columns), tuple(output), sizes),
        )


def _only(labels: str, wanted: set[str]) -> str:
    return "".join(label for label in labels if label in wanted)


def _steps(given: Layout, wanted: Layout, sizes: Sizes) -> tuple[_Step, ...]:
    """From one layout of the same labels to another."""
    before, after = "".join(given), "".join(wanted)
    if _moving(before, sizes) == _moving(after, sizes):
        return _reshaping(given, wanted, sizes)
    transposing = _Step("Transpose", tuple(before.index(label) for label in after))
    return (
        *_reshaping(given, tuple(before), sizes),
        transposing,
        *_reshaping(tuple(after), wanted, sizes),
    )


def _reshaping(given: Layout, wanted: Layout, sizes: Sizes) -> tuple[_Step, ...]:
    """At most one Reshape, between layouts with the same order of labels."""
    if [_moving(labels, sizes) for labels in given] == [_moving(labels, sizes) for labels in wanted]:
        return ()
    return (_Step("Reshape", tuple(_size(labels, sizes) for labels in wanted)),)


def _moving(labels: str, sizes: Sizes) -> str:
    """Without those of size 1, which change nothing wherever they stand."""
    return "".join(label for label in labels if sizes[label] != 1)


def _size(labels: str, sizes: Sizes) -> int:
    known = [size for label in labels if (size := sizes[label]) is not None]
    return math.prod(known) if len(known) == len(labels) else -1
