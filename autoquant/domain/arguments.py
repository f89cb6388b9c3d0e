"""Whether arguments are of the types that they should be: not everybody runs a type checker."""

from collections.abc import Collection

from autoquant.errors import UsageError

__all__ = ["check_several", "check_type"]


def check_type(name: str, value: object, wanted: type | tuple[type, ...], example: str) -> None:
    """Whether an argument is what it should be.

    Args:
        name: Of the argument, begins the message.
        value: That was given.
        wanted: One type or several.
        example: What to give, in words.

    Raises:
        UsageError: It is of another type.
    """
    if not isinstance(value, wanted):
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
