import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

IS_CONTINUOUS = "CI" in os.environ

# the first call of onnxruntime is slow; a continuous run must not fail on a case that the change before it did not meet
settings.register_profile("autoquant", deadline=None, derandomize=IS_CONTINUOUS)
settings.load_profile("autoquant")
if IS_CONTINUOUS:
    # hypothesis draws constants of the package too, any new one of which would change the examples; not all versions do
    with suppress(ImportError):
        pytest.MonkeyPatch().setattr(
            "hypothesis.internal.conjecture.providers.is_local_module_file", lambda *_: False, raising=False
        )

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ instead of comparing with it")


@pytest.fixture
def assert_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of that name in ``tests/golden``, or writes it."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.write_text(text)
        assert file.exists(), f"{file} is missing; write it with pytest --update-golden and review it"
        assert text == file.read_text(), f"{file} differs; if that is meant, pytest --update-golden"

    return check


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts its background jobs with SIGINT ignored, which every process of a test would inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
