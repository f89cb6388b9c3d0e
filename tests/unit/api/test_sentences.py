import pytest

from autoquant.api.sentences import ending_sentence, failure_sentences
from tests.records import a_failure, a_measured


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


def test_trials_that_failed_are_counted_with_their_most_frequent_reason() -> None:
    good, bad, worse = a_measured(0), a_failure(1, reason="it hung"), a_failure(2, reason="no memory")
    assert failure_sentences([good]) == []
    assert failure_sentences([good, bad]) == ["1 of 2 trials failed for this reason: it hung"]
    said = failure_sentences([worse, bad, bad])
    assert said == ["3 of 3 trials failed, 2 of them for this reason: it hung"]
