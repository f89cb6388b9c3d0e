"""The package as a notebook sees it."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import autoquant
from autoquant import AutoquantError, Budget, Demands, Target
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Measurement
from autoquant.domain.region import RegionId
from autoquant.errors import UsageError
from autoquant.examples import example
from autoquant.space.schema import read_space

untyped: Any = autoquant


def test_there_are_few_public_names_and_all_of_them_load() -> None:
    # resolve is a use of its own: it takes a run where search takes a model; StructureSampler is for studies of others;
    # load_result opens a run that another process has written; Failure is what measure gives instead of numbers;
    # float_model and load_overrides are for quantize_static
    assert len(autoquant.__all__) <= 21
    assert autoquant.__all__ == sorted(autoquant.__all__, key=lambda name: (name.islower(), name))
    for name in autoquant.__all__:
        assert inspect.getdoc(getattr(autoquant, name))


def test_a_search_begins_without_the_libraries_that_are_needed_later() -> None:
    late = {"jinja2", "onnxruntime.quantization", "pandas", "plotly", "scipy.optimize"}
    code = f"import sys; import autoquant.api.search; print(*sorted({late} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_functions_are_not_hidden_by_packages_of_the_same_name() -> None:
    names = {path.stem for path in Path(autoquant.__file__).parent.iterdir()}
    assert names.isdisjoint(autoquant.__all__)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("StructureSampler", "ModelError"),
        ("build", "SpaceError"),
        ("calibrate", "SpaceError"),
        ("open_bench", "DataError"),
        ("prepare", "DataError"),
    ],
)
def test_what_is_raised_further_down_is_in_the_docstring(name: str, error: str) -> None:
    raises = (inspect.getdoc(getattr(autoquant, name)) or "").split("Raises:")[1]
    assert f"{error}: " in raises


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        _ = autoquant.serch


@pytest.fixture
def samples() -> Samples:
    return autoquant.read_data("example:digits", example("digits").calibration)


def test_the_steps_fit_together(samples: Samples, tmp_path: Path) -> None:
    prepared = autoquant.prepare("example:digits", samples)
    regions = autoquant.find_regions(prepared, n_regions=6)
    statistics = autoquant.calibrate(prepared, samples, cache_folder=tmp_path)
    with pytest.raises(AutoquantError, match="region 'nowhere'"):
        autoquant.build(prepared, regions, statistics, {RegionId("nowhere"): "float"})
    with pytest.raises(AutoquantError, match="scheme 'u9s9', but space default has: float"):
        autoquant.build(prepared, regions, statistics, {regions[0].id: "u9s9"})
    scheme = read_space("default", ep="cpu").schemes[0].name
    assignment = {region.id: scheme for region in regions}
    candidate = autoquant.build(prepared, regions, statistics, assignment)
    evaluation = autoquant.read_data("example:digits", example("digits").evaluation, role="evaluation")
    bench = autoquant.open_bench("example:digits", evaluation)
    measured = autoquant.measure(bench, candidate, assignment, regions)
    assert isinstance(measured, Measurement)
    assert measured.quality.worst_db > 10
    assert onnx.load_from_string(candidate.skeleton).graph.node


def test_calibration_is_read_from_the_cache(samples: Samples, tmp_path: Path) -> None:
    prepared = autoquant.prepare("example:digits", samples)
    seen: list[int] = []
    for _ in range(2):
        autoquant.calibrate(prepared, samples, cache_folder=tmp_path, on_sample=seen.append)
    assert len(seen) == len(samples)


@pytest.mark.parametrize(
    ("make", "phrase"),
    [
        (lambda: Budget(seconds=0), "must be positive"),
        (lambda: Budget(seconds=float("inf")), "finite"),
        (lambda: Budget(trials=0), "at least 1"),
        (lambda: Demands(max_latency_ratio=2), r"\(0, 1\]"),
        (lambda: Demands(min_snr_db=float("nan")), "finite"),
        (lambda: autoquant.search("example:digits", targets=[]), "no target"),
        (lambda: autoquant.search("example:digits", targets=[Target(), Target()]), "same name"),
        (lambda: autoquant.search("example:digits", targets=[Target(threads=10**6)]), "at most 1024"),
        (lambda: autoquant.search("example:digits", seed=-1), "seed"),
        (lambda: autoquant.search("example:digits", n_regions=0), "number of regions"),
        (lambda: autoquant.search("example:digits", targets=[Target("nowhere")]), "not installed"),
        (lambda: autoquant.search("gone.onnx"), "there is no such file"),
    ],
)
def test_an_argument_out_of_its_range_is_refused(make: object, phrase: str) -> None:
    assert callable(make)
    with pytest.raises(AutoquantError, match=phrase):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.read_data("example:digits", role="evalutaion"), "the role is 'evalutaion', choose from: "),
        (lambda: untyped.resolve(3, min_snr_db=30, out="new"), "the run is of type 'int', give its path"),
        (
            lambda: untyped.resolve("run", min_snr_db=30, out=3),
            "the new run's folder is of type 'int', give its path",
        ),
        (lambda: untyped.resolve("run", min_snr_db=None, out="new"), "the lowest SNR is of type 'NoneType', give a"),
        (lambda: untyped.resolve("run", min_snr_db=30, out="new", labels=3), "the file of labels is of type 'int'"),
        (lambda: untyped.resolve("run", min_snr_db=30, out="new", on_progress=3), "what is told of progress is of"),
        (lambda: untyped.inspect_model("example:digits", target="cpu"), "the target is of type 'str', give one"),
        (lambda: untyped.float_model(3, "prepared.onnx"), "the member is of type 'int', give its path"),
        (lambda: untyped.float_model("member.onnx", onnx.ModelProto()), "the prepared model is of type 'ModelProto'"),
        (lambda: untyped.load_overrides(3), "the overrides is of type 'int', give its path"),
    ],
)
def test_arguments_of_another_type_are_refused_in_one_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: untyped.prepare(s.model, s.samples, dims=3), "the sizes of dimensions is of type 'int'"),
        (lambda s: untyped.prepare(s.model, s.samples, dims={"n": 0}), "the size of dimension n is 0, it must be at"),
        (lambda s: untyped.prepare(s.model, s.samples, eps="cuda"), "execution providers are one text, 'cuda', give"),
        (lambda s: untyped.find_regions(s.prepared, n_regions="5"), "the number of regions is of type 'str'"),
        (lambda s: untyped.calibrate(s.prepared, s.samples, seconds=-1), "the seconds of a calibration are -1 s"),
        (lambda s: untyped.calibrate(s.prepared, s.samples, cache_folder=3), "the cache is of type 'int', give its"),
        (lambda s: untyped.open_bench(s.model, s.samples, targets="cpu"), "targets are one text, 'cpu', give a list"),
        (lambda s: untyped.open_bench(s.model, s.samples, targets=[]), "there is no target, give at least one"),
        (lambda s: untyped.open_bench(s.model, s.samples, seed="x"), "the seed is of type 'str', give a whole"),
        (lambda s: untyped.open_bench(s.model, s.samples, seconds=None), "the seconds of opening is of type 'None"),
        (lambda s: s.candidate.save(3), "where to write the model is of type 'int', give its path"),
        (lambda s: s.measure(bench="model.onnx"), "the bench is of type 'str', give what open_bench gives"),
        (lambda s: s.measure(assignment=3), "the assignment is of type 'int', give what the candidate was built from"),
        (lambda s: s.measure(found=3), "regions are of type 'int', give a list of what find_regions"),
        (lambda s: s.measure(n_rounds="3"), "the number of rounds is of type 'str', give a whole number"),
        (lambda s: s.measure(n_rounds=-1), "the number of rounds is -1, give 0 or more"),
    ],
)
def test_steps_refuse_arguments_of_another_type(
    call: Callable[[Any], object], message: str, digits_steps: "Steps"
) -> None:
    with pytest.raises(UsageError) as caught:
        call(digits_steps)
    assert str(caught.value).startswith(message)


class Steps:
    """What the steps give of the example, all regions float."""

    def __init__(self, cache: Path) -> None:
        self.model = example("digits").model
        self.samples = autoquant.read_data("example:digits")
        self.prepared = autoquant.prepare(self.model, self.samples)
        regions = autoquant.find_regions(self.prepared)
        statistics = autoquant.calibrate(self.prepared, self.samples, cache_folder=cache, n_samples=2)
        self.candidate = autoquant.build(self.prepared, regions, statistics, {})
        self._given = {
            "bench": autoquant.open_bench(self.model, self.samples, seconds=0),
            "candidate": self.candidate,
            "assignment": {},
            "found": regions,
        }

    def measure(self, **given: object) -> object:
        return untyped.measure(**{**self._given, **given})


@pytest.fixture(scope="module")
def digits_steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    return Steps(tmp_path_factory.mktemp("cache"))
