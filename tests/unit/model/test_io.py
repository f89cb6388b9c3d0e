import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import InputSignature
from autoquant.errors import DiskFullError, ModelError, OutputError
from autoquant.model.io import (
    files_of,
    input_signatures,
    load_any,
    load_model,
    output_dtypes,
    save_model,
    save_pieces,
    sha256_of,
    size_bytes_of,
)
from tests.models import a_convnet, a_mlp, a_quantized_chain, floats, model_of, saved


@pytest.fixture
def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(a_convnet(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def rewrite_external_data(path: Path, **entries: str | None) -> None:
    """Change what a model says about where its values are; None leaves it out."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        said: dict[str, str | None] = {**{entry.key: entry.value for entry in tensor.external_data}, **entries}
        del tensor.external_data[:]
        for key, value in said.items():
            if value is not None:
                tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def test_a_saved_model_is_read_back_as_it_was(tmp_path: Path) -> None:
    model, path = a_convnet(), tmp_path / "model.onnx"
    save_model(model, path)
    assert load_model(path) == model
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_saving_over_a_file_replaces_it(tmp_path: Path) -> None:
    path = saved(a_mlp(), tmp_path / "model.onnx")
    save_model(a_convnet(), path)
    assert load_model(path) == a_convnet()


def test_a_folder_that_cannot_be_written_is_an_output_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written .*another folder") as refused:
        save_model(a_convnet(), tmp_path / "missing" / "model.onnx")
    assert not isinstance(refused.value, DiskFullError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_from_a_folder_that_cannot_be_written(tmp_path: Path, number: int) -> None:
    def full() -> Iterator[bytes]:
        yield b"the start"
        raise OSError(number, "full")

    with pytest.raises(DiskFullError, match=r"model\.onnx: cannot be written \(full\); free some room"):
        save_pieces(full(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"this is a folder; give the path of an \.onnx model"):
        load_model(tmp_path)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nothing\.onnx: there is no such file"):
        load_model(tmp_path / "nothing.onnx")


def test_a_file_that_may_not_be_read_is_named_in_the_error(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(external))

    monkeypatch.setattr(onnx, "load", closed)
    with pytest.raises(ModelError, match=r"model\.onnx: the file cannot be read \(Permission denied\); see who may"):
        load_any(external)


@pytest.mark.parametrize("name", ["model.onnx", "model.txt", "model.json", "model"])
@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x08\x0a", b'{"a": 1}', bytes(range(256))])
def test_a_file_that_is_no_model_is_refused_whatever_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError, match="this is not an ONNX model"):
        load_model(path)


def test_a_model_under_any_name_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(a_convnet().SerializeToString())
    assert load_model(path) == a_convnet()


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(a_convnet().SerializeToString()[:-100])
    with pytest.raises(ModelError):
        load_model(path)


def test_a_model_with_external_data_is_read_whole(external: Path) -> None:
    assert load_model(external).graph.initializer[0].raw_data == floats(8, 3, 3, 3, scale=0.3).tobytes()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_external_data_that_are_links_are_read(
    external: Path, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    """As in the cache of a hub, where every file lies under its digest."""
    data, blob = external.with_name("weights.bin"), tmp_path / "blobs" / "5f1a"
    blob.parent.mkdir()
    data.rename(blob)
    link(blob, data)
    assert load_any(external).graph.initializer[0].raw_data == floats(8, 3, 3, 3, scale=0.3).tobytes()


@pytest.mark.parametrize("location", ["../weights.bin", "inner/../../weights.bin", "{folder}/weights.bin", "."])
def test_external_data_are_read_from_no_other_folder_that_a_model_names(
    external: Path, tmp_path: Path, location: str
) -> None:
    moved = tmp_path / "model" / "model.onnx"
    moved.parent.mkdir()
    external.rename(moved)
    rewrite_external_data(moved, location=location.format(folder=tmp_path))
    with pytest.raises(ModelError, match=r"external data cannot be read .*; put all of them beside the model"):
        load_any(moved)


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-4"), ("offset", "9999999"), ("length", "-4"), ("length", "2"), ("length", "many")]
)
def test_places_of_external_data_that_cannot_be_are_reported(external: Path, key: str, value: str) -> None:
    rewrite_external_data(external, **{key: value})
    with pytest.raises(ModelError, match="external data cannot be read"):
        load_any(external)


def test_external_data_without_a_length_are_as_long_as_their_shape_wants(tmp_path: Path) -> None:
    model = a_convnet()
    nibbles = onnx.TensorProto(name="i", dims=[3], data_type=onnx.TensorProto.INT4, raw_data=b"\x21\x03")
    model.graph.initializer.insert(0, nibbles)
    expected = [tensor.raw_data for tensor in model.graph.initializer]
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    rewrite_external_data(path, length=None)
    assert [tensor.raw_data for tensor in load_any(path).graph.initializer] == expected


def test_missing_external_data_are_reported(external: Path) -> None:
    external.with_name("weights.bin").unlink()
    with pytest.raises(ModelError, match="external data cannot be read"):
        load_model(external)


@pytest.mark.parametrize("left", [b"version https://git-lfs.github.com/spec/v1\n", b""])
def test_external_data_that_end_too_early_are_reported(external: Path, left: bytes) -> None:
    """What a checkout without git-lfs leaves in their place."""
    external.with_name("weights.bin").write_bytes(left)
    with pytest.raises(ModelError, match="external data cannot be read"):
        load_model(external)


def test_the_size_of_a_model_counts_its_external_data(external: Path) -> None:
    data = external.with_name("weights.bin")
    assert list(files_of(external)) == [external, data]
    assert size_bytes_of(external) == external.stat().st_size + data.stat().st_size


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)", "2 nodes such as QuantizeLinear"),
        ("q, s2, z = DynamicQuantizeLinear(x) f = Cast<to=1>(q) y = Mul(f, s2)", "DynamicQuantizeLinear"),
        ("y = com.microsoft.MatMulNBits<K=4, N=4, block_size=16>(x, w, s)", "MatMulNBits"),
        ("y = com.microsoft.DynamicQuantizeMatMul(x, w, s)", "DynamicQuantizeMatMul"),
        ("y = com.microsoft.QGemm(x, s, w, w, s, w)", "QGemm"),
        ("y = MatMulInteger(x, w)", "MatMulInteger"),
        (
            "c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[4,4] then) { then = Relu(x) },"
            " else_branch = e () => (float[4,4] other) { i = MatMulInteger(x, w) other = Cast<to=1>(i) }>",
            "1 nodes such as MatMulInteger",
        ),
    ],
)
def test_a_quantized_model_is_refused(tmp_path: Path, body: str, found: str) -> None:
    model = model_of("(float[4,4] x) => (float[4,4] y)", body, {"s": 0.1, "w": floats(4, 4)})
    with pytest.raises(ModelError, match=f"already quantized .*{found}"):
        load_model(saved(model, tmp_path / "model.onnx"))


def test_a_model_whose_functions_are_quantized_is_refused(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]> tiny (float[4] x) => (float[4] y) { y = my.Linear(x) }
              <domain: "my", opset_import: ["" : 18]> Linear (a) => (b) { q, s, z = DynamicQuantizeLinear(a)
                                                                          b = DequantizeLinear(q, s, z) }"""
    with pytest.raises(ModelError, match=r"already quantized .*2 nodes such as DynamicQuantizeLinear"):
        load_model(saved(onnx.parser.parse_model(text), tmp_path / "model.onnx"))


def test_a_model_that_protobuf_cannot_hold_is_refused_before_its_external_data_are_read(
    external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.model.io._LARGEST_BYTES", 1000)
    assert load_any(external).graph.node == a_convnet().graph.node
    external.with_name("weights.bin").unlink()
    with pytest.raises(ModelError, match=r"model\.onnx: its weights are 0\.0 GB in float32, .* smaller than the 2 GiB"):
        load_model(external)


def test_float16_weights_count_as_the_float32_that_they_become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.model.io._LARGEST_BYTES", 300_000)
    weight = floats(200, 400).astype(np.float16)
    model = model_of("(float16[1,200] x) => (float16[1,400] y)", "y = MatMul(x, w)", {"w": weight})
    with pytest.raises(ModelError, match=r"its weights are 0\.0 GB in float32"):
        load_model(saved(model, tmp_path / "model.onnx"))


def test_signatures_are_those_of_the_inputs_that_a_user_feeds() -> None:
    model = model_of(
        "(float[batch,3,?] x, int64[1] i, float16 h, float[4] w) => (float[4] y)", "y = Identity(w)", {"w": floats(4)}
    )
    assert input_signatures(model) == (
        InputSignature("x", "float32", ("batch", 3, None)),
        InputSignature("i", "int64", (1,)),
        InputSignature("h", "float16", ()),
    )


def test_an_input_of_undeclared_rank_has_no_shape_and_a_scalar_an_empty_one() -> None:
    model = model_of("(float[n] x, float s) => (float[n] y)", "y = Mul(x, s)")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    assert [signature.shape for signature in input_signatures(model)] == [None, ()]


def test_outputs_that_are_tensors_have_types() -> None:
    source = "y = Identity(x) i = Cast<to=7>(x) s = SequenceConstruct(x)"
    model = model_of("(float[4] x) => (float[4] y, int64[4] i, seq(float[4]) s)", source)
    assert output_dtypes(model) == {"y": "float32", "i": "int64"}


def test_external_data_of_attributes_are_files_of_the_model(tmp_path: Path) -> None:
    value = onnx.numpy_helper.from_array(np.ones(1000, np.float32), "value")
    node = onnx.helper.make_node("Constant", [], ["c"], value=value)
    graph = onnx.helper.make_graph([node], "g", [], [onnx.helper.make_tensor_value_info("c", 1, [1000])])
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.helper.make_model(graph),
        path,
        save_as_external_data=True,
        convert_attribute=True,
        location="model.data",
        size_threshold=0,
    )
    assert [file.name for file in files_of(path)] == ["model.onnx", "model.data"]


def test_any_model_is_read_quantized_or_not(tmp_path: Path) -> None:
    for i, model in enumerate((a_convnet(), a_quantized_chain())):
        assert load_any(saved(model, tmp_path / f"{i}.onnx")) == model
    with pytest.raises(ModelError, match="no such file"):
        load_any(tmp_path / "gone.onnx")


def test_a_tensor_that_is_cut_off_is_reported_where_onnx_does_not(tmp_path: Path) -> None:
    model = a_convnet()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    name = model.graph.initializer[0].name
    with pytest.raises(ModelError, match=f"'{name}' is cut off"):
        load_model(path)


def test_a_tensor_of_a_type_that_onnx_lacks_is_left_to_onnxruntime(tmp_path: Path) -> None:
    model = a_convnet()
    model.graph.initializer[0].data_type = 99
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert load_any(tmp_path / "model.onnx").graph.initializer[0].data_type == 99
