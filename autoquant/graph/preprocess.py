"""From the user's file to the float model that every candidate is made from."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from autoquant.domain.feed import Feed
from autoquant.domain.reason import temporary_files
from autoquant.domain.target import CPU, Target
from autoquant.errors import ModelError
from autoquant.graph.choices import chosen_notes, varying_notes
from autoquant.graph.levels import tidied
from autoquant.graph.likeness import Likeness, Reference, keeps_outputs, likeness_of, reference_of
from autoquant.graph.narrowed import Narrowed, narrowed
from autoquant.graph.refusals import random_notes, refuse_no_numbers, refuse_types
from autoquant.graph.rewriting import Rewrite, fast_kernels, kept_rewrites, rewritten
from autoquant.model.around import Around
from autoquant.model.copies import Model, in_parts, model_digest, opset_of, without_weights
from autoquant.model.graph import Graph
from autoquant.model.io import inputs_with_default, load_model, load_written, sha256_of
from autoquant.model.names import name_nodes
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import (
    convert_opset,
    densify,
    drop_initializer_inputs,
    drop_unused_domains,
    free_dimensions,
    freeze,
    infer_shapes,
    inline_functions,
    open_dimensions,
    open_outputs,
    spell_onesided,
    with_outputs,
    with_own_dimensions,
    with_types,
)
from autoquant.model.subgraphs import bodies_of
from autoquant.rewrites.groups import spell_group_norms
from autoquant.rewrites.halves import has_halves, narrow_ends, widen_halves
from autoquant.rewrites.inlined import rename_inlined
from autoquant.rewrites.owned import own_constants
from autoquant.rewrites.pools import spell_ceiled
from autoquant.runtime.session import open_parts, open_session, optimize_basic

__all__ = ["compared", "prepare"]

OPSET = 21
"""The first with 16-bit QuantizeLinear; lower ones are converted where that is possible."""
_KEEPING_SHAPES = frozenset(f"ai.onnx.ml:{op_type}" for op_type in ("Binarizer", "Imputer", "Normalizer", "Scaler"))
"""Operators whose outputs have the shapes of their inputs, which neither ONNX nor onnxruntime infers."""
_LEFT_WHOLE = "what is in the branches of If stays float: {reason}"
_WIDENED = "float16 becomes float32, which there are faster kernels for: what stays float takes twice the bytes"


@dataclass(frozen=True, slots=True)
class _Attempt:
    converted: bool
    frozen: bool
    optimized: bool
    widened: bool


_ATTEMPTS = tuple(
    _Attempt(converted=converted, frozen=frozen, optimized=optimized, widened=widened)
    for optimized in (True, False)
    for frozen in (True, False)
    for converted in (True, False)
    for widened in (True, False)
)
"""In this order: whatever one of them leaves out, an earlier one does beside all else that it does."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What a preprocessed model is held against: the user's, as far as samples go through it, and what it wrote."""

    plain: Model
    reference: Reference
    narrowed: Narrowed | None = None

    @property
    def has_halves(self) -> bool:
        return has_halves(self.plain)

    def alike(self, attempt: _Attempt, base: Model, rewrites: Sequence[Rewrite]) -> tuple[Model, Likeness]:
        """The base rewritten, and how near it is; ModelError where its outputs are too far away."""
        model = rename_inlined(own_constants(rewritten(base, rewrites)))
        model = narrow_ends(model, self.plain) if attempt.widened else model
        model = without_weights(model, lambda skeleton: name_nodes(infer_shapes(drop_unused_domains(skeleton))))
        found = likeness_of(model, self.reference)
        if not keeps_outputs(model, found.difference_db, from_halves=self.has_halves):
            raise ModelError(f"outputs differ ({found.difference_db:.1f} dB)")
        return model, found

    @property
    def is_convertible(self) -> bool:
        return self.narrowed is None or self.narrowed.unconverted is None

    def around(self, model: Model) -> Around | None:
        return None if self.narrowed is None else self.narrowed.around(model)


@dataclass(frozen=True, slots=True)
class _Found:
    """What an attempt came to: the names of rewrites that it does without, and why, among it."""

    attempt: _Attempt
    model: Model
    likeness: Likeness
    left_out: Mapping[str, str]
    around: Around | None


def prepare(
    path: Path,
    feeds: Sequence[Feed],
    *,
    dims: Mapping[str, int] | None = None,
    sample_names: Sequence[str] = (),
    eps: Collection[str] = (CPU,),
) -> PreparedModel:
    """Widen float16, freeze shapes, fold, convert to opset 21; the most of it that leaves the outputs as they are.

    Args:
        path: The user's float model.
        feeds: Real inputs; shapes that all of them share are frozen, and the first few check the result. Without any,
            only ``dims`` are frozen and nothing is checked.
        dims: Sizes of named dynamic dimensions, before those of the feeds.
        sample_names: What messages call the feeds; their places by default.
        eps: Execution providers that the model is for. Other ones than the CPU's have kernels of their own for what is
            slow there, and quantize what it is written with.

    Raises:
        DataError: onnxruntime cannot run the model on one of the first few, or an output holds no number.
        ModelError: The model cannot be read, is already quantized, or a name in ``dims`` is unknown.
    """
    original = load_model(path)
    unknown = sorted(set(dims or {}) - free_dimensions(original))
    if unknown:
        known = ", ".join(sorted(free_dimensions(original))) or "none"
        raise ModelError(f"{path}: there is no dynamic dimension '{unknown[0]}' to give a size, the model has: {known}")
    refuse_types(path, original)
    session = open_session(path, Target())
    shapes, reference = _common_shapes(feeds), reference_of(session, feeds, sample_names)
    refuse_no_numbers(path, original, reference, sample_names)
    shapes_out = ([values.shape for values in outputs] for outputs in reference.outputs)
    given = _Given(open_outputs(_plain(original), shapes_out), reference)
    notes_of_random = random_notes(path, given.plain, reference, session, from_halves=given.has_halves)
    del session
    rewrites = fast_kernels(is_for_cpu=set(eps) <= {CPU})
    narrow, notes_of_branches = _narrowed(given.plain, feeds, sample_names)
    for each in [replace(given, plain=narrow.model, narrowed=narrow), given] if narrow is not None else [given]:
        reasons = dict[_Attempt, str]()
        found = _preprocessed(each, rewrites, partial(_based, shapes=shapes, dims=dims or {}), reasons)
        if found is None:
            tried = (why for attempt, why in reasons.items() if not attempt.converted or each.is_convertible)
            notes_of_branches = [_LEFT_WHOLE.format(reason=next(tried))]
            continue
        model, difference_db = found.model, found.likeness.difference_db
        notes = (
            *_default_notes(original),
            *([_WIDENED] if given.has_halves and found.attempt.widened else []),
            *notes_of_branches,
            *_notes(model, found.attempt, difference_db, reasons),
            *(f"{name} is left out of preprocessing: {reason}" for name, reason in found.left_out.items()),
            *varying_notes(Graph(model), reference),
            *notes_of_random,
        )
        model = with_own_dimensions(model, original)
        return _prepared(path, replace(found, model=model), notes, from_halves=given.has_halves)
    reason = reasons[_ATTEMPTS[0]]
    raise ModelError(f"{path}: the model cannot be preprocessed: {reason}; export it again with a newer opset")


def _narrowed(plain: Model, feeds: Sequence[Feed], names: Sequence[str]) -> tuple[Narrowed | None, list[str]]:
    """Without what no sample runs, where that can be; and notes."""
    try:
        return narrowed(plain, feeds, OPSET, names)
    except ModelError as error:
        return None, [_LEFT_WHOLE.format(reason=error)]


def _preprocessed(
    given: _Given,
    rewrites: Sequence[Rewrite],
    based: Callable[[Model, _Attempt], Model],
    reasons: dict[_Attempt, str],
) -> _Found | None:
    """By the first attempt that keeps the outputs; adds why others before it do not to ``reasons``."""
    for attempt in _ATTEMPTS if given.has_halves else [attempt for attempt in _ATTEMPTS if attempt.widened]:
        if attempt.converted and given.narrowed is not None and given.narrowed.unconverted is not None:
            reasons[attempt] = given.narrowed.unconverted
            continue
        try:
            apply = partial(given.alike, attempt, based(given.plain, attempt))
            (model, found), left_out = kept_rewrites(rewrites if attempt.optimized else (), apply)
            return _Found(attempt, model, found, left_out, given.around(model))
        except ModelError as error:
            reasons[attempt] = str(error)
    return None


def compared(prepared: PreparedModel, feeds: Sequence[Feed]) -> PreparedModel:
    """The same model with its difference and latency measured anew, for one that was changed since.

    Args:
        prepared: A preprocessed model.
        feeds: Real inputs; the first few are run.

    Raises:
        DataError: The user's file cannot be run.
        ModelError: The model cannot be run.
    """
    reference = reference_of(open_session(prepared.source, Target()), feeds)
    found = likeness_of(prepared.graph.model, reference)
    return replace(prepared, difference_db=found.difference_db, latency_ratio=found.latency_ratio)


def _prepared(path: Path, found: _Found, notes: tuple[str, ...], *, from_halves: bool) -> PreparedModel:
    return PreparedModel(
        graph=Graph(found.model),
        digest=model_digest(found.model),
        source=path,
        source_sha256=sha256_of(path),
        difference_db=found.likeness.difference_db,
        latency_ratio=found.likeness.latency_ratio,
        notes=notes,
        from_halves=from_halves,
        around=found.around,
    )


def _plain(original: Model) -> Model:
    """In the form that all else expects: no functions, dense initializers for constants, free dimensions unsized.

    What leads to no output is left out.

    What the file says of shapes inside goes where it can be inferred, as onnxruntime runs files that say wrong ones.
    """
    model = spell_onesided(densify(inline_functions(open_dimensions(original))))
    return tidied(drop_initializer_inputs(model))


def _based(
    plain: Model, attempt: _Attempt, shapes: Mapping[str, tuple[int | None, ...]], dims: Mapping[str, int]
) -> Model:
    """What rewrites begin with."""

    def static(model: Model) -> Model:
        model = convert_opset(model, OPSET) if attempt.converted and opset_of(model) < OPSET else model
        model = spell_ceiled(freeze(model, shapes if attempt.frozen else {}, dims))
        return name_nodes(spell_group_norms(model))  # fusions are named after their nodes

    model = without_weights(widen_halves(plain) if attempt.widened else plain, static)
    return _typed(_folded(model)) if attempt.optimized else model


def _folded(model: Model) -> Model:
    """Casts of weights too, which onnxruntime writes behind its folding where it has no float16 kernel."""
    folded = _optimized(model)
    weights = {tensor.name for tensor in folded.graph.initializer}
    if any(node.op_type == "Cast" and node.input[0] in weights for node in folded.graph.node):
        folded = _optimized(folded)
    return without_weights(folded, lambda skeleton: infer_shapes(name_nodes(skeleton)))


def _optimized(model: Model) -> Model:
    with temporary_files(), TemporaryDirectory(prefix="autoquant-") as folder:
        path = Path(folder) / "optimized.onnx"
        has_bodies = any(True for node in model.graph.node for _ in bodies_of(node))
        optimize_basic(*in_parts(model), path, is_whole=has_bodies)
        return load_written(path)


def _typed(model: Model) -> Model:
    """With the float tensors that ONNX cannot infer, behind operators of other domains, but onnxruntime can."""
    graph = Graph(model)
    unknown = [name for node in graph.nodes for name in node.outputs if name and graph.dtype(name) is None]
    if not unknown:
        return model
    session = open_parts(
        *in_parts(model, lambda skeleton: with_outputs(skeleton, dict.fromkeys(unknown), is_typed=False)), Target()
    )
    # of scalars and of unknown shapes it says the same
    floats = {output.name: output.shape or None for output in session.get_outputs() if output.type == "tensor(float)"}
    shapes: dict[str, Sequence[int | str | None] | None] = {}
    for node in graph.nodes:
        for name in (name for name in node.outputs if name in unknown and name in floats):
            source = node.inputs[0] if node.op_type in _KEEPING_SHAPES else name
            shapes[name] = floats[name] or shapes.get(source) or graph.sizes(source)
    return infer_shapes(with_types(model, shapes))


def _default_notes(original: Model) -> Iterator[str]:
    names = inputs_with_default(original)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"inputs that the model has values for are constants of delivered models: '{names[0]}'{more}"


def _notes(model: Model, attempt: _Attempt, difference: float, reasons: Mapping[_Attempt, str]) -> Iterator[str]:
    if not attempt.widened:
        yield f"float16 is left to onnxruntime: {reasons[replace(attempt, widened=True)]}"
    if not attempt.frozen:
        yield f"shapes stay dynamic: {reasons[replace(attempt, frozen=True)]}"
    if opset_of(model) < OPSET:
        yield f"the model stays at opset {opset_of(model)}: {reasons[replace(attempt, converted=True)]}"
    if not attempt.optimized:
        yield f"constants are not folded: {reasons[replace(attempt, optimized=True)]}"
    if difference < 100:
        yield f"the preprocessed float model differs from the original ({difference:.1f} dB)"
    fused = _fused(Graph(model))
    if fused:
        yield (
            f"nodes with weights that are fusions of onnxruntime's own stay float ({len(fused)}, such as {fused[0]}):"
            " give the model as it was before it was optimised by onnxruntime"
        )
    yield from chosen_notes(Graph(model))


def _fused(graph: Graph) -> list[str]:
    """Operator types of nodes with a constant matrix or kernel that ONNX does not define."""
    return [
        node.op_type
        for node in graph.nodes
        if node.op_type.startswith("com.microsoft")
        and any(graph.is_constant(name) and len(graph.shape(name) or ()) > 1 for name in node.inputs)
    ]


def _common_shapes(feeds: Sequence[Feed]) -> dict[str, tuple[int | None, ...]]:
    """Sizes that all feeds share, None where they differ or are 0: nobody wants a model of an empty cache alone."""
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for feed in feeds:
        for name, array in feed.items():
            shapes.setdefault(name, set()).add(array.shape)
    return {
        name: tuple(sizes[0] if len(set(sizes)) == 1 and sizes[0] else None for sizes in zip(*different, strict=True))
        for name, different in shapes.items()
        if len({len(shape) for shape in different}) == 1
    }
