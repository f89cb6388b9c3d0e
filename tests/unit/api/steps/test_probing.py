import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoquant.api.ingredients import Ingredients
from autoquant.api.steps import (
    calibrate,
    find_regions,
    open_bench,
    prepare,
    probe_rewrites,
    read_data,
)
from autoquant.api.steps.probing import Probed
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Quality
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.errors import ModelError
from autoquant.measurement.bench import Bench
from autoquant.measurement.latency import Timings
from autoquant.measurement.opening import Opened, Opener
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from tests.graphs import U8S8_CHANNEL, case_of
from tests.models import floats, model_of, saved

BOTH = {Rewrite.PLAIN_SUMS, Rewrite.JOINED_GROUPS}


def a_model_with_both() -> onnx.ModelProto:
    """Groups of two channels, and an Add that onnxruntime fuses with the LayerNormalization behind it."""
    return model_of(
        "(float[1,16,4,4] x) => (float[1,16,8] y)",
        """c = Conv<pads=[1,1,1,1], group=8>(x, k) r = Reshape(c, rows) m = MatMul(r, w) q = Reshape(x, rows)
           b = MatMul(q, w) s = Add(m, b) y = LayerNormalization(s, gamma, beta)""",
        {
            "k": floats(16, 2, 3, 3),
            "rows": np.array([1, 16, 16]),
            "w": floats(16, 8),
            "gamma": np.ones(8, np.float32),
            "beta": np.zeros(8, np.float32),
        },
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(a_model_with_both(), tmp_path / "model.onnx")


@pytest.fixture
def samples(model: Path) -> Samples:
    return read_data(model, {"x": floats(3, 16, 4, 4)})


@pytest.fixture
def ingredients(model: Path, samples: Samples, tmp_path: Path) -> Ingredients:
    prepared = prepare(model, samples)
    return Ingredients(
        prepared=prepared,
        regions=find_regions(prepared),
        statistics=calibrate(prepared, samples, cache_folder=tmp_path),
        definition=read_space("default", ep="cpu"),
    )


def timings_of(ratios: Sequence[float]) -> Timings:
    timings = Timings()
    for ratio in ratios:
        timings.add([ratio], [1.0])
    return timings


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ({"cpu-1t": [0.8] * 5}, "0.800"),
        ({"cpu-1t": [1.2] * 5}, None),
        ({"cpu-1t": [0.8] * 5, "cpu-2t": [0.9] * 5}, "0.900"),
        ({"cpu-1t": [0.8] * 5, "cpu-2t": [1.2] * 5}, None),
        ({"cpu-1t": [0.4, 0.6, 0.8, 1.0, 1.2]}, None),
    ],
)
def test_rewrites_are_used_where_they_are_surely_faster_on_every_target(
    model: Path,
    samples: Samples,
    ingredients: Ingredients,
    monkeypatch: pytest.MonkeyPatch,
    ratios: dict[str, list[float]],
    told: str | None,
) -> None:
    found = {name: timings_of(each) for name, each in ratios.items()}
    monkeypatch.setattr(Bench, "compare", lambda *_: found)
    builder, recipe = ingredients.builder(), ingredients.first_recipe()
    assert recipe is not None
    probed = probe_rewrites(builder, recipe[1], open_bench(model, samples))
    assert builder.rewrites == (set() if told is None else BOTH)
    assert probed.float_ratio == 1.0, "what is measured alone, or on integers, says nothing of the whole float model"
    assert probed.sentences == (
        []
        if told is None
        else [
            f"groups of Convs on integers are joined with zeros: 8 bits take {told} of what they took",
            f"Add before LayerNormalization is written as Sum: the two alone take {told} of what the fused form takes",
        ]
    )


@pytest.mark.parametrize("sizes", ["1,6,8", "N,6,8"], ids=["alone", "in a candidate"])
def test_gelus_are_approximated_where_that_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: str
) -> None:
    given = model_of(
        f"(float[{sizes}] x) => (float[] y)",
        "a = MatMul(x, w) g = Gelu(a) y = MatMul(g, w)",
        {"w": floats(8, 8)},
    )
    path, feed = saved(given, tmp_path / "gelu.onnx"), {"x": floats(1, 6, 8)}
    case = case_of(given, feed)
    builder = case.builder({U8S8_CHANNEL.name: U8S8_CHANNEL})
    quantized = {RegionId(node.name): U8S8_CHANNEL.name for node in case.graph.nodes if node.op_type == "MatMul"}
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([0.8] * 5)})
    sentences = probe_rewrites(builder, quantized, open_bench(path, read_data(path, [feed]))).sentences
    assert builder.rewrites == {Rewrite.TANH_GELUS}
    what = "one alone takes" if "N" not in sizes else "8 bits take"
    assert sentences == [
        f"GELU beside what is quantized is approximated by tanh: {what} 0.800 of what the exact one does"
    ]


@pytest.mark.parametrize("has_recipe", [True, False])
def test_what_is_not_wanted_and_what_has_no_candidate_is_not_probed(
    model: Path, samples: Samples, ingredients: Ingredients, monkeypatch: pytest.MonkeyPatch, has_recipe: bool
) -> None:
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([0.8] * 5)})
    builder, recipe = ingredients.builder(), ingredients.first_recipe()
    assert recipe is not None
    quantized, wanted = (recipe[1], {Rewrite.PLAIN_SUMS}) if has_recipe else (None, set(Rewrite))
    assert len(probe_rewrites(builder, quantized, open_bench(model, samples), wanted).sentences) == 1
    assert builder.rewrites == {Rewrite.PLAIN_SUMS}


@pytest.mark.parametrize(
    ("is_damaged", "notes"),
    [(False, ["float Convs of 3 x 3 are computed tile by tile: float takes 0.800 of what it took"]), (True, [])],
)
def test_convolutions_tile_by_tile_are_used_where_float_is_faster_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool, notes: list[str]
) -> None:
    given = model_of(
        "(float[1,192,16,16] x) => (float[1,192,16,16] y)",
        "y = Conv<pads=[1,1,1,1]>(x, w)",
        {"w": floats(192, 192, 3, 3, scale=0.02)},
    )
    path = saved(given, tmp_path / "tiled.onnx")
    samples = read_data(path, {"x": floats(3, 192, 16, 16)})
    asked: list[Assignment] = []
    builder = case_of(given).builder({})
    build = builder.build

    def told(assignment: Assignment) -> Candidate:
        asked.append(assignment)
        return build(assignment)

    monkeypatch.setattr(builder, "build", told)
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([0.8] * 5)})
    if is_damaged:
        monkeypatch.setattr(
            "autoquant.qdq.tiled.transform_weight", lambda weight: np.zeros((36, *weight.shape[:2]), np.float32)
        )
    assert probe_rewrites(builder, None, open_bench(path, samples)) == Probed(notes, 0.8 if notes else 1.0)
    assert asked == [{}, {}]
    assert builder.rewrites == ({Rewrite.TILED_CONVS} if notes else set())


@pytest.mark.parametrize(
    ("is_damaged", "notes"),
    [(False, ["channels of float images are kept in blocks: float takes 0.800 of what it took"]), (True, [])],
)
def test_channels_are_kept_in_blocks_where_float_is_faster_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool, notes: list[str]
) -> None:
    given = model_of(
        "(float[1,16,6,6] x) => (float[] y)",
        "a = Conv(x, w) b = Conv(a, w) s = Add(a, b) m = Mul(s, c) y = Conv(m, w, o)",
        {"w": floats(16, 16, 1, 1), "c": floats(16, 1, 1), "o": floats(16)},
    )
    path = saved(given, tmp_path / "blocks.onnx")
    samples = read_data(path, {"x": floats(3, 16, 6, 6)})
    builder = case_of(given).builder({})
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([0.8] * 5)})
    if is_damaged:
        monkeypatch.setattr("autoquant.qdq.blocks.constant_of", lambda *_: "o")
    assert probe_rewrites(builder, None, open_bench(path, samples)).sentences == notes
    assert builder.rewrites == ({Rewrite.KEPT_BLOCKS} if notes else set())


@pytest.mark.parametrize(("ratio", "n_run"), [(0.8, 3), (1.2, 0)])
def test_the_plain_candidate_is_opened_and_run_once_and_none_is_run_that_does_not_win(
    ratio: float, n_run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = model_of(
        "(float[1,192,16,16] x) => (float[1,192,16,16] y)",
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Mul(a, c) d = Add(a, b) y = Conv<pads=[1,1,1,1]>(d, w)",
        {"w": floats(192, 192, 3, 3, scale=0.02), "c": floats(192, 1, 1)},
    )
    path = saved(given, tmp_path / "both.onnx")
    builder, n_opened, run = case_of(given).builder({}), list[str](), list[Opened]()
    opened, quality = Opener.open, Bench.untimed_quality

    def told(opener: Opener, skeleton: bytes, *others: Any) -> Opened:
        n_opened.append(hashlib.sha256(skeleton).hexdigest())
        return opened(opener, skeleton, *others)

    def seen(bench: Bench, candidate: Opened, n_samples: int) -> Quality:
        run.append(candidate)
        return quality(bench, candidate, n_samples)

    monkeypatch.setattr(Opener, "open", told)
    monkeypatch.setattr(Bench, "untimed_quality", seen)
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([ratio] * 5)})
    probed = probe_rewrites(builder, None, open_bench(path, read_data(path, {"x": floats(3, 192, 16, 16)})))
    assert len(n_opened) == len(set(n_opened)) == 3
    assert len(run) == n_run
    assert len(probed.sentences) == (2 if n_run else 0)


ATTENTION = """q = Reshape(x, heads) qh = Transpose<perm=[0,2,1,3]>(q) kh = Transpose<perm=[0,2,3,1]>(q)
    vh = Transpose<perm=[0,2,1,3]>(q) s = MatMul(qh, kh) p = Softmax(s) o = MatMul(p, vh)
    b = Transpose<perm=[0,2,1,3]>(o)"""
ALONE = "attention is one operator: one alone takes 0.800 of what its products and moves do"


@pytest.mark.parametrize(
    ("behind", "is_damaged", "notes"),
    [
        ("y = Reshape(b, rows)", False, [ALONE]),
        ("y = Reshape(b, rows)", True, []),
        (
            "i = Reshape(b, image) y = RoiAlign<output_height=2, output_width=2>(i, boxes, batches)",
            False,
            ["attention as one operator: not tried, "],
        ),
    ],
    ids=["the same", "others", "a model without kernels"],
)
def test_attention_is_one_operator_where_the_model_is_the_same_with_it(
    behind: str, is_damaged: bool, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = {"heads": np.array([1, 6, 4, 8]), "rows": np.array([1, 6, 32]), "image": np.array([1, 4, 6, 8])}
    boxes = {"boxes": np.array([[0, 0, 4, 4]], np.float32), "batches": np.array([0])}
    given = model_of("(float[1,6,32] x) => (float[] y)", f"{ATTENTION} {behind}", {**constants, **boxes})
    path = saved(given, tmp_path / "attention.onnx")
    builder = case_of(given).builder({})
    monkeypatch.setattr(Bench, "compare", lambda *_: {"cpu-1t": timings_of([0.8] * 5)})
    if is_damaged:
        monkeypatch.setattr("autoquant.model.attentions.Attention.scale", 0.5)
    bench = open_bench(path, read_data(path, {"x": floats(3, 6, 32)}))
    found = probe_rewrites(builder, None, bench, [Rewrite.FUSED_ATTENTIONS]).sentences
    assert [note[: len(start)] for note, start in zip(found, notes, strict=True)] == notes
    assert builder.rewrites == ({Rewrite.FUSED_ATTENTIONS} if notes == [ALONE] else set())


def test_joined_groups_and_others_give_the_same_outputs(
    model: Path, samples: Samples, ingredients: Ingredients
) -> None:
    recipe, bench = ingredients.first_recipe(), open_bench(model, samples)
    assert recipe is not None
    candidates = [ingredients.builder(rewrites).build(recipe[1]) for rewrites in (frozenset(), frozenset(BOTH))]
    first, second = (bench.opener.open(each.skeleton, each.constants) for each in candidates)
    assert first.optimized.digest != second.optimized.digest
    assert bench.untimed_quality(first, 3) == bench.untimed_quality(second, 3)


def test_a_rewrite_that_onnxruntime_refuses_is_told_and_not_used(
    model: Path, samples: Samples, ingredients: Ingredients, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> dict[str, Timings]:
        raise ModelError("no kernel")

    monkeypatch.setattr(Bench, "compare", refuse)
    builder = ingredients.builder()
    notes = probe_rewrites(builder, None, open_bench(model, samples)).sentences
    assert notes == ["Add before LayerNormalization as Sum: not tried, no kernel"]
    assert builder.rewrites == frozenset()
