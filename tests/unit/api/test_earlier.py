from pathlib import Path

from autoquant.api.earlier import keep_unmatched, measured_before
from autoquant.api.folder import EarlierFront
from autoquant.domain.measurement import Believed
from autoquant.report.front_json import front_json
from tests.records import a_front, a_member


def test_a_front_that_is_matched_gives_way() -> None:
    earlier = EarlierFront(Path("earlier/1"), front_json(a_front()))
    assert keep_unmatched(earlier, a_front()) == []
    assert not earlier.is_kept
    assert keep_unmatched(EarlierFront(Path("earlier/1"), ""), a_front()) == []


def test_a_front_that_cannot_be_read_is_kept() -> None:
    earlier = EarlierFront(Path("earlier/1"), "{}")
    (note,) = keep_unmatched(earlier, a_front())
    assert note.startswith("the front before cannot be read (")
    assert note.endswith("; its models are kept in earlier/1")
    assert earlier.is_kept


def test_what_the_last_measurement_said_is_known_of_trials_whose_files_it_measured() -> None:
    front = a_front(a_member("t0036", snr_db=42.0, ratio=0.5), a_member("t0037-refined"))
    found = measured_before(EarlierFront(Path("earlier/1"), front_json(front)))
    assert found == {36: Believed(snr_db=43.0, ratios=(0.5,))}  # on the samples of the search
    assert measured_before(EarlierFront(Path("earlier/1"), "{}")) == {}
    assert measured_before(EarlierFront(Path("earlier/1"), "")) == {}
