"""What an error of a library says."""

__all__ = ["one_line"]

_LONGEST = 300


def one_line(error: BaseException) -> str:
    """In one line, of no more than 300 characters."""
    return " ".join(str(error).split())[:_LONGEST]
