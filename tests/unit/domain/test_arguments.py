import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.arguments import (
    check_dims,
    check_function,
    check_n_regions,
    check_path,
    check_seconds,
    check_several,
    check_type,
)
from autoquant.errors import UsageError


def test_what_is_of_a_wanted_type_passes() -> None:
    check_type("the number", 3, (int, float), "a number")
    check_several("numbers", (3, 4), int, "numbers")
    check_several("numbers", [], int, "numbers")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("abc", r"^names are one text, 'abc', give a list: \['abc'\]$"),
        (3, r"^names are of type 'int', give a list of names$"),
        (iter(["a"]), r"^names are of type 'list_iterator', give a list of names$"),
        ([b"a"], r"^one of the names is of type 'bytes', give a list of names$"),
    ],
)
def test_what_is_no_list_of_the_wanted_type_is_refused(values: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_several("names", values, str, "names")


def test_true_and_false_are_no_numbers() -> None:
    check_type("the flag", True, bool, "True or False")
    check_type("what is given", False, (bool, int), "a number, or False")
    with pytest.raises(UsageError, match=r"^the seed is of type 'bool', give a whole number$"):
        check_type("the seed", True, int, "a whole number")


def test_paths_times_functions_and_sizes_pass() -> None:
    check_path("the folder", None)
    check_path("the folder", Path("a"), is_needed=True)
    check_seconds("the seconds", np.float32(0))
    check_seconds("the seconds", math.inf)
    check_function("what is told", print, "a function")
    check_dims(None)
    check_dims({"batch": np.int64(2), "length": 16})
    check_n_regions(np.int64(1))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_path("the folder", 3), r"^the folder is of type 'int', give its path$"),
        (lambda: check_path("the folder", None, is_needed=True), r"^the folder is of type 'NoneType', give its path$"),
        (lambda: check_seconds("the seconds", "3"), r"^the seconds is of type 'str', give seconds, e.g. 60$"),
        (lambda: check_seconds("the seconds", -1), r"^the seconds are -1 s, give 0 or more, e.g. 60$"),
        (lambda: check_seconds("the seconds", math.nan), r"^the seconds are nan s, give 0 or more, e.g. 60$"),
        (lambda: check_function("what is told", 3, "a function"), r"^what is told is of type 'int', give a function$"),
        (lambda: check_dims(3), r"^the sizes of dimensions is of type 'int', give a dict$"),
        (lambda: check_dims({"batch": "1"}), r"^the size of dimension batch is of type 'str', give a whole number$"),
        (lambda: check_dims({"batch": 0}), r"^the size of dimension batch is 0, it must be at least 1$"),
        (lambda: check_n_regions(1.5), r"^the number of regions is of type 'float', give a whole number$"),
        (lambda: check_n_regions(0), r"^the number of regions is 0, it must be at least 1$"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(check: Callable[[], None], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check()
