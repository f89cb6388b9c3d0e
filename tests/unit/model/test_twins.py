import pytest

from autoquant.model.graph import Graph
from autoquant.model.twins import twins_of
from tests.models import model_of

AN_IF = """If(p) <then_branch = g1 () => (float[4] t) {{ t = {}(x) }},
                  else_branch = g2 () => (float[4] e) {{ e = Neg(x) }}>"""


def twins(body: str) -> dict[str, str]:
    graph = Graph(model_of("(float[4] x, bool p) => (float[4] y)", body))
    return {graph.nodes[index].name: first.name for index, first in twins_of(graph).items()}


def test_what_computes_the_same_of_the_same_is_a_twin_and_so_is_what_reads_twins() -> None:
    body = "a = Relu(x) b = Relu(x) c = Sin(a) d = Sin(b) e = Relu(x) s = Sum(c, d, e) y = Neg(s)"
    assert twins(body) == {"b": "a", "d": "c", "e": "a"}


@pytest.mark.parametrize(
    "body",
    [
        "a = Relu(x) b = Sin(x) y = Sub(a, b)",
        "a = Relu(x) b = Relu(a) y = Sub(a, b)",
        "a = LeakyRelu<alpha=0.1>(x) b = LeakyRelu<alpha=0.2>(x) y = Sub(a, b)",
        "a = Sub(x, x) b = Sub(a, x) c = Sub(x, a) y = Sub(b, c)",
        f"a = {AN_IF.format('Sin')} b = {AN_IF.format('Cos')} y = Sub(a, b)",
    ],
)
def test_others_are_none(body: str) -> None:
    assert twins(body) == {}
