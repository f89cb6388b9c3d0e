"""Whether arguments are of the types that they should be: not everybody runs a type checker."""

import numbers
import os
from collections.abc import Collection, Mapping

from autoquant.errors import UsageError

__all__ = [
    "check_dims",
    "check_function",
    "check_n_regions",
    "check_path",
    "check_seconds",
    "check_several",
    "check_type",
]


def check_type(name: str, value: object, wanted: type | tuple[type, ...], example: str) -> None:
    """Whether an argument is what it should be.

    Args:
        name: Of the argument, begins the message.
        value: That was given.
        wanted: One type or several.
        example: What to give, in words.

    Raises:
        UsageError: It is of another type; True and False are no numbers.
    """
    is_wrong_flag = isinstance(value, bool) and bool not in (wanted if isinstance(wanted, tuple) else (wanted,))
    if is_wrong_flag or not isinstance(value, wanted):
        raise UsageError(f"{name} is of type '{type(value).__name__}', give {example}")


def check_several(name: str, values: object, wanted: type | tuple[type, ...], example: str) -> None:
    """Whether an argument is a list, or another collection, of what it should be.

    Args:
        name: Of the argument in the plural, begins the message.
        values: That were given.
        wanted: One type or several.
        example: Of what to give a list of, in words.

    Raises:
        UsageError: It is one of them alone or no collection, or one of them is of another type.
    """
    if isinstance(values, str):
        raise UsageError(f"{name} are one text, '{values}', give a list: ['{values}']")
    if not isinstance(values, Collection):
        raise UsageError(f"{name} are of type '{type(values).__name__}', give a list of {example}")
    for value in values:
        check_type(f"one of the {name}", value, wanted, f"a list of {example}")


def check_path(name: str, value: object, *, is_needed: bool = False) -> None:
    """Whether an argument is the path of a file or folder.

    Args:
        name: Of the argument, begins the message.
        value: That was given.
        is_needed: Whether None is wrong.

    Raises:
        UsageError: It is of another type.
    """
    check_type(name, value, (str, os.PathLike) if is_needed else (str, os.PathLike, type(None)), "its path")


def check_seconds(name: str, value: object, *, example: str = "60") -> None:
    """Whether an argument is a time.

    Args:
        name: Of the argument, begins the message.
        value: That was given.
        example: Of one.

    Raises:
        UsageError: It is of another type, negative or NaN.
    """
    check_type(name, value, numbers.Real, f"seconds, e.g. {example}")
    assert isinstance(value, numbers.Real)
    if not float(value) >= 0:
        raise UsageError(f"{name} are {value} s, give 0 or more, e.g. {example}")


def check_function(name: str, value: object, example: str) -> None:
    """Whether an argument can be called.

    Args:
        name: Of the argument, begins the message.
        value: That was given.
        example: What to give, in words.

    Raises:
        UsageError: It cannot.
    """
    if not callable(value):
        raise UsageError(f"{name} is of type '{type(value).__name__}', give {example}")


def check_dims(dims: object) -> None:
    """Whether an argument says sizes of named dimensions.

    Args:
        dims: That was given; None says none.

    Raises:
        UsageError: It is of another type, or a size is no whole number of at least 1.
    """
    check_type("the sizes of dimensions", {} if dims is None else dims, Mapping, "a dict")
    assert dims is None or isinstance(dims, Mapping)
    for name, size in (dims or {}).items():
        check_type(f"the size of dimension {name}", size, numbers.Integral, "a whole number")
        if size < 1:
            raise UsageError(f"the size of dimension {name} is {size}, it must be at least 1")


def check_n_regions(n_regions: object) -> None:
    """Whether there may be so many regions.

    Args:
        n_regions: That was given.

    Raises:
        UsageError: It is of another type, or less than 1.
    """
    check_type("the number of regions", n_regions, numbers.Integral, "a whole number")
    assert isinstance(n_regions, numbers.Integral)
    if int(n_regions) < 1:
        raise UsageError(f"the number of regions is {n_regions}, it must be at least 1")
