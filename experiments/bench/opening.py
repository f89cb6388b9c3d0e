"""From an assignment to an open session, against opening the same model from bytes."""

import random
import time
from typing import Any

from autoquant import Target
from autoquant.model.fragments import inline_external
from autoquant.qdq.candidate import Candidate
from autoquant.runtime.session import open_session
from experiments.bench.lines import Line, milliseconds, paired_ratio
from experiments.bench.subject import Subject, new_assignments

__all__ = ["measure_opening"]


def measure_opening(subject: Subject, *, n: int = 60) -> tuple[list[Line], dict[str, Any]]:
    """Assignments never built before, weights quantized before; who opens first is drawn.

    Ours includes what a trial also does on its way: the graph that onnxruntime runs is written and read back.

    Returns:
        The line and the raw seconds.
    """
    builder, rng, target = subject.new_builder(), random.Random(0), Target("cpu", threads=1)
    for uniform in subject.uniform_assignments():
        builder.build(uniform)
    twin = subject.new_builder()  # makes the bytes, so that ours has no piece of the model ready
    for uniform in subject.uniform_assignments():
        twin.build(uniform)
    seconds: dict[str, list[float]] = {"ours": [], "building": [], "plain": []}
    for _, assignment in zip(range(n), new_assignments(subject.space), strict=False):
        model = _inline(twin.build(assignment))

        def ours() -> None:
            start = time.perf_counter()
            candidate = builder.build(assignment)  # noqa: B023 - called at once
            built = time.perf_counter()
            opened = subject.bench.opener.open(*candidate.parts)
            seconds["ours"].append(time.perf_counter() - start)
            seconds["building"].append(built - start)
            del opened

        def plain() -> None:
            start = time.perf_counter()
            session = open_session(model, target)  # noqa: B023 - called at once
            seconds["plain"].append(time.perf_counter() - start)
            del session

        for call in rng.sample((ours, plain), 2):
            call()
    line = Line(
        name="opening",
        text="from a new assignment to an open session, against plain opening from bytes",
        bound=2.0,
        at_most=True,
        measured=paired_ratio(seconds["ours"], seconds["plain"]),
        unit="x",
        note=f"{milliseconds(seconds['ours'])}, of which {milliseconds(seconds['building'])} building, against"
        f" {milliseconds(seconds['plain'])}; {n} random assignments",
    )
    return [line], {"seconds": seconds}


def _inline(candidate: Candidate) -> bytes:
    return bytes(inline_external(candidate.skeleton, candidate.constants, {}).SerializeToString())
