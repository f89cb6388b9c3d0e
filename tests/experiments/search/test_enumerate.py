import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from autoquant.domain.measurement import Latency, Quality
from autoquant.errors import OutputError, UsageError
from autoquant.measurement.bench import Bench
from experiments.believe.subjects import subject_of
from experiments.search.enumerate import Enumeration, continued, main, open_enumeration
from experiments.search.table import Table, load_table, save_table
from experiments.search.yardsticks import non_beaten

SPACE = """
schema = 1
[ep.cpu]
schemes = ["all", "linear"]
op_types = ["Conv", "Gemm", "Add", "Relu"]
[schemes.all]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "min-max"
[schemes.linear]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "min-max"
operators = "linear"
"""


@pytest.fixture
def space(tmp_path: Path) -> str:
    (tmp_path / "two.toml").write_text(SPACE, encoding="utf-8")
    return str(tmp_path / "two.toml")


def opened(space: str, *, n_regions: int = 2, n_samples: int = 3, n_openings: int = 1) -> Enumeration:
    return open_enumeration(
        subject_of("example:digits"),
        space=space,
        n_regions=n_regions,
        n_samples=n_samples,
        n_rounds=(2, 3),
        n_openings=n_openings,
        seed=0,
    )


class StoppedError(Exception):
    """Ends a measurement."""


def test_every_assignment_is_measured_and_equal_graphs_once(space: str) -> None:
    table = opened(space).run(lambda _: None)
    assert table.is_complete
    assert len(table.codes) == 9
    assert len(set(table.digests.tolist())) == len(table.ratio) <= 9
    assert not table.failures
    is_float = int(np.flatnonzero((table.codes == 0).all(axis=1))[0])
    snr_db, ratio = table.points()[is_float]
    assert snr_db > 100
    assert 0.3 < ratio < 3
    assert all(snr < 100 for row, (snr, _) in enumerate(table.points()) if row != is_float)


def test_a_ratio_is_the_mean_over_openings(space: str) -> None:
    measure, given = Bench.measure, itertools.cycle([0.4, 0.9])

    def measured(bench: Bench, *rest: Any) -> tuple[Quality, dict[str, Latency], bool]:
        quality, latencies, is_whole = measure(bench, *rest)
        return quality, {name: latency.moved_to(next(given)) for name, latency in latencies.items()}, is_whole

    with mock.patch.object(Bench, "measure", measured):
        table = opened(space, n_openings=2).run(lambda _: None)
    np.testing.assert_allclose(table.ratio[:, 0], 0.65, rtol=1e-6)
    assert (table.ratio[:, 1] <= table.ratio[:, 0]).all()
    assert (table.ratio[:, 0] <= table.ratio[:, 2]).all()


def test_the_front_is_measured_in_more_rounds(space: str) -> None:
    table = opened(space).run(lambda _: None)
    points = table.points()
    front = non_beaten(points)
    rows = [points.index(point) for point in front]
    assert {int(rounds) for rounds in table.rounds} <= {2, 3}
    assert [int(table.rounds[table.graph[row]]) for row in rows] == [3] * len(rows)


def test_an_interrupted_measurement_goes_on_where_it_ended(space: str, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"

    def stop(table: Table) -> None:
        save_table(path, table)
        if len(table.codes) == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        opened(space).run(stop, every_s=0.0)
    half = load_table(path)
    assert len(half.codes) == 4
    whole = continued(opened(space), path).run(lambda _: None)
    assert whole.is_complete
    np.testing.assert_array_equal(whole.codes[:4], half.codes)
    unchanged = whole.rounds[: len(half.ratio)] == 2
    np.testing.assert_array_equal(whole.ratio[: len(half.ratio)][unchanged], half.ratio[unchanged])
    np.testing.assert_array_equal(whole.digests[: len(half.digests)], half.digests)


def test_a_table_of_another_measurement_is_not_gone_on_with(space: str, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    save_table(path, opened(space).table())
    with pytest.raises(OutputError, match=r"measured otherwise \(samples\); choose another file"):
        continued(opened(space, n_samples=2), path)


def test_too_many_assignments_are_refused(space: str) -> None:
    with pytest.raises(UsageError, match="take fewer --regions or a smaller --space"):
        opened(space, n_regions=20)


def test_the_command_says_what_is_wrong_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example:digits", str(tmp_path / "t.npz"), "--samples", "50"]) == 2
    assert capsys.readouterr().err == "experiments.search.enumerate: --samples 50: it must lie in 1 to 12\n"
