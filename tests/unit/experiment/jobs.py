"""Jobs of small models."""

import json
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Self

from autoquant.experiment.run import JobOutcome

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


def rows_of(outcome: JobOutcome) -> dict[str, dict[str, object]]:
    document = json.loads(outcome.summary_path.with_name("summary.json").read_text())
    return {row["model"]: row for row in document["rows"]}
