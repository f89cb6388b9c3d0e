"""Numbers of things in sentences."""

__all__ = ["counted"]


def counted(n: int, noun: str) -> str:
    """Such as ``1 region`` and ``2 regions``, of a noun whose plural has an s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
