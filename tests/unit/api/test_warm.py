from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

from autoquant.api.documents import scheme_rows
from autoquant.api.folder import RunFolder
from autoquant.api.warm import EarlierRun, QuantizedFile, read_warm_start
from autoquant.domain.region import NodeName, RegionId
from autoquant.domain.scheme import BiasCorrection, DType, RangeKind, Rounding, Scheme
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError, UsageError
from autoquant.graph.regions import find_regions
from autoquant.model.graph import Graph
from autoquant.report.front_json import front_json
from autoquant.space.translation import KnownRegion
from tests.graphs import case_of, scheme
from tests.models import a_convnet, a_quantized_chain, floats, in_a_function, model_of, saved
from tests.quantized import quantized_by_recipe
from tests.records import a_front, a_member, a_region
from tests.unit.study.layouts import SCHEMES, a_scheme

REGIONS = [a_region("r0"), a_region("r1")]
SPACE = SearchSpace(choices=dict.fromkeys((RegionId("r0"), RegionId("r1")), ("float", "a", "b")), schemes=SCHEMES)
GRAPH = Graph(onnx.ModelProto())


def a_run(*members: Mapping[str, str], schemes: Mapping[str, Scheme] | None = None) -> EarlierRun:
    known = [KnownRegion(id=r.id, nodes=r.nodes, pattern=r.pattern) for r in REGIONS]
    assignments = [{RegionId(region): name for region, name in member.items()} for member in members]
    return EarlierRun(regions=known, schemes=schemes or {}, members=assignments)


def test_members_keep_schemes_that_are_known_and_equal_ones_are_one() -> None:
    found = a_run({"r0": "a", "r1": "b"}, {"r0": "a"}, {"r0": "a"}).assignments(REGIONS, SPACE, GRAPH)
    assert found.assignments == ({"r0": "a", "r1": "b"}, {"r0": "a"})
    assert found.note == "2 of 2 regions are regions of its run too, its 3 members give 2 assignments"


def test_unknown_schemes_become_the_nearest_or_float() -> None:
    run = a_run({"r0": "old", "r1": "lost"}, schemes={"old": a_scheme("old")})
    found = run.assignments(REGIONS, SPACE, GRAPH)
    assert found.assignments == ({"r0": "a"},)
    assert found.note.endswith("; of its schemes lost became float, old became a")


def test_all_that_a_scheme_became_is_told() -> None:
    run = a_run({"r0": "old", "r1": "old"}, schemes={"old": a_scheme("old")})
    found = run.assignments(REGIONS, replace(SPACE, choices={**SPACE.choices, RegionId("r1"): ("float",)}), GRAPH)
    assert found.assignments == ({"r0": "a"},)
    assert found.note.endswith("; of its schemes old became a or float")


def test_a_scheme_that_is_another_one_under_its_name_becomes_the_nearest() -> None:
    schemes = {"a": a_scheme("a", ranges=RangeKind.MSE), "c": a_scheme("c")}
    space = SearchSpace(choices=dict.fromkeys(SPACE.choices, ("float", "a", "c")), schemes=schemes)
    found = a_run({"r0": "a"}, schemes=SCHEMES).assignments(REGIONS, space, GRAPH)
    assert found.assignments == ({"r0": "c"},)
    assert found.note.endswith("; of its schemes a became c")


def test_a_scheme_that_is_another_one_is_told_where_none_is_nearer() -> None:
    schemes = {"a": a_scheme("a", ranges=RangeKind.MSE)}
    changed = SearchSpace(choices=dict.fromkeys(SPACE.choices, ("float", "a")), schemes=schemes)
    found = a_run({"r0": "a"}, schemes=SCHEMES).assignments(REGIONS, changed, GRAPH)
    assert found.assignments == ({"r0": "a"},)
    assert found.note.endswith("; of its schemes a became what a is here")


def test_biases_that_a_run_corrected_are_no_change_as_each_run_decides_that() -> None:
    schemes = {name: replace(scheme, bias=BiasCorrection.MEAN) for name, scheme in SCHEMES.items()}
    found = a_run({"r0": "a"}, schemes=schemes).assignments(REGIONS, SPACE, GRAPH)
    assert found.assignments == ({"r0": "a"},)
    assert "became" not in found.note


def test_schemes_that_a_run_has_as_the_space_has_them_are_no_change() -> None:
    found = a_run({"r0": "a", "r1": "b"}, schemes=SCHEMES).assignments(REGIONS, SPACE, GRAPH)
    assert found.assignments == ({"r0": "a", "r1": "b"},)
    assert "became" not in found.note


def test_a_scheme_for_linear_operators_becomes_its_twin_where_a_region_has_no_others() -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)", "a = Gemm(x, w) b = Sigmoid(a) y = Gemm(b, w)", {"w": floats(4, 4)}
    )
    regions = find_regions(Graph(model), [node.name for node in Graph(model).nodes])
    mixed, alone = (region.id for region in regions)
    space = SearchSpace(choices=dict.fromkeys((mixed, alone), ("float", "a")), schemes=SCHEMES)
    known = [KnownRegion(id=region.id, nodes=region.nodes, pattern=region.pattern) for region in regions]
    run = EarlierRun(regions=known, schemes={}, members=[{mixed: "b", alone: "b"}])
    found = run.assignments(regions, space, Graph(model))
    assert found.assignments == ({alone: "a"},)
    assert found.note.endswith("; of its schemes b became a or float")


def test_nothing_known_gives_nothing() -> None:
    assert a_run({"r0": "lost"}).assignments(REGIONS, SPACE, GRAPH).assignments == ()


def test_a_run_is_read_without_what_onnxruntime_quantized_unasked(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    rows = [{"id": r.id, "nodes": list(r.nodes), "pattern": r.pattern} for r in REGIONS]
    folder.write_json("run.json", {"regions": rows})
    members = a_member(assignment={"r0": "a", "r1": "int8 by onnxruntime"}), a_member("m2", assignment={})
    folder.write_text("front.json", front_json(a_front(*members)))
    found = read_warm_start(folder.path)
    assert isinstance(found, EarlierRun)
    assert found.members == [{"r0": "a"}]
    assert found == a_run({"r0": "a"})


def test_the_schemes_of_a_run_are_read_as_they_were_written(tmp_path: Path) -> None:
    schemes = [
        a_scheme("plain"),
        replace(a_scheme("corrected"), bias=BiasCorrection.MEAN),
        replace(a_scheme("rounded"), rounding=Rounding.GPTQ),
    ]
    rows = scheme_rows(schemes)
    before = {key: value for key, value in rows["plain"].items() if key not in ("bias", "rounding")}
    folder = RunFolder(tmp_path / "run", resume=False)
    folder.write_json("run.json", {"regions": [], "schemes": {**rows, "before": before}})
    folder.write_text("front.json", front_json(a_front(a_member(assignment={}))))
    found = read_warm_start(folder.path)
    assert isinstance(found, EarlierRun)
    assert found.schemes == {scheme.name: scheme for scheme in (*schemes, a_scheme("before"))}


@pytest.mark.parametrize(
    "document", [{}, {"regions": {}}, {"regions": [{}]}, {"regions": [], "schemes": {"s": {"activation": "u9"}}}]
)
def test_a_damaged_run_is_refused(tmp_path: Path, document: dict[str, object]) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    folder.write_json("run.json", document)
    folder.write_text("front.json", front_json(a_front(a_member())))
    with pytest.raises(OutputError, match=r"this is no finished run .*; give the folder of one"):
        read_warm_start(folder.path)


def test_a_float_model_quantizes_nothing(tmp_path: Path) -> None:
    onnx.save(a_convnet(), tmp_path / "m.onnx")
    source = read_warm_start(tmp_path / "m.onnx")
    regions = [a_region("a"), a_region("b")]
    space = SearchSpace(choices={r.id: ("float",) for r in regions}, schemes={})
    model = a_convnet()
    for node, name in zip(model.graph.node, [n for r in regions for n in r.nodes], strict=False):
        node.name = name
    found = source.assignments(regions, space, Graph(model))
    assert (found.assignments, found.note) == ((), "0 of 2 regions are quantized there")


def test_numbers_of_quantization_may_be_constant_nodes(tmp_path: Path) -> None:
    body = """s = Constant<value = float {0.1}>() z = Constant<value = int8 {3}>()
              q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Sigmoid(d)"""
    quantized = model_of("(float[4] x) => (float[4] y)", body)
    del quantized.graph.value_info[:]
    source = read_warm_start(saved(quantized, tmp_path / "q.onnx"))
    assert isinstance(source, QuantizedFile)
    assert source.found.types == {"x": DType.S8}


def test_what_functions_quantize_is_known(tmp_path: Path) -> None:
    source = read_warm_start(saved(in_a_function(a_quantized_chain()), tmp_path / "q.onnx"))
    assert isinstance(source, QuantizedFile)
    assert source.found.types["x"] is DType.U8  # type: ignore[index]
    assert len(source.found.types) == 4


def test_a_type_of_activations_that_the_space_lacks_gives_the_nearest_scheme(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QInt8)
    graph, u8 = Graph(a_convnet()), scheme("u8:tensor:asym", "s8:channel:sym")
    regions = find_regions(graph, [node.name for node in graph.nodes])
    space = SearchSpace(choices={region.id: ("float", u8.name) for region in regions}, schemes={u8.name: u8})
    found = read_warm_start(saved(recipe, tmp_path / "s8.onnx")).assignments(regions, space, graph)
    (assignment,) = found.assignments
    assert set(assignment.values()) == {u8.name}
    assert "with a type of activations that it does not have: they take another one" in found.note


def test_regions_with_ranges_found_at_run_time_are_taken_over_or_named(tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = MatMul(x, w) b = MatMul(a, w) s = Sigmoid(b) c = MatMul(s, w) y = MatMul(c, w)",
        {"w": floats(4, 4)},
    )
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "m.onnx", nodes_to_quantize=["a", "b", "c"])
    graph, dynamic = Graph(model), scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic")
    first, last = find_regions(graph, [node.name for node in graph.nodes], n_regions=2)
    assert (first.dynamic, last.dynamic) == (("a", "b"), ("c", "y"))
    choices = ("float", "a", dynamic.name)
    space = SearchSpace(choices=dict.fromkeys((first.id, last.id), choices), schemes={**SCHEMES, dynamic.name: dynamic})
    source = read_warm_start(tmp_path / "m.onnx")
    found = source.assignments([first, last], space, graph)
    assert found.assignments == ({first.id: dynamic.name},)
    assert found.note.startswith("1 of 2 regions are quantized there; 1 of 3 operators with ranges found at run time")
    without = source.assignments(
        [first, last], replace(space, choices=dict.fromkeys(space.choices, choices[:2])), graph
    )
    assert without.assignments == ()
    assert "3 of 3 operators with ranges found at run time are not taken over" in without.note


@pytest.mark.parametrize(("there", "taken"), [(32, 32), (64, 64), (16, 128)])
def test_blocks_are_those_of_the_file_or_else_the_first_ones(there: int, taken: int, tmp_path: Path) -> None:
    model = model_of("(float[4,256] x) => (float[4,4] y)", "y = MatMul(x, w)", {"w": floats(256, 4)})
    blocks = {n: scheme(f"s8:block-{n}:sym", f"s4:block-{n}:sym", ranges="dynamic") for n in (128, 64, 32, 16)}
    file = saved(case_of(model).quantized(blocks[there]).model, tmp_path / "m.onnx")
    graph = Graph(model)
    (region,) = find_regions(graph, [NodeName("y")])
    offered = {blocks[n].name: blocks[n] for n in (128, 64, 32)}
    space = SearchSpace(choices={region.id: ("float", *offered)}, schemes=offered)
    found = read_warm_start(file).assignments([region], space, graph)
    assert found.assignments == ({region.id: blocks[taken].name},)


@pytest.mark.parametrize("name", ["gone", "gone.json", "gone.onnx"])
def test_what_is_not_there_is_said_to_be_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: there is no such file or folder; give the folder of a run"):
        read_warm_start(tmp_path / name)


def test_a_file_of_quantized_operators_is_refused_with_what_to_give(tmp_path: Path) -> None:
    model = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QOperator, QuantType.QUInt8)
    with pytest.raises(UsageError, match=r"'QGemm' in it is of the format QOperator; give it in QDQ"):
        read_warm_start(saved(model, tmp_path / "integers.onnx"))
