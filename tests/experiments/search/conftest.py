from pathlib import Path

import pytest

import autoquant
from autoquant import Budget
from tests.searches import end_after


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search of the example, with 4 regions and 14 trials; nobody writes to it."""
    out = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=3)
        autoquant.search(
            "example:digits",
            space="quick",
            n_regions=4,
            budget=Budget(trials=14),
            out=out / "run",
            cache=out / "cache",
        )
    return out / "run"
