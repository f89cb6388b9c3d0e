"""Search spaces: every choice that a search may make."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.scheme import BiasCorrection, DType, Rounding, Scheme

__all__ = [
    "QUANTIZABLE_OP_TYPES",
    "Group",
    "SearchSpace",
    "SpaceDefinition",
    "SpaceRule",
]

# fmt: off
QUANTIZABLE_OP_TYPES = frozenset({
    "Add", "AveragePool", "Clip", "Concat", "Conv", "ConvTranspose", "DepthToSpace", "Div", "Expand", "Flatten",
    "Gather", "GatherElements", "Gelu", "Gemm", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LSTM", "LeakyRelu",
    "MatMul", "MaxPool", "Mul", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "Relu", "Reshape", "Resize", "Sigmoid",
    "Slice", "Softmax", "Split", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze", "Where",
})
# fmt: on
"""Operator types that the builder knows; a space file may name no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceRule:
    """What the nodes that it matches may take, besides float.

    Attributes:
        op_types: Operator types that match, Gemm and MatMul with a constant matrix for each other; every one if empty.
        nodes: Regular expression that is searched in node names; every node if None.
        schemes: Names of the only schemes that a region with such a node may take.
    """

    op_types: frozenset[str]
    nodes: str | None
    schemes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A region of the user's own.

    Attributes:
        name: Unique in the space.
        nodes: Regular expression that is searched in node names.
    """

    name: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceDefinition:
    """A space file as it stands for one execution provider, before any model.

    Attributes:
        name: The file's name without suffix.
        schemes: What the execution provider may be asked for, in the file's order; float is not listed.
        op_types: Operator types that have an integer kernel there.
        rules: The last one that matches a node decides for that node.
        groups: The user's own regions.
        accuracy: What is done for accuracy beside the schemes.
        digest: Of everything above but the name.
        open_biases: Names of schemes of which the file leaves it to the accuracy whether biases are corrected.
    """

    name: str
    schemes: tuple[Scheme, ...]
    op_types: frozenset[str]
    rules: tuple[SpaceRule, ...]
    groups: tuple[Group, ...]
    accuracy: Accuracy
    digest: str
    open_biases: frozenset[str] = frozenset()

    def uncorrected(self) -> "SpaceDefinition":
        """The same without corrected biases, but where the file asks for them."""
        schemes = tuple(
            replace(scheme, bias=BiasCorrection.NONE) if scheme.name in self.open_biases else scheme
            for scheme in self.schemes
        )
        return replace(self, schemes=schemes)

    def unsaturated(self) -> "SpaceDefinition":
        """The same for kernels that add two products in 16 bits: no scale of s8 weights lets them saturate.

        Such weights are symmetric, as kernels multiply what is stored, zero point and all. What would learn scales
        rounds by ``gptq`` instead.
        """
        schemes = tuple(
            replace(
                scheme,
                weight=replace(scheme.weight, unsaturated=True, symmetric=True),
                rounding=Rounding.GPTQ if scheme.rounding is Rounding.ADAQUANT else scheme.rounding,
            )
            if scheme.weight.dtype is DType.S8 and scheme.activation.dtype.bits == 8 and not scheme.is_blockwise
            else scheme
            for scheme in self.schemes
        )
        return self if schemes == self.schemes else replace(self, schemes=schemes, digest=f"{self.digest}-unsaturated")

    def at_opset(self, opset: int) -> "SpaceDefinition":
        """The same without the schemes that this version of ONNX's operators cannot express."""
        return replace(self, schemes=tuple(scheme for scheme in self.schemes if scheme.opset <= opset))

    @property
    def has_dynamic(self) -> bool:
        """Whether a scheme takes the ranges of activations at run time."""
        return any(scheme.is_dynamic for scheme in self.schemes)

    @property
    def has_static(self) -> bool:
        """Whether a scheme takes them from calibration."""
        return not all(scheme.is_dynamic for scheme in self.schemes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The choices of one model.

    Attributes:
        choices: Names of the schemes that each region may take, float first.
        schemes: By name; float is none of them.
    """

    choices: Mapping[RegionId, tuple[str, ...]]
    schemes: Mapping[str, Scheme]

    def uniform(self, scheme: str) -> Assignment:
        """The recipe: every region that may take the scheme does."""
        return {region: scheme for region, names in self.choices.items() if scheme in names}
