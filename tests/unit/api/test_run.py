from types import SimpleNamespace
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.interrupts import Interrupts
from autoquant.api.run import Run
from autoquant.api.steps.probing import Probed
from autoquant.domain.rewrite import Rewrite, Rewrites


def a_run(elapsed_s: float, *, counts_size: bool = False) -> Run:
    """Of 60 s."""
    checked: Any = SimpleNamespace(notes=())
    configuration: Any = SimpleNamespace(counts_size=counts_size)
    return Run(configuration, checked, Deadline(60.0, spent_s=elapsed_s), lambda _: None, Interrupts())


ALL = frozenset(Rewrite)
ALONE = frozenset({Rewrite.PLAIN_SUMS, Rewrite.TANH_GELUS, Rewrite.FUSED_SILUS, Rewrite.FUSED_HARD_SWISHES})
BLOCKS, GROUPS, SUMS, GELUS, SILUS, SWISHES, HEADS, TILES = (
    "channels that are kept in blocks",
    "groups of Convs that are joined",
    "Add before LayerNormalization as Sum",
    "GELU by tanh",
    "SiLU as one operator",
    "hard swish as one operator",
    "attention as one operator",
    "Convs that are computed tile by tile",
)


def made_of(possible: Rewrites, is_told_alone: bool = False) -> Any:
    """Ingredients; Sums and GELUs may be judged without a candidate."""
    builder = SimpleNamespace(
        possible=frozenset(possible),
        excerpts=lambda rewrite: () if is_told_alone and rewrite in ALONE else None,
    )
    return SimpleNamespace(builder=lambda: builder)


@pytest.mark.parametrize(
    ("elapsed_s", "float_s", "possible", "is_told_alone", "probed", "left_out"),
    [
        (5.0, 0.1, ALL, False, ALL, []),
        (50.0, 0.01, {Rewrite.TILED_CONVS}, False, ALL, []),
        (50.0, 0.1, ALL, False, set(), [HEADS, SWISHES, SILUS, GROUPS, BLOCKS, SUMS, GELUS, TILES]),
        (50.0, 0.2, ALL, True, ALONE, [HEADS, GROUPS, BLOCKS, TILES]),
        (50.0, 0.1, {Rewrite.PLAIN_SUMS}, True, ALL, []),
    ],
    ids=["in time", "late and fast", "late and slow", "late, but one alone", "late, only one alone"],
)
def test_rewrites_are_not_probed_late_where_that_takes_long(
    elapsed_s: float,
    float_s: float,
    possible: Rewrites,
    is_told_alone: bool,
    probed: Rewrites,
    left_out: list[str],
) -> None:
    run = a_run(elapsed_s)
    facts = BenchFacts(float_s={"cpu-1t": float_s}, n_samples=4, opening_s=0.1)
    assert run._worth_probing(made_of(possible, is_told_alone), facts) == probed
    assert run.deadline.left_out == left_out


@pytest.mark.parametrize(
    ("elapsed_s", "others", "left_out"),
    [(5.0, {Rewrite.KEPT_BLOCKS, Rewrite.FUSED_ATTENTIONS}, []), (50.0, set(), [HEADS, BLOCKS])],
)
def test_what_adds_to_the_size_is_neither_probed_where_it_counts_nor_told_as_left_out(
    elapsed_s: float, others: Rewrites, left_out: list[str]
) -> None:
    run = a_run(elapsed_s, counts_size=True)
    facts = BenchFacts(float_s={"cpu-1t": 1.0}, n_samples=4, opening_s=0.1)
    assert run._worth_probing(made_of(ALL, is_told_alone=True), facts) == ALONE | others
    assert run.deadline.left_out == left_out


class Loaded:
    """What an evaluator is told."""

    def __init__(self) -> None:
        self.rewrites: Rewrites = frozenset()
        self.probed: list[Rewrites] = []

    def load(self, _: object, *, rewrites: Rewrites) -> None:
        self.rewrites = rewrites

    def probe_rewrites(self, rewrites: Rewrites) -> Probed:
        self.probed.append(rewrites)
        self.rewrites = frozenset({Rewrite.PLAIN_SUMS})
        return Probed(["a note"], 0.75)


@pytest.mark.parametrize(
    ("earlier", "used", "probed"),
    [
        (None, {Rewrite.PLAIN_SUMS}, [ALL]),
        (SimpleNamespace(rewrites=frozenset({Rewrite.JOINED_GROUPS})), {Rewrite.JOINED_GROUPS}, []),
    ],
)
def test_a_run_that_is_gone_on_with_writes_candidates_as_before(
    earlier: Any, used: Rewrites, probed: list[Rewrites]
) -> None:
    run, evaluator = a_run(5.0), Loaded()
    run.earlier = earlier
    run._load(evaluator, made_of(ALL), BenchFacts(float_s={}, n_samples=4, opening_s=0.1))  # type: ignore[arg-type]
    assert (run.rewrites, evaluator.probed) == (used, probed)
    assert run.notes == ["a note"] * len(probed)
    assert run.float_ratio == (0.75 if probed else 1.0)
