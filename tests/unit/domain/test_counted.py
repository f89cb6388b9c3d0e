import pytest

from autoquant.domain.counted import counted


@pytest.mark.parametrize(("n", "words"), [(0, "0 regions"), (1, "1 region"), (2, "2 regions")])
def test_one_thing_is_told_in_the_singular(n: int, words: str) -> None:
    assert counted(n, "region") == words
