from autoquant.domain.region import TensorName
from autoquant.rewrites.sources import with_sources
from tests.models import floats, model_of, op_types


def test_others_are_read_and_what_nothing_reads_goes() -> None:
    body = "a = Relu(x) b = Add(a, w) c = Identity(b) d = Neg(c) y = Add(d, c)"
    model = model_of("(float[4] x) => (float[4] y)", body, {"w": floats(4)})
    before = model.SerializeToString(deterministic=True)
    found = with_sources(model, {TensorName("c"): TensorName("b"), TensorName("b"): TensorName("a")})
    assert model.SerializeToString(deterministic=True) == before
    assert op_types(found) == ["Relu", "Neg", "Add"]
    assert [list(node.input) for node in found.graph.node] == [["x"], ["a"], ["d", "a"]]
    assert not found.graph.initializer


def test_without_any_the_model_is_given_back() -> None:
    model = model_of("(float[4] x) => (float[4] y)", "y = Relu(x)")
    assert with_sources(model, {}) is model
