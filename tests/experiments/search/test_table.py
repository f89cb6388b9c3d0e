from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.errors import UsageError
from experiments.search.table import load_table, save_table
from tests.experiments.search.synthetic import a_problem, a_table


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = a_table(4)
    save_table(tmp_path / "t.npz", table)
    found = load_table(tmp_path / "t.npz")
    assert found.problem == table.problem
    assert (found.about, found.failures) == (table.about, table.failures)
    for name in ("codes", "graph", "digests", "snr_db", "ratio", "effective"):
        written, read = getattr(table, name), getattr(found, name)
        assert read.dtype == written.dtype
        np.testing.assert_array_equal(read, written)


def test_every_allowed_assignment_is_there_once() -> None:
    problem = a_problem(3)
    codes = problem.every_assignment()
    assert len(np.unique(codes, axis=0)) == problem.n_assignments == len(codes) == 18
    assert all(problem.decode(row)[region] in names for row in codes for region, names in problem.space.choices.items())


def test_assignments_and_codes_are_each_others_inverse() -> None:
    problem = a_problem(3)
    for codes in problem.every_assignment():
        assert problem.encode(problem.decode(codes)).tolist() == codes.tolist()


def test_a_failed_assignment_is_worth_nothing() -> None:
    table = a_table(3)
    (failed,) = table.failures
    assert table.points()[failed] == (-np.inf, 1.0)
    assert len(table.points()) == table.problem.n_assignments


def test_a_table_that_lacks_assignments_is_not_complete() -> None:
    table = a_table(3)
    assert table.is_complete
    assert not replace(table, codes=table.codes[:-1]).is_complete


@pytest.mark.parametrize("content", [None, b"", b"no table"])
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "t.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="it is no table"):
        load_table(path)
