"""Models against the first one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoquant import AutoquantError, Target, compare
from autoquant.api.comparison import Verdict
from autoquant.domain.feed import Feed
from tests.integration.conftest import Command
from tests.models import Array, a_classifier, floats, model_of


@pytest.fixture
def models(workplace: Path) -> tuple[Path, Path, Path]:
    """One that works ``little``, the same once more, and one that works many times as much."""
    source = "a = MatMul(x, w) y = Relu(a)"
    little = model_of("(float[N,8] x) => (float[N,256] y)", source, {"w": floats(8, 256)})
    steps = " ".join(f"b{i} = MatMul({'a' if i == 0 else f'b{i - 1}'}, v)" for i in range(12))
    much = model_of(
        "(float[N,8] x) => (float[N,256] y)",
        f"a = MatMul(x, w) {steps} y = Relu(b11)",
        {"w": floats(8, 256), "v": floats(256, 256, scale=0.05)},
    )
    for name, model in (("little", little), ("same", little), ("much", much)):
        onnx.save(model, workplace / f"{name}.onnx")
    return workplace / "little.onnx", workplace / "same.onnx", workplace / "much.onnx"


def test_what_works_much_more_is_slower(models: tuple[Path, Path, Path]) -> None:
    found = compare(models, "eval.npz", seconds=60, precision=0.2)
    assert found.verdict(0, "cpu-1t") is Verdict.BASELINE
    assert found.verdict(2, "cpu-1t") is Verdict.SLOWER
    table = found.table
    assert table["ratio"][0] == 1
    assert table["ratio_low"][2] <= table["ratio"][2] <= table["ratio_high"][2]
    assert (table["n_sessions"] >= 5).all()
    assert found.environment["cpu"]


def test_the_other_way_round_it_is_faster(models: tuple[Path, Path, Path]) -> None:
    little, _, much = models
    found = compare([much, little], "eval.npz", targets=[Target(), Target(threads=2)], seconds=60, precision=0.2)
    assert found.verdict(1, "cpu-1t") is Verdict.FASTER
    assert list(found.table["target"]) == ["cpu-1t", "cpu-2t"] * 2


def test_without_time_nothing_can_be_said(models: tuple[Path, Path, Path]) -> None:
    found = compare(models, "eval.npz", seconds=0.01)
    assert found.verdict(2, "cpu-1t") is Verdict.UNKNOWN
    assert found.table["ratio_low"].isna().all()


def test_without_time_outputs_are_compared_on_a_few_samples_and_that_is_said(
    models: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    found = compare(models, "eval.npz", seconds=0.01)
    assert "outputs were compared on 5 of the 10 samples: there was no time for more; give more time" in found.notes
    assert found.table["snr_db"].notna()[1:].all()


def test_a_precision_that_was_missed_is_said(models: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LEAST_SESSIONS", "_MOST_SESSIONS"):
        monkeypatch.setattr(f"autoquant.api.comparison.{name}", 2)
    (note,) = [note for note in compare(models, "eval.npz", seconds=120, precision=1e-6).notes if "precision" in note]
    assert re.match(r"the precision of 0\.0001% was missed: half the interval of .*\.onnx is \d.*% of its ratio", note)
    assert note.endswith("after 2 processes; these are the most, ask for less precision or quiet the machine")


def test_a_precision_of_which_nothing_is_known_is_not_said(models: tuple[Path, Path, Path]) -> None:
    found = compare(models, "eval.npz", seconds=0.01)
    assert not any("precision" in note for note in found.notes)


def test_the_data_are_read_once_and_must_fit_every_model(models: tuple[Path, Path, Path]) -> None:
    n_read = 0

    def feeds() -> Iterator[Feed]:
        nonlocal n_read
        n_read += 1
        yield from ({"x": floats(2, 8, seed=seed)} for seed in range(3))

    class Source:
        def __iter__(self) -> Iterator[Feed]:
            return feeds()

    assert compare(models, Source(), seconds=0.01).verdict(1, "cpu-1t") is Verdict.UNKNOWN
    assert n_read == 1
    for declared, phrase in [
        ("float[1,8] x", r"its shape is \(2, 8\), but the model's input is \(1, 8\)"),
        ("int32[N,8] x", "its dtype is float32, but the model wants int32"),
        ("float[N,8] x, float[N,8] z", "it takes 'x', 'z', and .* 'x'; compare models with the same inputs"),
    ]:
        other = model_of(f"({declared}) => (float[N,8] y)", "y = Cast<to=1>(x)", {})
        onnx.save(other, "other.onnx")
        with pytest.raises(AutoquantError, match=phrase):
            compare([models[0], "other.onnx"], Source(), seconds=0.01)


def test_the_command_prints_a_table_and_json(models: tuple[Path, Path, Path], command: Command) -> None:
    arguments = ["bench", "little.onnx", "much.onnx", "--data", "eval.npz", "--time", "30s", "--precision", "0.3"]
    shown = command(*arguments)
    assert shown.exit_code == 0
    assert "much.onnx: slower\n" in shown.stdout
    assert max(map(len, shown.stdout.split("much.onnx: slower")[0].splitlines())) <= 80
    assert "processes" in shown.stdout
    document = json.loads(command(*arguments, "--json").stdout)
    assert [row["verdict"] for row in document["rows"]] == ["baseline", "slower"]
    assert document["environment"]["versions"]["onnxruntime"]
    assert isinstance(document["notes"], list)


def test_equal_outputs_and_useless_ones_have_an_snr_in_json_too(
    models: tuple[Path, Path, Path], command: Command
) -> None:
    useless = onnx.load(models[0])
    node = next(node for node in useless.graph.node if node.output[0] == useless.graph.output[0].name)
    node.output[0] = "finite"
    zero = numpy_helper.from_array(np.zeros((), dtype=np.float32), "zero")
    useless.graph.initializer.append(zero)
    useless.graph.node.append(onnx.helper.make_node("Div", ["finite", "zero"], [useless.graph.output[0].name]))
    onnx.save(useless, "useless.onnx")
    arguments = ["bench", "little.onnx", "little.onnx", "useless.onnx", "--data", "eval.npz", "--time", "2s"]
    document = json.loads(command(*arguments, "--json").stdout)
    assert [row["snr_db"] for row in document["rows"]] == [None, 200.0, -200.0]


def test_what_disturbs_is_told(
    models: tuple[Path, Path, Path], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.conditions.usage_sentences", lambda *_: ["the machine was busy"])
    arguments = ["bench", "little.onnx", "much.onnx", "--data", "eval.npz", "--time", "2s"]
    assert "the machine was busy" in command(*arguments).stdout
    assert "the machine was busy" in json.loads(command(*arguments, "--json").stdout)["notes"]


def test_a_quantized_model_may_be_the_baseline_and_inputs_must_fit(models: tuple[Path, Path, Path]) -> None:
    other = model_of("(float[N,4] z) => (float[N,4] y)", "y = Relu(z)", {})
    onnx.save(other, "other.onnx")
    with pytest.raises(
        AutoquantError, match=r"^other.onnx: it takes 'z', and .*little.onnx 'x'; compare models with the same inputs$"
    ):
        compare([models[0], "other.onnx"], "eval.npz")
    with pytest.raises(AutoquantError, match="1 model to compare"):
        compare([models[0]], "eval.npz")


def with_sequence() -> onnx.ModelProto:
    source = "a = Gemm(x, w) y = Relu(a) s = SequenceConstruct(a, y)"
    return model_of("(float[N,8] x) => (float[N,4] y, seq(float[N,4]) s)", source, {"w": floats(8, 4)})


@pytest.mark.parametrize(("model", "name"), [(with_sequence(), "s"), (a_classifier(), "p")], ids=["sequence", "maps"])
def test_outputs_that_are_no_tensors_are_timed_and_not_compared(
    models: tuple[Path, Path, Path], command: Command, model: onnx.ModelProto, name: str
) -> None:
    onnx.save(model, "odd.onnx")
    arguments = ["bench", "odd.onnx", "odd.onnx", "--data", "eval.npz", "--time", "2s"]
    document = json.loads(command(*arguments, "--json").stdout)
    assert [row["snr_db"] for row in document["rows"]] == [None, None]
    assert document["rows"][0]["median_ms"] > 0
    assert f"no SNR: output '{name}' of odd.onnx is no tensor" in document["notes"][0]


def test_models_with_other_outputs_are_timed_and_not_compared(models: tuple[Path, Path, Path]) -> None:
    onnx.save(model_of("(float[N,8] x) => (float[N,256] z)", "z = MatMul(x, w)", {"w": floats(8, 256)}), "other.onnx")
    found = compare([models[0], models[1], "other.onnx"], "eval.npz", seconds=1)
    assert "no SNR: other.onnx has other outputs (z) than the first (y)" in found.notes
    assert found.table["snr_db"].isna().all()


def test_integers_are_not_compared_with_floats(models: tuple[Path, Path, Path]) -> None:
    """As a quantized model has them that ends at a QuantizeLinear."""
    source = "a = MatMul(x, w) y = QuantizeLinear(a, s, z)"
    constants: dict[str, Array | float] = {"w": floats(8, 256), "s": 0.1, "z": np.array(0, np.uint8)}
    onnx.save(model_of("(float[N,8] x) => (uint8[N,256] y)", source, constants), "ends.onnx")
    found = compare([models[0], "ends.onnx"], "eval.npz", seconds=1)
    assert "no SNR: output 'y' of ends.onnx is uint8, that of the first float32" in found.notes
    assert found.table["snr_db"].isna().all()


def test_an_input_that_is_no_tensor_is_refused(models: tuple[Path, Path, Path], command: Command) -> None:
    source = "i = Constant<value_int=0>() y = SequenceAt(x, i)"
    onnx.save(model_of("(seq(float[N,8]) x) => (float[N,8] y)", source), "odd.onnx")
    result = command("bench", "odd.onnx", "little.onnx", "--data", "eval.npz")
    assert result.exit_code == 2
    assert "odd.onnx: input 'x' is no tensor" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.onnx", "little.onnx"], "there is no such file"),
        (["little.onnx"], "give at least two"),
        (["little.onnx", "much.onnx", "--ep", "nowhere"], "is not installed"),
        (["little.onnx", "much.onnx", "--time", "soon"], "write a number with a unit"),
    ],
)
def test_bad_input_is_one_sentence(
    models: tuple[Path, Path, Path], command: Command, arguments: list[str], message: str
) -> None:
    result = command("bench", *arguments, "--data", "eval.npz")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
