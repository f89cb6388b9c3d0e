import os

import pytest

from autoquant.api.spelling import bytes_of, cores_of, drops_of, seconds_of
from autoquant.errors import AutoquantError, UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120s", 120), ("120", 120), (" 90 s ", 90), ("1.5m", 90), ("2min", 120), ("1h", 3600), ("0.5h", 1800)],
)
def test_times_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert seconds_of(text, "--time") == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 days", "1e3s", "0s", "s"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--time .*120s"):
        seconds_of(text, "--time")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,", "write cores with commas"),
        ("3-1", "the range is empty"),
        ("3-1,0", "the range is empty"),
        ("9" * 5000, "write cores"),
        ("100000", "choose among them"),
        ("0-999999999", "these are more than 1024 cores"),
        ("a", "write cores"),
    ],
)
def test_cores_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cores_of(text)


def test_cores_are_listed_once() -> None:
    core = min(os.sched_getaffinity(0))
    assert cores_of(f"{core}-{core},{core}") == (core,)


def test_drops_are_read_with_and_without_a_name() -> None:
    metrics = ["top1", "cosine@y", "ocr=tasks:score:min"]
    assert drops_of([], metrics) is None
    assert drops_of(["ocr=2%"], metrics) == {"ocr": 0.02}
    assert drops_of(["1%", "cosine@y=0.1"], metrics) == {"top1": 0.01, "cosine@y": 0.1, "ocr": 0.01}


@pytest.mark.parametrize(
    ("texts", "of"),
    [(["0.5%", "5%"], "all metrics"), (["1%", "top1=1%", "top1 = 2%"], "top1"), (["1%", "=2%"], "all metrics")],
)
def test_two_drops_of_one_metric_are_refused(texts: list[str], of: str) -> None:
    with pytest.raises(UsageError, match=f"^--max-drop {texts[-1]}: there is another one of {of}; give one of them$"):
        drops_of(texts, ["top1"])


@pytest.mark.parametrize("text", ["much", "top1=", "120%", "top1=-1"])
def test_what_is_no_drop_is_refused(text: str) -> None:
    with pytest.raises(AutoquantError, match="give a share such as"):
        drops_of([text], ["top1"])


@pytest.mark.parametrize(
    ("text", "size"), [("4MB", 4_000_000), ("0.5 kb", 500), ("1.5GB", 1_500_000_000), ("12 B", 12)]
)
def test_sizes_are_read_with_their_unit(text: str, size: int) -> None:
    assert bytes_of(text, "--max-size") == size


@pytest.mark.parametrize("text", ["", "small", "4", "-4MB", "0MB", "0.3", "4MiB", "30%", "9" * 310])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--max-size .*4MB"):
        bytes_of(text, "--max-size")
