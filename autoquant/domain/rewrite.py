"""Ways of writing the same."""

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["IN_WORDS", "LARGER", "Rewrite", "Rewrites"]


class Rewrite(StrEnum):
    """Another way in which candidates may be written.

    All but ``TANH_GELUS`` give the same numbers but for rounding from other kernels. Which one is faster depends on the
    processor, so that each is probed.
    """

    PLAIN_SUMS = "plain_sums"
    """Float Adds before a LayerNormalization are Sums, which onnxruntime does not fuse with it."""
    JOINED_GROUPS = "joined_groups"
    """Convs on integers have fewer and larger groups, with zeros between those that were joined."""
    TILED_CONVS = "tiled_convs"
    """Float Convs of 3 x 3 and many channels are computed tile by tile, with a quarter of the products."""
    KEPT_BLOCKS = "kept_blocks"
    """Float images keep their channels in blocks from Conv to Conv, by Convs of each channel alone between them."""
    TANH_GELUS = "tanh_gelus"
    """GELUs beside what is quantized are computed by their approximation by tanh, which differs by 0.0005 at most."""
    FUSED_SILUS = "fused_silus"
    """SiLUs behind what is quantized are onnxruntime's ``QuickGelu``, to which it fuses them itself in float."""
    FUSED_HARD_SWISHES = "fused_hard_swishes"
    """Hard swishes behind what is quantized are ONNX's ``HardSwish``."""
    FUSED_ATTENTIONS = "fused_attentions"
    """Attention that is float between projections is ONNX's ``Attention``, for which no heads are moved."""


IN_WORDS: Mapping[Rewrite, str] = {
    Rewrite.PLAIN_SUMS: "Add before LayerNormalization as Sum",
    Rewrite.JOINED_GROUPS: "groups of Convs that are joined",
    Rewrite.TILED_CONVS: "Convs that are computed tile by tile",
    Rewrite.KEPT_BLOCKS: "channels that are kept in blocks",
    Rewrite.TANH_GELUS: "GELU by tanh",
    Rewrite.FUSED_SILUS: "SiLU as one operator",
    Rewrite.FUSED_HARD_SWISHES: "hard swish as one operator",
    Rewrite.FUSED_ATTENTIONS: "attention as one operator",
}
Rewrites = frozenset[Rewrite]
LARGER: Rewrites = frozenset({Rewrite.JOINED_GROUPS, Rewrite.TILED_CONVS})
"""Those that add to the size of files."""
