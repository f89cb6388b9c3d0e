import pytest

from autoquant.domain.counted import counted, enumerated


@pytest.mark.parametrize(("n", "words"), [(0, "0 regions"), (1, "1 region"), (2, "2 regions")])
def test_one_thing_is_told_in_the_singular(n: int, words: str) -> None:
    assert counted(n, "region") == words


@pytest.mark.parametrize(("n", "words"), [(1, "1 process"), (2, "2 processes")])
def test_the_plural_of_words_that_end_in_s(n: int, words: str) -> None:
    assert counted(n, "process") == words


@pytest.mark.parametrize(
    ("names", "words"),
    [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b, c"), (["a", "b", "c", "d"], "a, b, c and 1 more")],
)
def test_no_more_than_three_names_are_told(names: list[str], words: str) -> None:
    assert enumerated(names) == words
