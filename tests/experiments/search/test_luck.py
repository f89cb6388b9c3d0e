from dataclasses import replace

import numpy as np
import pytest

from experiments.search.luck import without_luck
from tests.experiments.search.synthetic import a_table


@pytest.mark.parametrize("error", [0.002, 0.01])
def test_ratios_without_luck_are_nearer_to_the_truth_and_their_error_is_known(error: float) -> None:
    truth, measured = a_table(6, error=0.0), a_table(6, error=error)
    found, luck = without_luck(measured)
    before, after = (np.std(each.ratio[:, 0] - truth.ratio[:, 0]) for each in (measured, found))
    assert after < 0.6 * before
    assert luck.order == 2, "borders are pairs"
    assert luck.error == pytest.approx(error, rel=0.25)


def test_what_no_graph_says_of_another_stays_as_it_was_measured() -> None:
    table = a_table(4)
    found, _ = without_luck(table)
    assert found == replace(table, ratio=found.ratio)
