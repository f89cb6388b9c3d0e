import numpy as np
import pytest

from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.measurement.opening import Opener
from tests.compiling import compile_graphs
from tests.models import a_convnet, a_quantized_chain, floats

TARGETS = [Target(), Target(threads=2)]


def test_a_candidate_is_open_on_every_target_and_its_graph_is_known() -> None:
    skeleton, opener = a_quantized_chain().SerializeToString(), Opener(TARGETS)
    first, second = opener.open(skeleton, {}), opener.open(skeleton, {})
    assert first.sessions.keys() == {target.name for target in TARGETS}
    assert first.optimized == second.optimized
    assert first.optimized.integer_nodes == {"a", "b", "c"}
    assert opener.seconds > 0


def test_the_same_constants_are_converted_once() -> None:
    opener, constants = Opener(TARGETS), {"a": floats(4, 3), "b": floats(4, 3)}
    first, second = opener.ort_values(constants), opener.ort_values({"c": constants["a"]})
    assert first["a"] is second["c"]
    assert first["a"] is not first["b"]


def test_a_candidate_that_onnxruntime_refuses_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="onnxruntime cannot open it"):
        Opener(TARGETS).open(b"nothing of the kind", {})


def test_a_candidate_of_a_provider_that_compiles_graphs_is_opened_without_its_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, opener = compile_graphs(monkeypatch), Opener([Target()])
    for _ in range(2):
        opened = opener.open(a_convnet().SerializeToString(), {})
        assert not opened.optimized.is_known
        (session,) = opened.sessions.values()
        assert np.isfinite(session.run(None, {"x": floats(1, 3, 8, 8)})[0]).all()
    assert len(refused) == 1
