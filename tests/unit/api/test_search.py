import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant import search
from autoquant.api.configuration import DEFAULT_SECONDS, Budget
from autoquant.api.trials import SearchProgress
from autoquant.domain.target import Target
from autoquant.errors import UsageError


class EndedError(Exception):
    """Ends a search before its first trial."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, Budget(seconds=DEFAULT_SECONDS)),
        (Budget(trial_seconds=30, trial_memory_mb=2000), Budget(DEFAULT_SECONDS, None, 30, 2000)),
        (Budget(trials=5), Budget(trials=5)),
    ],
)
def test_time_is_limited_where_nothing_else_ends_the_search(
    given: Budget | None, expected: Budget, tmp_path: Path
) -> None:
    asked: list[Budget] = []

    def end(progress: SearchProgress) -> None:
        if progress.phase == "search":
            found = json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]
            asked.append(Budget(*(found[key] for key in ("seconds", "trials", "trial_seconds", "trial_memory_mb"))))
            raise EndedError

    with pytest.raises(EndedError):
        search("example:digits", budget=given, out=tmp_path / "run", cache=str(tmp_path / "cache"), on_progress=end)
    assert asked == [expected]


def test_what_was_left_out_as_time_was_short_is_told(tmp_path: Path) -> None:
    notes: list[str] = []

    def end(progress: SearchProgress) -> None:
        if progress.phase == "search":
            notes.extend(json.loads((tmp_path / "run" / "run.json").read_text())["notes"])
            raise EndedError

    cache = str(tmp_path / "cache")
    with pytest.raises(EndedError):
        search("example:digits", out=tmp_path / "run", cache=cache, on_progress=end, spent_s=0.5 * DEFAULT_SECONDS)
    (note,) = (note for note in notes if note.startswith("more than 40% of the budget was gone"))
    assert "so that these were left out: channels filled up to whole blocks, profiles of kernels" in note


@pytest.mark.parametrize("memory_mb", [700, 700.0])
def test_the_process_that_measures_has_the_memory_of_the_budget(
    memory_mb: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def end(_: object, *, memory_bytes: int) -> None:
        given.append(memory_bytes)
        raise EndedError

    monkeypatch.setattr("autoquant.api.run.IsolatedEvaluator", end)
    with pytest.raises(EndedError):
        search("example:digits", budget=Budget(trials=1, trial_memory_mb=memory_mb), out=tmp_path / "run")
    assert given == [700 * 10**6]
    assert isinstance(given[0], int)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dims": 3}, "the sizes of dimensions is of type 'int', give a dict"),
        ({"out": 5}, "the run's folder is of type 'int', give its path"),
        ({"out": None}, "the run's folder is of type 'NoneType', give its path"),
        ({"budget": 60}, r"the budget is of type 'int', give one, e\.g\. Budget\(seconds=120\)"),
        ({"demands": {"min_snr_db": 30}}, r"what is demanded is of type 'dict', give it like Demands\(min_snr_db=30\)"),
        ({"metrics": "top1"}, r"metrics are one text, 'top1', give a list: \['top1'\]"),
        ({"objectives": "snr"}, "objectives are one text, 'snr', give a list"),
        ({"metrics": [len]}, r"one of the metrics is of type 'builtin_function_or_method', give a list of names"),
        (
            {"targets": Target("cpu")},
            r"targets are of type 'Target', give a list of targets, e\.g\. \[Target\('cpu'\)\]",
        ),
        ({"labels": np.arange(3)}, "the file of labels is of type 'ndarray', give its path"),
        ({"warm_start": 3}, "the warm start is of type 'int', give its path"),
        ({"resume": "no"}, "resume is of type 'str', give True or False"),
        ({"seed": True}, "the seed is of type 'bool', give a whole number"),
        ({"dims": {"batch": 1.0}}, "the size of dimension batch is of type 'float', give a whole number"),
        ({"spent_s": -5}, r"the seconds that are gone are -5 s, give 0 or more, e\.g\. 3"),
        ({"on_progress": 3}, "what is told of progress is of type 'int', give a function of a SearchProgress"),
    ],
)
def test_arguments_of_another_type_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        search("example:digits", **{"out": tmp_path / "run", **given})
    assert not (tmp_path / "run").exists()
