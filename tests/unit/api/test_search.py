from pathlib import Path

import pytest

from autoquant import search
from autoquant.api.configuration import DEFAULT_SECONDS, Budget, Configuration


class AskedError(Exception):
    """Ends a search that would begin."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, Budget(seconds=DEFAULT_SECONDS)),
        (Budget(trial_seconds=30, trial_memory_mb=2000), Budget(DEFAULT_SECONDS, None, 30, 2000)),
        (Budget(trials=5), Budget(trials=5)),
        (Budget(seconds=7), Budget(seconds=7)),
    ],
)
def test_time_is_limited_where_nothing_else_ends_the_search(
    given: Budget | None, expected: Budget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Configuration] = []

    def begin(configuration: Configuration, *_: object) -> None:
        asked.append(configuration)
        raise AskedError

    monkeypatch.setattr("autoquant.api.search.Run", begin)
    with pytest.raises(AskedError):
        search("example:digits", budget=given, out=tmp_path / "run")
    assert [configuration.budget for configuration in asked] == [expected]
