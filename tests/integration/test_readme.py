"""The code of the README and of the guide runs as it stands, with a smaller budget."""

import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import CalibrationDataReader
from optuna.trial import TrialState
from typer.testing import CliRunner

from autoquant import find_regions, prepare, read_data
from autoquant.cli import app
from autoquant.domain.feed import Feed
from autoquant.examples import example
from autoquant.model.fragments import inline_external
from autoquant.qdq.overrides import op_types_with_float_outputs, tensor_quant_overrides
from autoquant.report.front_json import front_from_json
from autoquant.space.schema import read_space
from tests.graphs import OP_TYPES, U8S8_CHANNEL, case_of
from tests.graphs import run as outputs_of
from tests.models import floats, model_of, saved

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide"
PAGES = (README, *sorted(GUIDE.glob("*.md")))
COMMANDS = ("search", "resolve", "regions", "inspect", "bench", "experiment run")
TESTED_PYTHON = {
    "README.md": 1,
    "command-line.md": 2,
    "python.md": 3,
    "front.md": 1,
    "models.md": 1,
    "objectives.md": 2,
}
"""Blocks that a test below runs."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind each ``autoquant`` of the blocks, without comments; indented lines go on with the one above."""
    shown = [
        line.removeprefix("$ ") for block in blocks(page, "text") for line in block.splitlines() if line[:2] == "$ "
    ]
    written = [line for block in blocks(page, "sh") for line in re.sub(r"\n +", " ", block).splitlines()]
    for line in (*shown, *written):
        words = line.split("#")[0].split("&&")[-1].split()
        if words[:1] == ["autoquant"]:
            yield words[1:]


def options_of(command: str) -> set[str]:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return set(re.findall(r"--[\w-]+", result.output))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own = example("digits")
    for source, name in ((own.model, "model.onnx"), (own.calibration, "calib.npz"), (own.evaluation, "eval.npz")):
        shutil.copyfile(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_is_run_by_a_test(page: Path) -> None:
    assert len(blocks(page, "python")) == TESTED_PYTHON.get(page.name, 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_public_names_alone(page: Path) -> None:
    assert re.findall(r"(?:from|import) autoquant\..*", "".join(blocks(page, "python"))) == []


def test_an_input_that_is_made_a_constant_takes_the_if_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    branches = "t () => (float[1,4] u) { u = MatMul(x, w) }, else_branch = e () => (float[1,4] v) { v = MatMul(x, v0) }"
    body = f"c = Equal(sr, k) y = If(c) <then_branch = {branches}>"
    weights = {"k": np.array(16000), "w": floats(4, 4), "v0": floats(4, 4)}
    onnx.save(model_of("(float[1,4] x, int64 sr) => (float[1,4] y)", body, weights), "detector.onnx")
    x = floats(2, 4)
    both = {"x": x, "sr": np.full(2, 16000)}
    assert prepare("detector.onnx", read_data("detector.onnx", both)).around is not None
    exec(textwrap.dedent(blocks(GUIDE / "models.md", "python")[0]), {})
    alone = prepare("detector-16k.onnx", read_data("detector-16k.onnx", {"x": x}))
    assert alone.around is None
    assert [region.op_types for region in find_regions(alone)] == [("Gemm",)]


def test_the_search_of_the_readme_delivers_a_file(files: Path) -> None:
    code = blocks(README, "python")[0]
    assert "Budget(seconds=120)" in code
    names: dict[str, object] = {}
    exec(code.replace("Budget(seconds=120)", "Budget(trials=12)"), names)
    assert (files / "run" / "front.json").exists()
    assert names["result"].best(min_snr_db=20).path.exists()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("files")
def test_the_finished_run_of_the_guide_is_opened(searched: Path) -> None:
    shutil.copytree(searched, "run")
    names: dict[str, object] = {}
    exec(blocks(GUIDE / "python.md", "python")[0], names)
    assert names["result"].best(min_snr_db=20).path.exists()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("files")
def test_the_steps_of_the_guide_build_a_candidate() -> None:
    names: dict[str, object] = {}
    exec(blocks(GUIDE / "python.md", "python")[1], names)
    assert names["measurement"].quality.worst_db > 10  # type: ignore[attr-defined]


@pytest.mark.usefixtures("files")
def test_the_study_of_the_guide_is_optimized() -> None:
    names: dict[str, object] = {}
    _, steps, own = blocks(GUIDE / "python.md", "python")
    assert "n_trials=50" in own
    exec(steps + own.replace("n_trials=50", "n_trials=6"), names)
    trials = names["study"].trials  # type: ignore[attr-defined]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    assert len({tuple(trial.params.values()) for trial in trials}) == 6
    assert {trial.number for trial in names["front"]} <= set(range(6))  # type: ignore[attr-defined]
    assert all(trial.user_attrs["effective"] for trial in trials)


def test_the_metric_of_the_guide_is_searched_with(files: Path) -> None:
    page = GUIDE / "objectives.md"
    (files / "my_metrics.py").write_text(next(block for block in blocks(page, "python") if "my_metrics" in block))
    command = next(words for words in commands(page) if "my_metrics:hits" in words)
    run(*command, "--trials", "4")
    assert set(front_from_json((files / "run" / "front.json").read_text()).members[0].metrics) == {"hits", "cosine"}


@pytest.mark.usefixtures("files")
def test_the_objectives_of_the_guide_are_searched_with() -> None:
    command = next(words for words in commands(GUIDE / "objectives.md") if "smallest" in words)
    run(*command, "--trials", "4")
    assert list(front_from_json(Path("smallest/front.json").read_text()).objectives) == ["accuracy", "latency", "size"]


@pytest.mark.usefixtures("files")
def test_optuna_reads_the_study_as_the_guide_says(searched: Path) -> None:
    shutil.copytree(searched, "run")
    names: dict[str, object] = {}
    exec(next(block for block in blocks(GUIDE / "objectives.md", "python") if "load_study" in block), names)
    best = names["study"].best_trials[0]  # type: ignore[attr-defined]
    assert set(best.params) == {region["id"] for region in json.loads(Path("run/run.json").read_text())["regions"]}


def test_the_section_of_another_provider_makes_a_space_for_it(tmp_path: Path) -> None:
    section = next(block for block in blocks(GUIDE / "models.md", "toml") if "ep.tensorrt" in block)
    space = tmp_path / "space.toml"
    space.write_text((ROOT / "search_spaces" / "default.toml").read_text() + section)
    (scheme,) = read_space(str(space), ep="tensorrt").schemes
    assert (str(scheme.activation), str(scheme.weight)) == ("s8:tensor:sym", "s8:channel:sym")


def test_the_keys_beside_arguments_of_the_quantizer_make_a_space(tmp_path: Path) -> None:
    page = (GUIDE / "search-spaces.md").read_text(encoding="utf-8")
    section = page.split("\n## Coming from quantize_static\n")[1].split("\n## ")[0]
    keys = dict(re.findall(r"`((?:op_types|nodes|schemes) )= (.*?)`", section))
    op_types, nodes, schemes = (f"{key}= {keys[key]}" for key in ("op_types ", "nodes ", "schemes "))
    plain = {"activation": '"u8:tensor:asym"', "weight": '"s8:channel:sym"', "ranges": '"min-max"'}
    written = re.findall(r"`(activation|weight|ranges) = (.*?)`", section)
    assert {key for key, _ in written} == plain.keys()
    for key, value in written:
        scheme = [f"{name} = {said}" for name, said in (plain | {key: value}).items()]
        head = ["schema = 1", 'description = ""', "[ep.cpu]", 'schemes = ["a"]', op_types, "[schemes.a]"]
        space = tmp_path / "space.toml"
        space.write_text("\n".join([*head, *scheme, "[[rules]]", nodes, schemes]))
        assert [scheme.name for scheme in read_space(str(space), ep="cpu").schemes] == ["a"]


def test_the_data_of_the_guide_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of("(float[N,3] image) => (float[N,3] y)", "y = Relu(image)"), "model.onnx")
    images, (written, own) = floats(4, 3), blocks(GUIDE / "command-line.md", "python")
    exec(written, {"np": np, "images": images})
    Path("images").mkdir()
    for number, image in enumerate(images):
        np.save(Path("images") / f"{number}.npy", image)
    Path("my_data.py").write_text(own)
    assert "`--calibration my_data:Reader`" in (GUIDE / "command-line.md").read_text(encoding="utf-8")
    given = [read_data("model.onnx", source) for source in ("calib.npz", "my_data:Reader")]
    assert given[0].feed_digests == given[1].feed_digests
    assert len(given[0]) == 4


def test_the_nodes_that_regions_lists_are_those_of_the_prepared_model(searched: Path) -> None:
    rows = json.loads(run("regions", "example:digits", "--json"))["regions"]
    listed = {name for row in rows for name in row["nodes"]}
    assert listed
    assert listed <= {node.name for node in onnx.load(searched / "prepared.onnx").graph.node}


@pytest.mark.usefixtures("files")
def test_the_run_of_the_guide_is_resolved(searched: Path) -> None:
    shutil.copytree(searched, "first-run")
    command = next(words for words in commands(GUIDE / "command-line.md") if "first-run" in words)
    assert "42" in command
    run(*("20" if word == "42" else word for word in command))  # what keeps 42 dB may be no faster on a busy machine
    assert Path("at-42-db/front.json").exists()


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """As a user has one."""

    def __init__(self) -> None:
        self.feeds = iter(read_data("model.onnx", "calib.npz").feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


@pytest.mark.usefixtures("files")
def test_a_member_is_made_again_as_the_guide_says(searched: Path) -> None:
    shutil.copytree(searched, "run")
    made = [path for path in sorted(Path("run/models").glob("*.onnx")) if n_conversions(path)]
    (code,) = blocks(GUIDE / "front.md", "python")
    assert "t0042" in code
    exec(code.replace("t0042", made[0].stem), {"reader": Reader()})
    assert n_conversions(Path("again.onnx")) == n_conversions(made[0])
    ort.InferenceSession("again.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("last", ["Tanh(a)", "MatMul(a, a)"])  # left out by quantize_static itself; writes floats
def test_operators_are_made_again_as_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    monkeypatch.chdir(tmp_path)
    image = "float[1,4,6,6]"
    model = model_of(f"({image} x) => ({image} y)", f"a = Conv(x, w) y = {last}", {"w": floats(4, 4, 1, 1)})
    case = replace(case_of(model), op_types=OP_TYPES | {"Tanh"})
    ours = case.quantized(U8S8_CHANNEL)
    assert ours.plan.integer == {0, 1}
    models = tmp_path / "run" / "models"
    models.mkdir(parents=True)
    metadata = {
        "autoquant.nodes_to_quantize": json.dumps([node.name for node in case.graph.nodes]),
        "autoquant.op_types_with_float_outputs": json.dumps(
            sorted(op_types_with_float_outputs(ours.plan, case.graph) or ())
        ),
    }
    saved(inline_external(ours.candidate.skeleton, ours.candidate.constants, metadata), models / "t0042.onnx")
    overrides = tensor_quant_overrides(ours.plan, ours.builder.planner)
    (models / "t0042.overrides.json").write_text(json.dumps(overrides))
    saved(model, tmp_path / "run" / "prepared.onnx")
    saved(model, tmp_path / "model.onnx")
    np.savez("calib.npz", x=case.feed["x"])
    (code,) = blocks(GUIDE / "front.md", "python")
    exec(code, {"reader": Reader()})
    np.testing.assert_array_equal(outputs_of(onnx.load("again.onnx"), case.feed), outputs_of(ours.model, case.feed))


def n_conversions(file: Path) -> int:
    return sum(node.op_type == "QuantizeLinear" for node in onnx.load(file).graph.node)


@pytest.mark.usefixtures("files")
def test_the_models_of_the_guide_are_inspected_and_compared(searched: Path) -> None:
    shutil.copyfile("model.onnx", "float.onnx")
    made = next(path for path in sorted((searched / "models").glob("*.onnx")) if n_conversions(path))
    for name in ("quantized.onnx", "s8s8.onnx"):
        shutil.copyfile(made, name)
    inspect, bench = commands(GUIDE / "inspect.md")
    assert "integer kernels" in run(*inspect)
    assert "quantized" in run(*bench, "--time", "2s")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_of_a_page_is_one_of_its_command(page: Path) -> None:
    for words in commands(page):
        command = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
        assert set(re.findall(r"--[\w-]+", " ".join(words))) <= options_of(command)


@pytest.mark.parametrize("page", [README, GUIDE / "command-line.md"], ids=lambda page: page.name)
def test_options_that_take_one_value_each_time_are_written_so(page: Path) -> None:
    usage = "".join(blocks(page, "sh"))
    assert re.search(r"\[--metric METRIC\]\.\.\.", usage)
    assert not re.search(r"\[--[^\n]* \.\.\.\]", usage)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_option_that_the_guide_names_exists(page: Path) -> None:
    known = set().union(*map(options_of, COMMANDS))
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert set(re.findall(r"(?<=`)--[\w-]+", text)) <= known


@pytest.mark.parametrize("page", [README, GUIDE / "command-line.md"], ids=lambda page: page.name)
def test_every_command_is_named(page: Path) -> None:
    assert all(any(words[: len(name.split())] == name.split() for words in commands(page)) for name in COMMANDS)


def test_every_option_of_a_search_is_in_the_guide() -> None:
    usage = next(block for block in blocks(GUIDE / "command-line.md", "sh") if "autoquant regions" in block)
    written = set(re.findall(r"--[\w-]+", usage.split("autoquant regions")[0]))
    assert written == options_of("search") - {"--help"}


def test_the_commands_of_the_readme_are_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    first = next(words for words in commands(README) if "example:digits" in words)
    assert first[-2] == "--out"  # CI puts it elsewhere
    assert " ".join(["autoquant", *first[:-1]]) in ci
    assert "pip install -e '.[dev]' && pytest" in README.read_text(encoding="utf-8")
    assert "pip install -q -e '.[dev]'" in ci
    assert re.search(r"^pytest", ci, flags=re.MULTILINE)
