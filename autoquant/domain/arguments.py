"""Whether arguments are of the types that they should be: not everybody runs a type checker."""

from autoquant.errors import UsageError

__all__ = ["check_type"]


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
