"""Jobs of small models."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import count
from pathlib import Path
from typing import Any, Self

from autoquant.api.result import SearchResult
from autoquant.experiment.run import JobOutcome
from autoquant.model.io import load_model
from tests.records import a_front, a_member, a_record

HEAD = 'schema = 1\nname = "small"\n[defaults]\ntrials = 2\n'
TINY = '[[models]]\nname = "tiny"\nmodel = "tiny.onnx"\ncalibration = "data.npz"\n'
OTHER = TINY.replace("tiny", "other")
BROKEN = '[[models]]\nname = "broken"\nmodel = "broken.onnx"\ncalibration = "data.npz"\n'
FAULTY = '[[models]]\nname = "faulty"\nmodel = "tiny.onnx"\ncalibration = "faulty_data_for_test:samples"\n'
GONE = '[[models]]\nname = "gone"\nmodel = "$AUTOQUANT_ZOO/gone/model.onnx"\ncalibration = "data.npz"\n'
DEMAND = 'demands = { "40" = 0.001 }\n'
Run = Callable[..., JobOutcome]


class OneDay(datetime):
    """All runs of a test have one date, around midnight too."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 11, 23, 12, tzinfo=tz)


@dataclass
class Searches:
    """In place of searches: each one finds a member, of another latency ratio than all before."""

    notes: tuple[str, ...] = ()
    _ratios: Iterator[float] = field(default_factory=lambda: (0.5 + i / 100 for i in count()))

    def __call__(self, model: str, **options: Any) -> SearchResult:
        load_model(Path(model))
        targets, out = tuple(options["targets"]), Path(options["out"])
        out.mkdir(parents=True)
        (out / "front.csv").touch()
        front = a_front(a_member(ratio=next(self._ratios), targets=targets), targets=targets)
        return SearchResult(out, a_record(front, notes=self.notes))


def rows_of(outcome: JobOutcome) -> dict[str, dict[str, object]]:
    document = json.loads(outcome.summary_path.with_name("summary.json").read_text())
    return {row["model"]: row for row in document["rows"]}
