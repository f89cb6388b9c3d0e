import numpy as np
import pytest

from autoquant.model.graph import Graph
from autoquant.rewrites.channel_layouts import ChannelLayouts
from autoquant.rewrites.channels import Channels
from tests.models import floats, model_of

WEIGHTS = {
    "w3": floats(5, 3, 1, 1),
    "w5": floats(5, 5, 1, 1),
    "w6": floats(6, 5, 1, 1),
    "w8": floats(5, 8, 1, 1),
    "w11": floats(5, 11, 1, 1),
    "w16": floats(5, 16, 1, 1),
    "eleven": floats(11, 11, 1, 1),
    "one": floats(1, 5, 1, 1),
    "d": floats(5, 1, 3, 3),
    "last": floats(2, 5, 1, 1),
    "slope": floats(5, 1, 1),
    "zeros": floats(1, 3, 4, 4),
}
FIRST, LAST = "c = Conv(x, w3)", "y = Conv(t, last)"


def a_graph(body: str) -> Graph:
    return Graph(model_of("(float[1,3,4,4] x) => (float[n,c,h,w] y)", body, WEIGHTS))


def filled(body: str, multiple: int = 4, *, is_tight: bool = False) -> dict[str, tuple[int, int]]:
    found = ChannelLayouts(Channels(a_graph(body)), multiple, is_tight).solve()
    return {name: (len(layout.places), layout.size) for name, layout in found.items()}


@pytest.mark.parametrize(
    "between",
    [
        "t = Relu(c)",
        "t = Conv<group=5, pads=[1,1,1,1]>(c, d)",
        "r = Relu(c) t = Add(c, r)",
        "g = GlobalAveragePool(c) s = Sigmoid(g) t = Mul(c, s)",
        "t = PRelu(c, slope)",
        "t = MaxPool<kernel_shape=[2,2]>(c)",
        "a, b = Split<axis=1, num_outputs=2>(c) t = Concat<axis=1>(b, a)",
    ],
)
def test_what_lies_between_convolutions_is_filled_up(between: str) -> None:
    found = filled(f"{FIRST} {between} {LAST}")
    assert found["c"] == (5, 8)
    assert found["t"] == (5, 8)
    assert "x" not in found
    assert "y" not in found


@pytest.mark.parametrize(
    "between",
    [
        "t = Softmax<axis=1>(c)",
        "s = Softmax<axis=1>(c) t = Mul(s, c)",
        "l = Log(c) t = Add(l, c)",
        "t = Div(c, c)",
        "r = Relu(c) n = Transpose<perm=[0,2,3,1]>(c) m = Transpose<perm=[0,3,1,2]>(n) t = Add(r, m)",
    ],
)
def test_what_other_operators_read_keeps_its_channels(between: str) -> None:
    assert filled(f"{FIRST} {between} {LAST}") == {}


def test_outputs_of_the_model_keep_their_channels() -> None:
    assert filled("c = Conv(x, w3) y = Relu(c)") == {}


def test_a_channel_for_all_is_none_of_the_others() -> None:
    assert filled(f"{FIRST} g = Conv(c, one) t = Mul(c, g) {LAST}") == {"c": (5, 8), "t": (5, 8)}


def test_whole_multiples_and_few_channels_stay() -> None:
    assert filled(f"{FIRST} t = Relu(c) {LAST}", 5) == {}
    assert filled(f"{FIRST} t = Relu(c) {LAST}", 16)["c"] == (5, 16)
    assert filled(f"{FIRST} t = Relu(c) {LAST}", 32) == {}


def test_what_is_joined_has_the_channels_of_its_parts() -> None:
    joining = "e = Conv(c, w6) j = Concat<axis=1>(c, e) t = Conv(j, w11) y = Conv(t, last)"
    assert filled(f"{FIRST} {joining}") == {"c": (5, 8), "e": (6, 8), "j": (11, 16), "t": (5, 8)}
    assert filled(f"{FIRST} {joining}", is_tight=True) == {"t": (5, 8)}
    assert filled(f"{FIRST} {joining}", 8, is_tight=True) == {"c": (5, 8), "e": (6, 8), "j": (11, 16), "t": (5, 8)}


def test_constants_are_filled_up_where_what_they_are_joined_with_is() -> None:
    found = filled(f"{FIRST} j = Concat<axis=1>(c, zeros) t = Conv(j, w8) {LAST}")
    assert found == {"c": (5, 8), "j": (8, 12), "t": (5, 8)}
    assert filled("j = Concat<axis=1>(x, zeros) e = Relu(j) y = Softmax<axis=1>(e)") == {}


def test_what_is_joined_and_read_by_others_keeps_its_channels_and_those_of_its_parts() -> None:
    joining = "e = Conv(c, w6) j = Concat<axis=1>(c, e) s = Softmax<axis=1>(j) t = Conv(s, w11) y = Conv(t, last)"
    assert filled(f"{FIRST} {joining}") == {"t": (5, 8)}


def test_sums_of_what_is_joined_unlike_keep_their_channels() -> None:
    joining = "e = Conv(c, w6) j = Concat<axis=1>(c, e) k = Concat<axis=1>(e, c) a = Add(j, k) t = Conv(a, w11)"
    assert filled(f"{FIRST} {joining} y = Conv(t, last)") == {"t": (5, 8)}


def test_a_layout_reaches_what_was_joined_before_it_was_known() -> None:
    body = "a = Conv(x, w3) b = Conv(a, w6) j = Concat<axis=1>(a, b) k = Conv(j, eleven) l = Concat<axis=1>(k, a)"
    found = filled(f"{body} s = Add(j, k) u = Conv(s, w11) v = Conv(l, w16) t = Add(u, v) y = Conv(t, last)")
    assert found["j"] == found["k"] == found["s"] == (11, 16)
    assert found["l"] == (16, 24)


def test_groups_of_several_channels_keep_them() -> None:
    graph = Graph(
        model_of(
            "(float[1,3,4,4] x) => (float[n,c,h,w] y)",
            "c = Conv(x, w) g = Conv<group=2>(c, v) y = Conv(g, z)",
            {"w": floats(6, 3, 1, 1), "v": floats(6, 3, 1, 1), "z": floats(2, 6, 1, 1)},
        )
    )
    assert not ChannelLayouts(Channels(graph), 4).solve()


def test_constants_keep_their_channels() -> None:
    graph = Graph(
        model_of(
            "(float[1,3,4,4] x) => (float[n,c,h,w] y)",
            "k = Relu(constant) c = Conv(k, w) s = Sigmoid(k) t = Mul(c, s) y = Conv(t, z)",
            {"constant": floats(1, 5, 4, 4), "w": floats(5, 5, 1, 1), "z": floats(2, 5, 1, 1)},
        )
    )
    assert not ChannelLayouts(Channels(graph), 4).solve()


@pytest.mark.parametrize(
    ("slots", "is_filled"), [((0, 2, 1, 1), True), ((0, 2, 1, 2), False), ((0, 2, None, 1), False)]
)
def test_only_slices_of_channels_one_by_one_are_followed(slots: tuple[int | None, ...], is_filled: bool) -> None:
    names = ["starts", "ends", "axes", "steps"]
    numbers = {name: np.array([slot or 0]) for name, slot in zip(names, slots, strict=True)}
    model = model_of(
        "(float[1,3,4,4] x) => (float[n,c,h,w] y)",
        f"c = Conv(x, w) t = Slice(c, {', '.join(names)}) y = Conv(t, z)",
        {"w": floats(5, 3, 1, 1), "z": floats(2, 2 if slots[3] == 1 and slots[2] else 1, 1, 1), **numbers},
    )
    if slots[2] is None:  # along the first axis, of one sample
        model.graph.node[1].input[3] = ""
    found = ChannelLayouts(Channels(Graph(model)), 4).solve()
    assert ("c" in found) is is_filled


def test_operands_of_other_ranks_keep_their_channels() -> None:
    graph = Graph(
        model_of(
            "(float[1,6,5,7] x) => (float[n,c,h,w] y)",
            "c = Conv(x, w) s = Squeeze(x, first) d = Conv(s, v) a = Add(c, d) y = Conv(a, z)",
            {
                "w": floats(6, 6, 1, 1),
                "v": floats(5, 5, 1),
                "z": floats(2, 6, 1, 1),
                "first": np.array([0]),
            },
        )
    )
    assert not ChannelLayouts(Channels(graph), 4).solve()


def test_a_resize_along_channels_keeps_them() -> None:
    graph = Graph(
        model_of(
            "(float[1,3,4,4] x) => (float[n,c,h,w] y)",
            "c = Conv(x, w) r = Resize(c, none, scales) y = Conv(r, z)",
            {
                "w": floats(5, 3, 1, 1),
                "z": floats(2, 5, 1, 1),
                "none": np.zeros(0, np.float32),
                "scales": np.array([1, 1.1, 2, 2], np.float32),
            },
        )
    )
    assert not ChannelLayouts(Channels(graph), 4).solve()
