"""Float models in forms that onnxruntime has faster kernels, or integer ones, for."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autoquant.domain.reason import one_line
from autoquant.errors import ModelError
from autoquant.graph.tables import look_up_rows
from autoquant.model.copies import Model, without_weights
from autoquant.model.kept import graph_of, keeping_the_last_graph
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.affine import fold_affine
from autoquant.rewrites.branches import merge_branches
from autoquant.rewrites.cells import fuse_cells
from autoquant.rewrites.columns import split_columns
from autoquant.rewrites.concats import fill_concats
from autoquant.rewrites.convolutions import (
    interleave_depth,
    lower_affine,
    lower_conv_transpose,
    pool_means,
    transpose_upsampled,
)
from autoquant.rewrites.crops import crop_windows
from autoquant.rewrites.einsum import lower_einsum
from autoquant.rewrites.enlarged import convolve_before_enlarging
from autoquant.rewrites.expands import drop_expands
from autoquant.rewrites.exponentials import split_exponentials
from autoquant.rewrites.fusions import (
    divide_by_roots,
    fuse_hard_swish,
    lower_matmul,
    reduce_stacked,
    scale_norms,
    split_gemm,
)
from autoquant.rewrites.gru_step import multiply_step
from autoquant.rewrites.guards import drop_guards
from autoquant.rewrites.invariants import hoist_invariants
from autoquant.rewrites.joined_repeats import multiply_before_repeating
from autoquant.rewrites.largest import take_largest_first
from autoquant.rewrites.lines import lay_lines
from autoquant.rewrites.masks import drop_idle_masks
from autoquant.rewrites.matrices import keep_matrices
from autoquant.rewrites.moments import fuse_moments
from autoquant.rewrites.packed import pack_places
from autoquant.rewrites.pads import concatenate_zeros, crop, drop_pads, fold_pads, spell_pads
from autoquant.rewrites.piecewise import clip_first, merge_clips, split_prelu
from autoquant.rewrites.places import gather_rows, take_rows
from autoquant.rewrites.pools import convolve_first, drop_idle_dilations, lower_average_pool, weigh_pools
from autoquant.rewrites.read_rows import compute_read_rows
from autoquant.rewrites.recognised import recognise_activations
from autoquant.rewrites.repeats import multiply_outer, repeat_last
from autoquant.rewrites.resize_axes import spell_axes
from autoquant.rewrites.resizes import multiply_linear, multiply_resizes
from autoquant.rewrites.scalars import has_numbers_beside_unknown, widen_scalars
from autoquant.rewrites.sequences import multiply_sequences
from autoquant.rewrites.shuffles import gather_channels
from autoquant.rewrites.skipped import skip_places
from autoquant.rewrites.slopes import fuse_prelu
from autoquant.rewrites.softmaxes import expect_last, split_softmax, transpose_softmax
from autoquant.rewrites.spectra import lower_dft, lower_stft
from autoquant.rewrites.swaps import transpose_first
from autoquant.rewrites.transposes import move_one_axis_each
from autoquant.rewrites.trimmed import trim_kernels
from autoquant.rewrites.unfused import undo_fusions
from autoquant.rewrites.unrolled import join_steps, restack
from autoquant.rewrites.views import drop_views
from autoquant.rewrites.volumes import slice_volumes

__all__ = ["Rewrite", "fast_kernels", "kept_rewrites", "rewritten"]

Rewrite = Callable[[Model], Model]
"""Of a model that it leaves as it is; it has a name."""
_T = TypeVar("_T")


def fast_kernels(*, is_for_cpu: bool) -> tuple[Rewrite, ...]:
    """The rewrites, in an order in which each finds what those before it leave.

    Args:
        is_for_cpu: Whether the CPU provider alone runs the model: others have kernels of their own for activations.
    """
    return (
        undo_fusions,
        _fuse_cells,
        _hoist_invariants,
        _multiply_sequences,
        _join_steps,
        gather_rows,
        take_rows,
        split_columns,
        drop_views,
        _drop_guards,
        drop_expands,
        drop_idle_masks,
        lower_stft,
        lower_dft,
        gather_channels,
        lower_einsum,
        *((recognise_activations,) if is_for_cpu else ()),
        look_up_rows,
        reduce_stacked,
        merge_clips,
        fuse_hard_swish,
        fuse_moments,
        divide_by_roots,
        fuse_prelu,
        _take_largest_first,
        _transpose_first,
        drop_pads,
        spell_pads,
        drop_idle_dilations,
        lower_average_pool,
        *((weigh_pools,) if is_for_cpu else ()),
        crop,
        fold_pads,
        concatenate_zeros,
        crop_windows,
        _compute_read_rows,
        take_rows,
        drop_views,
        trim_kernels,
        transpose_upsampled,
        _skip_places,
        merge_branches,
        fold_affine,
        _multiply_before_repeating,
        convolve_first,
        lower_conv_transpose,
        pool_means,
        lower_affine,
        merge_branches,
        interleave_depth,
        spell_axes,
        _convolve_before_enlarging,
        multiply_resizes,
        *(
            (
                multiply_step,
                multiply_linear,
                slice_volumes,
                split_prelu,
                split_exponentials,
                expect_last,
                transpose_softmax,
                split_softmax,
                pack_places,
            )
            if is_for_cpu
            else ()
        ),
        *((move_one_axis_each,) if is_for_cpu else ()),
        clip_first,
        *((lay_lines, fill_concats, scale_norms) if is_for_cpu else ()),
        drop_views,
        *((multiply_outer, repeat_last) if is_for_cpu else ()),
        split_gemm,
        _lower_matmul,
        *((keep_matrices, _widen_scalars) if is_for_cpu else ()),
    )


def rewritten(model: Model, rewrites: Sequence[Rewrite]) -> Model:
    """A model behind all of them.

    What becomes of infinite constants is no number, and nothing is said of it: outputs are compared afterwards.

    Raises:
        ModelError: One fails.
    """
    with keeping_the_last_graph(), np.errstate(all="ignore"):
        for rewrite in rewrites:
            try:
                model = rewrite(model)
            except (AssertionError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
                raise ModelError(f"it fails, {type(error).__name__}: {one_line(error)}") from error
    return model


def kept_rewrites(rewrites: Sequence[Rewrite], apply: Callable[[Sequence[Rewrite]], _T]) -> tuple[_T, dict[str, str]]:
    """What comes of all rewrites that nothing is wrong with.

    Args:
        rewrites: In their order.
        apply: Rewrites a model by some of them, in their order; raises ModelError where that fails or changes outputs.

    Returns:
        What it returned for the most of them, and of those that are left out the reasons by name.

    Raises:
        ModelError: It fails without any.
    """
    kept, left_out = list(rewrites), dict[str, str]()
    while True:
        try:
            return apply(kept), left_out
        except ModelError as error:
            if not kept:
                raise
            if not left_out:
                apply([])  # raises where it is no rewrite's fault
            n, reason = _first_fault(kept, apply, str(error))
        left_out[_name(kept.pop(n - 1))] = reason


def _first_fault(rewrites: Sequence[Rewrite], apply: Callable[[Sequence[Rewrite]], _T], reason: str) -> tuple[int, str]:
    """By halving: how many of the rewrites fail that without their last one do not, and why they do."""
    fine, faulty = 0, len(rewrites)
    while faulty - fine > 1:
        middle = (fine + faulty) // 2
        try:
            apply(rewrites[:middle])
            fine = middle
        except ModelError as error:
            faulty, reason = middle, str(error)
    return faulty, reason


def _fuse_cells(model: Model) -> Model:
    """Layer by layer: the rank of what a Loop writes is not known always."""
    while (found := _with_shapes(model, fuse_cells)) is not model:
        model = found
    return model


def _drop_guards(model: Model) -> Model:
    return _with_shapes(model, drop_guards)


def _hoist_invariants(model: Model) -> Model:
    return _with_shapes(model, hoist_invariants)


def _multiply_sequences(model: Model) -> Model:
    return _with_shapes(model, multiply_sequences)


def _join_steps(model: Model) -> Model:
    while (found := _with_shapes(model, join_steps)) is not model:
        model = found
    return _with_shapes(model, restack)


def _compute_read_rows(model: Model) -> Model:
    """Of rows that are read other axes may be read in part, too."""
    while (found := _with_shapes(model, compute_read_rows)) is not model:
        model = found
    return model


def _multiply_before_repeating(model: Model) -> Model:
    return _with_shapes(model, multiply_before_repeating)


def _convolve_before_enlarging(model: Model) -> Model:
    return _with_shapes(model, convolve_before_enlarging)


def _skip_places(model: Model) -> Model:
    return _with_shapes(model, skip_places)


def _lower_matmul(model: Model) -> Model:
    return _with_shapes(model, lower_matmul)


def _widen_scalars(model: Model) -> Model:
    """What other rewrites write, too."""
    is_typed = not has_numbers_beside_unknown(graph_of(model))
    return widen_scalars(model if is_typed else without_weights(model, infer_shapes))


def _take_largest_first(model: Model) -> Model:
    return _with_shapes(model, take_largest_first)


def _transpose_first(model: Model) -> Model:
    return _with_shapes(model, transpose_first)


def _with_shapes(model: Model, rewrite: Rewrite) -> Model:
    found = rewrite(model)
    return model if found is model else without_weights(found, infer_shapes)


def _name(rewrite: Rewrite) -> str:
    return rewrite.__name__.strip("_").replace("_", " ")
