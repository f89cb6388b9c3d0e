import os

import pytest

from experiments.believe.busy import spinning


@pytest.mark.skipif(os.name != "posix", reason="signal 0 asks on POSIX only")
def test_it_spins_meanwhile_and_not_longer() -> None:
    with spinning() as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
