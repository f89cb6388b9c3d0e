"""Where latency is measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """An execution provider with its options and a number of threads.

    Attributes:
        ep: Short name of the execution provider, e.g. ``"cpu"``.
        threads: Intra-op threads of the session.
        options: Provider options as onnxruntime takes them.
    """

    ep: str = "cpu"
    threads: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ep", self.ep.lower().removesuffix("executionprovider"))
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}, it must be at least 1")

    @property
    def name(self) -> str:
        """Its name in reports, e.g. ``"cpu-1t"``."""
        return f"{self.ep}-{self.threads}t"
