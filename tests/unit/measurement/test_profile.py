import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.target import Target
from autoquant.errors import ModelError, ProfileError
from autoquant.isolation.process import SCRATCH
from autoquant.measurement.profile import Profile, kernel_us, outside_us, region_us, take_profiles
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from tests.graphs import case_of, scheme
from tests.models import a_convnet, a_quantized_chain, floats, model_of, saved

FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(3)]


def a_region(*nodes: str) -> Region:
    names = tuple(NodeName(node) for node in nodes)
    return Region(
        id=RegionId(nodes[0]), nodes=names, inputs=(), outputs=(), pattern="", op_types=("Conv",) * len(nodes), work=0.1
    )


def a_branching_model() -> onnx.ModelProto:
    """A Conv, and an If with two nodes in its first body."""
    return model_of(
        "(float[1,4,5,5] x, bool c) => (float[1,4,5,5] y)",
        "a = Conv(x, w) y = If(c) <then_branch = t () => (float[1,4,5,5] u) { i = Conv(a, w) u = Relu(i) },"
        " else_branch = e () => (float[1,4,5,5] v) { v = Sin(a) }>",
        {"w": floats(4, 4, 1, 1)},
    )


def of(model: onnx.ModelProto, feeds: list[Feed]) -> Profile:
    (found,) = take_profiles([(model.SerializeToString(), {})], Target(), feeds, 0.0)
    return found


def run_of(start: int, **kernels: int) -> list[dict[str, object]]:
    """Events of one run; each kernel begins right after it."""
    nodes = [
        {"cat": "Node", "name": f"{name}_kernel_time", "ts": start + 1 + i, "dur": spent}
        for i, (name, spent) in enumerate(kernels.items())
    ]
    return [*nodes, {"cat": "Session", "name": "model_run", "ts": start, "dur": 1000}]


OPENING: dict[str, object] = {"cat": "Session", "name": "session_initialization", "ts": 1, "dur": 10}


def test_kernel_times_are_the_least_of_all_runs_but_the_first() -> None:
    events = [OPENING, *run_of(100, a=9, b=5), *run_of(2000, a=10, b=8), *run_of(4000, a=90, b=7)]
    assert kernel_us(json.dumps(events)) == {"a": 10, "b": 7}


def test_kernels_of_one_name_are_summed() -> None:
    one = run_of(2000, a=10)
    again = {**one[0], "ts": 2005, "dur": 30}
    assert kernel_us(json.dumps([*run_of(100, a=1), *one, again])) == {"a": 40}


@pytest.mark.parametrize("events", [[], [OPENING], run_of(100, a=1), [*run_of(100), *run_of(2000)]])
def test_a_trace_without_kernels_or_a_second_run_is_refused(events: list[dict[str, object]]) -> None:
    with pytest.raises(ProfileError, match="names no kernel"):
        kernel_us(json.dumps(events))


def test_a_damaged_trace_is_refused() -> None:
    with pytest.raises(ProfileError, match="is not JSON"):
        kernel_us('[{"cat": "Sess')


def test_every_kernel_of_a_convolutional_net_belongs_to_a_region() -> None:
    model = a_convnet()
    found = of(model, FEEDS)
    regions = [a_region("a", "a_relu"), a_region("b", "b_relu"), a_region("c", "pooled"), a_region("flat", "y")]
    spent = region_us(found, Graph(model), regions)
    assert set(found.kernel_us) == {kernel.name for kernel in found.kernels.nodes}
    assert spent.sum() == pytest.approx(found.total_us)
    assert (spent > 0).all()


def test_what_runs_in_a_body_is_in_the_time_of_the_operator_around_it() -> None:
    model = a_branching_model()
    found = of(model, [{"x": floats(1, 4, 5, 5), "c": np.array(True)}])
    named = {kernel.name for kernel in found.kernels.nodes}
    assert set(found.kernel_us) - named
    assert found.total_us == sum(spent for name, spent in found.kernel_us.items() if name in named)


def test_kernels_without_names_count_too() -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = ""
    found = of(model, FEEDS)
    assert not set(found.kernel_us) <= {kernel.name for kernel in found.kernels.nodes}
    assert found.total_us == sum(found.kernel_us.values()) > 0


def by_kernel(model: onnx.ModelProto, given: onnx.ModelProto, regions: list[Region]) -> dict[str, list[str]]:
    """Kernels by region, found by giving each in turn a microsecond."""
    kernels = of(model, [{"x": floats(1, 4, 5, 5)}]).kernels
    found: dict[str, list[str]] = {region.id: [] for region in regions}
    for kernel in kernels.nodes:
        spent = region_us(Profile(kernels, {kernel.name: 1.0}), Graph(given), regions)
        assert spent.sum() == 1.0
        found[regions[int(np.argmax(spent))].id].append(kernel.op_type.rpartition(":")[2])
    return found


def test_conversions_belong_to_the_region_that_needs_them() -> None:
    given = model_of(
        "(float[1,4,5,5] x) => (float[1,4,5,5] y)",
        "a = Conv(x, w) b = Conv(a, w) y = Conv(b, w)",
        {"w": floats(4, 4, 1, 1)},
    )
    given.graph.node[2].name = "c"
    found = by_kernel(a_quantized_chain(), given, [a_region("a"), a_region("b"), a_region("c")])
    assert found["a"].count("QuantizeLinear") == 1
    assert found["c"].count("DequantizeLinear") == 1
    assert all(kernels.count("QLinearConv") == 1 for kernels in found.values())


def test_a_convolution_that_is_computed_tile_by_tile_is_all_its_own() -> None:
    given = model_of(
        "(float[1,192,16,16] x) => (float[1,192,16,16] y)",
        "a = Conv(x, v) b = Conv<pads=[1,1,1,1]>(a, w) y = Conv(b, v)",
        {"v": floats(192, 192, 1, 1), "w": floats(192, 192, 3, 3, scale=0.02)},
    )
    builder = case_of(given).builder({})
    builder.write(frozenset({Rewrite.TILED_CONVS}))
    candidate = builder.build({})
    model = inline_external(candidate.skeleton, candidate.constants, {})
    feeds: list[Feed] = [{"x": floats(1, 192, 16, 16)}]
    found, regions = of(model, feeds), [a_region("a"), a_region("b"), a_region("y")]
    kernels = [kernel.name for kernel in found.kernels.nodes if "_tiles_" in kernel.name]
    assert len(kernels) > 4
    spent = region_us(Profile(found.kernels, dict.fromkeys(kernels, 1.0)), Graph(given), regions)
    assert spent.tolist() == [0.0, len(kernels), 0.0]


def test_what_is_in_no_region_belongs_to_the_one_before_it_or_else_behind() -> None:
    model = model_of(
        "(float[1,4,5,5] x) => (float[1,4,5,5] y)",
        "e = Erf(x) a = Conv(e, w) f = Sin(a) y = Conv(f, w)",
        {"w": floats(4, 4, 1, 1)},
    )
    found = by_kernel(model, model, [a_region("a"), a_region("y")])
    assert "Erf" in found["a"]
    assert "Sin" in found["a"]


def test_operators_in_no_region_are_told_by_their_type_whatever_kernels_they_become() -> None:
    model = model_of(
        "(float[1,4,8,8] x) => (float[1,4,8,8] y)",
        "e = Erf(x) a = Conv(e, w) r = Relu(a) f = Sin(r) h = Div(f, root) i = Erf(h) j = Add(i, one) k = Mul(f, j)"
        " g = Mul(k, half) y = Conv(g, w)",
        {"w": floats(4, 4, 1, 1), "root": 2**0.5, "one": 1.0, "half": 0.5},
    )
    kernels = of(model, [{"x": floats(1, 4, 8, 8)}]).kernels
    assert "Gelu" in {kernel.op_type.rpartition(":")[2] for kernel in kernels.nodes}
    spent = {str(kernel.name): 10.0**i for i, kernel in enumerate(kernels.nodes)}
    found = outside_us(Profile(kernels, spent), Graph(model), [a_region("a", "r"), a_region("y")])
    of_types = {kernel.op_type.rpartition(":")[2]: spent[kernel.name] for kernel in kernels.nodes}
    assert found == {"Erf": of_types["Erf"], "Sin": of_types["Sin"], "Mul": of_types["Gelu"]}


def test_a_loop_in_no_region_counts_with_its_body_once() -> None:
    model = a_branching_model()
    found = of(model, [{"x": floats(1, 4, 5, 5), "c": np.array(True)}])
    outside = outside_us(found, Graph(model), [a_region("a")])
    assert outside == {"If": found.kernel_us["y"]}


def test_a_file_and_a_skeleton_of_the_same_model_run_the_same_kernels(tmp_path: Path) -> None:
    file = saved(a_convnet(), tmp_path / "model.onnx")
    found = take_profiles([(file, {}), (a_convnet().SerializeToString(), {})], Target(), FEEDS, 0.0)
    assert [set(one.kernel_us) for one in found] == [set(found[0].kernel_us)] * 2


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    of(a_convnet(), FEEDS)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match="profiles cannot be written"):
        of(a_convnet(), FEEDS)


def test_a_model_that_onnxruntime_refuses_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError, match="cannot open it"):
        take_profiles([(b"no model", {})], Target(), FEEDS, 0.0)


def test_runs_that_take_far_longer_than_there_is_time_are_given_up() -> None:
    with pytest.raises(ProfileError, match=r"no time for profiles: they would take \d"):
        take_profiles([(a_convnet().SerializeToString(), {})], Target(), FEEDS, 0.0, most_s=0.0)


def test_a_model_that_cannot_be_run_is_said() -> None:
    with pytest.raises(ProfileError, match="a candidate cannot be run"):
        of(a_convnet(), [{"x": floats(1, 3, 9, 9)}])


def test_a_quantization_at_run_time_belongs_to_the_region_that_reads_it() -> None:
    given = model_of(
        "(float[1,4,5,5] x) => (float[1,4,5,5] y, float[1,4,5,5] z)",
        "a = Tanh(x) y = MatMul(a, w) z = MatMul(a, v)",
        {"w": floats(5, 5), "v": floats(5, 5, seed=1)},
    )
    ours = case_of(given).quantized(scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic"))
    found = by_kernel(ours.model, given, [a_region("a"), a_region("y"), a_region("z")])
    assert found["a"] == ["Tanh"]
    assert sorted(found["y"] + found["z"]) == ["DynamicQuantizeLinear", "MatMulIntegerToFloat", "MatMulIntegerToFloat"]
