"""Numbers of things in sentences."""

__all__ = ["counted"]


def counted(n: int, noun: str) -> str:
    """Such as ``1 region``, ``2 regions`` and ``2 processes``."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"
