import subprocess
import sys

import numpy as np
import pytest

from autoquant.measurement.medians import variance_of_medians


@pytest.mark.parametrize("n_rounds", [3, 4, 5, 12, 40])
def test_what_rounds_say_of_a_median_is_what_medians_differ_by(n_rounds: int) -> None:
    rng, n_sessions = np.random.default_rng(5), 4000
    logs = 0.05 * rng.standard_normal((n_sessions, n_rounds))
    found = variance_of_medians(np.exp(logs.ravel()), np.repeat(np.arange(n_sessions), n_rounds))
    assert found == pytest.approx(float(np.var(np.median(logs, axis=1))), rel=0.2)


def test_sessions_of_two_rounds_say_nothing_of_medians() -> None:
    assert variance_of_medians(np.array([1.0, 2.0, 1.0, 3.0]), np.array([0, 0, 1, 1])) == 0
    both = variance_of_medians(np.array([1.0, 9.0, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 1, 1]))
    assert both == variance_of_medians(np.array([1.0, 2.0, 3.0]), np.array([0, 0, 0])) > 0


def test_a_process_that_times_files_loads_no_scipy() -> None:
    """Every last measurement begins several, and it takes as long to load as all else together."""
    loaded = "import sys, autoquant.measurement.files; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
