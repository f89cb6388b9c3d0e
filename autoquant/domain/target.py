"""Where latency is measured."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import SupportsIndex

from autoquant.domain.arguments import check_type
from autoquant.errors import UsageError

__all__ = ["CPU", "DEFAULT_TARGET", "MAX_THREADS", "Target"]

CPU = "cpu"
"""The provider that every onnxruntime has."""
MAX_THREADS = 1024
"""Most threads or streams."""


@dataclass(frozen=True, slots=True)
class Target:
    """An execution provider with its options and a number of threads.

    Attributes:
        ep: Short name of the execution provider, e.g. ``"cpu"``.
        threads: Intra-op threads of the session.
        options: Provider options; what is no text becomes it, as onnxruntime takes them.
        batch: Samples of one inference; its latency is that of all of them.
        streams: Inferences that run at once in threads of their own; the latency is that of the last one of them.
        affinity: Cores that the process which measures may use; every core where empty.
    """

    ep: str = CPU
    threads: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    batch: int = 1
    streams: int = 1
    affinity: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_type("Target.ep", self.ep, str, "its name, e.g. 'cpu'")
        check_type("Target.options", self.options, Mapping, "a dict")
        check_type("Target.affinity", self.affinity, Iterable, "a list of cores")
        object.__setattr__(self, "ep", self.ep.lower().removesuffix("executionprovider"))
        object.__setattr__(self, "options", {str(name): str(value) for name, value in self.options.items()})
        cores = tuple(self.affinity)
        for core in cores:
            check_type("a core in Target.affinity", core, SupportsIndex, "its number")
        object.__setattr__(self, "affinity", tuple(map(operator.index, cores)))
        for name in ("threads", "batch", "streams"):
            check_type(f"Target.{name}", getattr(self, name), SupportsIndex, "a whole number")
            count = operator.index(getattr(self, name))
            object.__setattr__(self, name, count)
            if count < 1:
                raise UsageError(f"{name} is {count}, it must be at least 1")

    @property
    def name(self) -> str:
        """Its name in reports, e.g. ``"cpu-1t"``, or ``"cpu-1t-b8-s2"`` with batches of 8 in 2 streams."""
        batch = f"-b{self.batch}" if self.batch > 1 else ""
        streams = f"-s{self.streams}" if self.streams > 1 else ""
        return f"{self.ep}-{self.threads}t{batch}{streams}"


DEFAULT_TARGET = Target()
"""The CPU provider with one thread, which outputs are compared on and ranges are observed on."""
