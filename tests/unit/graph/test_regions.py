from collections import Counter
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.errors import SpaceError
from autoquant.graph.regions import _cost, _join, _merge, _neighbours, _units, borders, ends, find_regions
from autoquant.model.graph import Graph
from autoquant.model.ops import Kind, is_quantizable, kind_of
from tests.models import a_convnet, a_residual_net, floats, model_of


def every_node(graph: Graph) -> list[NodeName]:
    return [node.name for node in graph.nodes]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Chains and branches of Conv, Relu, Sigmoid, Add and Mul on equal shapes."""
    tensors, body = ["x"], []
    for i in range(draw(st.integers(1, 14))):
        op_type = draw(st.sampled_from(["Conv", "Conv", "Relu", "Sigmoid", "Add", "Mul"]))
        recent = st.sampled_from(tensors[-4:])
        inputs = (
            [draw(recent), "w"]
            if op_type == "Conv"
            else [draw(recent) for _ in range(2 if op_type in ("Add", "Mul") else 1)]
        )
        body.append(f"t{i} = {op_type}({', '.join(inputs)})")
        tensors.append(f"t{i}")
    model = model_of(
        f"(float[1,2,4,4] x) => (float[1,2,4,4] {tensors[-1]})", "\n".join(body), {"w": floats(2, 2, 1, 1)}
    )
    return Graph(model)


def is_connected(graph: Graph, region: Region) -> bool:
    """Whether the nodes hang together by the tensors between them."""
    left, reached = set(region.nodes), {region.nodes[0]}
    while True:
        near = {
            node.name
            for node in graph.nodes
            if node.name in left - reached
            and (
                any(graph.producer[t].name in reached for t in node.inputs if t in graph.producer)
                or any(r.name in reached for t in node.outputs for r in graph.consumers.get(t, ()))
            )
        }
        if not near:
            return reached == left
        reached |= near


@settings(max_examples=100, deadline=None)
@given(graph=graphs(), data=st.data(), n_regions=st.integers(1, 6))
def test_every_node_that_a_scheme_changes_is_in_exactly_one_region(
    graph: Graph, data: st.DataObject, n_regions: int
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(every_node(graph)), unique=True))
    found = find_regions(graph, chosen, n_regions=n_regions)
    n_times = Counter(name for region in found for name in region.nodes)
    assert set(n_times) <= set(chosen)
    assert set(n_times.values()) <= {1}
    kernels = {
        node.name
        for node in graph.nodes
        if node.name in chosen and kind_of(node) in (Kind.LINEAR, Kind.ARITHMETIC) and is_quantizable(node, graph)
    }
    assert kernels <= set(n_times)
    assert all(region.static or region.dynamic for region in found)
    assert len(found) <= n_regions
    assert len({region.id for region in found}) == len(found)
    assert found == find_regions(graph, reversed(chosen), n_regions=n_regions)
    position = {node.name: node.index for node in graph.nodes}
    for region in found:
        assert list(region.nodes) == sorted(region.nodes, key=position.__getitem__)
        assert len(region.op_types) == len(region.nodes)
    assert [position[r.nodes[0]] for r in found] == sorted(position[r.nodes[0]] for r in found)
    assert not found or sum(region.work for region in found) == pytest.approx(1)


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), n_regions=st.integers(1, 6))
def test_the_touching_pair_with_the_least_work_is_merged_first(graph: Graph, n_regions: int) -> None:
    inside = [node for node in graph.nodes if is_quantizable(node, graph)]
    merged, plainly = _units(graph, inside, {}), _units(graph, inside, {})
    _merge(graph, merged, n_regions)
    neighbours = _neighbours(graph, plainly)
    while len(plainly) > n_regions:
        touching = [(a, b) for a in plainly for b in neighbours[a] if a < b] or list(pairwise(sorted(plainly)))
        a, b = min(touching, key=lambda pair: (_cost(plainly[pair[0]], plainly[pair[1]]), pair))
        _join(plainly, neighbours, a, b)
    assert {first: unit.nodes for first, unit in merged.items()} == {
        first: unit.nodes for first, unit in plainly.items()
    }


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), n_regions=st.integers(1, 6))
def test_ends_of_a_region_are_what_crosses_its_border(graph: Graph, n_regions: int) -> None:
    for region in find_regions(graph, every_node(graph), n_regions=n_regions):
        inside = [node for node in graph.nodes if node.name in region.nodes]
        written = {name for node in inside for name in node.outputs}
        read = {name for node in inside for name in node.inputs} - {"w"}
        elsewhere = {t for node in graph.nodes if node.name not in region.nodes for t in node.inputs} | set(
            graph.outputs
        )
        assert set(region.inputs) == read - written
        assert set(region.outputs) == written & elsewhere


@settings(max_examples=60, deadline=None)
@given(graph=graphs())
def test_units_hang_together(graph: Graph) -> None:
    for region in find_regions(graph, every_node(graph), n_regions=100):
        assert is_connected(graph, region)


@pytest.mark.parametrize("n_regions", [1, 2, 3, 5, 8])
def test_regions_of_a_connected_model_hang_together(n_regions: int) -> None:
    graph = Graph(a_residual_net())
    found = find_regions(graph, every_node(graph), n_regions=n_regions)
    assert len(found) == n_regions
    assert all(is_connected(graph, region) for region in found)


@pytest.mark.parametrize("order", ["u = Conv<group=4>(c, s) r = Relu(u)", "u = Relu(c) r = Conv<group=4>(u, s)"])
def test_convs_that_scale_channels_for_a_prelu_belong_to_what_they_scale(order: str) -> None:
    body = f"""c = Conv(x, w) d = Conv<group=4>(c, s) {order} a = Add(d, r) b = Conv<group=4>(a, s) g = Relu(b)
               e = Conv<group=4, pads=[1,1,1,1]>(g, k) y = Conv(e, w)"""
    weights = {"w": floats(4, 4, 1, 1), "s": floats(4, 1, 1, 1), "k": floats(4, 1, 3, 3)}
    graph = Graph(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, weights))
    found = find_regions(graph, every_node(graph))
    assert [sorted(region.nodes) for region in found] == [["a", "c", "d", "r", "u"], ["b", "g"], ["e"], ["y"]]


def test_a_kernel_and_what_it_absorbs_are_one_region() -> None:
    graph = Graph(a_convnet())
    found = find_regions(graph, every_node(graph))
    assert [region.nodes for region in found] == [("a", "a_relu"), ("b", "b_relu"), ("c", "pooled", "flat"), ("y",)]
    assert [region.id for region in found] == ["00-a", "01-b", "02-c", "03-y"]
    assert found[1].op_types == ("Conv", "Relu")
    assert max(found, key=lambda region: region.work).id == "01-b"


def test_residual_blocks_are_not_split_when_few_regions_are_asked() -> None:
    graph = Graph(a_residual_net(n_blocks=4))
    found = find_regions(graph, every_node(graph), n_regions=5)
    home = {name: region.id for region in found for name in region.nodes}
    for i in range(4):
        assert len({home[NodeName(f"{name}{i}")] for name in "arbt"}) == 1


def test_nodes_of_one_scope_are_merged_first() -> None:
    body = "a = Conv(x, w) b = Conv(a, w) c = Conv(b, w) d = Conv(c, w)"
    model = model_of("(float[1,2,4,4] x) => (float[1,2,4,4] d)", body, {"w": floats(2, 2, 1, 1)})
    for node, name in zip(model.graph.node, ["/one/p", "/two/q", "/two/r", "/three/s"], strict=True):
        node.name = name
    graph = Graph(model)
    found = find_regions(graph, every_node(graph), n_regions=3)
    assert [region.nodes for region in found] == [("/one/p",), ("/two/q", "/two/r"), ("/three/s",)]


def test_parts_that_do_not_touch_are_merged_only_when_nothing_else_is_left() -> None:
    outputs = [f"t{i}" for i in range(6)]
    body = " ".join(f"{name} = Conv(x, w)" for name in outputs)
    signature = f"(float[1,2,4,4] x) => ({', '.join(f'float[1,2,4,4] {name}' for name in outputs)})"
    graph = Graph(model_of(signature, body, {"w": floats(2, 2, 1, 1)}))
    assert len(find_regions(graph, every_node(graph), n_regions=2)) == 2


def test_groups_are_regions_of_their_own_and_do_not_count() -> None:
    graph = Graph(a_residual_net())
    groups = {"first": "^[ab]0$", "second": "^[ab]2$"}
    found = find_regions(graph, every_node(graph), n_regions=2, groups=groups)
    assert len(found) == 4
    named = {region.id: set(region.nodes) for region in found}
    assert {"a0", "b0"} <= named["first"]  # type: ignore[index]
    assert {"a2", "b2"} <= named["second"]  # type: ignore[index]
    linear = {name for name in named["first"] if name[0] in "abs" and name != "s0"}  # type: ignore[index]
    assert not linear & {"a1", "b1", "a2", "b2", "a3", "b3"}


def test_a_group_that_matches_nothing_is_an_error() -> None:
    graph = Graph(a_convnet())
    said = "group 'mine': no quantizable node matches 'nothing'; see 'autoquant regions MODEL --json'"
    with pytest.raises(SpaceError, match=said):
        find_regions(graph, every_node(graph), groups={"mine": "nothing"})


def test_a_group_that_matches_only_what_cannot_be_quantized_is_an_error() -> None:
    graph = Graph(a_convnet())
    with pytest.raises(SpaceError, match="group 'mine'"):
        find_regions(graph, [NodeName("a")], groups={"mine": "^b$"})


def test_nothing_to_quantize_is_no_region() -> None:
    assert find_regions(Graph(a_convnet()), []) == ()


def test_equal_structures_have_equal_patterns() -> None:
    graph = Graph(a_residual_net())
    found = {region.nodes[0]: region for region in find_regions(graph, every_node(graph), n_regions=100)}
    assert found[NodeName("a1")].pattern == found[NodeName("a2")].pattern
    assert found[NodeName("a1")].pattern != found[NodeName("s0")].pattern


def test_ids_are_made_of_harmless_characters() -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = f"/model/block [{node.name}]/Übung:op"
    for region in find_regions(Graph(model), every_node(Graph(model))):
        assert not set(region.id) & set("/:[] ")
        assert len(region.id) <= 40


def test_borders_lead_from_the_region_that_writes_to_the_one_that_reads() -> None:
    graph = Graph(a_convnet())
    found = find_regions(graph, every_node(graph))
    ids = [region.id for region in found]
    assert list(borders(graph, found)) == list(pairwise(ids))


def test_borders_look_through_nodes_that_no_region_holds() -> None:
    graph = Graph(a_convnet())
    found = find_regions(graph, [NodeName("a"), NodeName("y")])
    assert borders(graph, found) == {(found[0].id, found[1].id): 8 * 8 * 8}


def test_a_border_counts_every_tensor_that_crosses_it_once() -> None:
    model = model_of(
        "(float[1,4] x) => (float[1,4] y)", "a = Relu(x) b = Sigmoid(x) c = Add(a, b) d = Add(a, c) y = Add(d, b)"
    )
    graph = Graph(model)
    found = find_regions(graph, every_node(graph), groups={"sources": "^[ab]$", "sums": "^[cdy]$"})
    assert borders(graph, found) == {(RegionId("sources"), RegionId("sums")): 8}


def test_sizes_of_a_tensor_carry_none_of_its_values_across_a_border() -> None:
    model = model_of(
        "(float[2,4] x, float[8] u) => (float[2,4] y, float[2,4] a)",
        "a = Relu(x) n = Shape(a) m = Identity(n) b = Sigmoid(u) y = Reshape(b, m)",
    )
    graph = Graph(model)
    found = find_regions(graph, [graph.producer[TensorName(name)].name for name in "ab"])
    assert borders(graph, found) == {}


def test_a_tensor_of_unknown_shape_counts_for_nothing() -> None:
    graph = Graph(model_of("(float[N,4] x) => (float[N,4] y)", "a = Relu(x) y = Sigmoid(a)"))
    found = find_regions(graph, every_node(graph))
    assert list(borders(graph, found).values()) == [0] * (len(found) - 1)


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), n_regions=st.integers(1, 6))
def test_there_is_a_border_wherever_one_region_reads_what_another_writes(graph: Graph, n_regions: int) -> None:
    found = find_regions(graph, every_node(graph), n_regions=n_regions)
    home = {name: region.id for region in found for name in region.nodes}
    expected = {
        (home[writer.name], home[node.name])
        for node in graph.nodes
        for name in node.inputs
        if (writer := graph.producer.get(name)) is not None and {writer.name, node.name} <= set(home)
        if home[writer.name] != home[node.name]
    }
    assert set(borders(graph, found)) == expected


@pytest.mark.parametrize(("op_type", "n_regions"), [("Sigmoid", 1), ("Relu", 0)])
def test_a_model_of_one_node_has_a_region_where_that_has_a_kernel(op_type: str, n_regions: int) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op_type, ["x"], ["y"], name="only")],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
        )
    )
    found = find_regions(Graph(model), [NodeName("only")])
    assert [(region.inputs, region.outputs, region.work) for region in found] == [(("x",), ("y",), 1.0)] * n_regions


def test_an_lstm_is_a_region_with_what_follows_it() -> None:
    graph = Graph(
        model_of(
            "(float[5,3,6] x) => (float[5,3,2] y)",
            """t = Tanh(x) l, , h = LSTM<hidden_size=4>(t, w, r) s = Squeeze(l, one) y = MatMul(s, v)
               m = LSTM<hidden_size=4>(s, v, r, , , h)""",
            {"w": floats(1, 16, 6), "r": floats(1, 16, 4), "v": floats(4, 2), "one": np.array([1])},
        )
    )
    first, product = find_regions(graph, [NodeName(name) for name in ("t", "l", "s", "y")])[1:]
    assert (first.nodes, first.dynamic) == (("l", "s"), ("l",))
    assert first.static == (), "the Squeeze has no integers to move"
    assert product.dynamic == product.static == product.linear == ("y",)
    assert first.work > product.work, "it multiplies with 160 weights at every step, the other one with 8"
    assert (first.id, product.id) in borders(graph, find_regions(graph, [NodeName(n) for n in ("t", "l", "s", "y")]))


def test_outputs_that_nobody_wants_touch_nothing() -> None:
    graph = Graph(
        model_of(
            "(float[5,3,4] x) => (float[1,3,4] y, float[1,3,4] z)",
            ", y = LSTM<hidden_size=4>(x, w, r) , z = LSTM<hidden_size=4>(x, w, r, , , h)",
            {"w": floats(1, 16, 4), "r": floats(1, 16, 4), "h": floats(1, 3, 4)},
        )
    )
    found = find_regions(graph, every_node(graph))
    assert len(found) == 2
    assert borders(graph, found) == {}
    assert [region.outputs for region in found] == [("y",), ("z",)]


def test_what_only_moves_floats_is_of_the_region_that_reads_it() -> None:
    graph = Graph(
        model_of(
            "(float[2,8] x) => (float[4,4] y, float[8,2] z)",
            """e = Erf(x) s = Constant<value = int64[2] {4, 4}>() r = Reshape(e, s) t = Transpose(r)
               p = MatMul(t, w) y = Sigmoid(p) z = Transpose<perm=[1,0]>(e)""",
            {"w": floats(4, 4)},
        )
    )
    quantizable = [node.name for node in graph.nodes if node.op_type not in ("Erf", "Constant")]
    (found,) = find_regions(graph, quantizable)
    assert found.op_types == ("Reshape", "Transpose", "MatMul", "Sigmoid")
    assert (found.static, found.linear) == (("p", "y"), ("p",))


def test_integers_reach_what_is_behind_a_kernel_of_another_region() -> None:
    graph = Graph(
        model_of(
            "(float[4,4] x) => (float[4,4] y)",
            "m = MatMul(x, x) t = Transpose(m) r = Relu(t) g = Gemm<alpha=2.0>(r, w) y = Relu(g)",
            {"w": floats(4, 4)},
        )
    )
    product, moved, scaled = find_regions(graph, every_node(graph), groups={"moved": "[tr]"})
    assert (product.static, product.linear) == (("m",), ())
    assert moved.static == ("t", "r")
    assert (scaled.nodes, scaled.static, scaled.dynamic) == (("g", "y"), (), ("g",))


def test_what_is_in_a_group_takes_in_no_other_node() -> None:
    graph = Graph(
        model_of(
            "(float[2,8] x) => (float[2,8] y)",
            "r = Transpose(x) t = Transpose(r) y = MatMul(t, w)",
            {"w": floats(8, 8)},
        )
    )
    found = find_regions(graph, every_node(graph), groups={"product": "y"})
    assert [region.op_types for region in found] == [("MatMul",)]


def test_where_sizes_are_not_known_weights_say_what_is_much_work() -> None:
    constants = {"w": floats(32, 4, 3, 3), "v": floats(4, 32, 1, 1)}
    body = "a = Conv<pads=[1,1,1,1]>(x, w) y = Conv(a, v)"
    graph = Graph(model_of("(float[1,4,H,W] x) => (float[1,4,H,W] y)", body, constants))
    first, second = find_regions(graph, every_node(graph))
    assert first.work > 0.6 > 0.4 > second.work


def test_the_ends_are_products_that_none_comes_before_or_behind() -> None:
    body = """a = Conv(x, v) b = Relu(a) c = Conv(b, v) d = Conv(b, v) e = Add(c, d) f = Conv(e, v)
              g = MaxPool<kernel_shape=[2,2]>(f) h = Conv(e, v)"""
    outputs = "(float[1,4,6,6] g, float[1,4,6,6] h)"
    graph = Graph(model_of(f"(float[1,4,6,6] x) => {outputs}", body, {"v": floats(4, 4, 1, 1)}))
    regions = find_regions(graph, [node.name for node in graph.nodes])
    found = ends(graph, regions)
    home = {name: region.id for region in regions for name in region.nodes}
    producers = {name: graph.producer[TensorName(name)].name for name in "acdfh"}
    assert found == {home[producers[name]] for name in "afh"}
