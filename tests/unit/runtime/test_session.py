import gc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from autoquant.domain.target import Target
from autoquant.errors import ModelError, TargetError
from autoquant.model import fragments
from autoquant.model.copies import in_parts
from autoquant.runtime.session import CompiledError, open_parts, open_session, optimize_basic, ort_values
from tests.compiling import compile_graphs
from tests.models import a_convnet, constants_of, feed_of, floats, model_of, op_types, outputs_of, saved


def test_a_model_is_opened_from_a_file_or_from_bytes(tmp_path: Path) -> None:
    model = a_convnet()
    feed = feed_of(model)
    path = saved(model, tmp_path / "model.onnx")
    for source in (path, model.SerializeToString()):
        (found,) = open_session(source, Target()).run(None, feed)
        np.testing.assert_allclose(found, outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


def test_a_session_has_the_threads_and_the_provider_of_its_target() -> None:
    session = open_session(a_convnet().SerializeToString(), Target("CPU", 2))
    assert session.get_session_options().intra_op_num_threads == 2
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_onnxruntime_is_given_the_options_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    session = ort.InferenceSession

    def open_without_options(
        model: bytes, options: ort.SessionOptions, *, providers: object, enable_fallback: int
    ) -> ort.InferenceSession:
        given.append(providers)
        assert enable_fallback == 0
        return session(model, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(ort, "InferenceSession", open_without_options)
    open_session(a_convnet().SerializeToString(), Target(options={"device_type": "NPU"}))
    assert given == [[("CPUExecutionProvider", {"device_type": "NPU"})]]


def test_a_file_that_is_no_model_is_an_error_of_one_line_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("nothing")
    with pytest.raises(ModelError, match=r"model\.onnx: onnxruntime cannot open it") as caught:
        open_session(path, Target())
    assert "\n" not in str(caught.value)


def test_a_provider_that_is_not_installed_is_a_target_error() -> None:
    with pytest.raises(TargetError, match="'abacus' is not installed"):
        open_session(a_convnet().SerializeToString(), Target("abacus"))


def test_initializers_that_a_skeleton_leaves_out_are_given_at_opening() -> None:
    model = a_convnet()
    arrays = constants_of(model)
    skeleton = fragments.head(model) + b"".join(fragments.external(name, array) for name, array in arrays.items())
    skeleton += b"".join(fragments.rewired(node, node.input, node.output) for node in model.graph.node)
    session = open_session(skeleton, Target(), initializers=ort_values(arrays))
    feed = feed_of(model)
    np.testing.assert_allclose(session.run(None, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


def test_an_initializer_that_is_left_out_and_not_given_is_a_model_error() -> None:
    model = a_convnet()
    arrays = constants_of(model)
    skeleton = fragments.head(model) + b"".join(fragments.external(name, array) for name, array in arrays.items())
    skeleton += b"".join(fragments.rewired(node, node.input, node.output) for node in model.graph.node)
    del arrays["wa"]
    with pytest.raises(ModelError, match="onnxruntime cannot open it"):
        open_session(skeleton, Target(), initializers=ort_values(arrays))


@pytest.mark.parametrize("array", [floats(3, 4), floats(4, 3).T, floats(6, 4)[::2], np.array(3, np.uint8)])
def test_arrays_of_every_layout_become_values(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    np.testing.assert_array_equal(ort_values({"a": array})["a"].numpy(), array)


def test_the_optimized_graph_is_written_where_asked_without_its_large_constants(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    open_session(a_convnet().SerializeToString(), Target(), optimized_path=path)
    written = onnx.load(path, load_external_data=False)
    assert written.graph.node
    assert any(t.data_location == onnx.TensorProto.EXTERNAL for t in written.graph.initializer)
    assert path.stat().st_size < a_convnet().ByteSize()


def test_the_optimized_graph_has_its_large_constants_where_they_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    model = model_of("(float[4,30] x) => (float[4,30] y)", "y = MatMul(x, w)", {"w": floats(30, 30)})
    open_session(model.SerializeToString(), Target(), optimized_path=path, keeps_constants=True)
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(path).graph.initializer[0]), floats(30, 30))


def test_basic_optimization_folds_constants_and_keeps_what_is_computed(tmp_path: Path) -> None:
    model = model_of(
        "(float[1,3,6,6] x) => (float[1,4,6,6] y)",
        "two = Add(one, one) c = Conv<pads=[1,1,1,1]>(x, w) i = Identity(c)"
        " b = BatchNormalization(i, g, h, m, v) y = Mul(b, two)",
        {
            "one": 1.0,
            "w": floats(4, 3, 3, 3),
            "g": floats(4),
            "h": floats(4),
            "m": floats(4),
            "v": np.ones(4, np.float32),
        },
    )
    optimize_basic(model.SerializeToString(), {}, tmp_path / "optimized.onnx")
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert not {"Identity", "BatchNormalization", "Add"} & set(op_types(optimized))
    feed = feed_of(model)
    np.testing.assert_allclose(outputs_of(optimized, feed)[0], outputs_of(model, feed)[0], rtol=1e-3, atol=1e-4)


def test_basic_optimization_folds_weights_that_are_apart(tmp_path: Path) -> None:
    weights = {"w": floats(64, 64), "two": np.full(64, 2, np.float32)}
    model = model_of("(float[1,64] x) => (float[1,64] y)", "v = Transpose(w) y = MatMul(x, v)", weights)
    skeleton, arrays = in_parts(model)
    assert list(arrays) == ["w"]
    optimize_basic(skeleton, arrays, tmp_path / "optimized.onnx")
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert op_types(optimized) == ["MatMul"]
    found, expected = outputs_of(optimized, feed_of(model)), outputs_of(model, feed_of(model))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_model_that_cannot_be_optimized_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot optimize"):
        optimize_basic(b"nothing", {}, tmp_path / "optimized.onnx")


def test_where_nothing_can_be_written_the_system_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        optimize_basic(a_convnet().SerializeToString(), {}, tmp_path / "gone" / "optimized.onnx")


def test_weights_that_are_apart_are_kept_as_long_as_their_session() -> None:
    model = model_of("(float[1,64] x) => (float[1,64] y)", "y = Add(x, w)", {"w": floats(64, 64)})
    expected, session = outputs_of(model, feed_of(model)), open_parts(*in_parts(model), Target())
    gc.collect()
    np.testing.assert_allclose(session.run(None, feed_of(model)), expected)
    assert {name: value.shape() for name, value in session.initializers.items()} == {"w": [64, 64]}


def test_idle_threads_of_a_session_leave_the_cores_to_the_others() -> None:
    session = open_session(a_convnet().SerializeToString(), Target(threads=2))
    assert session.get_session_options().get_session_config_entry("session.force_spinning_stop") == "1"


def test_a_provider_that_does_not_start_is_not_replaced_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(TargetError, match="'cuda' is installed but does not start here"),
    ):
        open_session(a_convnet().SerializeToString(), Target("cuda"))


def test_a_provider_that_compiles_graphs_says_so_where_one_is_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_graphs(monkeypatch)
    model = a_convnet().SerializeToString()
    with pytest.raises(CompiledError, match="execution provider 'cpu' compiles graphs and does not show what it runs"):
        open_session(model, Target(), optimized_path=tmp_path / "optimized.onnx")
    assert open_session(model, Target()).get_outputs()
