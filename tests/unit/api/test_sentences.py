import pytest

from autoquant.api.sentences import ending_sentence


@pytest.mark.parametrize(
    ("ended", "n_evaluations", "said"),
    [
        ("time", 3, "the time budget ended the search"),
        ("time", 0, "the time budget ended the search before anything was evaluated; give more --time"),
        ("exhausted", 0, "no assignment is left that runs as another graph"),
    ],
)
def test_a_search_that_had_no_time_to_begin_says_what_to_do(ended: str, n_evaluations: int, said: str) -> None:
    assert ending_sentence(ended, n_evaluations) == said
