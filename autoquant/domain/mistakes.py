"""What is wrong with a word or a TOML file that a user wrote."""

import difflib
import re
from collections.abc import Callable, Iterable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

__all__ = ["Location", "did_you_mean", "first_mistake", "key_of", "unknown"]

Location = tuple[int | str, ...]
"""Names of tables and keys, and positions in lists, from the outside in."""


def first_mistake(error: ValidationError, table_at: Callable[[Location], type[BaseModel]]) -> str:
    """The first key that is wrong, and what is wrong with it.

    Args:
        error: Of the file.
        table_at: Gives the table whose key is at a location.
    """
    details = min(error.errors(), key=lambda found: found["type"] == "missing")  # a misspelt key is missing too
    return f"{key_of(details['loc'])}: {_problem(details, table_at)}"


def key_of(location: Location) -> str:
    """As a user would write it: ``rules[2].op_types``, ``schemes."p99.9"``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}" for part in location)
    return "".join(parts).removeprefix(".")


def unknown(word: str, known: Iterable[str]) -> str:
    """That a word is unknown, with the one that was meant or all that are known."""
    known = sorted(known)
    return f"'{word}' is unknown" + (did_you_mean(word, known) or f", choose from: {', '.join(known)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence; empty where nothing known is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def _problem(details: ErrorDetails, table_at: Callable[[Location], type[BaseModel]]) -> str:
    location = details["loc"]
    if details["type"] == "extra_forbidden":
        fields = table_at(location).model_fields
        return unknown(str(location[-1]), (field.alias or name for name, field in fields.items()))
    if details["type"] == "missing":
        return "this key is missing, add it"
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    return f"{details['msg'][0].lower()}{details['msg'][1:]}, it is {details['input']!r}"
