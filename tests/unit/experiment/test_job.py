from pathlib import Path

import pytest

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.target import Target
from autoquant.errors import UsageError
from autoquant.experiment.job import read_job

NIGHTLY = Path(__file__).parents[3] / "experiments" / "nightly.toml"
SMALL = """
schema = 1
name = "small"
[defaults]
time = "2m"
threads = 2
seed = 3
[[models]]
name = "digits"
model = "example:digits"
demands = { "40" = 0.7 }
[[models]]
name = "other"
model = "data/model.onnx"
calibration = "module:samples"
time = "10s"
targets = [{ threads = 1 }, { threads = 4 }]
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    return tmp_path / "job.toml"


def test_what_a_model_says_comes_before_the_defaults(job_file: Path) -> None:
    job_file.write_text(SMALL)
    digits, other = read_job(job_file).searches
    assert (digits.seconds, digits.seed, digits.targets) == (120, 3, (Target("cpu", 2),))
    assert (other.seconds, other.seed, other.targets) == (10, 3, (Target("cpu", 1), Target("cpu", 4)))
    assert (digits.demands, other.demands) == ({40: 0.7}, {})


def test_targets_take_what_they_do_not_say_from_the_model_and_the_defaults(job_file: Path) -> None:
    targets = 'targets = [{ ep = "cpu" }, { threads = 4, options = { device = "GPU" } }]'
    content = SMALL.replace("targets = [{ threads = 1 }, { threads = 4 }]", targets)
    job_file.write_text(content.replace("[defaults]", '[defaults]\nep = "openvino"\nspace = "extensive"'))
    assert read_job(job_file).searches[1].targets == (Target("cpu", 2), Target("openvino", 4, {"device": "GPU"}))
    job_file.write_text(content.replace('time = "10s"', "threads = 3"))
    assert read_job(job_file).searches[1].targets == (Target("cpu", 3), Target("cpu", 4, {"device": "GPU"}))


def test_paths_are_relative_to_the_file_and_callables_are_no_paths(job_file: Path) -> None:
    job_file.write_text(SMALL)
    digits, other = read_job(job_file).searches
    assert (digits.model, digits.is_absent) == ("example:digits", False)
    assert (other.model, other.is_absent) == (str(job_file.parent / "data/model.onnx"), True)
    assert other.calibration == "module:samples"


def test_a_model_may_have_metrics_labels_and_held_out_data(job_file: Path) -> None:
    more = """metrics = ["accuracy", "mine=math:fsum:min"]
labels = "labels.npz"
held_out = "held.npz"
max_drop = { accuracy = 0.005 }
"""
    job_file.write_text(SMALL.replace('time = "10s"\n', more))
    digits, other = read_job(job_file).searches
    assert (digits.metrics, digits.labels, digits.held_out, digits.max_drop) == ((), None, None, None)
    assert other.metrics == ("accuracy", "mine=math:fsum:min")
    assert (other.labels, other.held_out) == (str(job_file.parent / "labels.npz"), str(job_file.parent / "held.npz"))
    assert other.max_drop == {"accuracy": 0.005}


@pytest.mark.parametrize("spelling", ["$AUTOQUANT_ZOO", "${AUTOQUANT_ZOO}"])
def test_the_zoo_is_where_the_environment_says(job_file: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    job_file.write_text(SMALL.replace("data/", f"{spelling}/"))
    monkeypatch.setenv("AUTOQUANT_ZOO", "/zoo")
    digits, other = read_job(job_file).searches
    assert (other.model, digits.is_of_zoo, other.is_of_zoo) == ("/zoo/model.onnx", False, True)
    monkeypatch.delenv("AUTOQUANT_ZOO")
    (other,) = read_job(job_file).searches[1:]
    assert other.model == str(Path.home() / ".cache/autoquant-zoo/model.onnx")
    assert other.is_of_zoo


def test_a_job_without_budget_has_the_default_one_and_trials_alone_are_one(job_file: Path) -> None:
    job_file.write_text(SMALL.replace('time = "2m"', ""))
    assert read_job(job_file).searches[0].seconds == 120
    job_file.write_text(SMALL.replace('time = "2m"', "trials = 5"))
    assert (read_job(job_file).searches[0].seconds, read_job(job_file).searches[0].trials) == (None, 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 3", "sead = 3", "defaults.sead: 'sead' is unknown, did you mean 'seed'?"),
        ("calibration =", "calibrate =", "models[1].calibrate: 'calibrate' is unknown, did you mean 'calibration'?"),
        ("{ threads = 4 }", "{ treads = 4 }", "models[1].targets[1].treads: 'treads' is unknown, did you mean"),
        ("schema = 1", "schema = 2", "schema: input should be 1, it is 2"),
        ("schema = 1\n", "", "schema: this key is missing, add it"),
        ("schema = 1", "shema = 1", "shema: 'shema' is unknown, did you mean 'schema'?"),
        (
            'time = "10s"',
            'max_drop = "0.5%"',
            "models[1].max_drop: write a share of float's value such as 0.005, or one for",
        ),
        ("seed = 3", 'max_size = "big"', "defaults.max_size: write a positive number with a unit"),
        ("seed = 3", "max_size = 0", "defaults.max_size: write a positive number with a unit"),
        ("seed = 3", "dims = { n = 2147483648 }", "defaults.dims.n: input should be less than 2147483648"),
        ("seed = 3", 'accuracy = "best"', "defaults.accuracy: input should be 'none', 'fast' or 'full', it is 'best'"),
        ('"2m"', '"soon"', "defaults.time: write a number with a unit"),
        (
            "seed = 3",
            'dims = { "a.b" = 0 }',
            'defaults.dims."a.b": input should be greater than or equal to 1, it is 0',
        ),
        ("threads = 2", "threads = 0", "defaults.threads: input should be greater than or equal to 1, it is 0"),
        ('"40" = 0.7', '"41" = 0.7', "models[0].demands: '41' is no SNR in dB"),
        ('"40" = 0.7', '"40" = true', "models[0].demands.40: input should be a valid number"),
        ('"40" = 0.7', '"40" = "0.7"', "models[0].demands.40: input should be a valid number"),
        ('"40" = 0.7', '"40" = 1.7', "models[0].demands: the ratio demanded at 40 dB is 1.7"),
        ("example:digits", "example:digit", "models[0].model: example 'digit' is unknown, did you mean 'digits'?"),
        ('"small"', '"../small"', "name: '../small' names files"),
        ('name = "other"', 'name = "digits"', "models: 'digits' is the name of 2 models"),
        ('name = "other"', "name = other", "no TOML"),
        ('calibration = "module:samples"\n', "", "model 'other': there are no calibration data; give them"),
        ("data/model.onnx", "~nobody-here/m.onnx", "model 'other': ~nobody-here/m.onnx: there is no home folder"),
        ("seed = 3", 'space = "defalt"', "model 'digits': defalt: no search space file has this path"),
        ("seed = 3", 'space = "gone.toml"', "gone.toml: no search space file has this path"),
        ("seed = 3", 'ep = "cpuu"', "model 'digits': execution provider 'cpuu' is unknown, did you mean 'cpu'?"),
        (
            "{ threads = 4 }",
            '{ ep = "cud" }',
            "execution provider 'cud' is unknown, did you mean 'cuda'?",
        ),
        (
            "seed = 3",
            'objectives = ["latncy"]',
            "model 'digits': the objective 'latncy' is unknown",
        ),
        ('time = "10s"', 'metrics = ["top"]', "model 'other': metric 'top'"),
        (
            'time = "10s"',
            'metrics = ["math:fsun"]',
            "model 'other': metric 'fsun': module 'math' has no function 'fsun'",
        ),
        ('time = "10s"', 'metrics = ["gone_tasks:score"]', "metric 'score': module 'gone_tasks' cannot be imported"),
        ('time = "10s"', "max_drop = 0.1", "model 'other': a largest drop is given but no metric"),
        ("{ threads = 4 }", "{ threads = 1 }", "model 'other': two targets have the same name"),
    ],
)
def test_a_mistake_is_named_with_its_key_or_its_model(job_file: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    job_file.write_text(SMALL.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_job(job_file)
    assert str(caught.value).startswith(str(job_file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_provider_that_is_not_installed_is_no_fault_of_the_job(job_file: Path) -> None:
    job_file.write_text(SMALL.replace("{ threads = 4 }", '{ ep = "cuda" }'))
    assert read_job(job_file).searches[1].targets[1] == Target("cuda", 2)


def test_a_missing_job_file_is_refused(job_file: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_job(job_file)


def test_the_nightly_job_is_valid_and_lists_the_models_that_the_zoo_makes() -> None:
    job = read_job(NIGHTLY)
    assert job.name == "nightly"
    listed = (NIGHTLY.parent / "models.toml").read_text()
    assert all(f"[models.{search.name}]" in listed for search in job.searches if search.name != "digits")


def test_a_level_of_accuracy_may_be_said(job_file: Path) -> None:
    job_file.write_text(SMALL.replace("seed = 3", 'accuracy = "full"').replace('time = "10s"', 'accuracy = "none"'))
    assert [search.accuracy for search in read_job(job_file).searches] == [Accuracy.FULL, Accuracy.NONE]
    job_file.write_text(SMALL)
    assert [search.accuracy for search in read_job(job_file).searches] == [None, None]


def test_objectives_and_a_largest_size_may_be_said_for_all_models_and_for_one(job_file: Path) -> None:
    job_file.write_text(SMALL)
    digits, _ = read_job(job_file).searches
    assert (digits.objectives, digits.max_size_bytes) == (("latency", "snr"), None)
    more = 'seed = 3\nobjectives = ["latency", "size", "snr"]\nmax_size = "4MB"'
    job_file.write_text(SMALL.replace("seed = 3", more).replace('time = "10s"', "max_size = 500"))
    digits, other = read_job(job_file).searches
    assert (digits.objectives, digits.max_size_bytes) == (("latency", "size", "snr"), 4_000_000)
    assert (other.objectives, other.max_size_bytes) == (("latency", "size", "snr"), 500)
