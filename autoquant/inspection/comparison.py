"""A quantized model beside the float model that it was made from."""

from collections import Counter
from dataclasses import dataclass

from autoquant.inspection.inspection import Inspection
from autoquant.inspection.kernels import Runs
from autoquant.inspection.nodes import InspectedNode
from autoquant.model.optimized import QUANTIZED, original_name

__all__ = ["Comparison", "Fate", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of some nodes of the float model.

    Attributes:
        op_type: Their operator.
        float_kernel: What computes them in the float model.
        kernel: What computes them in the quantized model; None where it has no such node.
        runs: How they run there; None likewise.
        n_nodes: How many they are.
        example: One of them.
    """

    op_type: str
    float_kernel: str | None
    kernel: str | None
    runs: Runs | None
    n_nodes: int
    example: str

    @property
    def is_slower_float(self) -> bool:
        """Whether they stay in float but lose the kernel that they have in the float model."""
        return self.runs is Runs.FLOAT and self.float_kernel != self.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What became of the float model.

    Attributes:
        fates: Nodes that run in float there, by operator and kernels, the most frequent first.
        n_missing: Nodes of the float model that the quantized model lacks by name: it was preprocessed.
    """

    fates: tuple[Fate, ...]
    n_missing: int


def compare(quantized: Inspection, reference: Inspection) -> Comparison:
    """Follow each node of the float model, by name, into the quantized model."""
    there = {_float_name(node.name): node for node in quantized.nodes} | {node.name: node for node in quantized.nodes}
    counted = Counter[tuple[str, str | None, str | None, Runs | None]]()
    examples: dict[tuple[str, str | None, str | None, Runs | None], str] = {}
    for node in reference.nodes:
        if node.runs is not Runs.FLOAT:
            continue
        found = there.get(node.name, there.get(_float_name(node.name)))
        key = (node.op_type, _kernel(node), _kernel(found), found.runs if found is not None else None)
        counted[key] += 1
        examples.setdefault(key, node.name)
    fates = tuple(
        Fate(op_type=key[0], float_kernel=key[1], kernel=key[2], runs=key[3], n_nodes=n, example=examples[key])
        for key, n in counted.most_common()
    )
    return Comparison(fates=fates, n_missing=sum(fate.n_nodes for fate in fates if fate.runs is None))


def _float_name(name: str) -> str:
    """Without what quantizers and fusions append to it."""
    suffix = next((suffix for suffix in QUANTIZED if name.endswith(suffix)), "")
    return original_name(name.removesuffix(suffix))


def _kernel(node: InspectedNode | None) -> str | None:
    """A node that another one's kernel computes has none of its own."""
    if node is None or node.kernel is None:
        return None
    return f"fused into {node.kernel}" if node.fused_into is not None else node.kernel
