from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import SearchData, read_search_data
from autoquant.api.deadline import Deadline
from autoquant.api.preparing import Preparing
from autoquant.api.resumption import Earlier
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.scheme import Rounding
from autoquant.domain.target import Target
from autoquant.space.schema import read_space
from tests.models import floats, model_of, saved
from tests.unit.api.preparing.stubs import Make


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    """A model whose channels can be balanced."""
    folder = tmp_path_factory.mktemp("place")
    gains = np.float32(2.0) ** np.arange(-4, 4, dtype=np.float32)
    model = model_of(
        "(float[1,8] x) => (float[1,4] y)",
        "a = Gemm(x, wa, ba) h = Relu(a) y = Gemm(h, wy, by)",
        {"wa": floats(8, 8) * gains, "ba": floats(8) * gains, "wy": floats(8, 4) / gains[:, None], "by": floats(4)},
    )
    return Configuration(
        model=saved(model, folder / "model.onnx"),
        calibration={"x": floats(8, 8, seed=1)},
        evaluation={"x": floats(6, 8, seed=2)},
        targets=(Target(),),
        budget=Budget(trials=5),
        demands=Demands(),
        out=folder / "run",
        space="quick",
        n_regions=40,
    )


@pytest.fixture(scope="module")
def data(asked: Configuration) -> SearchData:
    return read_search_data(asked, steps.signatures_of(asked.model))


@pytest.fixture
def make(asked: Configuration, data: SearchData, tmp_path: Path) -> Make:
    def made(
        budget: Budget | None = None,
        earlier: Earlier | None = None,
        rounding: Rounding = Rounding.NEAREST,
        accuracy: Accuracy = Accuracy.FAST,
    ) -> Preparing:
        configuration = replace(asked, budget=budget or asked.budget, cache=tmp_path)
        space = steps.fitted(read_space("quick", ep="cpu", accuracy=accuracy), asked.targets)
        return Preparing(
            configuration=configuration,
            definition=replace(space, schemes=tuple(replace(each, rounding=rounding) for each in space.schemes)),
            data=data,
            deadline=Deadline(configuration.budget.seconds),
            earlier=earlier,
            notes=[],
            tell=lambda _: None,
        )

    return made
