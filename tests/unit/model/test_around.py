from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from autoquant.domain.region import NodeName
from autoquant.graph.preprocess import prepare
from autoquant.model.around import BRANCH, candidate_alone, candidate_in
from autoquant.model.fragments import head, initializer, inline_external, rewired
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.candidate import Candidate
from tests.branching import RATE, a_branching_model, feed_at
from tests.models import Array, constants_of, outputs_of, saved


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedModel:
    return prepare(saved(a_branching_model(), tmp_path / "model.onnx"), [feed_at(RATE, seed=k) for k in range(3)])


def parts_of(prepared: PreparedModel) -> tuple[bytes, dict[str, Array]]:
    """The preprocessed model as a candidate."""
    model = prepared.graph.model
    pieces = [head(model), *(initializer(name, array) for name, array in constants_of(model).items())]
    pieces += [rewired(node, node.input, node.output) for node in model.graph.node]
    return b"".join(pieces), {}


def whole(prepared: PreparedModel, **metadata: str) -> onnx.ModelProto:
    assert prepared.around is not None
    return onnx.load_from_string(b"".join(prepared.around.whole(*parts_of(prepared), metadata)))


def framed(prepared: PreparedModel) -> onnx.ModelProto:
    assert prepared.around is not None
    return onnx.load_from_string(prepared.around.framed(*parts_of(prepared)))


def test_a_file_runs_the_candidate_or_the_given_model(prepared: PreparedModel) -> None:
    made = whole(prepared, who="we")
    onnx.checker.check_model(made, full_check=True)
    assert {entry.key: entry.value for entry in made.metadata_props} == {"who": "we"}
    given = a_branching_model()
    for feed in (feed_at(RATE), feed_at(8), feed_at(RATE, 3), feed_at(8, 5)):
        np.testing.assert_allclose(outputs_of(made, feed)[0], outputs_of(given, feed)[0], rtol=1e-5, atol=1e-6)


def test_another_candidate_runs_where_it_is_asked_for_alone(prepared: PreparedModel) -> None:
    made, given = whole(prepared), a_branching_model()
    candidate_in(made.graph).node.append(helper.make_node("Neg", ["y"], ["z"]))
    candidate_in(made.graph).output[0].name = "z"
    for feed, sign in ((feed_at(RATE), -1), (feed_at(8), 1), (feed_at(RATE, 3), 1)):
        np.testing.assert_allclose(outputs_of(made, feed)[0], sign * outputs_of(given, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_frame_runs_the_same_candidate_and_nothing_for_other_inputs(prepared: PreparedModel) -> None:
    made = framed(prepared)
    onnx.checker.check_model(made, full_check=True)
    assert made.ByteSize() < whole(prepared).ByteSize()
    feed = feed_at(RATE)
    np.testing.assert_array_equal(outputs_of(made, feed)[0], outputs_of(whole(prepared), feed)[0])
    assert outputs_of(made, feed_at(8))[0].size == 0


def test_a_candidate_is_as_large_as_its_file_and_opened_as_the_frame(prepared: PreparedModel) -> None:
    skeleton, arrays = parts_of(prepared)
    nodes = frozenset[NodeName]()
    candidate = Candidate(skeleton=skeleton, constants=arrays, variants={}, integer_nodes=nodes, float_nodes=nodes)
    assert candidate.parts == (skeleton, arrays)
    around = replace(candidate, around=prepared.around)
    n_bytes = len(b"".join(around.pieces({})))
    assert around.size_bytes == pytest.approx(n_bytes, abs=100)
    assert around.size_bytes > candidate.size_bytes + 500
    assert prepared.around is not None
    assert around.parts == (prepared.around.framed(skeleton, arrays), {})


def test_the_candidate_is_found_again(prepared: PreparedModel) -> None:
    plain = inline_external(*parts_of(prepared), {})
    alone = candidate_alone(whole(prepared, who="we"))
    assert alone.ir_version == plain.ir_version
    assert [entry.key for entry in alone.metadata_props] == ["who"]
    onnx.checker.check_model(alone, full_check=True)
    assert list(alone.graph.node) == list(plain.graph.node)
    assert [value.name for value in alone.graph.input] == ["x", "rate"]
    feed = feed_at(RATE)
    np.testing.assert_array_equal(outputs_of(alone, feed)[0], outputs_of(plain, feed)[0])
    assert candidate_alone(plain) is plain


def test_ifs_of_the_user_are_candidates_as_they_are() -> None:
    """Also one of that name which does not write all that the model does."""
    model = a_branching_model()
    assert candidate_in(model.graph) is model.graph
    model.graph.node[-1].name = BRANCH
    assert candidate_in(model.graph) is not model.graph
    model.graph.output.append(model.graph.input[0])
    assert candidate_in(model.graph) is model.graph


def test_operators_are_of_the_versions_that_the_candidate_needs(prepared: PreparedModel) -> None:
    assert prepared.around is not None
    skeleton, arrays = parts_of(prepared)
    later = onnx.load_from_string(skeleton)
    later.opset_import[0].version = 23
    later.opset_import.add(domain="my", version=3)
    made = onnx.load_from_string(b"".join(prepared.around.whole(later.SerializeToString(), arrays, {})))
    imports = [(each.domain, each.version) for each in made.opset_import]
    assert sorted(imports) == [("", 23), ("com.microsoft", 1), ("my", 3)]
    assert made.graph.node[-1].name == BRANCH
